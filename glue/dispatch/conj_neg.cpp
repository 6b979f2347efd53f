#include "dispatch/conj_neg.h"

#include "dispatch/walk.h"

#include <ATen/ops/_conj_physical.h>

namespace tt {
namespace {

using at::Tensor;

// A tensor that is written to, and what is written in its place.
using StandIns = std::vector<std::pair<Tensor, Tensor>>;

Tensor resolved(const Tensor& tensor, bool write, StandIns& written) {
  if (!tensor.defined() || !has_conj_neg(tensor)) return tensor;
  Tensor plain = without_conj_neg(tensor);
  if (write) written.emplace_back(tensor, plain);
  return plain;
}

c10::IValue resolved(const c10::IValue& value, bool write, StandIns& written) {
  if (value.isTensor()) return resolved(value.toTensor(), write, written);
  if (!value.isTensorList() && !value.isOptionalTensorList()) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const c10::IValue& one : value.toListRef()) list.push_back(resolved(one, write, written));
  return list;
}

}  // namespace

Tensor without_conj_neg(const Tensor& tensor) {
  if (!has_conj_neg(tensor)) return tensor;
  auto plain = tensor.alias();
  plain._set_conj(false);
  plain._set_neg(false);
  if (tensor.is_conj()) plain = at::_conj_physical(plain);
  return tensor.is_neg() ? plain.neg() : plain;
}

void run_resolved(const Plan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::vector<c10::IValue> args = torch::jit::last(*stack, plan.args.size()).vec();
  torch::jit::Stack plain;
  StandIns written;
  for (size_t i = 0; i < args.size(); i++)
    plain.push_back(resolved(args[i], plan.args[i].write, written));
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
