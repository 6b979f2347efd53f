// Operators that no row serves: PyTorch's decomposition if there is one, else the host.
#include "dispatch/plan.h"
#include "dispatch/template.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/CPUFallback.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <algorithm>
#include <map>
#include <mutex>

namespace tt {
namespace {

struct Fallbacks {
  std::mutex lock;
  std::map<c10::OperatorName, PyObject*,
           bool (*)(const c10::OperatorName&, const c10::OperatorName&)>
      decompositions{[](const c10::OperatorName& a, const c10::OperatorName& b) {
        return std::tie(a.name, a.overload_name) < std::tie(b.name, b.overload_name);
      }};
  std::map<std::string, int64_t> host;
  std::string policy = "warn";
};

Fallbacks& state() {
  static auto* one = new Fallbacks;
  return *one;
}

// A Python callable, or nullptr. Kept for ever. Takes the GIL.
PyObject* decomposition(const c10::OperatorHandle& op) {
  {
    std::lock_guard<std::mutex> guard(state().lock);
    auto found = state().decompositions.find(op.operator_name());
    if (found != state().decompositions.end()) return found->second;
  }
  pybind11::gil_scoped_acquire gil;
  auto lookup = pybind11::module_::import("torch_tpu._decompose").attr("lookup");
  pybind11::object function = lookup(c10::toString(op.operator_name()));
  PyObject* kept = function.is_none() ? nullptr : function.release().ptr();
  std::lock_guard<std::mutex> guard(state().lock);
  state().decompositions[op.operator_name()] = kept;
  return kept;
}

// As Python functions take it: a schema's dtypes, layouts, and memory formats are integers here.
pybind11::object python_argument(const c10::Argument& arg, const c10::IValue& value) {
  c10::TypePtr type = arg.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  PyObject* found = nullptr;
  if (value.isInt() && type->kind() == c10::TypeKind::ScalarTypeType)
    found = reinterpret_cast<PyObject*>(torch::getTHPDtype(value.toScalarType()));
  if (value.isInt() && type->kind() == c10::TypeKind::LayoutType)
    found = reinterpret_cast<PyObject*>(torch::getTHPLayout(value.toLayout()));
  if (value.isInt() && type->kind() == c10::TypeKind::MemoryFormatType)
    found = torch::utils::getTHPMemoryFormat(value.toMemoryFormat());
  if (found) return pybind11::reinterpret_borrow<pybind11::object>(found);
  return torch::jit::toPyObject(value);
}

// Calls it with the arguments on the stack, which stay there where it throws; false if it has no
// answer for them.
bool run_decomposition(PyObject* function, const c10::OperatorHandle& op,
                       torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  pybind11::gil_scoped_acquire gil;
  auto args = torch::jit::last(*stack, schema.arguments().size());
  pybind11::list positional;
  pybind11::dict keywords;
  for (size_t i = 0; i < args.size(); i++) {
    const auto& arg = schema.arguments()[i];
    if (arg.kwarg_only()) keywords[arg.name().c_str()] = python_argument(arg, args[i]);
    else positional.append(python_argument(arg, args[i]));
  }
  auto value = pybind11::reinterpret_steal<pybind11::object>(
      PyObject_Call(function, pybind11::tuple(positional).ptr(), keywords.ptr()));
  if (!value) throw pybind11::error_already_set();
  if (value.ptr() == Py_NotImplemented) return false;
  const auto& returns = schema.returns();
  torch::jit::Stack results;
  for (size_t i = 0; i < returns.size(); i++) {
    auto one = returns.size() == 1 ? value : pybind11::object(value[pybind11::int_(i)]);
    results.push_back(torch::jit::toIValue(one, returns[i].real_type()));
  }
  torch::jit::drop(stack, args.size());
  std::move(results.begin(), results.end(), std::back_inserter(*stack));
  return true;
}

// The decompositions that this thread is in. One that arrives at its own operator again does not
// lead anywhere.
struct Decomposing {
  PyObject* function;
  const c10::OperatorHandle& op;
  const torch::jit::Stack& stack;  // the arguments are its last
};
thread_local std::vector<Decomposing> running;

bool is_running(PyObject* function) {
  return std::any_of(running.begin(), running.end(),
                     [&](const Decomposing& one) { return one.function == function; });
}

struct Running {
  explicit Running(const Decomposing& one) { running.push_back(one); }
  ~Running() { running.pop_back(); }
};

void validate_on_cpu(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  auto args = torch::jit::last(stack, op.schema().arguments().size());
  raise_as_cpu(*rowless_plan(op.schema()), op, args);
}

// Whether a decomposition may have raised it because it was called wrongly.
bool about_arguments(const pybind11::error_already_set& error) {
  pybind11::gil_scoped_acquire gil;
  auto types = {PyExc_RuntimeError, PyExc_IndexError, PyExc_ValueError, PyExc_TypeError};
  return std::any_of(types.begin(), types.end(),
                     [&](PyObject* type) { return error.matches(type); }) &&
         !error.matches(PyExc_NotImplementedError);
}

// Whether a decomposition might write what it has still to read, or an element twice, as the CPU
// refuses to: then the CPU is asked.
bool targets_overlap(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args) {
  bool overlap = false;
  for (size_t i = 0; i < args.size(); i++) {
    if (!schema.arguments()[i].is_out() || !args[i].isTensor()) continue;
    const at::Tensor& out = args[i].toTensor();
    overlap |= at::has_internal_overlap(out) == at::MemOverlap::Yes;
    for (size_t j = 0; j < args.size(); j++)
      overlap |= j != i && args[j].isTensor() && args[j].toTensor().defined() &&
                 args[j].toTensor().has_storage() && args[j].toTensor().is_alias_of(out);
  }
  return overlap;
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::string name = c10::toString(op.operator_name()), policy;
  bool first;
  {
    std::lock_guard<std::mutex> guard(state().lock);
    first = state().host[name]++ == 0;
    policy = state().policy;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      policy != "error", name,
      " has no path on device 'tpu', and running it on the host is refused "
      "(TORCH_TPU_HOST_FALLBACK=error); move the tensors with .cpu(), or allow it with "
      "torch.tpu.host_fallback = 'warn'");
  if (first && policy == "warn")
    TORCH_WARN(name,
               " has no path on device 'tpu' and runs on the host, with a synchronisation and two "
               "copies; ",
               "TORCH_TPU_HOST_FALLBACK=silent hides this");
  tt_count_add(TT_COUNT_OPS_HOST, 1);
  tt_template_spoil();
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_fallback>());
}

}  // namespace

void run_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  PyObject* function = decomposition(op);
  if (function && !is_running(function)) {
    Running guard({function, op, *stack});
    auto decompose = [&] {
      auto args = torch::jit::last(*stack, op.schema().arguments().size());
      if (targets_overlap(op.schema(), args)) validate_on_cpu(op, *stack);
      return run_decomposition(function, op, stack);
    };
    try {
      if (run_template(op, stack, decompose)) return tt_count_add(TT_COUNT_OPS_DECOMPOSED, 1);
    } catch (const pybind11::error_already_set& error) {
      if (about_arguments(error)) validate_on_cpu(op, *stack);
      throw;
    }
  }
  // PyTorch's own way for any device, which our row stood before: lists one element at a time, say.
  constexpr auto kComposite = c10::DispatchKey::CompositeExplicitAutograd;
  if (op.hasKernelForDispatchKey(kComposite)) return op.callBoxedForDispatchKey(kComposite, *stack);
  run_on_host(op, stack);
}

void ask_cpu() {
  if (!running.empty()) validate_on_cpu(running.back().op, running.back().stack);
}

std::string host_fallback() {
  std::lock_guard<std::mutex> guard(state().lock);
  return state().policy;
}

void set_host_fallback(const std::string& policy) {
  TORCH_CHECK_VALUE(policy == "warn" || policy == "silent" || policy == "error",
                    "host fallback is 'warn', 'silent', or 'error', not '", policy, "'");
  std::lock_guard<std::mutex> guard(state().lock);
  state().policy = policy;
}

std::vector<std::pair<std::string, int64_t>> host_operators() {
  std::lock_guard<std::mutex> guard(state().lock);
  return {state().host.begin(), state().host.end()};
}

}  // namespace tt
