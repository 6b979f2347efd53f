// What the CPU refuses and Meta kernels let pass. Asked once for each key.
#include "walk.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include <cfloat>
#include <string_view>

namespace tt {
namespace {

using c10::IValue;

bool writes_integers(const Walk& walk) {
  auto whole = [](const at::Tensor& one) { return at::isIntegralType(one.scalar_type(), true); };
  for (size_t i = 0; walk.plan.functional && i < walk.plan.args.size(); i++) {
    const IValue& value = walk.args[i];
    if (!walk.plan.args[i].write || walk.plan.args[i].out) continue;
    if (value.isTensor() && whole(value.toTensor())) return true;
    if (!value.isTensorList()) continue;
    for (const IValue& element : value.toListRef())
      if (whole(element.toTensor())) return true;
  }
  return false;
}

// Whether an out= tensor is one that the CPU may refuse, though its shape and device are right.
bool unusual_target(const Walk& walk) {
  if (walk.plan.row->cls == TT_POINTWISE || walk.tensors.empty()) return false;
  bool target = false, unusual = false;
  for (size_t i = 0; i < walk.plan.args.size(); i++) {
    if (!walk.plan.args[i].out || !walk.args[i].isTensor()) continue;
    const at::Tensor& out = walk.args[i].toTensor();
    target = true;
    unusual |= out.scalar_type() != walk.tensors[0]->scalar_type();
    unusual |= at::has_internal_overlap(out) != at::MemOverlap::No;
  }
  for (int other : walk.same_as) unusual |= other >= 0;
  return target && unusual;
}

// Calls visit(tensor, whether it is written).
template <class Visitor> void each_tensor(const Walk& walk, Visitor visit) {
  for (size_t i = 0; i < walk.plan.args.size(); i++) {
    const IValue& value = walk.args[i];
    const ArgPlan& arg = walk.plan.args[i];
    if (arg.kind == ArgKind::Tensor && as_tensor(value).defined())
      visit(as_tensor(value), arg.write);
    if (arg.kind != ArgKind::TensorList || value.isNone()) continue;
    for (const IValue& element : value.toListRef())
      if (as_tensor(element).defined()) visit(as_tensor(element), arg.write);
  }
}

// Whether what is written has an element that is seen twice, or meets what is read.
bool written_twice(const Walk& walk) {
  std::vector<const at::Tensor*> written;
  bool found = false;
  each_tensor(walk, [&](const at::Tensor& tensor, bool write) {
    if (write) written.push_back(&tensor);
    found |= write && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
  });
  each_tensor(walk, [&](const at::Tensor& tensor, bool write) {
    for (const at::Tensor* out : written)
      found |= !write && at::get_overlap_status(*out, tensor) == at::MemOverlapStatus::Partial;
  });
  return found;
}

// What is added to a product of matrices must not be larger than that is.
bool widens_product(const Walk& walk) {
  std::string_view row = walk.plan.row->name;
  bool vector = row == "addmv";
  if ((!vector && row != "addmm") || walk.args.size() < 3) return false;
  const at::Tensor &self = as_tensor(walk.args[0]), &a = as_tensor(walk.args[1]),
                   &b = as_tensor(walk.args[2]);
  if (a.dim() != 2 || b.dim() != (vector ? 1 : 2)) return false;
  int64_t product[] = {a.size(0), vector ? 1 : b.size(1)};
  return !at::is_expandable_to(self.sizes(), {product, vector ? size_t{1} : size_t{2}});
}

// Where Meta kernels are known to accept what the CPU refuses: reductions of nothing, complex
// numbers written to real tensors, targets of another dtype or that overlap, and wide summands.
bool may_be_refused(const Walk& walk) {
  bool empty = false, complex = false, real_target = false;
  for (const at::Tensor* tensor : walk.tensors) empty |= tensor->numel() == 0;
  for (size_t i = 0; i < walk.plan.args.size(); i++) {
    const IValue& value = walk.args[i];
    complex |= value.isScalar() && value.toScalar().isComplex();
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    if (walk.plan.args[i].write) real_target |= !value.toTensor().is_complex();
    else complex |= value.toTensor().is_complex();
  }
  return (walk.plan.row->cls == TT_REDUCE && empty) || (complex && real_target) ||
         unusual_target(walk) || widens_product(walk);
}

// What numbers a distribution takes; a key does not hold them.
bool out_of_range(const Walk& walk) {
  std::string_view row = walk.plan.row->name;
  c10::SmallVector<double, 4> n;
  for (const IValue& value : walk.args)
    if (value.isDouble()) n.push_back(value.toDouble());
  if (n.empty()) return false;
  if (row == "uniform" && n.size() == 2) {
    double most = walk.tensors[0]->scalar_type() == at::kHalf     ? 65504
                  : walk.tensors[0]->scalar_type() == at::kDouble ? DBL_MAX
                                                                  : FLT_MAX;
    return !at::isFloatingType(walk.tensors[0]->scalar_type()) ||
           !(n[0] <= n[1] && n[0] >= -most && n[1] <= most && n[1] - n[0] <= most);
  }
  if (row == "bernoulli.p") return !(n[0] >= 0 && n[0] <= 1);
  if (row == "geometric") return !(n[0] > 0 && n[0] < 1);
  if (row == "normal_functional" || row == "normal.float_float" || row == "normal.Tensor_float")
    return !(n.back() >= 0);
  bool positive = row == "exponential" || row == "log_normal" || row == "cauchy";
  return positive && !(n.back() > 0);
}

}  // namespace

// A write must not go through a view that sees an element twice, nor overlap what is read: where
// it does, the CPU is asked. Of what is too large to be tried there, the operators that PyTorch
// iterates element by element are refused.
void check_overlap(const Walk& walk, const c10::OperatorHandle& op) {
  if (!written_twice(walk) || raise_as_cpu(walk.plan, op, walk.args)) return;
  if (walk.plan.row->cls != TT_POINTWISE && walk.plan.row->name != std::string("copy")) return;
  std::vector<const at::Tensor*> written;
  each_tensor(walk, [&](const at::Tensor& tensor, bool write) {
    if (!write) return;
    at::assert_no_internal_overlap(tensor);
    written.push_back(&tensor);
  });
  each_tensor(walk, [&](const at::Tensor& tensor, bool write) {
    for (const at::Tensor* out : written)
      if (!write) at::assert_no_partial_overlap(*out, tensor);
  });
}

void check_range(const Walk& walk, const c10::OperatorHandle& op) {
  if (out_of_range(walk)) raise_as_cpu(walk.plan, op, walk.args);
}

void check_values(const Walk& walk, const c10::OperatorHandle& op) {
  if (writes_integers(walk)) check_casts(walk.plan, walk.args);
  if (may_be_refused(walk)) raise_as_cpu(walk.plan, op, walk.args);
}

}  // namespace tt
