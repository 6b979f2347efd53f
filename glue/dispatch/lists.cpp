// Operators on lists of tensors that share memory. One program for all elements reads each tensor
// as it was before; on the CPU an element sees what the elements before it wrote.
#include "dispatch/lists.h"

#include <algorithm>

namespace tt {
namespace {

constexpr int kAll = -1;  // an argument of every element

// The bytes that a tensor may touch, and the element of the lists that it belongs to.
struct Extent {
  tt_storage* storage;
  int64_t first, last;
  int element;
  bool write;
};

bool any_twice(c10::ArrayRef<tt_storage*> storages) {
  size_t size = 16;
  while (size < 2 * storages.size()) size *= 2;
  std::vector<tt_storage*> seen(size, nullptr);
  for (tt_storage* storage : storages) {
    size_t at = (reinterpret_cast<uintptr_t>(storage) >> 4) * 0x9E3779B1u;
    for (;; at++) {
      tt_storage*& slot = seen[at & (size - 1)];
      if (slot == storage) return true;
      if (slot) continue;
      slot = storage;
      break;
    }
  }
  return false;
}

void add_extent(std::vector<Extent>& extents, const at::Tensor& tensor, int element, bool write) {
  if (!tensor.defined() || !tensor.device().is_privateuseone() || tensor.numel() == 0) return;
  auto width = static_cast<int64_t>(tensor.itemsize());
  int64_t first = tensor.storage_offset(), last = first;
  for (int64_t i = 0; i < tensor.dim(); i++) last += (tensor.size(i) - 1) * tensor.stride(i);
  extents.push_back({storage_of(tensor), first * width, (last + 1) * width, element, write});
}

// Whether one of several elements writes to bytes that they share.
bool any_meet(std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.storage, a.first) < std::tie(b.storage, b.first);
  });
  Extent all{nullptr, 0, 0, kAll, false};  // those that hang together with the last one
  for (const Extent& one : extents) {
    if (one.storage != all.storage || all.last <= one.first) {
      all = one;
      continue;
    }
    all.write |= one.write;
    bool several = one.element != all.element || one.element == kAll;
    if (several && all.write) return true;
    if (several) all.element = kAll;
    all.last = std::max(all.last, one.last);
  }
  return false;
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
  if (walk.storages.size() < 2 || !any_twice(walk.storages) || common_length(walk) < 2)
    return false;
  std::vector<Extent> extents;
  for (size_t i = 0; i < walk.args.size(); i++) {
    const ArgPlan& arg = walk.plan.args[i];
    if (arg.kind == ArgKind::Tensor) add_extent(extents, as_tensor(walk.args[i]), kAll, arg.write);
    if (arg.kind != ArgKind::TensorList || walk.args[i].isNone()) continue;
    int element = 0;
    for (const c10::IValue& one : walk.args[i].toListRef())
      add_extent(extents, as_tensor(one), element++, arg.write);
  }
  return any_meet(extents);
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
