/* What the files of the reduce family share. */
#ifndef TT_REDUCE_H
#define TT_REDUCE_H

#include "ops/pointwise/pointwise.h"

/* An operand and the dims to reduce away. */
typedef struct tt_reduction {
  tt_node *x;
  int dims[TT_MAX_RANK];
  int count;
  bool keep;
  int64_t size; /* elements that become one */
} tt_reduction;

/* Reads the dims from argument `dim` (negative: all) and keepdim from argument `keep` (negative:
 * no), of the operand x. */
tt_reduction tt_reduction_of(tt_lower *cx, tt_node *x, int dim, int keep);
tt_node *tt_reduce_by(tt_lower *cx, tt_reducer reducer, const tt_reduction *r);
/* The same of another node of the same shape. */
tt_node *tt_reduce_node(tt_lower *cx, tt_reducer reducer, const tt_reduction *r, tt_node *x);
/* Gives a reduced node the dims of the operand again, by broadcasting. */
tt_node *tt_reduction_spread(tt_lower *cx, const tt_reduction *r, tt_node *y);

#endif
