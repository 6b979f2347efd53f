// What the CPU refuses and Meta kernels let pass. Asked once for each key.
#include "walk.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cfloat>
#include <string_view>

namespace tt {
namespace {

using c10::IValue;

bool writes_integers(const Walk& walk) {
  bool whole = false;
  auto visit = [&](const at::Tensor& one) { whole |= at::isIntegralType(one.scalar_type(), true); };
  for (size_t i = 0; walk.plan.functional && i < walk.plan.args.size(); i++)
    if (walk.plan.args[i].write && !walk.plan.args[i].out) each_tensor(walk.args[i], visit);
  return whole;
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

// Whether floating-point operands differ in dtype where the CPU's kernels mostly want one.
bool mixes_floats(const Walk& walk, const c10::OperatorHandle& op) {
  tt_op_class cls = walk.plan.row->cls;
  if (cls != TT_LOSS && cls != TT_NORM && cls != TT_MATMUL) return false;
  const at::Tensor* first = nullptr;
  for (const at::Tensor* tensor : walk.tensors) {
    if (!tensor->is_floating_point()) continue;
    if (first && first->scalar_type() != tensor->scalar_type())
      return op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
    first = tensor;
  }
  return false;
}

// Whether a complex number is given where real numbers come out.
bool loses_imaginary(const Walk& walk, c10::ArrayRef<at::Tensor> results) {
  bool complex = false;
  for (const IValue& value : walk.args) complex |= value.isScalar() && value.toScalar().isComplex();
  return complex && std::any_of(results.begin(), results.end(), [](const at::Tensor& one) {
           return one.defined() && !one.is_complex();
         });
}

// Calls visit(tensor, whether it is written).
template <class Visit> void each_operand(const Walk& walk, Visit visit) {
  for (size_t i = 0; i < walk.plan.args.size(); i++)
    each_tensor(walk.args[i], [&](const at::Tensor& tensor) {
      if (tensor.defined()) visit(tensor, walk.plan.args[i].write);
    });
}

// Whether what is written has an element that is seen twice, or meets what is read.
bool written_twice(const Walk& walk) {
  std::vector<const at::Tensor*> written;
  bool found = false;
  each_operand(walk, [&](const at::Tensor& tensor, bool write) {
    if (write) written.push_back(&tensor);
    found |= write && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
  });
  each_operand(walk, [&](const at::Tensor& tensor, bool write) {
    for (const at::Tensor* out : written)
      found |= !write && at::get_overlap_status(*out, tensor) == at::MemOverlapStatus::Partial;
  });
  return found;
}

// Where Meta kernels are known to accept what the CPU refuses: reductions of nothing, complex
// numbers written to real tensors, and targets of another dtype or that overlap.
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
         unusual_target(walk);
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
  each_operand(walk, [&](const at::Tensor& tensor, bool write) {
    if (!write) return;
    at::assert_no_internal_overlap(tensor);
    written.push_back(&tensor);
  });
  each_operand(walk, [&](const at::Tensor& tensor, bool write) {
    for (const at::Tensor* out : written)
      if (!write) at::assert_no_partial_overlap(*out, tensor);
  });
}

void check_range(const Walk& walk, const c10::OperatorHandle& op) {
  if (out_of_range(walk)) raise_as_cpu(walk.plan, op, walk.args);
}

void check_values(const Walk& walk, const c10::OperatorHandle& op,
                  c10::ArrayRef<at::Tensor> results) {
  if (writes_integers(walk)) check_casts(walk.plan, walk.args);
  if (may_be_refused(walk) || mixes_floats(walk, op) || loses_imaginary(walk, results))
    raise_as_cpu(walk.plan, op, walk.args);
}

}  // namespace tt
