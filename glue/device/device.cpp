// What PyTorch asks of a device besides the guard: pinned memory, generators, hooks.
#include "device/policy.h"
#include "dispatch/dispatch.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/GeneratorImpl.h>

#include <deque>
#include <map>
#include <mutex>
#include <random>

namespace tt {
namespace {

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

// Where a stream of random numbers stands. Generators may share it.
struct Stand {
  std::mutex lock;
  uint64_t seed = c10::default_rng_seed_val, offset = 0;
};

struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index, std::shared_ptr<Stand> stand = nullptr)
      : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, index),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        stand_(stand ? std::move(stand) : std::make_shared<Stand>()), own_(stand_) {}
  void set_current_seed(uint64_t seed) override { stand_->seed = seed, stand_->offset = 0; }
  void set_offset(uint64_t offset) override { stand_->offset = offset; }
  uint64_t get_offset() const override { return stand_->offset; }
  uint64_t current_seed() const override { return stand_->seed; }
  uint64_t seed() override {
    std::random_device random;
    set_current_seed((static_cast<uint64_t>(random()) << 32 | random()) & 0x1fffffffffffff);
    return stand_->seed;
  }
  // 16 bytes: the seed, then the offset, as PyTorch's DTensor expects.
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK_TYPE(state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_cpu() &&
                         state.is_contiguous(),
                     "RNG state must be a torch.ByteTensor on the CPU");
    TORCH_CHECK(state.numel() == 16, "RNG state of device 'tpu' has 16 bytes (seed, offset), not ",
                state.numel());
    const auto* words = static_cast<const char*>(state.data());
    TORCH_CHECK(words, "RNG state of device 'tpu' has no data: the tensor is fake");
    memcpy(&stand_->seed, words, 8);
    memcpy(&stand_->offset, words + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    auto state = at::detail::empty_cpu({16}, at::kByte);  // in no mode, which would make it fake
    auto* words = static_cast<char*>(state.mutable_data_ptr());
    memcpy(words, &stand_->seed, 8);
    memcpy(words + 8, &stand_->offset, 8);
    return state.getIntrusivePtr();
  }
  // As CUDA's, one that draws where this one does; and this one draws where that one does.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<Generator>(device().index(), stand_);
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    auto one = c10::dynamic_intrusive_pointer_cast<Generator>(other);
    TORCH_CHECK(one, "a generator of device 'tpu' takes the state of another one of 'tpu'");
    stand_ = one->stand_;
  }
  tt_philox_place reserve(uint64_t blocks) {
    std::lock_guard<std::mutex> guard(stand_->lock);
    tt_philox_place place{stand_->seed, stand_->offset};
    stand_->offset += blocks;
    return place;
  }
  const Stand* stand() const { return stand_.get(); }
  bool draws_elsewhere() const { return stand_ != own_; }

 private:
  Generator* clone_impl() const override {
    auto* copy = new Generator(device().index());
    copy->stand_->seed = stand_->seed;
    copy->stand_->offset = stand_->offset;
    return copy;
  }
  std::shared_ptr<Stand> stand_, own_;
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
  if (index < 0) index = current_device();
  if ((session() || index != first_device()) && !is_of_another(index)) device_of(index);
  Generators& g = Generators::get();
  std::lock_guard<std::mutex> guard(g.lock);
  while (g.all.size() <= static_cast<size_t>(index)) {
    g.all.push_back(at::make_generator<Generator>(static_cast<c10::DeviceIndex>(g.all.size())));
    g.all.back().set_current_seed(g.seed);
  }
  return g.all[static_cast<size_t>(index)];
}

const at::Generator& chosen(const std::optional<at::Generator>& generator,
                            c10::DeviceIndex device) {
  const at::Generator& one =
      generator && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(one.device().is_privateuseone(),
              "Expected a 'tpu' device type for generator but found '", one.device().type(), "'");
  return one;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return is_available(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return session() != nullptr; }
  void init() const override { open_session(); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? current_device() : index);
  }
  at::Device getDeviceFromPtr(void*) const override {
    TORCH_CHECK(false, "memory of device 'tpu' has no addresses that other libraries could use");
  }
  bool isPinnedPtr(const void* data) const override { return PinnedAllocator::get().owns(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::get(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(is_available() ? device_count() : 0);
  }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    c10::DeviceIndex old = current_device();
    if (index >= 0) set_current_device(index);
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

void manual_seed_all(uint64_t seed) {
  Generators& g = Generators::get();
  std::lock_guard<std::mutex> guard(g.lock);
  g.seed = seed;
  for (at::Generator& generator : g.all) {
    std::lock_guard<std::mutex> one(generator.mutex());
    generator.set_current_seed(seed);
  }
}

tt_philox_place reserve_philox(const std::optional<at::Generator>& generator,
                               c10::DeviceIndex device, int64_t blocks) {
  return chosen(generator, device).get<Generator>()->reserve(static_cast<uint64_t>(blocks));
}

const void* identity_of(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  const at::Generator& one = chosen(generator, device);
  auto* ours = one.get<Generator>();
  return one == default_generator(device) && !ours->draws_elsewhere() ? nullptr : ours->stand();
}

at::Generator generator_as_now(const std::optional<at::Generator>& generator,
                               c10::DeviceIndex device) {
  return at::Generator(chosen(generator, device).get<Generator>()->graphsafe_get_state());
}

}  // namespace tt
