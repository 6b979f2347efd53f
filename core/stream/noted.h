/* What notes (notes.h) leave: the graph of what was done to some storages. */
#ifndef TT_NOTED_H
#define TT_NOTED_H

#include "call/table.h"
#include "stream/stream.h"

enum { TT_UNWRITTEN = -1 }; /* in a slot's place */

/* A storage at the end: an argument, or a result. */
typedef struct tt_held {
  int slot; /* of the graph, or TT_UNWRITTEN */
  const tt_type *type;
} tt_held;

/* A tensor that is returned. */
typedef struct tt_returned {
  int arg;  /* the tensor among the arguments that it is, or -1 */
  int slot; /* else its storage, as tt_template_run numbers them; -1: it is undefined */
  tt_view view;
} tt_returned;

typedef struct tt_template {
  int refs; /* accessed atomically */
  tt_arena arena;
  tt_graph graph; /* its outputs are what is held */
  int *last_use;  /* [slot_count] the needed step that reads it last, or -1 */
  bool *needed;   /* [step_count] somebody needs what it computes */
  tt_scalar *scalars;
  tt_held *held; /* [held_count] the arguments first */
  int held_count, arg_count;
  int *arg_slots; /* [arg_count] their values' slots at the beginning, or TT_UNWRITTEN */
  int64_t blocks;
  uint64_t epoch; /* of its calls */
  tt_returned *returned;
  int returned_count;
} tt_template;

tt_template *tt_template_retain(tt_template *t);
void tt_template_release(tt_template *t); /* thread-safe; NULL is allowed */
/* Keeps with the template what its decomposition returns. */
tt_status tt_template_return(tt_template *t, const tt_returned *returned, int count);
/* Storages that the template knows: its arguments first, then its results. */
int tt_template_slots(const tt_template *t);
/* The blocks of random numbers that it draws. */
int64_t tt_template_blocks(const tt_template *t);

#endif
