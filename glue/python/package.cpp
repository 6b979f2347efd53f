#include "python/package.h"

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/tensor_memoryformats.h>

namespace tt {
namespace {

namespace py = pybind11;

// A schema's dtypes, layouts, and memory formats are integers here.
py::object python_argument(const c10::Argument& arg, const c10::IValue& value) {
  c10::TypePtr type = arg.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  PyObject* found = nullptr;
  if (value.isInt() && type->kind() == c10::TypeKind::ScalarTypeType)
    found = reinterpret_cast<PyObject*>(torch::getTHPDtype(value.toScalarType()));
  if (value.isInt() && type->kind() == c10::TypeKind::LayoutType)
    found = reinterpret_cast<PyObject*>(torch::getTHPLayout(value.toLayout()));
  if (value.isInt() && type->kind() == c10::TypeKind::MemoryFormatType)
    found = torch::utils::getTHPMemoryFormat(value.toMemoryFormat());
  if (found) return py::reinterpret_borrow<py::object>(found);
  return torch::jit::toPyObject(value);
}

}  // namespace

py::object function_of(const char* module, const char* name) {
  return py::module_::import((std::string("torch_tpu.") + module).c_str()).attr(name);
}

py::list python_arguments(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args) {
  py::list all;
  for (size_t i = 0; i < args.size(); i++)
    all.append(python_argument(schema.arguments()[i], args[i]));
  return all;
}

}  // namespace tt
