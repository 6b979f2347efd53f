#include "dispatch/conj_neg.h"

#include "dispatch/walk.h"

#include <ATen/ops/_conj_physical.h>

namespace tt {

using at::Tensor;

Tensor conj_neg_base(const Tensor& tensor) {
  auto base = tensor.alias();
  base._set_conj(false);
  base._set_neg(false);
  return base;
}

Tensor without_conj_neg(const Tensor& tensor) {
  if (!has_conj_neg(tensor)) return tensor;
  auto plain = conj_neg_base(tensor);
  if (tensor.is_conj()) plain = at::_conj_physical(plain);
  return tensor.is_neg() ? plain.neg() : plain;
}

void run_resolved(const Plan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::vector<c10::IValue> args = torch::jit::last(*stack, plan.args.size()).vec();
  torch::jit::Stack plain;
  std::vector<std::pair<Tensor, Tensor>> written;  // a target, and what is written in its place
  for (size_t i = 0; i < args.size(); i++)
    plain.push_back(map_tensors(args[i], [&](const Tensor& one) {
      if (!one.defined() || !has_conj_neg(one)) return one;
      Tensor resolved = without_conj_neg(one);
      if (plan.args[i].write) written.emplace_back(one, resolved);
      return resolved;
    }));
  run_plan(plan, op, &plain);
  for (auto& [tensor, stand_in] : written) {
    if (tensor.sizes() != stand_in.sizes()) tensor.resize_(stand_in.sizes());
    tensor.copy_(stand_in);
  }
  torch::jit::drop(*stack, args.size());
  for (size_t i = 0; i < plan.returns.size(); i++) {
    int alias = plan.returns[i].alias;
    stack->push_back(alias >= 0 ? args[static_cast<size_t>(alias)] : plain[i]);
  }
}

}  // namespace tt
