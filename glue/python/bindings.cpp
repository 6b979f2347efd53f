// torch_tpu._C: what the Python package sees of the core. Its types are in torch_tpu/_C.pyi.
#include "agreement/agreement.h"
#include "dispatch/dispatch.h"

#include <c10/core/DeviceGuard.h>
#include <pthread.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

#include <atomic>

namespace py = pybind11;
using namespace py::literals;

namespace tt {
void bind_cache(py::module_& m);    // cache.cpp
void bind_explain(py::module_& m);  // explain.cpp

namespace {

std::string plugin = tt_env(TT_ENV_PLUGIN);  // a name or a path; guarded by the GIL
std::atomic<bool> forked{false};

void set_plugin(const std::string& name) {
  TORCH_CHECK(!tt_runtime_ready(),
              "the plugin is already open; name another one before the first use of device 'tpu'");
  plugin = name;
}

std::string plugin_path() {
  if (tt_runtime_ready()) return tt_plugin_path(tt_runtime_plugin());
  py::gil_scoped_acquire gil;
  return py::module_::import("torch_tpu._plugins").attr("resolve")(plugin).cast<std::string>();
}

int64_t checked_index(int64_t index) {
  stream_of(static_cast<c10::DeviceIndex>(index));
  return index;
}

py::list op_rows() {
  int count = 0;
  const tt_op_row* rows = tt_op_rows(&count);
  py::list list;
  for (int i = 0; i < count; i++) {
    py::dict row;
    row["name"] = rows[i].name;
    row["class"] = tt_op_class_name(rows[i].cls);
    row["statics"] = rows[i].statics;
    row["doc"] = rows[i].doc;
    tt_op_tolerance tolerance = tt_op_tolerance_of(rows[i].name);
    row["tolerance"] = tolerance.value;
    row["why"] = tolerance.why ? tolerance.why : "";
    list.append(row);
  }
  return list;
}

py::list agreements() {
  py::list list;
  for (const AgreementRow& row : agreement_rows())
    list.append(py::dict("kind"_a = row.kind, "what"_a = row.what, "operators"_a = row.operators,
                         "argument"_a = row.argument, "torch"_a = row.torch,
                         "reason"_a = row.reason));
  return list;
}

py::list env_vars() {
  py::list list;
  for (int i = 0; i < TT_ENV_COUNT; i++) {
    auto var = static_cast<tt_env_var>(i);
    list.append(
        py::make_tuple(tt_env_name(var), tt_env_default(var), tt_env_doc(var), tt_env(var)));
  }
  return list;
}

int set_eager_mode(int mode) {
  int previous = tt_runtime_mode();
  check(tt_runtime_set_mode(static_cast<tt_mode>(mode)));
  return previous;
}

py::tuple api_version() {
  ensure_runtime();
  int major = 0, minor = 0;
  tt_plugin_version(tt_runtime_plugin(), &major, &minor);
  return py::make_tuple(major, minor);
}

tt_device* device(int64_t index) {
  return tt_client_device(tt_runtime_client(), static_cast<int>(checked_index(index)));
}

py::object default_generator(int64_t index) {
  auto generator = at::globalContext().defaultGenerator(
      {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)});
  return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(generator));
}

}  // namespace

void ensure_runtime() {
  TORCH_CHECK(!forked.load(std::memory_order_relaxed),
              "Cannot re-initialize device 'tpu' in forked subprocess. To use it with "
              "multiprocessing, you must use the 'spawn' start method");
  if (tt_runtime_ready()) return;
  bind_lapack();
  check(tt_runtime_init(plugin_path().c_str()));
}

tt_stream* stream_of(c10::DeviceIndex index) {
  ensure_runtime();
  tt_stream* stream = tt_runtime_stream(index);
  TORCH_CHECK(stream, "invalid device ordinal tpu:", static_cast<int>(index), ": this process has ",
              tt_runtime_device_count(), " tpu device(s), numbered from 0");
  return stream;
}

// How operators run, and what their decompositions in Python ask for.
template <class Release> void bind_operators(py::module_& m, const Release& release) {
  m.def("eager_mode", [] { return static_cast<int>(tt_runtime_mode()); });
  m.def("set_eager_mode", &set_eager_mode, release);
  m.def("precision", [] { return static_cast<int>(product_precision()); });
  m.def("set_precision", &set_product_precision);
  m.def("host_fallback", &host_fallback);
  m.def("set_host_fallback", &set_host_fallback);
  m.def("asks_meta", &asks_meta);
  m.def("op_rows", &op_rows);
  m.def("agreements", &agreements);
}

PYBIND11_MODULE(_C, m) {
  pthread_atfork(nullptr, nullptr, [] { forked.store(tt_runtime_ready()); });
  auto release = py::call_guard<py::gil_scoped_release>();
  m.def("init", &ensure_runtime, release);
  m.def("is_initialized", [] { return tt_runtime_ready() && !forked; });
  m.def("is_in_bad_fork", [] { return forked.load(); });
  m.def(
      "end",
      [] {
        if (!forked) tt_runtime_end();
      },
      release);
  m.def("set_plugin", &set_plugin);
  m.def("plugin_path", &plugin_path);
  m.def("platform", [] {
    ensure_runtime();
    return tt_client_platform(tt_runtime_client());
  });
  m.def("platform_version", [] {
    ensure_runtime();
    return tt_client_platform_version(tt_runtime_client());
  });
  m.def("api_version", &api_version);
  m.def(
      "device_count",
      [] {
        ensure_runtime();
        return tt_runtime_device_count();
      },
      release);
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int64_t index) {
    c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)
        ->setDevice(
            {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(checked_index(index))});
  });
  m.def("device_kind", [](int64_t index) { return tt_device_kind(device(index)); });
  m.def("device_id", [](int64_t index) { return tt_device_id(device(index)); });
  m.def(
      "synchronize", [](int64_t index) { synchronize(static_cast<c10::DeviceIndex>(index)); },
      release);
  m.def("default_generator", &default_generator);
  m.def("manual_seed_all", [](int64_t seed) { manual_seed_all(static_cast<uint64_t>(seed)); });
  m.def("env_vars", &env_vars);
  bind_operators(m, release);
  bind_cache(m);
  bind_explain(m);
  // For tests: the core's Nth allocation from now fails (0: none), and, if `forever`, all later
  // ones.
  m.def("_fail_allocation_at", &tt_alloc_fail_at);
  m.def("_allocation_count", &tt_alloc_count);
}

}  // namespace tt
