// Operators that no row serves: PyTorch's decomposition if there is one, else the host.
#include "agreement/agreement.h"
#include "dispatch/template.h"

#include <ATen/native/CPUFallback.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace tt {
namespace {

using torch::jit::Stack;

// How an operator without a row is done; never destroyed.
struct Way {
  std::unique_ptr<Plan> plan;    // whose functional overload is decomposed, if this one is not
  PyObject* function = nullptr;  // the decomposition, in Python
};

struct Fallbacks {
  std::mutex lock;
  std::unordered_map<c10::OperatorName, std::unique_ptr<const Way>> ways;
  std::map<std::string, int64_t> host;
};

Fallbacks& state() {
  static auto* one = new Fallbacks;
  return *one;
}

std::unique_ptr<const Way> find_way(const c10::OperatorHandle& op) {
  auto way = std::make_unique<Way>();
  way->plan = rowless_plan(op.schema());
  pybind11::gil_scoped_acquire gil;
  auto lookup = pybind11::module_::import("torch_tpu._decompose").attr("lookup");
  pybind11::object found = lookup(way->plan->name);
  if (found.is_none()) return way;
  auto [function, name, overload] =
      found.cast<std::tuple<pybind11::object, std::string, std::string>>();
  c10::OperatorName decomposed(name, overload);
  if (decomposed == op.operator_name()) way->function = function.release().ptr();
  else way->plan->functional = c10::Dispatcher::singleton().findSchema(decomposed);
  return way;
}

const Way& way_of(const c10::OperatorHandle& op) {
  {
    std::lock_guard<std::mutex> guard(state().lock);
    auto found = state().ways.find(op.operator_name());
    if (found != state().ways.end()) return *found->second;
  }
  auto way = find_way(op);  // which takes the GIL
  std::lock_guard<std::mutex> guard(state().lock);
  return *state().ways.try_emplace(op.operator_name(), std::move(way)).first->second;
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
bool call_python(PyObject* function, const c10::OperatorHandle& op, Stack* stack) {
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
  Stack results;
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
thread_local std::vector<PyObject*> running;

struct Running {
  explicit Running(PyObject* function) { running.push_back(function); }
  ~Running() { running.pop_back(); }
};

// Whether a decomposition may have raised it because it was called wrongly.
bool about_arguments(const pybind11::error_already_set& error) {
  pybind11::gil_scoped_acquire gil;
  auto types = {PyExc_RuntimeError, PyExc_IndexError, PyExc_ValueError, PyExc_TypeError};
  return std::any_of(types.begin(), types.end(),
                     [&](PyObject* type) { return error.matches(type); }) &&
         !error.matches(PyExc_NotImplementedError);
}

// Whether a decomposition might write what it has still to read, or an element twice, as the CPU
// refuses to.
bool targets_overlap(const Plan& plan, c10::ArrayRef<c10::IValue> args) {
  bool overlap = written_twice(plan, args);
  for (size_t i = 0; i < args.size(); i++)
    for (size_t j = 0; j < args.size() && plan.args[i].out && args[i].isTensor(); j++)
      overlap |= j != i && args[j].isTensor() && args[j].toTensor().defined() &&
                 args[j].toTensor().has_storage() &&
                 args[j].toTensor().is_alias_of(args[i].toTensor());
  return overlap;
}

// Tells whether the operator was decomposed; if not, its arguments are still on the stack.
bool decompose(const c10::OperatorHandle& op, Stack* stack) {
  const Way& way = way_of(op);
  const Plan& plan = *way.plan;
  if (plan.functional)
    return run_functional(plan, op, stack,
                          [&](Stack* all) { return decompose(*plan.functional, all); });
  if (!way.function || std::count(running.begin(), running.end(), way.function)) return false;
  Running guard(way.function);
  auto ask_cpu = [&] { raise_as_cpu(plan, op, torch::jit::last(*stack, plan.args.size())); };
  try {
    return run_template(plan, stack, [&] {
      if (targets_overlap(plan, torch::jit::last(*stack, plan.args.size()))) ask_cpu();
      return call_python(way.function, op, stack);
    });
  } catch (const pybind11::error_already_set& error) {
    if (about_arguments(error)) ask_cpu();
    throw;
  }
}

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  std::string name = c10::toString(op.operator_name());
  HostFallback policy = host_fallback();
  bool first;
  {
    std::lock_guard<std::mutex> guard(state().lock);
    first = state().host[name]++ == 0;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      policy != HostFallback::Error, name,
      " has no path on device 'tpu', and running it on the host is refused "
      "(TORCH_TPU_HOST_FALLBACK=error); move the tensors with .cpu(), or allow it with "
      "torch.tpu.host_fallback = 'warn'");
  if (first && policy == HostFallback::Warn)
    TORCH_WARN(name,
               " has no path on device 'tpu' and runs on the host, with a synchronisation and two "
               "copies; ",
               "TORCH_TPU_HOST_FALLBACK=silent hides this");
  tt_count_add(TT_COUNT_OPS_HOST, 1);
  tt_observer_disturb();
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_fallback>());
}

}  // namespace

void run_fallback(const c10::OperatorHandle& op, Stack* stack) {
  if (decompose(op, stack)) return tt_count_add(TT_COUNT_OPS_DECOMPOSED, 1);
  // PyTorch's own way for any device, which our row stood before: lists one element at a time, say.
  constexpr auto kComposite = c10::DispatchKey::CompositeExplicitAutograd;
  if (op.hasKernelForDispatchKey(kComposite)) return op.callBoxedForDispatchKey(kComposite, *stack);
  run_on_host(op, stack);
}

bool run_functional(const Plan& plan, const c10::OperatorHandle& op, Stack* stack,
                    const std::function<bool(Stack* stack)>& call) {
  auto args = torch::jit::last(*stack, plan.args.size()).vec();
  Stack functional;
  std::vector<at::Tensor> targets, written, results;
  for (size_t i = 0; i < args.size(); i++) {
    if (!plan.args[i].out) functional.push_back(args[i]);
    if (plan.args[i].write) append_tensors(args[i], plan.args[i].out ? &targets : &written);
  }
  if (!plan.row && targets_overlap(plan, args)) raise_as_cpu(plan, op, args);
  if (!call(&functional)) return false;
  for (const c10::IValue& value : functional) append_tensors(value, &results);
  size_t outs = targets.size();
  if (!plan.functional->schema().is_mutable())  // else it writes them itself
    targets.insert(targets.end(), written.begin(), written.end());
  TORCH_INTERNAL_ASSERT(results.size() == targets.size(), plan.name);
  bool unusual = false;
  for (size_t k = 0; k < outs; k++) unusual |= targets[k].dtype() != results[k].dtype();
  if (unusual) raise_as_cpu(plan, op, args);
  for (size_t k = 0; k < results.size(); k++) {
    auto from = results[k].scalar_type(), to = targets[k].scalar_type();
    TORCH_CHECK(targets[k].device() == results[k].device(), plan.name,
                ": expected an out= tensor on ", results[k].device(), ", but it is on ",
                targets[k].device());
    TORCH_CHECK(c10::canCast(from, to), plan.name, ": result type ", from,
                " can't be cast to the desired output type ", to);
    if (k < outs) fit_output(targets[k], results[k]);
    targets[k].copy_(results[k]);
  }
  return_aliases(plan, stack);
  return true;
}

std::vector<std::pair<std::string, int64_t>> host_operators() {
  std::lock_guard<std::mutex> guard(state().lock);
  return {state().host.begin(), state().host.end()};
}

}  // namespace tt
