// Storages: a DataPtr's context is a tt_storage; its data pointer is an address, never memory.
#include "dispatch/convert.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/EmptyTensor.h>

namespace tt {

static void release_storage(void* context) {
  if (!is_forked()) tt_storage_release(static_cast<tt_storage*>(context));
}

static c10::DataPtr wrap(tt_storage* storage, c10::DeviceIndex device) {
  return {storage, storage, &release_storage, c10::Device(c10::DeviceType::PrivateUse1, device)};
}

static tt_storage* new_storage(const tt_type& type, c10::DeviceIndex device) {
  tt_storage* storage = nullptr;
  check(tt_stream_new_storage(stream_of(device), &type, &storage));
  return storage;
}

static tt_account* account_of(c10::DeviceIndex device) { return &device_like(device)->account; }

static tt_memory memory_of(c10::DeviceIndex device) {
  tt_memory memory, nothing{};
  tt_account_read(account_of(device), &memory);
  nothing.limit = memory.limit;
  return is_of_another(device) ? nothing : memory;
}

namespace {

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    int64_t count = static_cast<int64_t>(bytes);
    c10::DeviceIndex device = current_device();
    return wrap(new_storage(tt_type_make(TT_U8, 1, &count), device), device);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_storage; }
  // What copies on write (torch._lazy_clone) puts its own context into a DataPtr that is simple.
  bool is_simple_data_ptr(const c10::DataPtr&) const override { return false; }
  void copy_data(void*, const void*, size_t) const override {
    TORCH_CHECK(false, "memory of device 'tpu' cannot be copied by address; use Tensor.copy_");
  }

  bool initialized() override { return session() != nullptr; }
  void emptyCache(c10::MempoolId_t) override {
    for (int i = 0; i < open_devices(); i++) {
      tt_device* device = session()->devices[i];
      tt_device_lock(device);
      tt_device_release_zeros(device);
      tt_device_unlock(device);
    }
    tt_memory_trim();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    Guarded guarded;  // drops storages that were replaced
    tt_memory memory = memory_of(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    auto fill = [](auto& stat, int64_t current, int64_t peak, int64_t freed) {
      stat = {current, peak, current + freed, freed};
    };
    int64_t freed = memory.total_allocated - memory.allocated;
    for (auto* array : {&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes})
      fill((*array)[0], memory.tensors, memory.tensors_peak, freed);
    fill(stats.reserved_bytes[0], memory.allocated, memory.peak, freed);
    for (auto* array : {&stats.allocation, &stats.active})
      fill((*array)[0], memory.allocations - memory.frees, memory.allocations, memory.frees);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    if (!is_of_another(device)) tt_account_reset_totals(account_of(device));
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    if (!is_of_another(device)) tt_account_reset_peak(account_of(device));
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    tt_memory memory = memory_of(device);
    int64_t available = memory.limit > memory.allocated ? memory.limit - memory.allocated : 0;
    return {static_cast<size_t>(available), static_cast<size_t>(memory.limit)};
  }
};

Allocator the_allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &the_allocator)

}  // namespace

c10::Allocator* allocator() { return &the_allocator; }

c10::Storage own(tt_storage* storage, c10::DeviceIndex device) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(tt_storage_bytes(storage)),
      wrap(storage, device), &the_allocator, /*resizable=*/true);
}

at::Tensor tensor_on(c10::Storage storage, const tt_view& view) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(from_dtype(view.dtype)));
  auto rank = static_cast<size_t>(view.rank);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides({view.sizes, rank}, {view.strides, rank},
                                                      view.offset);
  return tensor;
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                         c10::DeviceIndex device) {
  TORCH_CHECK(sizes.size() <= TT_MAX_RANK, "device 'tpu' supports tensors of at most ", TT_MAX_RANK,
              " dims, not ", sizes.size());
  at::detail::check_size_nonnegative(sizes);
  tt_view view{};
  view.dtype = require_dtype(dtype);
  view.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), view.sizes);
  std::copy(strides.begin(), strides.end(), view.strides);
  auto extent = static_cast<int64_t>(at::detail::computeStorageNbytes(sizes, strides, 1));
  tt_type type = tt_type_make(tt_dtype_held(view.dtype), 1, &extent);
  if (tt_view_covers(&view, &type)) tt_view_dense(&view, &type);
  return tensor_on(own(new_storage(type, device), device), view);
}

}  // namespace tt
