/* Functions of ours that programs call (XLA's FFI), on platforms that compute in host memory.
 *
 * A handler is `tt_ffi_error *name(tt_ffi_frame *frame) { return tt_ffi_run(frame, body); }`; XLA
 * calls it from its own threads, several at once, and with the floating-point environment that
 * programs start with in C. A program names it as a custom call's target (tt_hlo_custom_call). */
#ifndef TT_FFI_H
#define TT_FFI_H

#include "pjrt/pjrt.h"

typedef struct XLA_FFI_CallFrame tt_ffi_frame;
typedef struct XLA_FFI_Error tt_ffi_error;
typedef tt_ffi_error *(*tt_ffi_handler)(tt_ffi_frame *frame);

typedef struct tt_ffi_array {
  tt_type type;
  void *data; /* row-major, aligned to its elements at least; good during the call */
} tt_ffi_array;
typedef struct tt_ffi_call {
  const tt_ffi_frame *frame;
  int operand_count, result_count;
  tt_ffi_array *operands, *results;
} tt_ffi_call;

/* The integer of this name in the custom call's config ("name = 1 : i64"); 0 if there is none. */
int64_t tt_ffi_int(const tt_ffi_call *call, const char *name);
/* The integers of this name ("name = array<i64: 1, 2>"), which are good during the call; NULL if
 * there are not `count` of them. */
const int64_t *tt_ffi_ints(const tt_ffi_call *call, const char *name, int count);
/* The same, of however many there are. */
const int64_t *tt_ffi_all_ints(const tt_ffi_call *call, const char *name, int *count);

/* What computes the results. An error fails the program that calls it. */
typedef tt_status (*tt_ffi_body)(const tt_ffi_call *call);
tt_ffi_error *tt_ffi_run(tt_ffi_frame *frame, tt_ffi_body body);

/* Makes the handler known to programs of that platform, for ever; the first one of a name stays.
 * UNIMPLEMENTED: the plugin takes none. */
tt_status tt_plugin_register(tt_plugin *plugin, const char *target, const char *platform,
                             tt_ffi_handler handler);

#endif
