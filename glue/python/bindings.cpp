// torch_tpu._C: what the Python package sees of the core. Its types are in torch_tpu/_C.pyi.
#include "agreement/agreement.h"
#include "device/function.h"
#include "device/policy.h"
#include "device/region.h"
#include "dispatch/walk.h"

#include <c10/core/DeviceGuard.h>
#include <pthread.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <tuple>

extern "C" {
#include "graph/repeat.h"
#include "program/trial.h"
}

namespace py = pybind11;
using namespace py::literals;

namespace tt {
void bind_cache(py::module_& m);                                   // cache.cpp
void bind_distributed(py::module_& m);                             // distributed/bind.cpp
void bind_explain(py::module_& m);                                 // explain.cpp
void bind_export(py::module_& m, py::class_<Function>& function);  // export.cpp

namespace {

py::list op_rows() {
  int count = 0;
  const tt_op_row* rows = tt_op_rows(&count);
  py::list list;
  for (int i = 0; i < count; i++) {
    tt_op_tolerance tolerance = tt_op_tolerance_of(rows[i].name);
    list.append(py::make_tuple(rows[i].name, tt_op_class_name(rows[i].cls), rows[i].statics,
                               rows[i].doc, tolerance.value, tolerance.why ? tolerance.why : "",
                               tt_op_spreads(&rows[i])));
  }
  return list;
}

// What an operator's rows say of dims that are longer than what counts of them (ops/ops.h): the
// row's class, its rule, the neutral element of what it leaves out, which argument lists the dims
// that it reduces, and whether an empty list is of none; None: there is no row.
py::object op_along(const std::string& name) {
  const tt_op_row* row = tt_op_find(name.c_str());
  if (!row) return py::none();
  const tt_op_along* along = tt_op_along_of(row->name);
  const tt_op_length* length = tt_op_length_of(row->name);
  bool reduces = row->cls == TT_REDUCE && length;
  return py::make_tuple(tt_op_class_name(row->cls), along->rule,
                        static_cast<int>(reduces ? length->neutral : along->neutral),
                        reduces ? length->reduced : -1, reduces && length->empty_is_none);
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

py::tuple api_version() {
  int major = 0, minor = 0;
  tt_plugin_version(open_session()->plugin, &major, &minor);
  return py::make_tuple(major, minor);
}

c10::DeviceIndex number(int64_t index) { return static_cast<c10::DeviceIndex>(index); }

// -1: another process has it.
int64_t device_id(int64_t index) {
  return is_of_another(number(index)) ? -1 : tt_pjrt_device_id(device_of(number(index))->raw);
}

py::object default_generator(int64_t index) {
  auto generator =
      at::globalContext().defaultGenerator({c10::DeviceType::PrivateUse1, number(index)});
  return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(generator));
}

}  // namespace

// How operators run.
void bind_operators(py::module_& m) {
  m.def("setting_now", [](int setting) { return setting_now(static_cast<Setting>(setting)); });
  m.def("set_for_process",
        [](int setting, int value) { set_for_process(static_cast<Setting>(setting), value); });
  m.def("precision", [] { return static_cast<int>(product_precision()); });
  py::class_<Block>(m, "Block").def(py::init<const Choice&>()).def("leave", &Block::leave);
  m.def("iterated", &iterated);
  m.def("fit_output", &fit_output);
  m.def("lend", &lend);
  m.def("op_rows", &op_rows);
  m.attr("AS_MANY") = TT_AS_MANY;
  m.def("op_along", &op_along);
}

// Of equal numbers, at least so often, of at least such a length (graph/repeat.h).
std::tuple<int, int, int, int> find_repetition(const std::vector<intptr_t>& items, int times,
                                               int length) {
  std::vector<const void*> pointers;
  std::vector<int64_t> weights{0};
  for (intptr_t one : items) {
    pointers.push_back(reinterpret_cast<const void*>(one));
    weights.push_back(weights.back() + 1);
  }
  tt_repeat_limits limits{times, 1, length};
  tt_repeat found =
      tt_repeat_find(pointers.data(), weights.data(), static_cast<int>(items.size()), &limits);
  return {found.first, found.period, found.count, found.slack};
}

// The sizes with padding of a tensor that is a whole storage with a bounded value, else None.
std::optional<std::vector<int64_t>> padded_sizes(const at::Tensor& tensor) {
  const tt_storage* storage = storage_of(tensor);
  const tt_type* bounded = storage->bounded;
  if (!bounded || !is_canonical(tensor, storage)) return std::nullopt;
  return std::vector<int64_t>(bounded->dims, bounded->dims + bounded->rank);
}

// Whether as many elements of the mask as are true now are more or fewer from time to time.
bool count_lengthens(const at::Tensor& mask, int64_t count) {
  if (!sees_room(Policy())) return false;
  tt_view view = view_of(mask);
  tt_type type = tt_view_held(&view);
  return tt_growing_count(growing_sizes(), &type, count) ||
         (count > 1 && storage_of(mask)->bounded);
}

// Lengths of values that data decide (core/call/growing.h).
void bind_lengths(py::module_& m) {
  m.def("sees_room", [] { return sees_room(Policy()); });
  m.def("bound_of", &tt_bound_of);
  m.def("_forget_sizes", [] { tt_growing_forget(growing_sizes()); });
  m.def("count_lengthens", &count_lengthens);
  m.def("enter_length", [](int64_t length) { tt_growing_enter(growing_sizes(), length); });
  m.def("leave_length", [](int64_t length) { tt_growing_leave(growing_sizes(), length); });
}

template <class Release> void bind_graphs(py::module_& m, const Release& release) {
  py::class_<Graph>(m, "Graph")
      .def(py::init<>())
      .def(
          "begin", [](Graph& graph) { graph.begin(false); }, release)
      .def(
          "end", [](Graph& graph) { graph.end(); }, release)
      .def("abandon", &Graph::abandon, release)
      .def("replay", &Graph::replay, release)
      .def("reset", &Graph::reset, release)
      .def("capturing", &Graph::capturing)
      .def("captured", &Graph::captured)
      .def("sizes", &Graph::sizes);
  py::enum_<tt_repeats>(m, "Repeats")
      .value("WHOLE", TT_REPEATS_WHOLE)
      .value("AUTO", TT_REPEATS_AUTO)
      .value("DIVIDED", TT_REPEATS_DIVIDED);
  py::class_<Function> function(m, "Function");
  function.def(py::init<>())
      .def("begin", &Function::begin, release)
      .def("end", &Function::end, "results"_a, "repeats"_a = TT_REPEATS_WHOLE,
           "text_only"_a = false, "options"_a = "", release)
      .def("abandon", &Function::abandon, release)
      .def(
          "__call__",
          [](Function& function, const std::vector<at::Tensor>& args,
             const std::vector<std::tuple<size_t, int, int64_t>>& lengths) {
            std::vector<Function::Length> all;
            for (auto [result, dim, length] : lengths) all.push_back({result, dim, length});
            return function.call(args, all);
          },
          "args"_a, "lengths"_a = py::tuple(), release)
      .def("sizes", &Function::sizes);
  bind_export(m, function);
  py::class_<Region>(m, "Region")
      .def(py::init<>())
      .def("begin", &Region::begin, release)
      .def("wrote", &Region::wrote, release)
      .def("end", &Region::end, release)
      .def("abandon", &Region::abandon, release)
      .def("record", &Region::record, release);
  m.def("signature",
        [](const std::vector<at::Tensor>& args) { return py::bytes(signature(args)); });
  m.def("padded_sizes", &padded_sizes);
  bind_lengths(m);
  m.def("find_repetition", &find_repetition);
  m.def(
      "try_options",
      [](const std::string& options) {
        check(tt_options_try(open_session()->programs, options.c_str()));
      },
      release);
  m.def("is_capturing", [](int64_t index) { return captured_stream(number(index)) != nullptr; });
}

PYBIND11_MODULE(_C, m) {
  watch_interrupts();
  auto release = py::call_guard<py::gil_scoped_release>();
  m.def("init", [] { open_session(); }, release);
  m.def("is_initialized", [] { return session() != nullptr && !is_forked(); });
  m.def("is_in_bad_fork", &is_forked);
  m.def("set_plugin", &set_plugin, "name"_a, "cpu_devices"_a = 0);
  m.def("plugin_name", &plugin_name);
  m.def("plugin_path", &plugin_path);
  m.def("platform", [] { return open_session()->target.platform; });
  m.def("platform_version", [] { return open_session()->target.version; });
  m.def("api_version", &api_version);
  m.def("device_count", &device_count, release);
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", [](int64_t index) { set_current_device(number(index)); });
  m.def("expect_index", &expect_index);
  m.def("device_kind",
        [](int64_t index) { return tt_pjrt_device_kind(device_like(number(index))->raw); });
  m.def("device_id", &device_id);
  m.def("is_of_another", [](int64_t index) { return is_of_another(number(index)); }, release);
  m.def("synchronize", [](int64_t index) { synchronize(number(index)); }, release);
  m.def("default_generator", &default_generator);
  m.def("manual_seed_all", &manual_seed_all);
  m.def("env_vars", &env_vars);
  bind_operators(m);
  bind_graphs(m, release);
  bind_cache(m);
  bind_distributed(m);
  bind_explain(m);
  // For tests: the core's Nth allocation from now fails (0: none), and, if `forever`, all later
  // ones; and what chunks are launched as.
  m.def("_fail_allocation_at", &tt_alloc_fail_at);
  m.def("_allocation_count", &tt_alloc_count);
  m.def("_force_tier", [](int tier) { tt_tier_force(static_cast<tt_tier>(tier)); });
}

}  // namespace tt
