// What the CPU refuses and Meta kernels let pass. Asked once for each key.
#include "walk.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>

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

}  // namespace

// A write must not go through a view that sees an element twice, nor overlap what is read; the
// operators that PyTorch iterates element by element check that.
void check_overlap(const Walk& walk) {
  std::string row = walk.plan.row->name;
  if (walk.plan.row->cls != TT_POINTWISE && row != "copy") return;
  std::vector<const at::Tensor*> written, read;
  for (size_t i = 0; i < walk.plan.args.size(); i++) {
    if (walk.plan.args[i].kind != ArgKind::Tensor || !as_tensor(walk.args[i]).defined()) continue;
    (walk.plan.args[i].write ? written : read).push_back(&as_tensor(walk.args[i]));
  }
  for (const at::Tensor* out : written) {
    at::assert_no_internal_overlap(*out);
    for (const at::Tensor* in : read) at::assert_no_partial_overlap(*out, *in);
  }
}

void check_values(const Walk& walk, const c10::OperatorHandle& op,
                  c10::ArrayRef<at::Tensor> results) {
  if (writes_integers(walk)) check_casts(walk.plan, walk.args);
  if (may_be_refused(walk) || mixes_floats(walk, op) || loses_imaginary(walk, results))
    raise_as_cpu(walk.plan, op, walk.args);
}

}  // namespace tt
