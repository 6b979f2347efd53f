// What the core counts and explains; torch_tpu/_explain.py composes it.
#include "device/session.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace tt {
namespace {

using Counts = std::vector<std::pair<const char*, int64_t>>;

Counts counters() {
  Counts all;
  for (int i = 0; i < TT_COUNT_LIMIT; i++) {
    auto counter = static_cast<tt_counter>(i);
    all.emplace_back(tt_count_name(counter), tt_count_get(counter));
  }
  if (session()) all.emplace_back("CALLS", tt_call_table_size(session()->calls));
  return all;
}

// Lines that waited.
Counts waits() {
  Counts lines;
  for (uint32_t site = 0; site < tt_site_count(); site++)
    if (tt_count_waits(site))
      lines.emplace_back(site ? tt_site_text(site) : "unknown", tt_count_waits(site));
  return lines;
}

// A line that is kept, or None.
std::optional<py::bytes> journal_line(int64_t i) {
  char* line = tt_journal_get(i);
  std::optional<py::bytes> copy;
  if (line) copy = py::bytes(line);
  tt_free(line);
  return copy;
}

}  // namespace

void bind_explain(py::module_& m) {
  m.def("counters", &counters);
  m.attr("CHUNK_SIZES") = static_cast<int>(TT_CHUNK_SIZES);
  m.def("chunks", &tt_count_chunks);
  m.def("waits", &waits);
  m.def("reset_metrics", &tt_count_reset);
  m.attr("JOURNAL_KEPT") = static_cast<int>(TT_JOURNAL_KEPT);
  m.def("journal_count", &tt_journal_count);
  m.def("journal_line", &journal_line);
  m.def("journal_keep", [](const std::string& done, const std::string& sentence) {
    tt_text text{};
    tt_text_printf(&text, "%s", sentence.c_str());
    tt_journal_keep(done.c_str(), &text);
  });
}

}  // namespace tt
