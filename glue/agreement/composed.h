// Kernels that PyTorch has for the CPU's sparse or nested tensors and that are made of operators
// on dense ones: they serve any device, and are registered for ours as they are.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

namespace tt {

template <c10::DispatchKey key>
void run_composed(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

// Registers host's kernels for device, of each overload of aten that chosen(name, overload) names
// (without "aten::"; the overload may be empty). They stay registered for the life of the process.
template <c10::DispatchKey host, c10::DispatchKey device, class Chosen>
void register_composed(Chosen chosen) {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", device, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    if (!chosen(name.name.substr(6), name.overload_name)) continue;
    auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(host)) continue;
    std::string full = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_composed<host>>());
  }
}

}  // namespace tt
