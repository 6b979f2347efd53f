// LAPACK as PyTorch ships it, for programs that run in host memory.
#include "dispatch/dispatch.h"

#include <dlfcn.h>

extern "C" {
#include "lapack/lapack.h"
}

namespace tt {
namespace {

void* torch_library() {
  static void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library;
}

}  // namespace

void bind_lapack() {
  [[maybe_unused]] static bool bound = torch_library() && tt_lapack_bind([](const char* symbol) {
                                         return dlsym(torch_library(), symbol);
                                       });
}

}  // namespace tt
