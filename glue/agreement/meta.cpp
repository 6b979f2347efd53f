// PyTorch's own shape functions: the same operator on tensors without data.
#include "agreement/agreement.h"

#include <ATen/core/LegacyTypeDispatch.h>
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
    if (!tensor.defined()) return tensor;
    auto options = tensor.options().device(device_);
    bool meta = device_ == c10::DeviceType::Meta;
    if (meta && is_number(tensor)) return at::empty({}, options);
    if (!tensor.device().is_privateuseone()) return tensor;
    if (meta) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
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
  // A number in a tensor of the host may stand beside any tensor; some Meta kernels in Python
  // think otherwise.
  static bool is_number(const at::Tensor& tensor) {
    bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    return tensor.device().is_cpu() && tensor.dim() == 0 && !wrapped;
  }

  c10::DeviceType device_;
  std::unordered_map<c10::StorageImpl*, size_t> room_;
  int64_t fill_;
  std::unordered_map<c10::StorageImpl*, std::optional<c10::Storage>> storages_;
};

// What the host's twins are full of at first: zeros are fit for indices, and ones for operands that
// integers may be divided by.
int64_t fill_of(const tt_op_row* row) { return row && computes_with_all(row->cls); }

// Visits the tensors that live on the device.
template <class Visit> void each_of_device(c10::ArrayRef<c10::IValue> args, Visit visit) {
  for (const c10::IValue& value : args)
    each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.defined() && tensor.device().is_privateuseone()) visit(tensor);
    });
}

torch::jit::Stack twin_stack(c10::ArrayRef<c10::IValue> args, c10::DeviceType device,
                             int64_t fill = 0) {
  torch::jit::Stack stack;
  Twins twins(device, fill);
  each_of_device(args, [&twins](const at::Tensor& tensor) { twins.make_room(tensor); });
  for (const c10::IValue& value : args) {
    if (value.isDevice()) stack.emplace_back(c10::Device(device));
    else if (value.isGenerator()) stack.emplace_back();
    else stack.push_back(map_tensors(value, [&](const at::Tensor& one) { return twins.of(one); }));
  }
  return stack;
}

// Whether this thread asks Meta kernels about tensors of this device, which are to lie as the
// CPU's.
thread_local bool asking_meta = false;

class Asking {
 public:
  explicit Asking(const Plan& plan)
      : before_(std::exchange(asking_meta, !plan.agreed.has(Agree::AsOnCuda))) {}
  ~Asking() { asking_meta = before_; }
  Asking(const Asking&) = delete;
  Asking& operator=(const Asking&) = delete;

 private:
  bool before_;
};

bool has_meta(const c10::OperatorHandle& op, tt_op_class cls) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::Meta)) return true;
  // The composite kernels of *_overrideable operators only throw.
  return cls != TT_CONV && op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
}

// Shape functions in Python that forget that a tensor may be None know nothing of such arguments.
bool stumbled(const pybind11::error_already_set& error) {
  pybind11::gil_scoped_acquire gil;
  return error.matches(PyExc_AttributeError);
}

// What the CPU raises for tensors full of one number.
std::exception_ptr refusal(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args,
                           int64_t fill) {
  auto stack = twin_stack(args, c10::DeviceType::CPU, fill);
  try {
    op.callBoxed(&stack);
  } catch (const c10::LinAlgError&) {
    // It took the arguments: of matrices full of one number there is no factorisation.
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

bool asks_meta() { return asking_meta; }

bool raise_as_cpu(const Plan& plan, const c10::OperatorHandle& op,
                  c10::ArrayRef<c10::IValue> args) {
  size_t bytes = 0;
  each_of_device(args, [&bytes](const at::Tensor& tensor) {
    bytes += std::max(tensor.nbytes(), tensor.storage().nbytes());
  });
  if (bytes > kMostBytes || !op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU))
    return false;
  int64_t fill = fill_of(plan.row);
  std::exception_ptr error = refusal(op, args, fill);
  if (error && refusal(op, args, 1 - fill)) std::rethrow_exception(error);
  return true;
}

std::vector<std::pair<at::ScalarType, at::ScalarType>>
written_dtypes(const Plan& plan, c10::ArrayRef<c10::IValue> args) {
  if (!plan.functional || !has_meta(*plan.functional, plan.row->cls)) return {};
  auto twins = twin_stack(args, c10::DeviceType::Meta);
  torch::jit::Stack stack;
  std::vector<at::Tensor> written, results;
  for (size_t i = 0; i < args.size(); i++) {
    if (plan.args[i].write) append_tensors(twins[i], &written);
    if (!plan.args[i].out) stack.push_back(twins[i]);
  }
  Asking asking(plan);
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
  const auto twins = twin_stack(args, c10::DeviceType::Meta);
  if (state_shapes(plan, twins, results)) return Meta::Done;
  if (!has_meta(op, plan.row->cls)) return Meta::Missing;
  auto stack = twins;
  for (size_t i = 0; i < args.size(); i++)
    if (plan.args[i].out) append_tensors(stack[i], outs);
  Asking asking(plan);
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
  correct_shapes(plan, twins, outs->empty() ? *results : *outs);
  return Meta::Done;
}

}  // namespace tt
