// PyTorch's own shape functions: the same operator on tensors without data.
#include "plan.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <pybind11/pybind11.h>

namespace tt {
namespace {

at::Tensor as_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.device().is_privateuseone()) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

c10::IValue meta_value(const c10::IValue& value, ArgKind kind) {
  if (value.isTensor()) return as_meta(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::DeviceType::Meta);
  if (kind == ArgKind::Generator) return {};
  if (kind != ArgKind::TensorList || value.isNone()) return value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) list.push_back(as_meta(element.toTensor()));
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const c10::IValue& element : value.toListRef())
    list.push_back(element.isNone() ? std::nullopt : std::optional<at::Tensor>(as_meta(element.toTensor())));
  return list;
}

// Many operators have their shape function in Python; it is registered by this import.
void load_python_metas() {
  static bool loaded = false;
  if (loaded) return;
  pybind11::gil_scoped_acquire gil;
  pybind11::module_::import("torch._meta_registrations");
  loaded = true;
}

bool has_meta(const c10::OperatorHandle& op, tt_op_class cls) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return true;
  load_python_metas();
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return true;
  // The composite kernels of *_overrideable operators only throw.
  return cls != TT_CONV && op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
}

}  // namespace

bool run_meta(const Plan& plan, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
              std::vector<at::Tensor>* results, std::vector<at::Tensor>* outs) {
  if (!has_meta(op, plan.row->cls)) return false;
  torch::jit::Stack stack;
  for (size_t i = 0; i < args.size(); i++) stack.push_back(meta_value(args[i], plan.args[i].kind));
  for (size_t i = 0; i < args.size(); i++)
    if (plan.args[i].out && stack[i].isTensor()) outs->push_back(stack[i].toTensor());
  at::AutoDispatchBelowAutograd below;
  try {
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    outs->clear();
    return false;
  }
  for (size_t i = 0; i < plan.returns.size(); i++) {
    if (plan.returns[i].alias >= 0) continue;
    const c10::IValue& value = stack[stack.size() - plan.returns.size() + i];
    if (value.isTensor()) results->push_back(value.toTensor());
    else if (value.isTensorList())
      for (const c10::IValue& element : value.toListRef()) results->push_back(element.toTensor());
    else results->push_back(at::Tensor());
  }
  return true;
}

}  // namespace tt
