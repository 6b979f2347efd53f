// Registers a boxed kernel for every overload that a table row serves, and the few kernels that
// PyTorch's schemas describe wrongly.
#include "dispatch/dispatch.h"
#include "dispatch/plan.h"

#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_native_batch_norm_legit.h>

namespace tt {
namespace {

struct Kernel final : c10::OperatorKernel {
  explicit Kernel(std::shared_ptr<const Plan> p) : plan(std::move(p)) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    run_plan(*plan, op, stack);
  }
  std::shared_ptr<const Plan> plan;
};

bool tracked(const std::optional<at::Tensor>& running_mean,
             const std::optional<at::Tensor>& running_var) {
  return running_mean && running_mean->defined() && running_var && running_var->defined();
}

// Its schema does not say that it updates the running statistics.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps) {
  if (!tracked(running_mean, running_var))
    return at::_native_batch_norm_legit(input, weight, bias, training, momentum, eps);
  return at::_native_batch_norm_legit(input, weight, bias, const_cast<at::Tensor&>(*running_mean),
                                      const_cast<at::Tensor&>(*running_var), training, momentum,
                                      eps);
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&>
native_batch_norm_out(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& bias,
                      const std::optional<at::Tensor>& running_mean,
                      const std::optional<at::Tensor>& running_var, bool training, double momentum,
                      double eps, at::Tensor& out, at::Tensor& save_mean, at::Tensor& save_invstd) {
  if (!tracked(running_mean, running_var))
    return at::_native_batch_norm_legit_out(out, save_mean, save_invstd, input, weight, bias,
                                            training, momentum, eps);
  return at::_native_batch_norm_legit_out(
      out, save_mean, save_invstd, input, weight, bias, const_cast<at::Tensor&>(*running_mean),
      const_cast<at::Tensor&>(*running_var), training, momentum, eps);
}

struct CopyPlan {
  std::optional<c10::OperatorHandle> op;
  std::shared_ptr<const Plan> plan;
};
CopyPlan& copy_plan() {
  static auto* one = new CopyPlan;
  return *one;
}

bool registered_by_hand(const c10::OperatorName& name) {
  return name.name == "aten::copy_" || name.name == "aten::native_batch_norm";
}

struct Registration {
  torch::Library library{torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                         __LINE__};
  Registration() {
    for (PlannedOverload& one : make_plans()) {
      if (one.name.name == "aten::copy_")
        copy_plan() = {c10::Dispatcher::singleton().findSchema(one.name), one.plan};
      if (registered_by_hand(one.name)) continue;
      std::string name =
          one.name.name + (one.name.overload_name.empty() ? "" : "." + one.name.overload_name);
      library.impl(name.c_str(),
                   torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(one.plan)));
    }
    library.impl("native_batch_norm", TORCH_FN(native_batch_norm));
    library.impl("native_batch_norm.out", TORCH_FN(native_batch_norm_out));
  }
};

// Never destroyed: kernels must outlive whatever still calls them at exit.
[[maybe_unused]] auto* registration = new Registration;

bool is_special(const at::Tensor& one) {
  if (one.is_nested()) return true;
  c10::DispatchKeySet functorch{c10::DispatchKey::FuncTorchBatched,
                                c10::DispatchKey::FuncTorchGradWrapper};
  return one.key_set().has_any(functorch) || one._fw_grad(0).defined();
}

// Which attention kernel F.scaled_dot_product_attention takes: ours, unless it needs the weights,
// or what PyTorch lacks of it: rules for vmap, forward derivatives, nested tensors.
int64_t choose_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                         bool enable_gqa) {
  constexpr int64_t kMath = 0, kOverrideable = 4;
  bool special = is_special(query) || is_special(key) || is_special(value);
  // Its gradients have no derivative, so what has one on the CPU is taken apart as there.
  bool unfit = enable_gqa || query.dim() != 4;
  return special || unfit ? kMath : kOverrideable;
}

}  // namespace

void run_copy(const at::Tensor& target, const at::Tensor& source) {
  TORCH_CHECK(copy_plan().plan, "the op table has no row for copy");
  torch::jit::Stack stack{target, source, false};
  run_plan(*copy_plan().plan, *copy_plan().op, &stack);
}

}  // namespace tt

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &tt::choose_attention)
}
