// torch.distributed, as Python sees it.
#include "distributed/distributed.h"

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace tt {

namespace {

// group, state, kind, dtype, rank, size, root, sequence, x, y, started, ended, line
using Flight = std::tuple<std::string, int, std::string, std::string, int, int, int64_t, int64_t,
                          int64_t, int64_t, int64_t, int64_t, std::string>;

std::vector<std::pair<int64_t, Flight>> flights() {
  std::vector<std::pair<int64_t, Flight>> all;
  int64_t count = tt_flight_count();
  for (int64_t i = std::max<int64_t>(0, count - TT_FLIGHT_KEPT); i < count; i++) {
    tt_flight one;
    if (!tt_flight_get(i, &one)) continue;
    all.emplace_back(i, Flight{one.group, one.state, tt_collective_name(one.kind),
                               tt_dtype_name(one.dtype), one.rank, one.size, one.root, one.sequence,
                               one.x_count, one.y_count, one.started_ns, one.ended_ns,
                               tt_dist_line(one.site)});
  }
  return all;
}

}  // namespace

// Apart from the others, since torch.distributed's own types must be known by then.
void bind_distributed(py::module_& m) {
  m.def("flights", &flights);
  m.def("device_ids", [] {
    std::vector<int> ids;
    tt_session* open = open_session();
    for (int i = 0; i < open->device_count; i++)
      ids.push_back(tt_pjrt_device_id(open->devices[i]->raw));
    return ids;
  });
  m.def("end_meetings", [](const std::string& why) { tt_meeting_end(why.c_str()); });
  m.def("reopen_meetings", [](Milliseconds timeout) { tt_meeting_reopen(timeout.count()); });
  m.def("leave_world", &leave_world);
  m.def("_bind_distributed", [m](MakeCarrier make_carrier) mutable {
    if (py::hasattr(m, "ProcessGroupTpu")) return;
    carrier_maker() = std::move(make_carrier);
    m.def("enter_world", &enter_world);
    py::class_<GroupOptions, Backend::Options, Ptr<GroupOptions>>(m, "ProcessGroupTpuOptions")
        .def("__deepcopy__", [](const GroupOptions& self, const py::object&) {
          return c10::make_intrusive<GroupOptions>(self);
        });
    py::class_<ProcessGroupTpu, Backend, Ptr<ProcessGroupTpu>>(m, "ProcessGroupTpu")
        .def(py::init([](Ptr<Store> store, int rank, int size, Milliseconds timeout,
                         const std::string& name, std::vector<int64_t> global_ranks,
                         std::vector<int64_t> threads) {
          auto world = threads.empty() ? the_world() : nullptr;
          return c10::make_intrusive<ProcessGroupTpu>(std::move(store), rank, size, timeout, name,
                                                      std::move(global_ranks), std::move(threads),
                                                      std::move(world));
        }))
        .def_property_readonly("options", &ProcessGroupTpu::getBackendOptions)
        .def(
            "monitored_barrier",
            [](ProcessGroupTpu& self, Milliseconds timeout, bool wait_all) {
              c10d::BarrierOptions options;
              options.timeout = timeout;
              self.monitoredBarrier(options, wait_all);
            },
            py::call_guard<py::gil_scoped_release>())
        .def("leave", &ProcessGroupTpu::leave, py::call_guard<py::gil_scoped_release>());
  });
}

}  // namespace tt
