// What the CPU refuses and Meta kernels let pass. Asked once for each key.
#include "walk.h"

#include <ATen/MemoryOverlap.h>

#include <unordered_map>

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

// Throws if what an in-place operator computes is of a kind that its target cannot hold; not all
// Meta kernels see to that.
void check_casts(const Walk& walk) {
  for (auto [from, to] : written_dtypes(walk.plan, walk.args))
    TORCH_CHECK(c10::canCast(from, to), walk.plan.name, ": result type ", from,
                " can't be cast to the desired output type ", to);
}

// Whether an out= tensor is one that the CPU may refuse, though its shape and device are right.
bool unusual_target(const Walk& walk) {
  bool target = false, unusual = false;
  for (size_t i = 0; i < walk.plan.args.size(); i++) {
    if (!walk.plan.args[i].out || !walk.args[i].isTensor()) continue;
    target = true;
    unusual |= at::has_internal_overlap(walk.args[i].toTensor()) != at::MemOverlap::No;
  }
  if (!target) return false;
  for (int other : walk.same_as) unusual |= other >= 0;
  if (walk.plan.row->cls == TT_POINTWISE) unusual = false;  // see check_overlap
  for (auto [from, to] : written_dtypes(walk.plan, walk.args)) unusual |= from != to;
  return unusual;
}

// What a distribution's numbers must be. They are operands of the running program, so that they
// are looked at with every call.
struct Parameters {
  const char* row;
  size_t first;  // argument
  bool (*fit)(double one, double next);
};

const Parameters kParameters[] = {
    {"uniform", 1, [](double from, double to) { return from <= to; }},
    {"normal_functional", 2, [](double std, double) { return std >= 0; }},
    {"normal.float_float", 1, [](double std, double) { return std >= 0; }},
    {"normal.Tensor_float", 1, [](double std, double) { return std >= 0; }},
    {"log_normal", 2, [](double std, double) { return std > 0; }},
    {"exponential", 1, [](double rate, double) { return rate > 0; }},
    {"geometric", 1, [](double p, double) { return p > 0 && p < 1; }},
    {"cauchy", 2, [](double sigma, double) { return sigma > 0; }},
    {"bernoulli.p", 1, [](double p, double) { return p >= 0 && p <= 1; }},
};

const Parameters* parameters_of(const tt_op_row* row) {
  static const auto* table = [] {
    auto* map = new std::unordered_map<const tt_op_row*, const Parameters*>;
    for (const Parameters& one : kParameters) (*map)[tt_op_find(one.row)] = &one;
    return map;
  }();
  auto found = table->find(row);
  return found == table->end() ? nullptr : found->second;
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

void check_values(const Walk& walk, const c10::OperatorHandle& op) {
  if (writes_integers(walk)) check_casts(walk);
  if (may_be_refused(walk)) raise_as_cpu(walk.plan, op, walk.args);
}

void check_parameters(const Walk& walk, const c10::OperatorHandle& op) {
  const Parameters* rule = parameters_of(walk.plan.row);
  if (!rule) return;
  auto number = [&](size_t i) {
    bool given = i < walk.args.size() && (walk.args[i].isScalar());
    return given ? walk.args[i].toScalar().toDouble() : 0.0;
  };
  if (!rule->fit(number(rule->first), number(rule->first + 1)))
    raise_as_cpu(walk.plan, op, walk.args);
}

}  // namespace tt
