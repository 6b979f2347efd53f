/* Lowering: one call becomes HLO, wherever in a program it stands. */
#ifndef TT_CALL_LOWER_H
#define TT_CALL_LOWER_H

#include "call/call.h"

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
  tt_node *const *inputs; /* [call->input_count] the storages' values */
  tt_node *words;         /* the program's packed scalars; NULL if it has none */
  int word_at;            /* where this call's scalars begin */
  tt_node **outputs;      /* [call->output_count] written: the storages' new values */
  tt_checks *checks;
  bool learn; /* the call is new: keeps in it what its results are */
} tt_call_io;

/* A program's parameter for `count` words of packed scalars; NULL for none. */
tt_node *tt_call_scalars_param(tt_hlo *h, int64_t count);
/* Lowers the call for the target. Errors of the lowering stick to the builder. */
tt_status tt_call_lower(tt_call *call, const tt_target *target, tt_hlo *h, const tt_call_io *io);

#endif
