/* What a captured graph is launched as: one program, or one for each of the stretches
 * (graph/stretch.h) that it is divided into.
 *
 * The launches of a replay share *values*: first the graph's inputs in their order, then whatever a
 * program leaves to another one or to the caller. */
#ifndef TT_DIVIDED_H
#define TT_DIVIDED_H

#include "stream/launch.h"
#include "stream/policy.h"

typedef struct tt_divided_part {
  tt_program *program; /* kept in memory as long as this lives */
  int input_count, output_count, word_count;
  const int *inputs, *outputs; /* values */
  const int *words;            /* which of the captured graph's */
} tt_divided_part;

typedef struct tt_divided {
  int part_count, value_count;
  tt_divided_part *parts;
  tt_type *types; /* [value_count] of those that are made */
  bool known;     /* the process had all its programs already */
} tt_divided;

/* In the arena; the programs are being compiled. *value_of, [graph->slot_count] and as long as the
 * graph, says which value a slot is, or -1. Deinit also after a failure. */
tt_status tt_divided_init(tt_divided *divided, tt_arena *arena, tt_program_table *programs,
                          const tt_graph *graph, const tt_policy *policy, tt_arena *scratch,
                          int **value_of);
/* One part, a program with as many inputs, outputs and words as `counts` says, numbered in that
 * order; the caller fills in the types of outputs. Deinit also after a failure. */
tt_status tt_divided_of_program(tt_divided *divided, tt_arena *arena, tt_program *program,
                                const tt_divided_part *counts);
void tt_divided_deinit(tt_divided *divided);
/* A launch for each part, a list, in order; each takes its words of all `words`. */
tt_status tt_divided_launches(const tt_divided *divided, tt_device *device, const uint32_t *words,
                              const tt_origin *origin, tt_launch **out);
/* Gives them their inputs and outputs; values[value_count] keep their references. */
void tt_divided_bind(const tt_divided *divided, tt_value *const *values, tt_launch *first);

#endif
