// Operators that no row serves: PyTorch's decomposition if there is one, else the host.
#include "dispatch/dispatch.h"
#include "dispatch/template.h"
#include "python/package.h"

#include <ATen/native/CPUFallback.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <mutex>
#include <unordered_map>

namespace tt {
namespace {

using torch::jit::Stack;

// How an operator without a kernel of ours is done; never destroyed.
struct Way {
  std::unique_ptr<Plan> plan, row;  // for keys; of a row for another library's operator, or none
  PyObject* function = nullptr;     // the decomposition, in Python
};

std::unique_ptr<const Way> find_way(const c10::OperatorHandle& op) {
  auto way = std::make_unique<Way>();
  way->plan = make_plan(op.schema(), nullptr);
  if (const tt_op_row* row = tt_op_find(way->plan->name.c_str()))
    way->row = make_plan(op.schema(), row);
  InPython in_python;
  pybind11::object found = function_of("_decompose", "lookup")(way->plan->name);
  if (!found.is_none()) way->function = found.release().ptr();
  return way;
}

const Way& way_of(const c10::OperatorHandle& op) {
  static auto& lock = *new std::mutex;
  static auto& ways = *new std::unordered_map<c10::OperatorName, std::unique_ptr<const Way>>;
  {
    std::lock_guard<std::mutex> guard(lock);
    auto found = ways.find(op.operator_name());
    if (found != ways.end()) return *found->second;
  }
  auto way = find_way(op);  // which takes the GIL
  std::lock_guard<std::mutex> guard(lock);
  return *ways.try_emplace(op.operator_name(), std::move(way)).first->second;
}

// Calls it with a list of the arguments on the stack, which stay there where it throws; false if it
// has no answer for them. Autocast has had its say: what the function calls is cast no more.
bool call_python(PyObject* function, const c10::OperatorHandle& op, Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  InPython in_python;
  const auto& schema = op.schema();
  size_t count = schema.arguments().size();
  auto args = python_arguments(schema, torch::jit::last(*stack, count));
  pybind11::object value = pybind11::handle(function)(args);
  if (value.ptr() == Py_NotImplemented) return false;
  const auto& returns = schema.returns();
  Stack results;
  for (size_t i = 0; i < returns.size(); i++) {
    auto one = returns.size() == 1 ? value : pybind11::object(value[pybind11::int_(i)]);
    results.push_back(torch::jit::toIValue(one, returns[i].real_type()));
  }
  torch::jit::drop(stack, count);
  std::move(results.begin(), results.end(), std::back_inserter(*stack));
  return true;
}

// Tells whether the operator was decomposed; if not, its arguments are still on the stack.
bool decompose(const c10::OperatorHandle& op, Stack* stack) {
  const Way& way = way_of(op);
  return way.function &&
         run_template(*way.plan, stack, [&] { return call_python(way.function, op, stack); });
}

void run_on_host(const c10::OperatorHandle& op, Stack* stack) {
  {
    InPython in_python;
    function_of("_host", "announce")(c10::toString(op.operator_name()));
  }
  tt_count_add(TT_COUNT_OPS_HOST, 1);
  tt_observer_disturb();
  at::native::cpu_fallback(op, stack);
}

// Libraries are loaded when rows have been given to the operators that there are.
void run_unknown(const c10::OperatorHandle& op, Stack* stack) {
  const Way& way = way_of(op);
  way.row ? run_plan(*way.row, op, stack) : run_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_unknown>());
}

}  // namespace

void run_fallback(const c10::OperatorHandle& op, Stack* stack) {
  if (decompose(op, stack)) return tt_count_add(TT_COUNT_OPS_DECOMPOSED, 1);
  // PyTorch's own way for any device, which our row stood before: lists one element at a time, say.
  constexpr auto kComposite = c10::DispatchKey::CompositeExplicitAutograd;
  if (op.hasKernelForDispatchKey(kComposite)) return op.callBoxedForDispatchKey(kComposite, *stack);
  run_on_host(op, stack);
}

void run_functional(const Plan& plan, const c10::OperatorHandle& op, Stack* stack) {
  InPython in_python;
  auto own = c10::toString(plan.functional->operator_name());
  call_python(function_of("_decompose", "through")(plan.name, own).ptr(), op, stack);
}

void run_resolved(const Plan& plan, const c10::OperatorHandle& op, Stack* stack) {
  InPython in_python;
  call_python(function_of("_conj_neg", "resolved")(plan.name).ptr(), op, stack);
}

}  // namespace tt
