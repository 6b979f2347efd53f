#include "agreement/agreement.h"

#include "python/package.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <limits>

namespace py = pybind11;

namespace tt {
namespace {

using c10::IValue;

// The package's operators are to run as they do elsewhere.
struct Asking {
  InPython in_python;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  at::AutoDispatchBelowAutograd below;
};

const char* row_of(const Plan& plan) { return plan.row ? plan.row->name : ""; }

// Of what a call sees of a bounded value.
at::Tensor wide_twin(const tt_view& view, const at::TensorOptions& options) {
  auto rank = static_cast<size_t>(view.rank);
  return at::empty_strided({view.sizes, rank}, {view.strides, rank}, options);
}

// A tensor without data. A number in a tensor of the host may stand beside any tensor; some Meta
// kernels in Python think otherwise.
at::Tensor meta_twin(const Walk& walk, const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  auto options = tensor.options().device(c10::DeviceType::Meta);
  for (size_t i = 0; i < walk.operands.size(); i++)
    if (walk.tensors[i]->is_same(tensor)) return wide_twin(walk.operands[i].view, options);
  bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  if (tensor.device().is_cpu() && tensor.dim() == 0 && !wrapped) return at::empty({}, options);
  if (!tensor.device().is_privateuseone()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), options);
}

IValue meta_twin(const Walk& walk, const IValue& value) {
  if (value.isDevice()) return c10::Device(c10::DeviceType::Meta);
  if (value.isGenerator()) return {};
  return map_tensors(value, [&](const at::Tensor& one) { return meta_twin(walk, one); });
}

std::vector<at::Tensor> tensors_of(const py::handle& list) {
  std::vector<at::Tensor> tensors;
  for (const py::handle& one : list)
    tensors.push_back(one.is_none() ? at::Tensor() : one.cast<at::Tensor>());
  return tensors;
}

const Domain& domain_of(const Plan& plan) {
  if (const Domain* known = plan.domain.load(std::memory_order_acquire)) return *known;
  InPython in_python;
  auto found = function_of("_agreement", "domain")(plan.name, row_of(plan));
  auto [argument, held, ordered, open, least, most] =
      found.cast<std::tuple<int, bool, bool, bool, double, double>>();
  const auto* made = new Domain{argument, held, ordered, open, least, most};  // as the plan
  plan.domain.store(made, std::memory_order_release);
  return *made;
}

// Half numbers stop early; of the others the CPU is asked where float32 stops.
bool fits(const Domain& domain, double one, double next, at::ScalarType dtype) {
  if (!domain.ordered)
    return domain.open ? domain.least < one && one < domain.most
                       : domain.least <= one && one <= domain.most;
  double most = dtype == at::kHalf ? 65504 : std::numeric_limits<float>::max();
  return at::isFloatingType(dtype) && one <= next && one >= -most && next <= most &&
         next - one <= most;
}

// Of what is made with a number: as it is said, as the first tensor, or as the number.
at::ScalarType dtype_made(const Walk& walk, const at::Scalar& number) {
  for (size_t i = 0; i < walk.args.size(); i++)
    if (walk.plan.args[i].kind == ArgKind::Dtype && !walk.args[i].isNone())
      return walk.args[i].toScalarType();
  if (!walk.tensors.empty()) return walk.tensors[0]->scalar_type();
  return number.isFloatingPoint() ? at::get_default_dtype_as_scalartype() : number.type();
}

// Throws what PyTorch does where it converts a number to a dtype that does not hold it. Of one
// element in a half float the CPU makes infinity.
void check_held(const Walk& walk, const IValue& value) {
  if (!value.isScalar()) return;
  at::Scalar number = value.toScalar();
  at::ScalarType dtype = dtype_made(walk, number);
  bool one = walk.tensors.empty() || walk.tensors[0]->numel() <= 1;
  if (dtype == number.type() || dtype == at::kComplexHalf || at::isFloat8Type(dtype)) return;
  if (one && at::isReducedFloatingType(dtype)) return;
  AT_DISPATCH_V2(dtype, "held", AT_WRAP([&] { (void)number.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                 at::kBool, at::kHalf, at::kBFloat16);
}

}  // namespace

Agreement agree(const Walk& walk, const c10::OperatorHandle& op) {
  const Plan& plan = walk.plan;
  std::vector<IValue> twins;
  {
    at::AutoDispatchBelowAutograd below;
    for (const IValue& value : walk.args) twins.push_back(meta_twin(walk, value));
  }
  Asking asking;
  py::tuple said = function_of("_agreement", "specialise")(plan.name, row_of(plan),
                                                           python_arguments(op.schema(), walk.args),
                                                           python_arguments(op.schema(), twins));
  return {static_cast<Meta>(said[0].cast<int>()), tensors_of(said[1]), tensors_of(said[2])};
}

void raise_as_cpu(const Plan& plan, const c10::OperatorHandle& op, c10::ArrayRef<IValue> args) {
  Asking asking;
  function_of("_agreement", "raise_as_cpu")(plan.name, row_of(plan),
                                            python_arguments(op.schema(), args));
}

void check_parameters(const Walk& walk, const c10::OperatorHandle& op) {
  const Domain& domain = domain_of(walk.plan);
  if (domain.argument < 0) return;
  if (domain.held) return check_held(walk, walk.args[static_cast<size_t>(domain.argument)]);
  auto number = [&](size_t i) {
    bool given = i < walk.args.size() && walk.args[i].isScalar();
    return given ? walk.args[i].toScalar().toDouble() : 0.0;
  };
  auto first = static_cast<size_t>(domain.argument);
  auto dtype = walk.tensors.empty() ? at::kFloat : walk.tensors[0]->scalar_type();
  if (!fits(domain, number(first), number(first + 1), dtype))
    raise_as_cpu(walk.plan, op, walk.args);
}

at::Tensor iterated(const std::vector<at::Tensor>& operands, const at::Tensor& result) {
  for (const at::Tensor& one : operands)
    if (!at::is_expandable_to(one.sizes(), result.sizes())) return result;
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).check_all_same_device(false).set_check_mem_overlap(false);
  config.declare_static_dtype_and_device(result.scalar_type(), result.device());
  config.add_owned_output(at::Tensor());
  for (const at::Tensor& one : operands) config.add_const_input(one);
  return config.build().output();
}

}  // namespace tt
