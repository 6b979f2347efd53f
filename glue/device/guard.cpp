// The device guard: which device and stream a thread is on; streams and events.
#include "device/policy.h"
#include "dispatch/dispatch.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>

namespace tt {
namespace {

constexpr c10::DeviceIndex kMostOfAHost = 16;
constexpr c10::StreamId kPool = 32;  // streams of each priority, handed out in turn

thread_local c10::DeviceIndex tls_device = -1;  // none was chosen: the process's own
thread_local std::array<uint8_t, TT_SESSION_DEVICES> tls_streams{};

c10::DeviceIndex checked(c10::DeviceIndex index) {
  require_device(index);
  return index;
}

// An event is a place in a stream.
tt_marker* marker_of(void* event) { return static_cast<tt_marker*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override {
    return {c10::DeviceType::PrivateUse1, current_device()};
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index())
      tls_device = device.index() == tls_device ? tls_device : checked(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) tls_device = device.index();
  }

  // -- Streams --
  static c10::Stream make_stream(c10::Device device, c10::StreamId id) {
    c10::DeviceIndex index = device.has_index() ? device.index() : current_device();
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, index), id);
  }
  c10::Stream getStream(c10::Device device) const override {
    return make_stream(device, current_stream_id(make_stream(device, 0).device_index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return make_stream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    static std::atomic<c10::StreamId> next{0};
    return make_stream(device, 1 + next++ % kPool + (priority < 0 ? kPool : 0));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return getNewStream(device, high ? -1 : 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    c10::Stream old = getStream(stream.device());
    TORCH_CHECK_VALUE(stream.id() >= 0 && stream.id() < TT_DEVICE_STREAMS,
                      "device 'tpu' has no stream with id ", stream.id());
    tls_streams[static_cast<size_t>(stream.device_index())] = static_cast<uint8_t>(stream.id());
    return old;
  }
  bool queryStream(const c10::Stream& stream) const override {
    return tt_stream_idle(stream_of(stream), Policy());
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    tt_count_wait(call_site());
    check(tt_stream_sync(stream_of(stream), Policy()));
  }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return captured_stream(stream.device_index()) == stream_of(stream);
  }
#endif
  // The autograd engine asks at its start, also where nothing is on this device, and makes that
  // many threads: so the plugin stays closed, and where it alone knows there are enough for a host.
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      int known = expected_devices();
      return static_cast<c10::DeviceIndex>(known >= 0 ? device_count() : kMostOfAHost);
    } catch (const std::exception&) {
      return kMostOfAHost;
    }
  }
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 12
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability found;
    auto& types = found.capability_data.supported_scalar_types;
#define TT_HELD(_, name) types.has_##name = to_dtype(c10::ScalarType::name) != TT_INVALID;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(TT_HELD)
#undef TT_HELD
    return found;
  }
#endif
  void synchronizeDevice(c10::DeviceIndex index) const override {
    if (session()) synchronize(index < 0 ? current_device() : index);
  }

  // -- Events --
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex,
              c10::EventFlag) const override {
    tt_marker* marker = nullptr;
    check(tt_stream_mark(stream_of(stream), Policy(), &marker));
    tt_marker_release(marker_of(std::exchange(*event, marker)));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) check(tt_stream_wait_marker(stream_of(stream), marker_of(event), Policy()));
  }
  bool queryEvent(void* event) const override {
    return !event || tt_marker_passed(marker_of(event));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    tt_marker_release(marker_of(event));
  }
  void synchronizeEvent(void* event) const override {
    if (queryEvent(event)) return;
    open_session();  // throws in a forked child, where nothing comes to pass
    tt_count_wait(call_site());
    check(tt_marker_await(marker_of(event)));
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(queryEvent(start) && queryEvent(end),
                "Both events must be completed before calculating elapsed time.");
    int64_t took = tt_marker_time_ns(marker_of(end)) - tt_marker_time_ns(marker_of(start));
    return static_cast<double>(took) / 1e6;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

c10::DeviceIndex current_device() {
  return tls_device >= 0 ? tls_device : static_cast<c10::DeviceIndex>(first_device());
}

int64_t current_stream_id(c10::DeviceIndex index) {
  return tls_streams[static_cast<size_t>(index)];
}

void set_current_device(c10::DeviceIndex index) { tls_device = checked(index); }

void synchronize(c10::DeviceIndex index) {
  if (is_of_another(index)) return;
  tt_count_wait(call_site());
  check(tt_device_sync(device_of(index), Policy()));
}

}  // namespace tt
