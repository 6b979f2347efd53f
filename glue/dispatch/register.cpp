// Registers a boxed kernel for every overload that a table row serves, and the few kernels that
// PyTorch's schemas describe wrongly.
#include "dispatch/dispatch.h"
#include "dispatch/walk.h"
#include "python/package.h"

#include <ATen/native/transformers/attention.h>
#include <torch/csrc/jit/python/pybind_utils.h>

namespace tt {
namespace {

struct Kernel final : c10::OperatorKernel {
  explicit Kernel(std::shared_ptr<const Plan> p) : plan(std::move(p)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    run_plan(*plan, op, stack);
  }
  std::shared_ptr<const Plan> plan;
};

// The overload whose schema says that it updates the running statistics, if there are any.
void batch_norm(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const auto* overloads = [] {
    auto* all = new std::vector<c10::OperatorHandle>;
    for (const char* name : {"no_stats", "", "no_stats_out", "out"})
      all->push_back(
          c10::Dispatcher::singleton().findSchemaOrThrow("aten::_native_batch_norm_legit", name));
    return all;
  }();
  auto stats = stack->end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()) + 3;
  bool tracked = as_tensor(stats[0]).defined() && as_tensor(stats[1]).defined();
  if (!tracked) stack->erase(stats, stats + 2);
  (*overloads)[(op.schema().is_mutable() ? 2 : 0) + (tracked ? 1 : 0)].callBoxed(stack);
}

std::shared_ptr<const Plan>& copy_plan() {
  static auto* one = new std::shared_ptr<const Plan>;
  return *one;
}

struct Registration {
  torch::Library library{torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                         __LINE__};
  Registration() {
    for (PlannedOverload& one : make_plans()) {
      const std::string& name = one.plan->name;
      if (name == "aten::copy_")  // PyTorch's own minds devices, and leaves the rest to _copy_from
        copy_plan() = one.plan;
      else if (name == "aten::native_batch_norm" || name == "aten::native_batch_norm.out")
        library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&batch_norm>());
      else
        library.impl(name.c_str(),
                     torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(one.plan)));
    }
  }
};

// Never destroyed: kernels must outlive whatever still calls them at exit.
[[maybe_unused]] auto* registration = new Registration;

// PyTorch's kernel for another key, which serves this one as it is.
struct Lent final : c10::OperatorKernel {
  explicit Lent(c10::DispatchKey key) : keys(key) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    op.redispatchBoxed(keys, stack);
  }
  c10::DispatchKeySet keys;
};

bool is_special(const at::Tensor& one) {
  if (one.is_nested()) return true;
  c10::DispatchKeySet functorch{c10::DispatchKey::FuncTorchBatched,
                                c10::DispatchKey::FuncTorchGradWrapper};
  return one.key_set().has_any(functorch) || one._fw_grad(0).defined();
}

// Whether it is spread over devices.
bool is_dtensor(const at::Tensor& one) {
  if (!one.key_set().has(c10::DispatchKey::Python)) return false;
  pybind11::gil_scoped_acquire gil;
  return function_of("_dtensor", "is_dtensor")(one).cast<bool>();
}

bool is_equal(const c10::SymInt& one, const c10::SymInt& other) {
  return one.sym_eq(other).guard_or_false(__FILE__, __LINE__);
}

// Batches of heads of one size, without broadcasting; of grouped queries, some heads to one key.
bool is_of_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                 bool grouped) {
  if (query.dim() != 4 || key.dim() != 4 || value.dim() != 4) return false;
  bool fits = is_equal(key.sym_size(2), value.sym_size(2)) &&
              is_equal(query.sym_size(3), key.sym_size(3)) &&
              is_equal(key.sym_size(1), value.sym_size(1));
  for (const at::Tensor* one : {&key, &value})
    fits = fits && is_equal(query.sym_size(0), one->sym_size(0));
  return fits && (grouped || is_equal(query.sym_size(1), key.sym_size(1)));
}

// Which attention kernel F.scaled_dot_product_attention takes: ours, unless it needs the weights,
// or what PyTorch lacks of it: rules for vmap, forward derivatives, nested tensors. DTensor and
// context parallelism have rules for CUDA's kernels alone; one of these is ours by another name.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                         std::optional<double>, bool enable_gqa) {
  constexpr int64_t kMath = 0, kEfficient = 2, kOverrideable = 4;
  bool special = is_special(query) || is_special(key) || is_special(value);
  // Its gradients have no derivative, so what has one on the CPU is taken apart as there.
  bool unfit = special || !is_of_heads(query, key, value, enable_gqa);
  unfit |= dropout > 0 && is_causal && mask.has_value();  // which the CPU refuses
  if (unfit) return kMath;
  if (is_dtensor(query)) return enable_gqa ? kMath : kEfficient;
  return kOverrideable;
}

}  // namespace

void run_copy(const at::Tensor& target, const at::Tensor& source) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  torch::jit::Stack stack{target, source, false};
  run_plan(*copy_plan(), op, &stack);
}

void lend(const std::vector<std::string>& overloads, const std::string& from,
          const std::string& to) {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::parseDispatchKey(to),
                                     __FILE__, __LINE__);  // for the life of the process
  for (const std::string& name : overloads)
    library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                    std::make_unique<Lent>(c10::parseDispatchKey(from))));
}

}  // namespace tt

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &tt::choose_attention)
}
