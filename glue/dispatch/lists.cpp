// Operators on lists of tensors that share memory. One program for all elements reads each tensor
// as it was before; on the CPU an element sees what the elements before it wrote.
#include "dispatch/lists.h"

#include "python/package.h"

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

}  // namespace

bool lists_meet(const Walk& walk) {
  if (walk.storages.size() < 2) return false;
  const std::vector<const void*> storages(walk.storages.begin(), walk.storages.end());
  if (!tt_any_twice(storages.data(), storages.size())) return false;
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

bool run_elements(const Walk& walk, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  {
    InPython in_python;
    auto args = python_arguments(op.schema(), walk.args);
    if (!function_of("_lists", "run_elements")(walk.plan.name, args).cast<bool>()) return false;
  }
  return_aliases(walk.plan, stack);
  return true;
}

}  // namespace tt
