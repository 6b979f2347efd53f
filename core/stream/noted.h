/* What notes leave: shared by who takes them (notes.c) and who uses them (template.c). */
#ifndef TT_NOTED_H
#define TT_NOTED_H

#include "stream/template.h"

enum { TT_UNWRITTEN = -1 }; /* in a slot's place */

/* A storage at the end: an argument, or a result. */
typedef struct tt_held {
  int slot; /* of the graph, or TT_UNWRITTEN */
  const tt_type *type;
} tt_held;

struct tt_template {
  tt_arena arena;
  tt_graph graph; /* its outputs are what is held */
  int *last_use;  /* [slot_count] the step that reads it last, or -1 */
  tt_scalar *scalars;
  tt_held *held; /* [held_count] the arguments first */
  int held_count, arg_count;
  int *arg_slots; /* [arg_count] their values' slots at the beginning, or TT_UNWRITTEN */
  int64_t blocks;
  uint64_t epoch; /* of its calls */
};

/* A template was run on these storages by a thread that may take notes: its steps are theirs, too.
 */
void tt_notes_adopt(const tt_template *t, tt_storage *const *storages);

#endif
