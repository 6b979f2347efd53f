// LAPACK as PyTorch ships it, for programs that run in host memory.
#include "dispatch/dispatch.h"

#include <dlfcn.h>

extern "C" {
#include "lapack/lapack.h"
}

namespace tt {

void bind_lapack() {
  static void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  auto find = [](const char* symbol) { return dlsym(torch, symbol); };
  [[maybe_unused]] static bool bound = torch && tt_lapack_bind(find);
}

}  // namespace tt
