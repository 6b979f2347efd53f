#include "device/session.h"

#include "device/library.h"
#include "device/policy.h"
#include "dispatch/dispatch.h"

#include <pthread.h>
#include <pybind11/pybind11.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>

namespace py = pybind11;

namespace tt {
namespace {

// Both are set when the plugin is opened; a forked child has the first alone.
std::atomic<tt_session*> the_session{nullptr}, usable{nullptr};
std::mutex opening;
std::string plugin = tt_env(TT_ENV_PLUGIN);   // a name or a path; guarded by the GIL
int cpu_devices = 0;                          // likewise; 0: what the environment says
std::optional<tt_world> world;                // guarded by `opening`
std::function<void(tt_session*)> tell_world;  // likewise
constexpr int kNobodyAsked = -2;
std::atomic<int> expected{kNobodyAsked};  // devices of the plugin that is not open
// Of a process that owns one device: its index, and one more than that of any process of the host.
std::atomic<int> own_index{kNobodyAsked}, indices{1};
// Nobody has said which index that is: until the device is used, who names another one does.
std::atomic<bool> floats{false}, used{false};
std::atomic<int> group_size{1};  // ranks, perhaps of several hosts
std::array<std::atomic<tt_stream*>, TT_SESSION_DEVICES>
    captured{};  // Of a capture that is one thread's alone, the address of what each thread has one
                 // of.
std::array<std::atomic<const void*>, TT_SESSION_DEVICES> capturer{};
thread_local char this_thread;
std::atomic<int> captures{0};

}  // namespace

tt_session* session() { return the_session.load(std::memory_order_acquire); }

int open_devices() {
  tt_session* open = session();
  return open ? open->device_count : 0;
}

int expected_devices() {
  if (tt_session* open = session()) return open->device_count;
  if (int known = expected.load(std::memory_order_acquire); known != kNobodyAsked) return known;
  py::gil_scoped_acquire gil;
  auto package = py::module_::import("torch_tpu._plugins");
  return expected = package.attr("expected_devices")(plugin, cpu_devices).cast<int>();
}

static int owned_devices() {
  int known = expected_devices();
  return known >= 0 ? known : open_session()->device_count;
}

// A number of the launcher's (torchrun); -1: it set none.
static int launched(const char* variable) {
  const char* text = std::getenv(variable);
  char* end = nullptr;
  long value = text && *text ? std::strtol(text, &end, 10) : -1;
  return end && !*end && value >= 0 && value < TT_SESSION_DEVICES ? static_cast<int>(value) : -1;
}

static void find_own_index() {
  int rank = launched("LOCAL_RANK"), size = launched("LOCAL_WORLD_SIZE");
  if (rank >= 0 && size < 0) size = std::max(rank + 1, group_size.load());
  bool one_of_many = rank >= 0 && rank < size && owned_devices() == 1;
  own_index = one_of_many ? rank : 0;
  indices = one_of_many ? size : 1;
}

// What the environment says may change until the device is used.
int first_device() {
  int known = own_index.load(std::memory_order_acquire);
  if (known >= 0 && used) return known;
  if (known < 0 || launched("LOCAL_RANK") >= 0) find_own_index();
  return own_index;
}

void expect_index(int index, int count) {
  group_size = std::min<int>(count, TT_SESSION_DEVICES);
  bool known = used || launched("LOCAL_RANK") >= 0 || expected_devices() != 1;
  if (known || index >= TT_SESSION_DEVICES) return;
  own_index = index;
  indices = group_size.load();
  floats = true;
}

static void adopt_index(int index) {
  if (!floats || used || index < 0 || index >= TT_SESSION_DEVICES) return;
  own_index = index;
  indices = std::max(indices.load(), index + 1);
}

int device_count() {
  int owned = owned_devices();
  first_device();
  return owned == 1 ? indices.load() : owned;
}

bool is_available() {
  try {
    return device_count() > 0;
  } catch (const std::exception&) {
    return false;
  }
}

bool is_forked() { return session() && !usable.load(std::memory_order_relaxed); }

void set_plugin(const std::optional<std::string>& name, int devices) {
  TORCH_CHECK(!session(),
              "the plugin is already open; name another one before the first use of device 'tpu'");
  if (name) plugin = *name;
  cpu_devices = devices;
  expected = kNobodyAsked;
}

std::string plugin_name() { return plugin; }

void offer_world(const tt_world& given, std::function<void(tt_session*)> opened) {
  std::lock_guard<std::mutex> guard(opening);
  world = given;
  tell_world = std::move(opened);
  if (given.visible < 0) return;
  expected = 1;
  own_index = kNobodyAsked;
}

std::string plugin_path() {
  if (tt_session* open = session()) return tt_plugin_path(open->plugin);
  py::gil_scoped_acquire gil;
  return py::module_::import("torch_tpu._plugins").attr("resolve")(plugin).cast<std::string>();
}

static void end_session() {
  if (!is_forked()) tt_session_end(session());
}

tt_session* open_session() {
  if (tt_session* open = usable.load(std::memory_order_acquire)) return open;
  TORCH_CHECK(!is_forked(),
              "Cannot re-initialize device 'tpu' in forked subprocess. To use it with "
              "multiprocessing, you must use the 'spawn' start method");
  std::string path = plugin_path();
  std::lock_guard<std::mutex> guard(opening);
  if (tt_session* open = session()) return open;
  tt_session* opened = nullptr;
  bind_lapack();
  bind_kernels();
  tt_client_options options{cpu_devices, world ? &*world : nullptr};
  check(tt_session_create(path.c_str(), &options, &opened));
  usable.store(opened, std::memory_order_release);
  the_session.store(opened, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, [] { usable.store(nullptr); });
  if (tell_world) std::exchange(tell_world, nullptr)(opened);
  // Python's last act, when its own handlers, finalizers and objects have had their turn. C's exit
  // handlers come later, and among them the destructors of what the plugin's threads may be using.
  if (Py_AtExit(end_session) != 0) std::atexit(end_session);
  return opened;
}

void require_device(c10::DeviceIndex index) {
  adopt_index(index);
  int known = session() ? -1 : expected_devices(), first = known > 0 ? first_device() : 0;
  if (index < first || index >= first + known) device_of(index);
}

tt_device* device_of(c10::DeviceIndex index) {
  adopt_index(index);
  tt_session* open = open_session();
  int at = index - first_device();
  TORCH_CHECK(at >= 0 && at < open->device_count,
              "invalid device ordinal tpu:", static_cast<int>(index), ": this process has ",
              open->device_count, " tpu device(s), numbered from ", first_device());
  if (!used.load(std::memory_order_relaxed)) used = true;
  return open->devices[at];
}

bool is_of_another(c10::DeviceIndex index) {
  return index >= 0 && index < device_count() && owned_devices() == 1 && index != first_device();
}

tt_device* device_like(c10::DeviceIndex index) {
  return device_of(is_of_another(index) ? static_cast<c10::DeviceIndex>(first_device()) : index);
}

tt_stream* stream_of(const c10::Stream& stream) {
  tt_stream* found = nullptr;
  check(tt_stream_get(device_of(stream.device_index()), stream.id(), &found));
  return found;
}

tt_stream* stream_of(c10::DeviceIndex index) {
  tt_device* device = device_of(index);
  tt_stream* found = nullptr;
  if (is_capturing() && (found = captured_stream(index))) return found;
  check(tt_stream_get(device, current_stream_id(index), &found));
  return found;
}

tt_growing* growing_sizes() { return tt_call_table_growing(open_session()->calls); }

bool is_capturing() { return captures.load(std::memory_order_relaxed) > 0; }

tt_stream* captured_stream(c10::DeviceIndex index) {
  auto at = static_cast<size_t>(index);
  tt_stream* stream = captured[at].load(std::memory_order_acquire);
  const void* owner = stream ? capturer[at].load(std::memory_order_relaxed) : nullptr;
  return owner && owner != &this_thread ? nullptr : stream;
}

void set_captured_stream(c10::DeviceIndex index, tt_stream* stream, bool alone) {
  auto at = static_cast<size_t>(index);
  TORCH_CHECK(!stream || !captured[at],
              "another graph is being captured on tpu:", static_cast<int>(index));
  if (stream) capturer[at] = alone ? &this_thread : nullptr;  // before others can see the stream
  tt_stream* before = captured[at].exchange(stream);
  captures += (stream != nullptr) - (before != nullptr);
}

}  // namespace tt
