/* Shared by the neural-network families: norm, loss, conv, pool, attention. */
#ifndef TT_NN_H
#define TT_NN_H

#include "ops/lower.h"

/* A rank-1 node spread along dim `dim` of `shape` (its dtype is kept). */
tt_node *tt_along(tt_lower *cx, tt_node *v, int dim, const tt_type *shape);
/* `x` lacks dims `dims` of `shape`: spread over them, the inverse of a reduction. */
tt_node *tt_unreduce(tt_lower *cx, tt_node *x, const int *dims, int count, const tt_type *shape);
/* How many elements x has in these dims, bounds counted whole (tt_count knows lengths). */
double tt_elements_in(const tt_node *x, const int *dims, int count);
/* Sum, or average, over `dims`. */
tt_node *tt_sum(tt_lower *cx, tt_node *x, const int *dims, int count);
tt_node *tt_mean(tt_lower *cx, tt_node *x, const int *dims, int count);
/* An average as the sum of x / n: not rounded as a mean is, but XLA's CPU compiler fuses the
 * product with the sum, while a quotient of sums is a kernel of its own. */
tt_node *tt_average(tt_lower *cx, tt_node *x, const int *dims, int count);
tt_node *tt_square(tt_lower *cx, tt_node *x);
/* x where `keep` is true, 0 elsewhere. */
tt_node *tt_where_or_zero(tt_lower *cx, tt_node *keep, tt_node *x);
/* The bool at position k of a bool[] argument. */
bool tt_flag(tt_lower *cx, int i, int k);
/* Scratch from the builder's arena: `count` int64; fails the builder when memory is out, and
 * then returns a static array that is safe to write (count is at most TT_MAX_RANK) or NULL. */
int64_t *tt_scratch(tt_lower *cx, int64_t count);
/* PyTorch's numbers for a loss's `reduction`. */
enum { TT_REDUCTION_NONE, TT_REDUCTION_MEAN, TT_REDUCTION_SUM };
/* Sums or averages the element losses, and states them as result 0 of `dtype`. */
void tt_out_loss(tt_lower *cx, tt_node *loss, int64_t reduction, tt_dtype dtype);
/* Reshape with a dim inserted, or dims split in two. */
tt_node *tt_unsqueeze(tt_lower *cx, tt_node *x, int dim);
tt_node *tt_split_dim(tt_lower *cx, tt_node *x, int dim, int64_t outer, int64_t inner);
tt_node *tt_merge_dim(tt_lower *cx, tt_node *x, int dim); /* dims dim and dim + 1 become one */
/* Moves dim `from` to position `to`, the others keeping their order. */
tt_node *tt_move_dim(tt_lower *cx, tt_node *x, int from, int to);

#endif
