// What the process has open, and which of its streams a thread records on.
#pragma once

#include "pch.h"

extern "C" {
#include "call/spread.h"
#include "session/session.h"
#include "stream/settle.h"
#include "stream/tier.h"
}

#include <functional>
#include <new>
#include <optional>
#include <string>

namespace tt {

// While it lives, the core's calls and types stay where they are (core/base/guard.h).
struct Guarded : Fixed {
  Guarded() { tt_guard_enter(); }
  ~Guarded() { tt_guard_leave(); }
};

// Throws the Python exception that fits the status's code and releases it; no-op on success.
void check(tt_status status);

// What it throws, as a status: of this code, or that memory has run out.
template <class Act> tt_status attempt(tt_code code, const Act& act) {
  try {
    act();
    return TT_SUCCESS;
  } catch (const std::bad_alloc&) {
    return tt_error(TT_RESOURCE_EXHAUSTED, "the host has no memory left");
  } catch (const c10::Error& error) {
    std::string what = error.what_without_backtrace();
    bool memory = what.find("can't allocate memory") != std::string::npos;  // it has no type
    return tt_error(memory ? TT_RESOURCE_EXHAUSTED : code, "%s", what.c_str());
  } catch (const std::exception& error) {
    return tt_error(code, "%s", error.what());
  }
}

// nullptr before the plugin is open.
tt_session* session();
int open_devices();      // 0 before the plugin is open
int expected_devices();  // likewise, but where they are known beforehand; -1 where they are not
// Those of all processes that a launcher (torchrun) started on this host for a device each, of
// which this process owns the one with its local rank. Opens the plugin where it must, and throws
// where that fails.
int device_count();
int first_device();  // the index of this process's own one, or of the first of several
// A rank that no launcher gave an index takes this one of `count`, or whichever it names before it
// uses the device. Nothing where it has several devices.
void expect_index(int index, int count);
// Opens the plugin on first use; throws where that fails.
tt_session* open_session();
tt_growing* growing_sizes();  // of that
tt_device* device_of(c10::DeviceIndex index);
void require_device(c10::DeviceIndex index);  // throws as that does, but opens nothing if it can
// Whether another process of this host has it: nothing of this one is there, or ever will be.
bool is_of_another(c10::DeviceIndex index);
// As device_of(); this process's own one, which is like it, where another process has it.
tt_device* device_like(c10::DeviceIndex index);
// Which stream this thread records on, and waits for, unless another is named. While the device is
// captured, all threads record on the captured stream, since autograd's threads take part.
tt_stream* stream_of(c10::DeviceIndex index);
tt_stream* stream_of(const c10::Stream& stream);
c10::DeviceIndex current_device();
void set_current_device(c10::DeviceIndex index);
int64_t current_stream_id(c10::DeviceIndex index);  // this thread's, of a device
bool is_available();                                // as device_count(), but never throws

// Is a graph captured on any device?
bool is_capturing();
// The stream that is captured on a device, or nullptr; set by the graph that does it (graph.cpp).
// alone: only the thread that sets it sees it, until it is set to nullptr.
tt_stream* captured_stream(c10::DeviceIndex index);
void set_captured_stream(c10::DeviceIndex index, tt_stream* stream, bool alone = false);

// The process was forked after the plugin was opened.
bool is_forked();
// Names the one that is opened, or leaves it; `devices` are those of the CPU plugin, 0 what the
// environment says.
void set_plugin(const std::optional<std::string>& name, int devices);
std::string plugin_path();
std::string plugin_name();  // a name or a path, as it was given; the GIL is held
// The processes that the plugin is told of when it is opened; and who is told then.
void offer_world(const tt_world& world, std::function<void(tt_session*)> opened);

}  // namespace tt
