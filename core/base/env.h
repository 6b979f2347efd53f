/* The one registry of environment variables. Read once, at first use; thread-safe. An empty
 * variable counts as unset; of one longer than 4,095 bytes the beginning is used. */
#ifndef TT_ENV_H
#define TT_ENV_H

#include <stddef.h>
#include <stdint.h>

/* name (without TORCH_TPU_), default, one sentence */
#define TT_ENV_VARS(X)                                                                             \
  X(PLUGIN, "",                                                                                    \
    "A PJRT plugin: a path, or `cpu`, `tpu`, `cuda`. Unset: a TPU if there is one, else cpu.")     \
  X(EAGER_MODE, "fused", "`debug`, `strict`, or `fused`: how eager operators are launched.")       \
  X(FUSED_TIER, "auto",                                                                            \
    "What chunks are launched as, for tests: `operators`, `pieces`, `kernels`, `chunks`, or what " \
    "is ready.")                                                                                   \
  X(LOG, "", "Topics to log on stderr, comma-separated: compile, launch, plugin, host, all.")      \
  X(HOST_FALLBACK, "warn",                                                                         \
    "`warn`, `silent`, or `error`: what an operator without a device path does.")                  \
  X(COMPILE_THREADS, "0", "Threads that compile programs; 0 means one per core.")                  \
  X(CACHE, "on", "`on`, `readonly`, or `off`: whether compiled programs are kept on disk.")        \
  X(CACHE_DIR, "",                                                                                 \
    "The folder of compiled programs. Unset: torch_tpu in the user's cache folder.")               \
  X(SHARED_CACHE_DIR, "", "A second such folder, shared by hosts; looked into after the first.")   \
  X(CACHE_LIMIT_MB, "2048", "Megabytes that each of these folders may hold; 0 means no limit.")    \
  X(CACHE_WAIT, "60", "Seconds to wait for another process that compiles the same program.")       \
  X(PROGRAM_LIMIT, "4096", "Programs that stay loaded in memory; 0 means no limit.")               \
  X(CALL_LIMIT, "32768",                                                                           \
    "Operators on operands of their kind that are remembered; 0 means no limit.")                  \
  X(LAPACK, "on", "`on` or `off`: whether the CPU plugin's programs call PyTorch's LAPACK.")       \
  X(CONVOLUTIONS, "host",                                                                          \
    "`host` or `xla`: who computes the convolutions of the CPU plugin's programs, PyTorch's "      \
    "library or XLA.")                                                                             \
  X(KERNELS, "host",                                                                               \
    "`host` or `xla`: whose kernels run on the CPU plugin until a chunk's own program is there, "  \
    "PyTorch's, which need no compiler, or XLA's.")                                                \
  X(HOST_PAGES, "on",                                                                              \
    "`on` or `off`: whether malloc keeps memory of the CPU plugin for its next use, and large "    \
    "blocks take huge pages.")                                                                     \
  X(CPU_DEVICES, "1", "Number of virtual devices of the CPU plugin.")                              \
  X(INTEGRATIONS, "on",                                                                            \
    "`on`, `off`, or names of libraries, comma-separated: which of them choose device tpu "        \
    "by themselves.")                                                                              \
  X(GROWING, "on",                                                                                 \
    "`on`, `off`: whether what was seen to change its size is held with room for more, so that "   \
    "programs serve all sizes. `first`, `last`: whatever is uploaded is, along that dim; for "     \
    "tests.")                                                                                      \
  X(TRANSPORT, "auto",                                                                             \
    "What carries collectives between processes: memory that they share where all of a group are " \
    "on one host, else `gloo`.")                                                                   \
  X(FLIGHT_RECORD, "",                                                                             \
    "Where a rank whose collective fails writes its flight record: a path, to which `<rank>` and " \
    "`<rank>.json` are added.")                                                                    \
  X(VERIFY, "0", "1 verifies every program before it is compiled; always on in debug builds.")

typedef enum tt_env_var {
#define X(name, value, doc) TT_ENV_##name,
  TT_ENV_VARS(X)
#undef X
      TT_ENV_COUNT
} tt_env_var;

const char *tt_env(tt_env_var var);      /* the value or the default; static storage */
int64_t tt_env_int(tt_env_var var);      /* 0 if it is not a number */
const char *tt_env_name(tt_env_var var); /* "TORCH_TPU_PLUGIN" */
const char *tt_env_default(tt_env_var var);
const char *tt_env_doc(tt_env_var var);

#endif
