// Kernels that PyTorch has for the CPU's sparse or nested tensors and that are made of operators
// on dense ones: they serve any device, and are registered for ours as they are. A sparse tensor's
// indices and values, and a strided nested tensor's buffer, are dense tensors of the device. The
// other kernels are in torch_tpu/_sparse.py and torch_tpu/_nested.py.
#include "agreement/table.h"

namespace tt {
namespace {

using c10::DispatchKey;

template <DispatchKey key> void run_lent(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

// Registers host's kernels for device, of each overload of ATen that is chosen by what is known of
// its operator and, alone, of the overload. They stay for the life of the process.
template <DispatchKey host, DispatchKey device, class Chosen> void lend(Chosen chosen) {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", device, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != "aten") continue;
    std::string full = c10::toString(name), operation = name.name.substr(6);
    Agreements known = agreements_of(operation);
    if (operation.back() == '_')
      known.add(agreements_of(operation.substr(0, operation.size() - 1)));
    auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(host)) continue;
    if (!chosen(known, agreements_of(full.substr(6)))) continue;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_lent<host>>());
  }
}

[[maybe_unused]] const bool registered = [] {
  lend<DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1>([](auto known, auto overload) {
    return known.has(Agree::LentSparse) && !overload.has(Agree::DirectCoo);
  });
  lend<DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1>([](auto known, auto overload) {
    return known.has(Agree::LentSparse) && !overload.has(Agree::DirectCsr);
  });
  lend<DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1>(
      [](auto known, auto) { return !known.has(Agree::DirectNested); });
  lend<DispatchKey::CPU, DispatchKey::PrivateUse1>(
      [](auto known, auto) { return known.has(Agree::LentDense); });
  return true;
}();

}  // namespace
}  // namespace tt
