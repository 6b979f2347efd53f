// PyTorch's own shape functions: the same operator on tensors without data.
#include "plan.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <pybind11/pybind11.h>

#include <unordered_map>

namespace tt {
namespace {

constexpr size_t kMostBytes = size_t{1} << 28;

// Twins of tensors, without data on the meta device, of zeros on the host. On the host, those that
// share memory do so as well.
class Twins {
 public:
  explicit Twins(c10::DeviceType device) : device_(device) {}

  at::Tensor of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_privateuseone()) return tensor;
    auto options = tensor.options().device(device_);
    if (device_ == c10::DeviceType::Meta)
      return at::empty_strided(tensor.sizes(), tensor.strides(), options);
    auto& storage = storages_[tensor.storage().unsafeGetStorageImpl()];
    if (!storage) {
      auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
      storage = at::zeros({bytes}, options.dtype(at::kByte)).storage();
    }
    auto same = at::empty({0}, options);
    return same.set_(*storage, tensor.storage_offset(), tensor.sizes(), tensor.strides());
  }

 private:
  c10::DeviceType device_;
  std::unordered_map<c10::StorageImpl*, std::optional<c10::Storage>> storages_;
};

c10::IValue twin_value(const c10::IValue& value, ArgKind kind, c10::DeviceType device,
                       Twins& twins) {
  if (value.isTensor()) return twins.of(value.toTensor());
  if (value.isDevice()) return c10::Device(device);
  if (kind == ArgKind::Generator) return {};
  if (kind != ArgKind::TensorList || value.isNone()) return value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef())
      list.push_back(twins.of(element.toTensor()));
    return list;
  }
  c10::List<std::optional<at::Tensor>> list;
  for (const c10::IValue& element : value.toListRef())
    list.push_back(element.isNone() ? std::nullopt
                                    : std::optional<at::Tensor>(twins.of(element.toTensor())));
  return list;
}

torch::jit::Stack twin_stack(const Plan& plan, c10::ArrayRef<c10::IValue> args,
                             c10::DeviceType device) {
  torch::jit::Stack stack;
  Twins twins(device);
  for (size_t i = 0; i < args.size(); i++)
    stack.push_back(twin_value(args[i], plan.args[i].kind, device, twins));
  return stack;
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

void append_tensors(const c10::IValue& value, std::vector<at::Tensor>* tensors) {
  if (value.isTensor()) tensors->push_back(value.toTensor());
  if (!value.isTensorList()) return;
  for (const c10::IValue& element : value.toListRef()) tensors->push_back(element.toTensor());
}

// The CPU keeps the statistics of a normalization in the input's dtype unless its parameters are
// wider; Meta kernels keep them in f32 for other devices.
void narrow_statistics(const Plan& plan, c10::ArrayRef<c10::IValue> args,
                       std::vector<at::Tensor>* results) {
  const std::string name = plan.row->name;
  bool layer = name == "native_layer_norm";
  bool batch = name.find("native_batch_norm") != std::string::npos &&
               name.find("backward") == std::string::npos;
  if (!layer && !batch) return;
  auto dtype = args[0].toTensor().scalar_type();
  for (const c10::IValue& value : args.slice(1))
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() != dtype)
      return;
  for (size_t i = 1; i < 3 && i < results->size(); i++)
    (*results)[i] = at::empty((*results)[i].sizes(), (*results)[i].options().dtype(dtype));
}

// In evaluation batch normalization saves no statistics on the CPU; its Meta kernels say it does.
void forget_statistics(const Plan& plan, const c10::OperatorHandle& op,
                       c10::ArrayRef<c10::IValue> args, std::vector<at::Tensor>* results) {
  const std::string name = plan.row->name;
  bool evaluates = name == "_native_batch_norm_legit_no_training";
  if (name.rfind("native_batch_norm", 0) == 0 || name.rfind("_native_batch_norm_legit", 0) == 0) {
    auto training = op.schema().argumentIndexWithName("training");
    evaluates |= training && !args[static_cast<size_t>(*training)].toBool();
  }
  for (size_t i = 1; evaluates && i < 3 && i < results->size(); i++)
    (*results)[i] = at::empty({0}, (*results)[i].options());
}

}  // namespace

bool raise_as_cpu(const Plan& plan, const c10::OperatorHandle& op,
                  c10::ArrayRef<c10::IValue> args) {
  size_t bytes = 0;
  auto count = [&bytes](const at::Tensor& tensor) {
    if (tensor.defined()) bytes += std::max(tensor.nbytes(), tensor.storage().nbytes());
  };
  for (const c10::IValue& value : args) {
    if (value.isTensor()) count(value.toTensor());
    if (value.isTensorList())
      for (const c10::IValue& element : value.toListRef()) count(element.toTensor());
  }
  if (bytes > kMostBytes) return false;
  auto stack = twin_stack(plan, args, c10::DeviceType::CPU);
  op.callBoxed(&stack);
  return true;
}

std::vector<std::pair<at::ScalarType, at::ScalarType>>
written_dtypes(const Plan& plan, c10::ArrayRef<c10::IValue> args) {
  if (!plan.functional || !has_meta(*plan.functional, plan.row->cls)) return {};
  auto twins = twin_stack(plan, args, c10::DeviceType::Meta);
  torch::jit::Stack stack;
  std::vector<at::Tensor> written, results;
  for (size_t i = 0; i < args.size(); i++) {
    if (plan.args[i].write) append_tensors(twins[i], &written);
    if (!plan.args[i].out) stack.push_back(twins[i]);
  }
  at::AutoDispatchBelowAutograd below;
  try {
    plan.functional->callBoxed(&stack);
  } catch (const std::exception&) {
    return {};  // the operator's own Meta kernel, and the CPU, have had their say
  }
  for (const c10::IValue& value : stack) append_tensors(value, &results);
  std::vector<std::pair<at::ScalarType, at::ScalarType>> pairs;
  for (size_t k = 0; k < written.size() && written.size() == results.size(); k++)
    pairs.emplace_back(results[k].scalar_type(), written[k].scalar_type());
  return pairs;
}

Meta run_meta(const Plan& plan, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
              std::vector<at::Tensor>* results, std::vector<at::Tensor>* outs) {
  if (!has_meta(op, plan.row->cls)) return Meta::Missing;
  auto stack = twin_stack(plan, args, c10::DeviceType::Meta);
  for (size_t i = 0; i < args.size(); i++)
    if (plan.args[i].out) append_tensors(stack[i], outs);
  at::AutoDispatchBelowAutograd below;
  try {
    op.callBoxed(&stack);
  } catch (const c10::NotImplementedError&) {
    outs->clear();
    return Meta::Missing;
  } catch (...) {
    if (!raise_as_cpu(plan, op, args)) throw;
    return Meta::Refused;
  }
  for (size_t i = 0; i < plan.returns.size(); i++) {
    if (plan.returns[i].alias >= 0) continue;
    const c10::IValue& value = stack[stack.size() - plan.returns.size() + i];
    if (value.isTensor() || value.isTensorList()) append_tensors(value, results);
    else results->push_back(at::Tensor());
  }
  if (outs->empty()) narrow_statistics(plan, args, results);
  forget_statistics(plan, op, args, outs->empty() ? results : outs);
  return Meta::Done;
}

}  // namespace tt
