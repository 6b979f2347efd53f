// torch.distributed, as Python sees it.
#include "distributed/distributed.h"

#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace tt {

// Apart from the others, since torch.distributed's own types must be known by then.
void bind_distributed(py::module_& m) {
  m.def("_bind_distributed", [m]() mutable {
    if (py::hasattr(m, "ProcessGroupTpu")) return;
    py::class_<ProcessGroupTpu, Backend, Ptr<ProcessGroupTpu>>(m, "ProcessGroupTpu")
        .def(py::init<Ptr<Backend>, Ptr<Store>, int, int, Milliseconds, std::string,
                      std::vector<int64_t>>());
  });
}

}  // namespace tt
