// What the CPU refuses and Meta kernels let pass. Asked once for each key.
#include "dispatch/walk.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

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
  bool (*fit)(double one, double next, at::ScalarType dtype);
};

// Half numbers stop early; of bfloat16 the CPU asks what float32 holds.
bool range_fits(double from, double to, at::ScalarType dtype) {
  double most = dtype == at::kHalf     ? 65504
                : dtype == at::kDouble ? std::numeric_limits<double>::max()
                                       : std::numeric_limits<float>::max();
  return at::isFloatingType(dtype) && from <= to && from >= -most && to <= most &&
         to - from <= most;
}

const Parameters kParameters[] = {
    {"uniform", 1, range_fits},
    {"normal_functional", 2, [](double std, double, at::ScalarType) { return std >= 0; }},
    {"normal.float_float", 1, [](double std, double, at::ScalarType) { return std >= 0; }},
    {"normal.Tensor_float", 1, [](double std, double, at::ScalarType) { return std >= 0; }},
    {"log_normal", 2, [](double std, double, at::ScalarType) { return std > 0; }},
    {"exponential", 1, [](double rate, double, at::ScalarType) { return rate > 0; }},
    {"geometric", 1, [](double p, double, at::ScalarType) { return p > 0 && p < 1; }},
    {"cauchy", 2, [](double sigma, double, at::ScalarType) { return sigma > 0; }},
    {"bernoulli.p", 1, [](double p, double, at::ScalarType) { return p >= 0 && p <= 1; }},
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

// Dtypes for which operators have kernels on the CPU or not, as it happens; real numbers in one
// floating point are taken nearly everywhere, and what is rare on the CPU is not worth refusing.
bool choosy(at::ScalarType type) {
  switch (type) {
  case at::kBool:
  case at::kByte:
  case at::kChar:
  case at::kShort:
  case at::kInt:
  case at::kLong:
  case at::kComplexFloat:
  case at::kComplexDouble:
    return true;
  default:
    return false;
  }
}

// The operator and the dtypes of its operands, of lists without repetitions; empty where the CPU
// takes what the Meta kernel does. Bounded: there are few dtypes.
std::string dtypes_of(const Walk& walk) {
  if (!computes_with_all(walk.plan.row->cls)) return {};
  bool any = false;
  std::optional<at::ScalarType> floating;
  std::string text = walk.plan.name;
  char last = 0;
  auto append = [&](char mark, at::ScalarType type) {
    auto one = static_cast<char>(mark + static_cast<char>(type));
    if (one != last) text += one;
    last = one;
  };
  for (const IValue& value : walk.args) {
    each_tensor(value, [&](const at::Tensor& one) {
      if (!one.defined()) return;
      append(1, one.scalar_type());  // a number, too, may be one on the host
      any |= choosy(one.scalar_type());
      if (!one.is_floating_point()) return;
      any |= floating && *floating != one.scalar_type();
      floating = one.scalar_type();
    });
    if (!value.isScalar()) continue;
    append(64, value.toScalar().type());
    any |= value.isBool() || value.isComplexDouble();
  }
  return any ? text : std::string();
}

// Whether the CPU takes operands of these dtypes is asked once for each operator and dtypes.
void check_dtypes(const Walk& walk, const c10::OperatorHandle& op) {
  static auto* lock = new std::mutex;
  static auto* taken = new std::unordered_set<std::string>;
  std::string dtypes = dtypes_of(walk);
  if (dtypes.empty()) return;
  {
    std::lock_guard<std::mutex> guard(*lock);
    if (taken->count(dtypes)) return;
  }
  raise_as_cpu(walk.plan, op, walk.args);
  std::lock_guard<std::mutex> guard(*lock);
  taken->insert(dtypes);
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

void check_values(const Walk& walk, const c10::OperatorHandle& op,
                  c10::ArrayRef<at::Tensor> results) {
  if (writes_integers(walk)) check_casts(walk);
  if (may_be_refused(walk) || mixes_floats(walk, op) || loses_imaginary(walk, results))
    raise_as_cpu(walk.plan, op, walk.args);
  check_dtypes(walk, op);
}

void check_parameters(const Walk& walk, const c10::OperatorHandle& op) {
  const Parameters* rule = parameters_of(walk.plan.row);
  if (!rule) return;
  auto number = [&](size_t i) {
    bool given = i < walk.args.size() && (walk.args[i].isScalar());
    return given ? walk.args[i].toScalar().toDouble() : 0.0;
  };
  auto dtype = walk.tensors.empty() ? at::kFloat : walk.tensors[0]->scalar_type();
  if (!rule->fit(number(rule->first), number(rule->first + 1), dtype))
    raise_as_cpu(walk.plan, op, walk.args);
}

}  // namespace tt
