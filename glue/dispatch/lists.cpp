// Operators on lists of tensors that share memory. One program for all elements reads each tensor
// as it was before; on the CPU an element sees what the elements before it wrote.
#include "dispatch/lists.h"

extern "C" {
#include "call/overlap.h"
}

namespace tt {
namespace {

void add_extent(std::vector<tt_extent>& extents, const at::Tensor& tensor, int element,
                bool write) {
  if (!tensor.defined() || !tensor.device().is_privateuseone() || tensor.numel() == 0) return;
  tt_view view = view_of(tensor);
  extents.push_back(tt_extent_of(storage_of(tensor), &view, element, write));
}

// The length of all lists, or 0 if they differ.
size_t common_length(const Walk& walk) {
  size_t length = 0;
  for (size_t i = 0; i < walk.args.size(); i++) {
    ArgKind kind = walk.plan.args[i].kind;
    if ((kind != ArgKind::TensorList && kind != ArgKind::NumberList) || walk.args[i].isNone())
      continue;
    size_t size = walk.args[i].toListRef().size();
    if (size == 0) continue;  // the lists that an optimizer without them leaves empty
    if (length != 0 && size != length) return 0;
    length = size;
  }
  return length;
}

// Argument `value` of element k of n; a tensor of one dim may hold a number for each element.
c10::IValue element_of(const ArgPlan& arg, const c10::IValue& value, size_t k, size_t n) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().dim() == 1 &&
      value.toTensor().numel() == static_cast<int64_t>(n))
    return value.toTensor().narrow(0, static_cast<int64_t>(k), 1);
  if (value.isNone() || (arg.kind != ArgKind::TensorList && arg.kind != ArgKind::NumberList))
    return value;
  auto all = value.toListRef();
  if (all.empty()) return value;
  c10::impl::GenericList one(value.toList().elementType());
  one.push_back(all[k]);
  return one;
}

}  // namespace

bool lists_meet(const Walk& walk) {
  if (walk.storages.size() < 2) return false;
  const std::vector<const void*> storages(walk.storages.begin(), walk.storages.end());
  if (!tt_any_twice(storages.data(), storages.size()) || common_length(walk) < 2) return false;
  std::vector<tt_extent> extents;
  for (size_t i = 0; i < walk.args.size(); i++) {
    const ArgPlan& arg = walk.plan.args[i];
    if (arg.kind == ArgKind::Tensor)
      add_extent(extents, as_tensor(walk.args[i]), TT_EVERY_ELEMENT, arg.write);
    if (arg.kind != ArgKind::TensorList || walk.args[i].isNone()) continue;
    int element = 0;
    for (const c10::IValue& one : walk.args[i].toListRef())
      add_extent(extents, as_tensor(one), element++, arg.write);
  }
  return tt_extents_meet(extents.data(), extents.size());
}

void run_elements(const Walk& walk, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const Plan& plan = walk.plan;
  std::vector<c10::IValue> args = walk.args.vec();
  size_t length = common_length(walk);
  for (size_t k = 0; k < length; k++) {
    torch::jit::Stack one;
    for (size_t i = 0; i < args.size(); i++)
      one.push_back(element_of(plan.args[i], args[i], k, length));
    run_plan(plan, op, &one);
  }
  return_aliases(plan, stack);
}

}  // namespace tt
