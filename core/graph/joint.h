/* What a program has several devices do together: its collectives, where the plugin does them. */
#ifndef TT_JOINT_H
#define TT_JOINT_H

#include "graph/graph.h"
#include "ops/collective/kinds.h"

typedef struct tt_joint {
  int device_count; /* that run it at once; 0: it has none, and runs on any device */
  int64_t *devices; /* their numbers, ascending */
  int64_t party;    /* who launches it together (dist/together.h) */
  int collective_count;
  /* Of the first collective. */
  tt_collective_kind kind;
  tt_reduction op;
  tt_dtype dtype;
  int64_t x_count, y_count; /* elements of inputs and outputs */
} tt_joint;

/* `h` has what the graph is lowered to. The caller deinits *out, also on failure. INVALID_ARGUMENT:
 * the graph has collectives of two parties. */
tt_status tt_joint_of(const tt_graph *graph, const tt_hlo *h, tt_joint *out);
void tt_joint_deinit(tt_joint *joint);

#endif
