/* Shared by the files that make calls and programs of them. */
#ifndef TT_CALL_INTERNAL_H
#define TT_CALL_INTERNAL_H

#include "run/call.h"

/* Deep copy; *to lives as long as the arena. */
tt_status tt_spec_copy(tt_arena *arena, const tt_call_spec *from, tt_call_spec *to);

/* Zeros up to so many bytes are kept as a value, rather than made by a program each time. */
enum { TT_SMALL_ZEROS = 1 << 18 };

/* The Debug checks of lowered calls, gathered for one program. */
typedef struct tt_checks {
  tt_node *flags[TT_MAX_CHECKS];
  const char *texts[TT_MAX_CHECKS]; /* in the builder's arena */
  tt_code codes[TT_MAX_CHECKS];
  int count;
} tt_checks;

/* Where a call meets the program it is lowered into. */
typedef struct tt_call_io {
  tt_node *const *inputs; /* the storages' values, for call->inputs */
  tt_node *words;         /* the program's packed numbers; NULL if it has none */
  int word_at;            /* where this call's numbers begin */
  tt_node **outputs;      /* [call->output_count] written: the storages' new values */
  int *overwrites;        /* [call->output_count] written: the input whose storage an output
                             replaces with a value of the same type, or -1 */
  tt_checks *checks;
} tt_call_io;

/* Lowers one call. The first time (`learn`), what the lowering says about results that Meta did
 * not promise is kept in the call. Errors stick to the builder. */
tt_status tt_call_lower(tt_call *call, bool learn, tt_hlo *h, const tt_call_io *io);

#endif
