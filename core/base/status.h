/* Status: what every fallible function returns.
 *
 * NULL is success, so the success path is a compare with zero. Anything else is an owned object
 * with a code and a message; whoever holds it either returns it, joins it, or releases it.
 * Thread-compatible: one thread at a time may use one status. */
#ifndef TT_STATUS_H
#define TT_STATUS_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers are absl's (and so PJRT's); they never change. */
#define TT_CODES(X)                                                                                \
  X(OK, 0)                                                                                         \
  X(CANCELLED, 1)         /* given up because something else failed or shut down */                \
  X(UNKNOWN, 2)           /* a plugin gave no better code */                                       \
  X(INVALID_ARGUMENT, 3)  /* the caller's values are wrong: RuntimeError */                        \
  X(DEADLINE_EXCEEDED, 4) /* a bounded wait ended */                                               \
  X(NOT_FOUND, 5)         /* a file, plugin, or symbol is missing */                               \
  X(ALREADY_EXISTS, 6)                                                                             \
  X(PERMISSION_DENIED, 7)                                                                          \
  X(RESOURCE_EXHAUSTED, 8)  /* memory, on the host or on the device: OutOfMemoryError */           \
  X(FAILED_PRECONDITION, 9) /* right values at the wrong time */                                   \
  X(ABORTED, 10)            /* another thread was quicker: to be tried again */                    \
  X(OUT_OF_RANGE, 11)       /* an index past the end: IndexError */                                \
  X(UNIMPLEMENTED, 12)      /* we or the plugin cannot do it: NotImplementedError */               \
  X(INTERNAL, 13)           /* a bug of ours or of the plugin's */                                 \
  X(UNAVAILABLE, 14)        /* no device, a lost device */                                         \
  X(DATA_LOSS, 15)          /* a corrupt file */                                                   \
  X(UNAUTHENTICATED, 16)                                                                           \
  X(TYPE, 17)         /* a value of the wrong Python type: TypeError */                            \
  X(VALUE, 18)        /* a value outside what is allowed: ValueError */                            \
  X(LINALG_ERROR, 19) /* a matrix that has no such factors: torch.linalg.LinAlgError */

typedef enum tt_code {
#define X(name, number) TT_##name = number,
  TT_CODES(X)
#undef X
} tt_code;

typedef struct tt_status_s *tt_status;

#define TT_SUCCESS ((tt_status)0)

/* Whose error it is. */
typedef enum tt_source {
  TT_FROM_CORE,        /* ours, or the caller's */
  TT_FROM_HOST_MEMORY, /* the host has no memory left */
  TT_FROM_PLUGIN       /* the plugin said so */
} tt_source;

/* Creates a status; never fails (when memory is out, a static RESOURCE_EXHAUSTED is returned). */
tt_status tt_error(tt_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3), returns_nonnull));

/* The status for a failed allocation. */
tt_status tt_out_of_memory(void) __attribute__((returns_nonnull));

/* Wraps `status` (consumed) as "message: old message"; success stays success. */
tt_status tt_status_prefix(tt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts words behind the message of `status` (consumed), as they are; success stays success. */
tt_status tt_status_extend(tt_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Keeps `first` and appends the message of `second`; both are consumed; either may be success. */
tt_status tt_join(tt_status first, tt_status second);

/* An independent copy, for an error that several values share. */
tt_status tt_status_clone(tt_status status);
void tt_status_release(tt_status status);

tt_code tt_status_code(tt_status status);
/* Says whose error it is, and asks; the same status is returned. */
tt_status tt_status_from(tt_status status, tt_source source);
tt_source tt_status_source(tt_status status);
/* Whether both tell of one event: clones, and what was made of them by adding words. */
bool tt_status_same(tt_status a, tt_status b);
/* Whether both were made with the same code and the same first words. */
bool tt_status_alike(tt_status a, tt_status b);
const char *tt_status_message(tt_status status); /* borrowed; "" on success */
const char *tt_code_name(tt_code code);          /* static storage */

/* Returns from the calling function when `expr` fails; only where nothing needs cleanup. */
#define TT_TRY(expr)                                                                               \
  do {                                                                                             \
    tt_status tt_try_status_ = (expr);                                                             \
    if (tt_try_status_) return tt_try_status_;                                                     \
  } while (0)

#endif
