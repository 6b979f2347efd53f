// Programs in files, and what a function was captured as, as torch_tpu/export sees them.
#include "device/function.h"
#include "device/policy.h"
#include "dispatch/dispatch.h"

#include <algorithm>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include <tuple>

extern "C" {
#include "export/export.h"
}

namespace py = pybind11;
using namespace py::literals;

namespace tt {
namespace {

using Dims = std::vector<int64_t>;
// Kind, name, dtype, shape, the parameter that an output is the new value of, a weight's value.
using Port = std::tuple<int, std::string, at::ScalarType, Dims, int, std::optional<at::Tensor>>;

tt_port port_of(const Port& port) {
  const auto& [kind, name, dtype, dims, writes, value] = port;
  TORCH_CHECK(dims.size() <= TT_MAX_RANK, name, " has more than ", TT_MAX_RANK, " dims");
  return {static_cast<tt_port_kind>(kind), name.c_str(),
          tt_type_make(require_dtype(dtype), static_cast<int>(dims.size()), dims.data()), writes,
          value ? value->const_data_ptr() : nullptr};
}

void save(const std::string& path, const std::string& text, const std::vector<Port>& given,
          const std::string& note, int64_t blocks) {
  std::vector<tt_port> ports;
  tt_exported content{};
  for (const Port& one : given) {
    ports.push_back(port_of(one));
    (ports.back().kind == TT_PORT_OUTPUT ? content.output_count : content.parameter_count)++;
  }
  std::string plugin = plugin_path();
  content.code = {text.data(), text.size()};
  content.note = {note.data(), note.size()};
  content.plugin = {plugin.data(), plugin.size()};
  content.blocks = blocks;
  content.ports = ports.data();
  check(tt_exported_save(&content, &open_session()->target, path.c_str()));
}

struct Exported : Fixed {
  tt_exported file{};
  explicit Exported(const std::string& path) { check(tt_exported_read(path.c_str(), &file)); }
  ~Exported() { tt_exported_deinit(&file); }
};

Port port(const tt_port& one) {
  std::optional<at::Tensor> value;
  auto dtype = from_dtype(one.type.dtype);
  Dims dims(one.type.dims, one.type.dims + one.type.rank);
  if (one.data) value = at::from_blob(const_cast<void*>(one.data), dims, dtype).clone();
  return {one.kind, one.name, dtype, dims, one.writes, value};
}

std::vector<Port> ports(const Exported& exported) {
  const tt_exported& file = exported.file;
  std::vector<Port> all;
  for (int i = 0; i < file.parameter_count + file.output_count; i++)
    all.push_back(port(file.ports[i]));
  return all;
}

py::bytes bytes(tt_bytes some) { return {static_cast<const char*>(some.data), some.size}; }

// -- What was captured --

// The argument that a storage comes from; else the tensor that it is.
py::object source(const Function::Origin& origin) {
  if (origin.argument >= 0) return py::cast(origin.argument);
  tt_view whole = tt_view_whole(storage_of(origin.kept.unsafeGetStorageImpl())->type);
  return py::cast(tensor_on(origin.kept, whole));
}

py::dict describe(const Function& function) {
  const tt_captured* captured = function.captured();
  TORCH_CHECK(captured, "the function computes nothing");
  const tt_divided_part& whole = captured->divided.parts[0];  // text_only: there is one
  const tt_module& module = whole.program->module;
  py::list inputs, outputs, draws;
  for (const auto& one : function.inputs()) inputs.append(source(one));
  for (int i = 0; i < captured->output_count; i++) {
    const auto& one = function.outputs()[static_cast<size_t>(i)];
    bool outside = one.kept && !storage_of(one.kept.unsafeGetStorageImpl())->born;
    const int* end = whole.outputs + whole.output_count;
    auto at = std::find(whole.outputs, end, captured->outputs[i].value) - whole.outputs;
    outputs.append(py::make_tuple(at, one.argument, one.result, outside));
  }
  std::vector<uint32_t> words(static_cast<size_t>(captured->words.word_count));
  std::vector<tt_philox_place> places(static_cast<size_t>(captured->draw_count));
  tt_graph_fill_words(&captured->words, nullptr, places.data(), words.data());
  for (int i = 0; i < captured->words.scalar_count; i++) {
    const tt_scalar& scalar = captured->words.scalars[i];
    if (scalar.kind != TT_SCALAR_PHILOX) continue;
    draws.append(py::make_tuple(scalar.at, scalar.stream, scalar.block));
  }
  std::vector<int64_t> blocks;
  for (int i = 0; i < captured->draw_count; i++) blocks.push_back(captured->draws[i].blocks);
  return py::dict("text"_a = py::str(module.text.data, module.text.size), "inputs"_a = inputs,
                  "outputs"_a = outputs, "results"_a = module.result_count, "words"_a = words,
                  "draws"_a = draws, "blocks"_a = blocks);
}

// What became of a program, which is launched so many times. Waits for the compiler.
py::dict tell(tt_program* program, int launches, bool in_memory) {
  tt_program_facts facts;
  tt_status status = TT_SUCCESS;
  {
    py::gil_scoped_release release;
    status = tt_program_tell(program, &facts);
  }
  py::bytes optimized = bytes({facts.optimized.data, facts.optimized.size});
  tt_text_deinit(&facts.optimized);
  check(status);
  auto known = [](double value) { return value < 0 ? py::object(py::none()) : py::cast(value); };
  py::object memory = py::none();
  if (facts.memory_known)
    memory = py::dict("arguments"_a = facts.memory.arguments, "outputs"_a = facts.memory.outputs,
                      "in place"_a = facts.memory.aliased,
                      "temporaries"_a = facts.memory.temporaries, "code"_a = facts.memory.code);
  const tt_text& text = program->module.text;
  return py::dict("text"_a = py::str(text.data, text.size), "optimized"_a = optimized,
                  "source"_a = static_cast<int>(facts.source), "known"_a = in_memory,
                  "compile_ns"_a = facts.compile_ns, "memory"_a = memory,
                  "bytes"_a = known(facts.bytes), "launches"_a = launches);
}

// Of each of its programs, in the order of their first launches.
py::list tell_all(const Function& function) {
  const tt_captured* captured = function.captured();
  py::list all;
  std::vector<tt_program*> programs;
  for (int i = 0; captured && i < captured->divided.part_count; i++)
    programs.push_back(captured->divided.parts[i].program);
  for (auto one = programs.begin(); one != programs.end(); ++one)
    if (std::find(programs.begin(), one, *one) == one)
      all.append(tell(*one, static_cast<int>(std::count(one, programs.end(), *one)),
                      captured->divided.known));
  return all;
}

}  // namespace

void bind_export(py::module_& m, py::class_<Function>& function) {
  auto release = py::call_guard<py::gil_scoped_release>();
  m.def("export_save", &save, release);
  m.def("is_canonical", [](const at::Tensor& x) { return is_canonical(x, storage_of(x)); });
  py::class_<Exported>(m, "Exported")
      .def(py::init<const std::string&>(), release)
      .def("ports", &ports)
      .def("note", [](const Exported& exported) { return bytes(exported.file.note); })
      .def("text", [](const Exported& exported) { return bytes(exported.file.code); });
  function.def("describe", &describe)
      .def("tell", &tell_all)
      .def(
          "adopt", [](Function& self, const Exported& one) { return self.adopt(one.file); },
          release);
}

}  // namespace tt
