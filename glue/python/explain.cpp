// What the core counts and explains, as Python sees it.
#include "dispatch/dispatch.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace tt {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(tolower(c));
  return text;
}

// Counters named a_b with a in `groups` go into a dictionary a.
py::dict counters() {
  py::dict all, cuts;
  for (int i = 0; i < TT_COUNT_LIMIT; i++) {
    auto counter = static_cast<tt_counter>(i);
    std::string name = lower(tt_count_name(counter));
    bool cut = name.rfind("cuts_", 0) == 0;
    (cut ? cuts : all)[(cut ? name.substr(5) : name).c_str()] = tt_count_get(counter);
  }
  all["cuts"] = cuts;
  return all;
}

py::dict chunk_sizes() {
  py::dict sizes;
  for (int i = 0; i < TT_CHUNK_SIZES; i++) {
    if (!tt_count_chunks(i)) continue;
    std::string range = std::to_string(1 << i);
    if (i > 0) range += "-" + std::to_string((2 << i) - 1);
    sizes[range.c_str()] = tt_count_chunks(i);
  }
  return sizes;
}

py::dict waits_by_line() {
  py::dict lines;
  for (uint32_t site = 0; site < tt_site_count(); site++)
    if (tt_count_waits(site)) lines[site ? tt_site_text(site) : "unknown"] = tt_count_waits(site);
  return lines;
}

// Where launches had their programs from: all but a program's first find it in memory.
py::dict hits_by_tier() {
  int64_t first = tt_count_get(TT_COUNT_PROGRAMS_LAUNCHED);
  py::dict tiers;
  tiers["memory"] = std::max<int64_t>(0, tt_count_get(TT_COUNT_LAUNCHES) - first);
  tiers["disk"] = tt_count_get(TT_COUNT_DISK_HITS);
  tiers["shared"] = tt_count_get(TT_COUNT_DISK_SHARED_HITS);
  tiers["compiled"] = tt_count_get(TT_COUNT_COMPILES);
  return tiers;
}

int64_t bytes_held() {
  int64_t bytes = 0;
  for (int i = 0; i < device_count(); i++) {
    tt_memory memory;
    tt_account_read(&session()->devices[i]->account, &memory);
    bytes += memory.allocated;
  }
  return bytes;
}

py::dict metrics() {
  py::dict all = counters();
  all["calls"] = session() ? tt_call_table_size(session()->calls) : 0;
  all["compile_seconds"] = static_cast<double>(tt_count_get(TT_COUNT_COMPILE_NS)) / 1e9;
  all["load_seconds"] = static_cast<double>(tt_count_get(TT_COUNT_LOAD_NS)) / 1e9;
  all["cache"] = hits_by_tier();
  all["bytes_held"] = bytes_held();
  all["chunk_sizes"] = chunk_sizes();
  all["synchronisations"] = waits_by_line();
  py::dict host;
  for (auto& [name, count] : host_operators()) host[name.c_str()] = count;
  all["host_operators"] = host;
  return all;
}

py::list explain(int64_t last) {
  int64_t count = tt_journal_count();
  py::list lines;
  for (int64_t i = std::max<int64_t>(0, count - std::min<int64_t>(last, TT_JOURNAL_KEPT));
       i < count; i++) {
    char* line = tt_journal_get(i);
    if (line)
      lines.append(py::reinterpret_steal<py::object>(
          PyUnicode_DecodeUTF8(line, static_cast<Py_ssize_t>(strlen(line)), "replace")));
    tt_free(line);
  }
  return lines;
}

}  // namespace

void bind_explain(py::module_& m) {
  m.def("metrics", &metrics);
  m.def("reset_metrics", &tt_count_reset);
  m.def("explain", &explain);
}

}  // namespace tt
