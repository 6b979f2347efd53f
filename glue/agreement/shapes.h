// Types of results that PyTorch's Meta kernels state otherwise than its CPU kernels, or not at all.
#pragma once

#include "dispatch/plan.h"

namespace tt {

// The arguments are tensors of the meta device in both.

// For an operator whose results' types are stated here: appends them and returns true.
bool state_shapes(const Plan& plan, const torch::jit::Stack& args,
                  std::vector<at::Tensor>* results);

// Corrects what the Meta kernel said of the results, or, where there are any, of out= arguments.
void correct_shapes(const Plan& plan, const c10::OperatorHandle& op, const torch::jit::Stack& args,
                    std::vector<at::Tensor>* results, std::vector<at::Tensor>* outs);

}  // namespace tt
