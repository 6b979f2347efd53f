// PyTorch's own shape functions: the same operator on tensors without data.
#include "plan.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/ConvUtils.h>
#include <pybind11/pybind11.h>

#include <unordered_map>

namespace tt {
namespace {

constexpr size_t kMostBytes = size_t{1} << 28;

// Twins of tensors, without data on the meta device, full of one number on the host. On the host,
// those that share memory do so as well, and each storage has room for all tensors: kernels that
// take a target for contiguous, though its elements coincide, then write nowhere else.
class Twins {
 public:
  Twins(c10::DeviceType device, int64_t fill) : device_(device), fill_(fill) {}

  void make_room(const at::Tensor& tensor) {
    size_t first = static_cast<size_t>(tensor.storage_offset()) * tensor.itemsize();
    auto& room = room_[tensor.storage().unsafeGetStorageImpl()];
    room = std::max({room, tensor.storage().nbytes(), first + tensor.nbytes()});
  }

  at::Tensor of(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_privateuseone()) return tensor;
    auto options = tensor.options().device(device_);
    if (device_ == c10::DeviceType::Meta)
      return at::empty_strided(tensor.sizes(), tensor.strides(), options);
    auto* own = tensor.storage().unsafeGetStorageImpl();
    auto& storage = storages_[own];
    if (!storage) {
      auto bytes = static_cast<int64_t>(room_[own]);
      auto width = static_cast<int64_t>(tensor.itemsize());
      storage = fill_ ? at::full({(bytes + width - 1) / width}, fill_, options).storage()
                      : at::zeros({bytes}, options.dtype(at::kByte)).storage();
    }
    auto same = at::empty({0}, options);
    return same.set_(*storage, tensor.storage_offset(), tensor.sizes(), tensor.strides());
  }

 private:
  c10::DeviceType device_;
  std::unordered_map<c10::StorageImpl*, size_t> room_;
  int64_t fill_;
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

// Visits the tensors that live on the device.
template <class Visit> void each_of_device(c10::ArrayRef<c10::IValue> args, Visit visit) {
  for (const c10::IValue& value : args)
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.device().is_privateuseone()) visit(tensor);
    });
}

torch::jit::Stack twin_stack(const Plan& plan, c10::ArrayRef<c10::IValue> args,
                             c10::DeviceType device, int64_t fill = 0) {
  torch::jit::Stack stack;
  Twins twins(device, fill);
  each_of_device(args, [&twins](const at::Tensor& tensor) { twins.make_room(tensor); });
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

// The loss of a lone sample has no dims on the CPU; its Meta kernel gives it one.
void forget_sample(const Plan& plan, c10::ArrayRef<c10::IValue> args,
                   std::vector<at::Tensor>* results) {
  if (plan.name != "aten::multilabel_margin_loss_forward" || args[0].toTensor().dim() > 1) return;
  (*results)[0] = at::empty({}, (*results)[0].options());
}

bool channels_last(const at::Tensor& tensor) {
  auto format = tensor.suggest_memory_format();
  return format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
}

// A convolution's result lies in memory as its image or its weight does, of doubles aside; its
// sizes were checked by who calls it. The arguments are those of aten::convolution.
void convolve(const torch::jit::Stack& args, std::vector<at::Tensor>* results) {
  at::Tensor x = args[0].toTensor(), w = args[1].toTensor();
  auto stride = args[3].toIntVector(), padding = args[4].toIntVector();
  auto dilation = args[5].toIntVector(), more = args[7].toIntVector();
  auto sizes = args[6].toBool()
                   ? at::native::conv_input_size(x.sizes(), w.sizes(), padding, more, stride,
                                                 dilation, args[8].toInt())
                   : at::native::conv_output_size(x.sizes(), w.sizes(), padding, stride, dilation);
  bool last = (channels_last(x) || channels_last(w)) && x.scalar_type() != at::kDouble;
  auto format = !last          ? at::MemoryFormat::Contiguous
                : x.dim() == 4 ? at::MemoryFormat::ChannelsLast
                               : at::MemoryFormat::ChannelsLast3d;
  results->push_back(at::empty(sizes, x.options().memory_format(format)));
}

// Shape functions in Python that forget that a tensor may be None know nothing of such arguments.
bool stumbled(const pybind11::error_already_set& error) {
  pybind11::gil_scoped_acquire gil;
  return error.matches(PyExc_AttributeError);
}

}  // namespace

bool raise_as_cpu(const Plan& plan, const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
                  int64_t fill) {
  size_t bytes = 0;
  each_of_device(args, [&bytes](const at::Tensor& tensor) {
    bytes += std::max(tensor.nbytes(), tensor.storage().nbytes());
  });
  if (bytes > kMostBytes || !op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
    return false;
  auto stack = twin_stack(plan, args, c10::DeviceType::CPU, fill);
  try {
    op.callBoxed(&stack);
  } catch (const c10::LinAlgError&) {
    // It took the arguments: of matrices full of one number there is no factorisation.
  }
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
  if (plan.name == "aten::convolution_overrideable") {
    convolve(twin_stack(plan, args, c10::DeviceType::Meta), results);
    return Meta::Done;
  }
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
  } catch (const pybind11::error_already_set& error) {
    if (stumbled(error)) return Meta::Missing;
    if (!raise_as_cpu(plan, op, args)) throw;
    return Meta::Refused;
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
  forget_sample(plan, args, results);
  return Meta::Done;
}

}  // namespace tt
