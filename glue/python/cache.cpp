// The cache folders as Python sees them; torch_tpu/_cache.py makes commands of this.
#include "dispatch/convert.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace py = pybind11;

namespace tt {
namespace {

class Folder {
 public:
  Folder(const std::string& path, bool shared, bool readonly) {
    tt_dir_options options = {readonly, shared, 0};
    check(tt_dir_open(path.c_str(), &options, &dir_));
  }
  ~Folder() { tt_dir_close(dir_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Name and bytes of each entry, the one used longest ago first.
  std::vector<std::pair<std::string, int64_t>> entries() const {
    std::vector<std::tuple<int64_t, std::string, int64_t>> found;
    auto add = [](void* user, const tt_dir_file* file) {
      static_cast<decltype(found)*>(user)->emplace_back(file->used, file->name, file->bytes);
    };
    check(tt_dir_each(dir_, add, &found));
    std::sort(found.begin(), found.end());
    std::vector<std::pair<std::string, int64_t>> sorted;
    for (auto& [used, name, bytes] : found) sorted.emplace_back(name, bytes);
    return sorted;
  }

  // What is wrong with an entry, or nothing.
  std::string verify(const std::string& name) const {
    tt_status status = tt_disk_verify(dir_, name.c_str());
    std::string problem =
        status && tt_status_code(status) != TT_NOT_FOUND ? tt_status_message(status) : "";
    tt_status_release(status);
    return problem;
  }

  void remove(const std::string& name) const {
    if (tt_entry_is_name(name.c_str())) tt_dir_remove(dir_, name.c_str());
  }

  void clear() const { tt_dir_clear(dir_); }

  std::map<std::string, int64_t> totals() const {
    tt_totals totals;
    tt_dir_totals(dir_, &totals);
    std::map<std::string, int64_t> named;
#define X(name, doc) named[#name] = totals.name;
    TT_TOTALS(X)
#undef X
    return named;
  }

  // "ready", "copied", or "compiled".
  std::string warm(const std::string& name) const {
    static const char* const words[] = {"ready", "copied", "compiled"};
    tt_warmth warmth = TT_WARM_READY;
    tt_compiler* compiler = tt_program_table_compiler(open_session()->programs);
    check(tt_compiler_warm(compiler, dir_, name.c_str(), &warmth));
    return words[warmth];
  }

 private:
  tt_dir* dir_ = nullptr;
};

py::dict settings() {
  static const char* const modes[] = {"off", "readonly", "on"};
  char path[TT_DISK_PATH];
  tt_disk_options options;
  tt_disk_options_read(&options, path);
  py::dict all;
  all["mode"] = modes[options.mode];
  all["dir"] = options.dir;
  all["shared_dir"] = options.shared_dir;
  all["limit"] = options.limit;
  return all;
}

}  // namespace

void bind_cache(py::module_& m) {
  auto release = py::call_guard<py::gil_scoped_release>();
  m.def("cache_settings", &settings);
  py::class_<Folder>(m, "CacheFolder")
      .def(py::init<const std::string&, bool, bool>(), py::arg("path"), py::arg("shared"),
           py::arg("readonly"))
      .def("entries", &Folder::entries, release)
      .def("verify", &Folder::verify, release)
      .def("remove", &Folder::remove, release)
      .def("clear", &Folder::clear, release)
      .def("totals", &Folder::totals, release)
      .def("warm", &Folder::warm, release);
}

}  // namespace tt
