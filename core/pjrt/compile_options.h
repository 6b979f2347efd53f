/* Writes XLA's CompileOptionsProto, the compile options that every PJRT plugin reads. */
#ifndef TT_COMPILE_OPTIONS_H
#define TT_COMPILE_OPTIONS_H

#include "pjrt/pjrt.h"

/* message, field, number */
#define TT_COMPILE_OPTION_FIELDS(X)                                                                \
  X(CompileOptionsProto, executable_build_options, 3)                                              \
  X(CompileOptionsProto, compile_portable_executable, 4)                                           \
  X(CompileOptionsProto, env_option_overrides, 7)                                                  \
  X(ExecutableBuildOptionsProto, device_ordinal, 1)                                                \
  X(ExecutableBuildOptionsProto, num_replicas, 4)                                                  \
  X(ExecutableBuildOptionsProto, num_partitions, 5)                                                \
  X(ExecutableBuildOptionsProto, use_spmd_partitioning, 6)                                         \
  X(ExecutableBuildOptionsProto, device_assignment, 9)                                             \
  X(ExecutableBuildOptionsProto, optimization_level, 24)

/* Appends the bytes; equal options give equal bytes, so they can be part of a cache key. `options`
 * may be NULL. INVALID_ARGUMENT when the options contradict each other. */
tt_status tt_compile_options_write(const tt_compile_options *options, tt_text *out);
/* Appends what a program's first lines say (TT_OPTION_LINE, TT_DEVICES_LINE). INVALID_ARGUMENT: one
 * of them says nothing that can be understood. */
tt_status tt_compile_options_read(const char *code, size_t size, tt_text *out);

#endif
