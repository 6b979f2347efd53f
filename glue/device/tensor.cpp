// The kernels that are about tensors themselves: creating, viewing, resizing, copying to the host.
#include "device/policy.h"
#include "dispatch/conj_neg.h"
#include "dispatch/convert.h"
#include "dispatch/dispatch.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/NativeFunctions.h>
#include <ATen/ops/_conj_physical.h>

namespace tt {
namespace {

using at::Tensor;

c10::DeviceIndex index_of(std::optional<at::Device> device) {
  return device && device->has_index() ? device->index() : current_device();
}

// Whether what is not initialised is to be conspicuous, though it is zeros in any case.
bool fills_empty() {
  return at::globalContext().deterministicAlgorithms() &&
         at::globalContext().deterministicFillUninitializedMemory();
}

Tensor unfilled(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                std::optional<at::Device> device, std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  return empty_strided(size, stride, at::dtype_or_default(dtype), index_of(device));
}

Tensor empty_strided_kernel(at::IntArrayRef size, at::IntArrayRef stride,
                            std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                            std::optional<at::Device> device, std::optional<bool> pin) {
  Tensor made = unfilled(size, stride, dtype, device, pin);
  return fills_empty() ? at::native::fill_empty_deterministic_(made) : made;
}

// Zeros that operators know to be zeros; should one need them, an unwritten storage reads as zeros.
Tensor efficient_zero_tensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                             std::optional<at::Layout>, std::optional<at::Device> device,
                             std::optional<bool> pin) {
  Tensor plain = unfilled(size, c10::contiguous_strides(size), dtype, device, pin);
  auto zeros = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(plain.storage()), plain.key_set().add(c10::DispatchKey::ZeroTensor),
      plain.dtype());
  zeros.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return zeros;
}

Tensor empty_kernel(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device,
                    std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  c10::DimVector strides = c10::contiguous_strides(size);
  if (format.value_or(at::MemoryFormat::Contiguous) != at::MemoryFormat::Contiguous)
    strides = at::empty(size, at::TensorOptions(at::kMeta).memory_format(format)).strides();
  return empty_strided_kernel(size, strides, dtype, layout, device, pin);
}

// -- Views --

// A kernel of PyTorch that takes a tensor's storage, which another thread may replace.
template <auto kernel> struct Viewing;
template <class Result, class... Args, Result (*kernel)(Args...)> struct Viewing<kernel> {
  static Result call(Args... args) {
    Guarded guarded;
    return kernel(args...);
  }
};

struct Replaced : tt_deferred {
  c10::Storage storage;
};

// The tensor is about to get another storage. A thread that found this one may still use it.
void keep_replaced(const Tensor& tensor) {
  if (!tensor.has_storage() || !tensor.device().is_privateuseone()) return;
  auto* item = new Replaced{{}, tensor.storage()};
  item->run = [](tt_deferred* one) { delete static_cast<Replaced*>(one); };
  tt_guard_defer(item);
}

// Asked by `tensor.data = other`, among others.
bool compatible_shallow_copy(const Tensor& self, const Tensor&) {
  keep_replaced(self);
  return true;
}

c10::Storage storage_now(const Tensor& tensor) {
  Guarded guarded;
  return tensor.storage();
}

// -- Resizing and setting --

void ensure_bytes(const c10::Storage& storage, size_t needed) {
  if (needed > storage.nbytes()) resize_storage(storage, needed);
}

size_t bytes_needed(at::IntArrayRef size, at::IntArrayRef stride, int64_t offset, size_t itemsize) {
  return at::detail::computeStorageNbytes(size, stride, itemsize, static_cast<size_t>(offset));
}

const Tensor& resize_kernel(const Tensor& self, at::IntArrayRef size,
                            std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != size) {
    for (int64_t s : size)
      TORCH_CHECK(s >= 0, "Trying to resize a tensor to negative dimension ", s);
    size_t before = self.storage().nbytes();
    ensure_bytes(self.storage(), bytes_needed(size, c10::contiguous_strides(size),
                                              self.storage_offset(), self.itemsize()));
    impl->set_sizes_contiguous(size);
    if (fills_empty()) at::native::fill_resize_deterministic_(self, static_cast<int64_t>(before));
  }
  if (format && *format != at::MemoryFormat::Preserve) impl->empty_tensor_restride(*format);
  return self;
}

Tensor& set_storage_offset(Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                           at::IntArrayRef stride) {
  TORCH_CHECK(source.device_type() == c10::DeviceType::PrivateUse1,
              "Attempted to set the storage of a tensor on device '", self.device(),
              "' to a storage on different device '", source.device(), "'");
  c10::DimVector contiguous = c10::contiguous_strides(size);
  if (stride.data() == nullptr || stride.size() != size.size()) stride = contiguous;
  ensure_bytes(source, bytes_needed(size, stride, offset, self.itemsize()));
  keep_replaced(self);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(size, stride);
  return self;
}

// -- Copies --

// Lets go of host memory that the device was copying.
void release_tensor(void* tensor) { delete static_cast<Tensor*>(tensor); }

// As torch.tpu.set_sync_debug_mode asks for.
void tell_of_wait(uint32_t site) {
  int told = setting_now(kWaits);
  if (told == 0) return;
  std::string text = std::string("the host waits for a tensor's value at ") + tt_site_text(site) +
                     ", and torch.tpu.set_sync_debug_mode asks for this message";
  TORCH_CHECK(told == 1, text);
  TORCH_WARN(text);
}

// The tensor as the host sees it. A view of a storage not much larger than itself is read with
// its storage and strided here, so that looking at elements compiles nothing.
Tensor to_host(const Tensor& source) {
  open_session();  // throws in a forked child, where nothing comes to pass
  c10::Storage held = storage_now(source);
  tt_storage* storage = storage_of(held.unsafeGetStorageImpl());
  int64_t bytes = tt_storage_bytes(storage),
          own = source.numel() * static_cast<int64_t>(source.itemsize());
  if (bytes > 65536 && bytes > 2 * own) return to_host(source.clone(at::MemoryFormat::Contiguous));
  auto seen = static_cast<int64_t>(
      bytes_needed(source.sizes(), source.strides(), source.storage_offset(), source.itemsize()));
  auto host = at::empty({std::max(bytes, seen)}, at::kByte);
  {
    c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
    uint32_t site = call_site();
    tt_count_wait(site);
    tell_of_wait(site);
    TORCH_CHECK(!captured_stream(source.device().index()), "a tensor's value is asked for at ",
                tt_site_text(site), ", where a graph is being captured and nothing is computed");
    check(tt_storage_read(storage, host.mutable_data_ptr(), host.numel(), Policy()));
  }
  auto result = at::empty({0}, source.options().device(at::kCPU));
  result.set_(host.storage(), source.storage_offset(), source.sizes(), source.strides());
  return result;
}

// What the stream was asked to copy from this memory of the host, or to it, comes first.
void await_host(const Tensor& host, c10::DeviceIndex device, bool written) {
  if (!host.has_storage()) return;
  const auto& storage = host.storage();
  check(tt_stream_await_host(stream_of(device), storage.data(),
                             static_cast<int64_t>(storage.nbytes()), written));
}

// Its bytes are the target's as they are, and pinned: the copy may go on after the return.
bool may_lend(const Tensor& source, const Tensor& target) {
  return source.is_pinned() && source.scalar_type() == target.scalar_type() &&
         source.sizes() == target.sizes() && source.is_contiguous() && !has_conj_neg(source) &&
         !has_conj_neg(target);
}

void copy_from_host(const Tensor& source, const Tensor& target, bool later) {
  open_session();
  c10::Storage held = storage_now(target);
  tt_storage* storage = storage_of(held.unsafeGetStorageImpl());
  auto index = target.device().index();
  bool lent = later && may_lend(source, target);
  auto host = source.to(target.scalar_type())
                  .expand(target.sizes())
                  .contiguous()
                  .resolve_conj()
                  .resolve_neg();
  tt_view view = view_of(target);
  if (!target.is_contiguous() || !tt_view_covers(&view, storage->type)) {
    auto staged = at::empty(target.sizes(), target.options());
    copy_from_host(host, staged, later);
    return run_copy(target, staged);
  }
  tt_type type = tt_view_held(&view);
  if (storage->type->dtype == type.dtype) type = *storage->type;
  const void* data = host.const_data_ptr();
  Policy policy;
  policy.keeps_sizes = source.requires_grad();
  check(lent ? tt_storage_write_later(stream_of(index), storage, &type, data, &release_tensor,
                                      new Tensor(host), policy, call_site())
             : tt_storage_write(stream_of(index), storage, &type, data, policy, call_site()));
}

// A tensor that is the whole of its storage, row by row: another place may take its bytes.
Tensor whole(const Tensor& source, at::ScalarType dtype) {
  Tensor same = source.to(dtype);
  return is_canonical(same, storage_of(same)) ? same : same.clone(at::MemoryFormat::Contiguous);
}

// Whether Python has the tensor. What it has not is the new result of Tensor.to, which PyTorch pins
// by itself, and which nobody knows to wait for.
template <class Slot> bool in_python(const Slot& slot) {
  if constexpr (requires { slot.load_pyobj(); }) return slot.load_pyobj() != nullptr;
  else return slot._unchecked_untagged_pyobj() != nullptr;  // before PyTorch 2.13
}

// Into pinned memory, which is complete when the stream has come so far.
bool copy_to_host_later(const Tensor& source, const Tensor& target) {
  if (!target.is_contiguous() || !target.is_pinned() || source.sizes() != target.sizes() ||
      !in_python(*target.unsafeGetTensorImpl()->pyobj_slot()))
    return false;
  Tensor from = whole(source, target.scalar_type());
  auto index = source.device().index();
  check(tt_storage_read_later(stream_of(index), storage_of(from), target.mutable_data_ptr(),
                              tt_storage_bytes(storage_of(from)), Policy(), &release_tensor,
                              new Tensor(target)));
  return true;
}

// Between two devices, by the plugin; false where it cannot.
bool copy_between(const Tensor& source, const Tensor& target) {
  auto shape = source.sizes() == target.sizes() ? source : source.expand(target.sizes());
  Tensor from = whole(shape, target.scalar_type());
  tt_view view = view_of(target);
  bool covers = target.is_contiguous() && tt_view_covers(&view, storage_of(target)->type);
  Tensor to = covers ? target : at::empty(target.sizes(), target.options());
  tt_status status = tt_storage_transfer(stream_of(target.device().index()), storage_of(to),
                                         storage_of(from), Policy(), call_site());
  if (tt_status_code(status) == TT_UNIMPLEMENTED) return tt_status_release(status), false;
  check(status);
  if (!covers) run_copy(target, to);
  return true;
}

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  if (self._is_zerotensor()) return const_cast<Tensor&>(dst).zero_();
  TORCH_CHECK(!dst._is_zerotensor(),
              "ZeroTensors are immutable. Please materialize the tensor using `.clone()`");
  if (self.numel() == 0 && dst.numel() == 0) return dst;
  if (self.is_cpu() && !(non_blocking && may_lend(self, dst)))
    await_host(self, dst.device().index(), false);
  auto source = without_conj_neg(self);
  if (dst.is_conj() || dst.is_neg()) {
    if (dst.is_conj()) source = at::_conj_physical(source);
    copy_from(dst.is_neg() ? source.neg() : source, conj_neg_base(dst), non_blocking);
    return dst;
  }
  bool from_device = source.device().is_privateuseone(),
       to_device = dst.device().is_privateuseone();
  if (!from_device) {
    copy_from_host(source, dst, non_blocking);
  } else if (!to_device) {
    if (non_blocking && copy_to_host_later(source, dst)) return dst;
    auto host = to_host(source);
    await_host(dst, source.device().index(), true);
    const_cast<Tensor&>(dst).copy_(host);
  } else if (source.device() == dst.device()) {
    // `x[i] += y` ends in a copy onto itself, which PyTorch's own kernel leaves out, too.
    bool same = source.scalar_type() == dst.scalar_type() && at::native::is_set_to(source, dst);
    if (!same) run_copy(dst, source);
  } else if (!copy_between(source, dst)) {
    copy_from_host(to_host(source), dst, false);
  }
  return dst;
}

at::Scalar local_scalar_dense(const Tensor& self) {
  return at::_local_scalar_dense(to_host(without_conj_neg(self)));
}

void record_stream(Tensor&, at::Stream) {}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty_kernel));
  m.impl("empty_strided", TORCH_FN(empty_strided_kernel));
  m.impl("_efficientzerotensor", TORCH_FN(efficient_zero_tensor));
  m.impl("is_set_to", TORCH_FN(Viewing<&at::native::is_set_to>::call));
  m.impl("as_strided", TORCH_FN(Viewing<&at::native::as_strided_tensorimpl>::call));
  m.impl("view", TORCH_FN(Viewing<&at::native::view>::call));
  m.impl("_reshape_alias", TORCH_FN(Viewing<&at::native::_reshape_alias>::call));
  m.impl("alias", TORCH_FN(Viewing<&at::native::alias>::call));
  m.impl("detach", TORCH_FN(Viewing<&at::native::detach>::call));
  m.impl("unfold", TORCH_FN(Viewing<&at::native::unfold>::call));
  m.impl("view_as_real", TORCH_FN(Viewing<&at::native::view_as_real>::call));
  m.impl("view_as_complex", TORCH_FN(Viewing<&at::native::view_as_complex>::call));
  m.impl("resize_", TORCH_FN(resize_kernel));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("set_.source_Storage", static_cast<Tensor& (*)(Tensor&, at::Storage)>(&at::native::set_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(compatible_shallow_copy));
  m.impl("record_stream", TORCH_FN(record_stream));
}

}  // namespace

void resize_storage(const c10::Storage& storage, size_t bytes) {
  check(tt_storage_resize(stream_of(storage.device().index()), open_session()->calls,
                          storage_of(storage.unsafeGetStorageImpl()), static_cast<int64_t>(bytes),
                          Policy()));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

bool fit_output(const at::Tensor& target, const at::Tensor& like) {
  if (!at::native::resize_output(target, like.sizes())) return false;
  auto extent = bytes_needed(like.sizes(), like.strides(), 0, 1);
  if (target.strides() != like.strides())
    target.resize_({static_cast<int64_t>(extent)}).as_strided_(like.sizes(), like.strides());
  return true;
}

}  // namespace tt
