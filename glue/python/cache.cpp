// The cache folders as torch_tpu/_cache.py sees them, which makes commands of this.
#include "dispatch/convert.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <tuple>

namespace py = pybind11;

namespace tt {
namespace {

struct Folder : Fixed {
  tt_dir* dir = nullptr;
  Folder(const std::string& path, bool shared, bool readonly) {
    tt_dir_options options = {readonly, shared, 0};
    check(tt_dir_open(path.c_str(), &options, &dir));
  }
  ~Folder() { tt_dir_close(dir); }
};

// When each entry was used, its name, and its bytes.
std::vector<std::tuple<int64_t, std::string, int64_t>> entries(const Folder& folder) {
  std::vector<std::tuple<int64_t, std::string, int64_t>> found;
  auto add = [](void* user, const tt_dir_file* file) {
    static_cast<decltype(found)*>(user)->emplace_back(file->used, file->name, file->bytes);
  };
  check(tt_dir_each(folder.dir, add, &found));
  return found;
}

// What is wrong with an entry, or nothing.
std::string verify(const Folder& folder, const std::string& name) {
  tt_status status = tt_disk_verify(folder.dir, name.c_str());
  std::string problem =
      status && tt_status_code(status) != TT_NOT_FOUND ? tt_status_message(status) : "";
  tt_status_release(status);
  return problem;
}

void remove(const Folder& folder, const std::string& name) {
  if (tt_entry_is_name(name.c_str())) tt_dir_remove(folder.dir, name.c_str());
}

std::vector<std::pair<std::string, int64_t>> totals(const Folder& folder) {
  tt_totals totals;
  tt_dir_totals(folder.dir, &totals);
#define X(name, doc) {#name, totals.name},
  return {TT_TOTALS(X)};
#undef X
}

int warm(const Folder& folder, const std::string& name) {
  tt_warmth warmth = TT_WARM_READY;
  tt_compiler* compiler = tt_program_table_compiler(open_session()->programs);
  check(tt_compiler_warm(compiler, folder.dir, name.c_str(), &warmth));
  return warmth;
}

py::tuple settings() {
  char path[TT_DISK_PATH];
  tt_disk_options options;
  tt_disk_options_read(&options, path);
  return py::make_tuple(static_cast<int>(options.mode), options.dir, options.shared_dir,
                        options.limit);
}

}  // namespace

void bind_cache(py::module_& m) {
  auto release = py::call_guard<py::gil_scoped_release>();
  m.def("cache_settings", &settings);
  py::class_<Folder>(m, "CacheFolder")
      .def(py::init<const std::string&, bool, bool>())
      .def("entries", &entries, release)
      .def("verify", &verify, release)
      .def("remove", &remove, release)
      .def(
          "clear", [](const Folder& folder) { tt_dir_clear(folder.dir); }, release)
      .def("totals", &totals, release)
      .def("warm", &warm, release);
}

}  // namespace tt
