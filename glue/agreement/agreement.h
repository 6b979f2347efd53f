// What PyTorch's CPU kernels would make of an operator's arguments: asked for each key that is new,
// so that results lie as the CPU's and errors are the CPU's.
#pragma once

#include "dispatch/walk.h"

namespace tt {

// -- Results (meta.cpp, shapes.cpp) --

enum class Meta {
  Done,
  Missing,  // no Meta kernel
  Refused   // it refuses arguments that the CPU accepts: results whose sizes depend on data
};

// PyTorch's Meta kernel on the same arguments. Throws what the CPU throws where that refuses them,
// too. `results` receives the returns, flattened; `outs` the out= arguments afterwards.
Meta run_meta(const Plan& plan, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
              std::vector<at::Tensor>* results, std::vector<at::Tensor>* outs);

// For an operator whose results' types are stated here, since Meta does not state them: appends
// them and returns true. The arguments are tensors of the meta device.
bool state_shapes(const Plan& plan, const torch::jit::Stack& args,
                  std::vector<at::Tensor>* results);

// Corrects what the Meta kernel said of the results or, where there are any, of out= arguments.
void correct_shapes(const Plan& plan, const torch::jit::Stack& args,
                    std::vector<at::Tensor>& results);

// For each tensor that the operator writes: the dtype of what it computes, by the functional
// overload's Meta kernel, and the tensor's own. Empty if there is no such kernel.
std::vector<std::pair<at::ScalarType, at::ScalarType>>
written_dtypes(const Plan& plan, c10::ArrayRef<c10::IValue> args);

// Whether this thread asks Meta kernels about tensors that lie as the CPU's (_patches.py).
bool asks_meta();

// -- Errors (meta.cpp, validate.cpp) --

// Runs the operator on host tensors of the same shapes, so that the type and text of an error are
// the CPU's. What it raises counts if it does for zeros and for ones: else it was about the numbers
// (a pivot, a divisor). False if they are too large to try; true if the CPU has no objection.
bool raise_as_cpu(const Plan& plan, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args);
// The same for a walk, of which the CPU is asked but once.
bool raise_as_cpu(Walk& walk, const c10::OperatorHandle& op);

// Whether what is written has an element that is seen twice, or meets what is read.
bool written_twice(const Plan& plan, c10::ArrayRef<c10::IValue> args);

// Throw what the CPU would throw and Meta kernels let pass: for each call of a random operator; for
// a new key before the Meta kernel is asked; and after it.
void check_parameters(Walk& walk, const c10::OperatorHandle& op);
void check_overlap(Walk& walk, const c10::OperatorHandle& op);
void check_values(Walk& walk, const c10::OperatorHandle& op, c10::ArrayRef<at::Tensor> results);

}  // namespace tt
