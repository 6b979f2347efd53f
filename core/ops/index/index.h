/* Steps shared by the families that move elements by index: index, view, create, sort, random. */
#ifndef TT_INDEX_H
#define TT_INDEX_H

#include "ops/lower.h"

/* States an empty result 0 and returns true when result 0 is promised to have no elements. */
bool tt_out_empty(tt_lower *cx);
/* x itself, or [1] for rank 0: PyTorch's families that take `dim` treat a scalar so. */
tt_node *tt_at_least_1d(tt_lower *cx, tt_node *x);
/* I64; negative elements count from the end of a dim of this size. */
tt_node *tt_wrap_index(tt_lower *cx, tt_node *index, int64_t size);
/* Into what counts of argument i's dim: a read clamps, by itself only to the padding's end. */
tt_node *tt_clamp_index(tt_lower *cx, int i, int dim, tt_node *index);
/* The bool tensor of `type`'s dims that is true where the coordinate along `dim` lies in
 * low, low + step, .. < high. */
tt_node *tt_range_mask(tt_lower *cx, const tt_type *type, int dim, int64_t low, int64_t high,
                       int64_t step);
/* Inclusive sums along the last dim, in x's dtype (a float; exact while sums are exact in it). */
tt_node *tt_prefix_sum(tt_lower *cx, tt_node *x);
/* For a bool tensor of rank 1: before each element, how many are true (I64). */
tt_node *tt_count_before(tt_lower *cx, tt_node *mask);

/* Advanced indexing, x[indices]: where the picked elements lie. */
typedef struct tt_picks {
  int dims[TT_MAX_RANK]; /* the indexed dims of x */
  int count;
  tt_node *indices;        /* I64, the broadcast shape of the index tensors, then `count` */
  tt_type result;          /* x's dtype, dims of x[indices] */
  int window[TT_MAX_RANK]; /* dims of the result that are whole dims of x */
  int window_count;
} tt_picks;
/* Argument `arg` is the list of index tensors into argument 0, which are for reading, or for
 * writing; None means the whole dim. */
typedef enum tt_purpose { TT_TO_READ, TT_TO_WRITE } tt_purpose;
void tt_pick(tt_lower *cx, int arg, const tt_type *x, tt_purpose purpose, bool check,
             tt_picks *picks);
tt_node *tt_picked(tt_lower *cx, tt_node *x, const tt_picks *picks);

/* table (rank >= 1) with `rows` combined into it at `index`; bad indices are dropped. */
tt_node *tt_scatter_rows(tt_lower *cx, tt_node *table, tt_node *index, tt_node *rows,
                         tt_combiner combiner);
/* Each row (rank 2) divided by how often its index, below `size`, occurs. */
tt_node *tt_by_frequency(tt_lower *cx, tt_node *rows, tt_node *index, int64_t size);

#endif
