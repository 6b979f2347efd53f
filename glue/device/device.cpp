// What PyTorch asks of a device: guard, hooks, streams and events, pinned memory, generator.
#include "dispatch/dispatch.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/GeneratorImpl.h>

#include <chrono>
#include <deque>
#include <mutex>
#include <random>

namespace tt {
namespace {

thread_local c10::DeviceIndex tls_device = 0;
thread_local c10::StreamId tls_stream = 0;

c10::DeviceIndex checked(c10::DeviceIndex index) {
  ensure_runtime();
  TORCH_CHECK(index >= 0 && index < tt_runtime_device_count(),
              "invalid device ordinal tpu:", static_cast<int>(index), ": this process has ",
              tt_runtime_device_count(), " tpu device(s), numbered from 0");
  return index;
}

bool try_runtime() {
  if (tt_runtime_ready()) return true;
  try {
    ensure_runtime();
  } catch (const c10::Error&) {
    return false;
  }
  return true;
}

// -- Events: a ticket on the stream, and when it was seen to have passed --

struct Event {
  tt_stream* stream = nullptr;
  uint64_t ticket = 0;
  std::chrono::steady_clock::time_point recorded;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return {c10::DeviceType::PrivateUse1, tls_device}; }
  void setDevice(c10::Device device) const override {
    if (device.has_index())
      tls_device = device.index() == tls_device ? tls_device : checked(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) tls_device = device.index();
  }
  c10::Stream make_stream(c10::Device device, c10::StreamId id) const {
    c10::DeviceIndex index = device.has_index() ? device.index() : tls_device;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, index), id);
  }
  c10::Stream getStream(c10::Device device) const override {
    return make_stream(device, tls_stream);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return make_stream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<c10::StreamId> next{1};
    return make_stream(device, next++);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return getNewStream(device, high);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::Stream old = getStream(stream.device());
    tls_stream = stream.id();
    return old;
  }
  // No throw, no side effect: the autograd engine asks at start-up.
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(try_runtime() ? tt_runtime_device_count() : 0);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    if (!*event) *event = new Event;
    auto* e = static_cast<Event*>(*event);
    e->stream = stream_of(stream.device_index());
    e->ticket = tt_stream_ticket(e->stream);
    // The time of an event is when the work before it has ended.
    tt_count_wait(call_site());
    tt_stream_wait(e->stream, e->ticket);
    e->recorded = std::chrono::steady_clock::now();
  }
  void block(void*, const c10::Stream&) const override {}  // one device runs its streams in order
  bool queryEvent(void* event) const override {
    auto* e = static_cast<Event*>(event);
    return !e || tt_stream_passed(e->stream, e->ticket);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void synchronizeEvent(void* event) const override {
    auto* e = static_cast<Event*>(event);
    if (!e || tt_stream_passed(e->stream, e->ticket)) return;
    tt_count_wait(call_site());
    tt_stream_wait(e->stream, e->ticket);
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    auto span = static_cast<Event*>(end)->recorded - static_cast<Event*>(start)->recorded;
    return std::chrono::duration<double, std::milli>(span).count();
  }
  bool queryStream(const c10::Stream& stream) const override {
    return tt_stream_idle(stream_of(stream.device_index()));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    if (tt_runtime_ready()) synchronize(index < 0 ? tls_device : index);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// -- Pinned memory: 64-byte aligned host memory that we recognise again --

struct PinnedAllocator final : at::HostAllocator {
  std::mutex lock;
  std::map<const void*, size_t> blocks;

  static PinnedAllocator& get() {
    static auto* one = new PinnedAllocator;
    return *one;
  }
  static void release(void* data) {
    auto& self = get();
    {
      std::lock_guard<std::mutex> guard(self.lock);
      self.blocks.erase(data);
    }
    free(data);
  }
  c10::DataPtr allocate(size_t size) override {
    if (size == 0) return {nullptr, nullptr, &release, at::kCPU};
    void* data = aligned_alloc(64, (size + 63) / 64 * 64);
    TORCH_CHECK_WITH(OutOfMemoryError, data, "out of pinned host memory: ", size, " bytes");
    std::lock_guard<std::mutex> guard(lock);
    blocks[data] = size;
    return {data, data, &release, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t size) const override { memcpy(to, from, size); }
  bool owns(const void* data) {
    std::lock_guard<std::mutex> guard(lock);
    auto after = blocks.upper_bound(data);
    if (after == blocks.begin()) return false;
    --after;
    return static_cast<const char*>(data) < static_cast<const char*>(after->first) + after->second;
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

// -- Generator: a seed and an offset in Philox blocks --

struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index)
      : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, index),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override { seed_ = seed, offset_ = 0; }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    std::random_device random;
    set_current_seed((static_cast<uint64_t>(random()) << 32 | random()) & 0x1fffffffffffff);
    return seed_;
  }
  // 16 bytes: the seed, then the offset, as PyTorch's DTensor expects.
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK_TYPE(state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_cpu() &&
                         state.is_contiguous(),
                     "RNG state must be a torch.ByteTensor on the CPU");
    TORCH_CHECK(state.numel() == 16, "RNG state of device 'tpu' has 16 bytes (seed, offset), not ",
                state.numel());
    const auto* words = static_cast<const char*>(state.data());
    memcpy(&seed_, words, 8);
    memcpy(&offset_, words + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    auto* words = static_cast<char*>(state.mutable_data_ptr());
    memcpy(words, &seed_, 8);
    memcpy(words + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  PhiloxSlice reserve(uint64_t blocks) {
    std::lock_guard<std::mutex> guard(mutex_);
    PhiloxSlice slice{seed_, offset_};
    offset_ += blocks;
    return slice;
  }

 private:
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

// One a device, made when first asked for; seeding does not open the plugin.
struct Generators {
  std::mutex lock;
  std::deque<at::Generator> all;
  uint64_t seed = c10::default_rng_seed_val;  // of those not made yet

  static Generators& get() {
    static auto* one = new Generators;
    return *one;
  }
};

const at::Generator& default_generator(c10::DeviceIndex index) {
  if (index < 0) index = tls_device;
  if (tt_runtime_ready() || index != 0) checked(index);
  Generators& g = Generators::get();
  std::lock_guard<std::mutex> guard(g.lock);
  while (g.all.size() <= static_cast<size_t>(index)) {
    g.all.push_back(at::make_generator<Generator>(static_cast<c10::DeviceIndex>(g.all.size())));
    g.all.back().set_current_seed(g.seed);
  }
  return g.all[static_cast<size_t>(index)];
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return try_runtime(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return tt_runtime_ready(); }
  void init() const override { ensure_runtime(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? tls_device : index);
  }
  at::Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK(false, "memory of device 'tpu' has no addresses that other libraries could use");
  }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::get().owns(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::get(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
  c10::DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { tls_device = checked(index); }
  c10::DeviceIndex getCurrentDevice() const override { return tls_device; }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    c10::DeviceIndex old = tls_device;
    if (index >= 0) tls_device = checked(index);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
};

// All leaked: other threads may ask until the process ends.
[[maybe_unused]] bool hooks_registered = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);
[[maybe_unused]] bool pinned_registered =
    (at::setHostAllocator(at::kPrivateUse1, &PinnedAllocator::get()), true);

}  // namespace

c10::DeviceIndex current_device() { return tls_device; }

void manual_seed_all(uint64_t seed) {
  Generators& g = Generators::get();
  std::lock_guard<std::mutex> guard(g.lock);
  g.seed = seed;
  for (at::Generator& generator : g.all) {
    std::lock_guard<std::mutex> one(generator.mutex());
    generator.set_current_seed(seed);
  }
}

PhiloxSlice reserve_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           int64_t blocks) {
  const at::Generator& chosen =
      generator && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(chosen.device().is_privateuseone(),
              "Expected a 'tpu' device type for generator but found '", chosen.device().type(),
              "'");
  return chosen.get<Generator>()->reserve(static_cast<uint64_t>(blocks));
}

void synchronize(c10::DeviceIndex index) {
  tt_count_wait(call_site());
  check(tt_stream_sync(stream_of(index)));
}

}  // namespace tt
