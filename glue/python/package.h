// The package's own Python, which the glue calls where PyTorch does not insist on C++.
#pragma once

#include "pch.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <pybind11/pybind11.h>

namespace tt {

// While it lives, this thread holds the GIL, and what the caller's own code has put around
// PyTorch's functions (torch.set_default_device, say) does not see those that the package calls.
class InPython : Fixed {
 public:
  InPython() { State::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED); }
  ~InPython() { State::set_disabled_state(before_); }

 private:
  using State = at::impl::PythonTorchFunctionTLS;
  pybind11::gil_scoped_acquire gil_;
  at::impl::TorchFunctionDisabledState before_ = State::get_disabled_state();
};

// A function of a module of the package, such as ("_agreement", "specialise").
pybind11::object function_of(const char* module, const char* name);

// An operator's arguments as Python functions take them, in the schema's order.
pybind11::list python_arguments(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> args);

}  // namespace tt
