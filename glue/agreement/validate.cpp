// What the CPU refuses and Meta kernels let pass.
#include "agreement/agreement.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <limits>

namespace tt {
namespace {

using c10::IValue;

// Calls visit(tensor, the plan of its argument).
template <class Visit>
void each_operand(const Plan& plan, c10::ArrayRef<IValue> args, Visit visit) {
  for (size_t i = 0; i < args.size(); i++)
    each_tensor(args[i], [&](const at::Tensor& tensor) {
      if (tensor.defined()) visit(tensor, plan.args[i]);
    });
}

// Calls visit(a tensor that is written, nullptr), and then visit(it, each that is read).
template <class Visit>
void each_meeting(const Plan& plan, c10::ArrayRef<IValue> args, Visit visit) {
  each_operand(plan, args, [&](const at::Tensor& out, const ArgPlan& written) {
    if (!written.write) return;
    visit(out, nullptr);
    each_operand(plan, args, [&](const at::Tensor& read, const ArgPlan& arg) {
      if (!arg.write) visit(out, &read);
    });
  });
}

// Whether an out= tensor is one that the CPU may refuse, though its shape and device are right.
// Throws if what an in-place operator computes is of a kind that its target cannot hold; not all
// Meta kernels see to that.
bool unusual_target(const Walk& walk) {
  bool out = false, whole = false, unusual = false;
  each_operand(walk.plan, walk.args, [&](const at::Tensor& one, const ArgPlan& arg) {
    out |= arg.out;
    whole |= arg.write && !arg.out && at::isIntegralType(one.scalar_type(), true);
    unusual |= arg.out && at::has_internal_overlap(one) != at::MemOverlap::No;
  });
  if (!out && !whole) return false;
  for (int other : walk.same_as) unusual |= out && other >= 0;
  if (walk.plan.row->cls == TT_POINTWISE) unusual = false;  // see check_overlap
  for (auto [from, to] : written_dtypes(walk.plan, walk.args)) {
    TORCH_CHECK(out || c10::canCast(from, to), walk.plan.name, ": result type ", from,
                " can't be cast to the desired output type ", to);
    unusual |= out && from != to;
  }
  return unusual;
}

// Half numbers stop early; of bfloat16 the CPU asks what float32 holds.
bool range_fits(double from, double to, at::ScalarType dtype) {
  double most = dtype == at::kHalf     ? 65504
                : dtype == at::kDouble ? std::numeric_limits<double>::max()
                                       : std::numeric_limits<float>::max();
  return at::isFloatingType(dtype) && from <= to && from >= -most && to <= most &&
         to - from <= most;
}

// Whether the CPU's distribution takes this number, and the next, for the argument that its row of
// the table names. They are operands of the running program, so they are looked at in each call.
bool fits(const Agreements& rule, double one, double next, at::ScalarType dtype) {
  if (rule.has(Agree::Ordered)) return range_fits(one, next, dtype);
  if (rule.has(Agree::NonNegative)) return one >= 0;
  if (rule.has(Agree::Positive)) return one > 0;
  if (rule.has(Agree::Probability)) return one >= 0 && one <= 1;
  return !rule.has(Agree::ProperProbability) || (one > 0 && one < 1);
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
  bool number = false, complex = false, real = false, target = false;
  for (const IValue& value : walk.args) number |= value.isScalar() && value.toScalar().isComplex();
  for (const at::Tensor& one : results) real |= one.defined() && !one.is_complex();
  each_operand(walk.plan, walk.args, [&](const at::Tensor& one, const ArgPlan& arg) {
    if (arg.write) target |= !one.is_complex();
    else complex |= one.is_complex();
  });
  return (number && (real || target)) || (complex && target);
}

// Dtypes for which operators have kernels on the CPU or not, as it happens; real numbers in one
// floating point are taken nearly everywhere, and what is rare on the CPU is not worth refusing.
bool choosy(at::ScalarType type) {
  constexpr at::ScalarType all[] = {at::kBool, at::kByte, at::kChar,         at::kShort,
                                    at::kInt,  at::kLong, at::kComplexFloat, at::kComplexDouble};
  return std::find(std::begin(all), std::end(all), type) != std::end(all);
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

// The CPU is asked once for each operator and dtypes.
StringSet& accepted() {
  static auto* one = new StringSet;
  return *one;
}

// What is added to a product of matrices, or of a matrix and a vector, must not be larger.
bool widens_product(const Walk& walk) {
  if (!walk.plan.agreed.has(Agree::NarrowSummand)) return false;
  const at::Tensor &self = as_tensor(walk.args[0]), &a = as_tensor(walk.args[1]),
                   &b = as_tensor(walk.args[2]);
  int64_t product[] = {a.size(0), b.dim() == 1 ? 1 : b.size(1)};
  return !at::is_expandable_to(self.sizes(), {product, static_cast<size_t>(b.dim())});
}

bool reduces_nothing(const Walk& walk) {
  return walk.plan.row->cls == TT_REDUCE &&
         std::any_of(walk.tensors.begin(), walk.tensors.end(),
                     [](const at::Tensor* one) { return one->numel() == 0; });
}

}  // namespace

bool raise_as_cpu(Walk& walk, const c10::OperatorHandle& op) {
  return walk.cpu_agrees = walk.cpu_agrees || raise_as_cpu(walk.plan, op, walk.args);
}

bool written_twice(const Plan& plan, c10::ArrayRef<IValue> args) {
  bool found = false;
  each_meeting(plan, args, [&](const at::Tensor& out, const at::Tensor* read) {
    found |= read ? at::get_overlap_status(out, *read) == at::MemOverlapStatus::Partial
                  : at::has_internal_overlap(out) == at::MemOverlap::Yes;
  });
  return found;
}

// Where a write goes through a view that sees an element twice, or overlaps what is read, the CPU
// is asked. Of what is too large to be tried there, the operators that PyTorch iterates element by
// element are refused.
void check_overlap(Walk& walk, const c10::OperatorHandle& op) {
  if (!written_twice(walk.plan, walk.args) || raise_as_cpu(walk, op)) return;
  if (walk.plan.row->cls != TT_POINTWISE && !walk.plan.agreed.has(Agree::ApartFromSource)) return;
  each_meeting(walk.plan, walk.args, [](const at::Tensor& out, const at::Tensor* read) {
    if (read) at::assert_no_partial_overlap(out, *read);
    else at::assert_no_internal_overlap(out);
  });
}

void check_values(Walk& walk, const c10::OperatorHandle& op, c10::ArrayRef<at::Tensor> results) {
  std::string dtypes = dtypes_of(walk);
  bool known = dtypes.empty() || accepted().has(dtypes);
  if (!known || unusual_target(walk) || reduces_nothing(walk) || widens_product(walk) ||
      mixes_floats(walk, op) || loses_imaginary(walk, results))
    raise_as_cpu(walk, op);
  if (!known) accepted().add(dtypes);
}

void check_parameters(Walk& walk, const c10::OperatorHandle& op) {
  if (walk.plan.argument < 0) return;
  auto number = [&](size_t i) {
    bool given = i < walk.args.size() && walk.args[i].isScalar();
    return given ? walk.args[i].toScalar().toDouble() : 0.0;
  };
  auto first = static_cast<size_t>(walk.plan.argument);
  auto dtype = walk.tensors.empty() ? at::kFloat : walk.tensors[0]->scalar_type();
  if (!fits(walk.plan.agreed, number(first), number(first + 1), dtype)) raise_as_cpu(walk, op);
}

}  // namespace tt
