// LAPACK as PyTorch ships it, for programs that run in host memory.
#include "device/library.h"

#include <dlfcn.h>

extern "C" {
#include "lapack/lapack.h"
}

namespace tt {

void* find_in_torch(const char* symbol) {
  static void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return torch ? dlsym(torch, symbol) : nullptr;
}

void bind_lapack() { [[maybe_unused]] static bool bound = tt_lapack_bind(find_in_torch); }

}  // namespace tt
