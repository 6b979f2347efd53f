/* Control flow within a graph. A *subgraph* is some steps with arguments: what a branch does, or a
 * loop in each round. A *region* is a branch or a loop whose bodies are subgraphs; these read
 * values from outside, too.
 *
 * All is borrowed, and immutable once made. Thread-compatible. */
#ifndef TT_SUBGRAPH_H
#define TT_SUBGRAPH_H

#include "graph/graph.h"

typedef struct tt_subgraph {
  const tt_step *steps;
  int step_count, slot_count, word_count, scalar_count;
  const tt_scalar *scalars; /* [scalar_count] CONSTANT, or PHILOX: behind where a run begins */
  int stream_count;
  const int64_t *blocks;   /* [stream_count] what one run draws of each stream of random numbers */
  int argument_count;      /* in the slots from 0 on */
  const tt_type **types;   /* [argument_count] interned, of the arguments */
  int outer_count;         /* values from outside */
  const int *outers;       /* [outer_count] their slots */
  const tt_type **outside; /* [outer_count] interned, their types */
  int result_count;
  const int *results;           /* [result_count] slots */
  const tt_type **result_types; /* [result_count] interned */
} tt_subgraph;

typedef enum tt_region_kind {
  TT_REGION_IF, /* the operand, a bool, chooses between bodies[0], if it is true, and bodies[1] */
  TT_REGION_WHILE, /* while bodies[0] yields true of the operands, they become what bodies[1] yields
                      of them */
  TT_REGION_SCAN /* `length` times the first `carried` operands become what bodies[0] yields of them
                    and of the next slice of the others along dim 0; what else it yields is
                    stacked along dim 0 */
} tt_region_kind;

typedef struct tt_region {
  tt_region_kind kind;
  const char *name; /* for messages: "torch.cond" */
  const tt_subgraph *bodies[2];
  int operand_count, carried;
  const tt_type **operands; /* [operand_count] interned */
  int64_t length;           /* of SCAN, at least 1 */
  int outer_count;          /* distinct values from outside */
  const tt_type **outers;   /* [outer_count] interned */
  const int *outer_of[2];   /* [bodies[i]->outer_count] which of these each is */
} tt_region;

#endif
