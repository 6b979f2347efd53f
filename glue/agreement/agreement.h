// What PyTorch's CPU kernels would make of an operator's arguments: torch_tpu/_agreement is asked
// for each key that is new, so that results lie as the CPU's and errors are the CPU's.
#pragma once

#include "dispatch/walk.h"

namespace tt {

enum class Meta {
  Done,
  Missing,  // no Meta kernel
  Refused   // it refuses arguments that the CPU accepts: results whose sizes depend on data
};

// What PyTorch's Meta kernel says: the returns, flattened, and the out= arguments afterwards.
struct Agreement {
  Meta meta;
  std::vector<at::Tensor> results, outs;
};

// Throws what the CPU would throw where that refuses the arguments.
Agreement agree(const Walk& walk, const c10::OperatorHandle& op);

// Throws what the CPU would throw for the arguments, if they are not too large to try.
void raise_as_cpu(const Plan& plan, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);

// The result as PyTorch's iterator over the operands lays it; all are without data.
at::Tensor iterated(const std::vector<at::Tensor>& operands, const at::Tensor& result);

// Throws what the CPU would throw for numbers that are in no key.
void check_parameters(const Walk& walk, const c10::OperatorHandle& op);

}  // namespace tt
