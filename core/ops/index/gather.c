/* Operators that read elements by index. In Debug an index out of range is an error; otherwise a
 * read clamps, as StableHLO's gather does. */
#include "ops/index/index.h"
#include "ops/sort/search.h"

void tt_lower_index(tt_lower *cx) {
  tt_picks picks;
  tt_node *x = tt_in(cx, 0);
  tt_pick(cx, 1, &x->type, TT_TO_READ, cx->row->param == 0, &picks);
  tt_out_as(cx, 0, tt_picked(cx, x, &picks));
}

/* mask ? x[indices] : fill, with the indices clamped where the mask is false. */
void tt_lower_masked_index(tt_lower *cx) {
  tt_picks picks;
  tt_node *x = tt_in(cx, 0), *mask = tt_in(cx, 1), *fill = tt_num(cx, 3, x->type.dtype);
  tt_pick(cx, 2, &x->type, TT_TO_READ, false, &picks);
  const tt_type *to = &picks.result;
  fill = tt_hlo_broadcast_to(cx->h, fill, to->rank, to->dims);
  if (tt_type_numel(&x->type) == 0) { /* whatever the mask says */
    tt_out_as(cx, 0, fill);
    return;
  }
  mask = tt_hlo_broadcast_to(cx->h, tt_cast(cx, mask, TT_BOOL), to->rank, to->dims);
  tt_out_as(cx, 0, tt_hlo_select(cx->h, mask, tt_picked(cx, x, &picks), fill));
}

/* -- Along one dim -- */

void tt_lower_index_select(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  tt_node *x = tt_in(cx, 0), *index = tt_at_least_1d(cx, tt_in(cx, 2));
  int dim = tt_dim(cx, 1, x->type.rank), rank = x->type.rank;
  x = tt_at_least_1d(cx, x);
  tt_check_index(cx, index, x->type.dims[dim], false, TT_OUT_OF_RANGE, "index");
  x = tt_hlo_take(cx->h, x, tt_clamp_index(cx, 0, dim, index), dim);
  tt_out_as(cx, 0, rank == 0 ? tt_hlo_reshape(cx->h, x, 0, NULL) : x);
}

void tt_lower_gather(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  tt_node *x = tt_in(cx, 0), *index = tt_in(cx, 2);
  int dim = tt_dim(cx, 1, x->type.rank);
  tt_type type = index->type;
  x = tt_at_least_1d(cx, x);
  index = tt_at_least_1d(cx, index);
  tt_check_index(cx, index, x->type.dims[dim], false, TT_INVALID_ARGUMENT, "index");
  for (int i = 0; i < x->type.rank; i++)
    if (i != dim && index->type.dims[i] < x->type.dims[i])
      x = tt_hlo_slice_dim(cx->h, x, i, 0, index->type.dims[i], 1);
  x = tt_hlo_take_along(cx->h, x, tt_clamp_index(cx, 0, dim, index), dim);
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, x, type.rank, type.dims));
}

void tt_lower_take(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  tt_node *x = tt_flatten(cx, tt_in(cx, 0)), *index = tt_in(cx, 1);
  tt_check_index(cx, index, x->type.dims[0], true, TT_OUT_OF_RANGE, "index");
  tt_out_as(cx, 0, tt_hlo_take(cx->h, x, tt_wrap_index(cx, index, x->type.dims[0]), 0));
}

/* -- Results whose size the caller states -- */

/* Element i of the result is the number of repeats' partial sums that are <= i. */
void tt_lower_repeat_interleave(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  tt_type index = *tt_meta_type(cx, 0);
  tt_node *ends = tt_prefix_sum(cx, tt_cast(cx, tt_in(cx, 0), TT_F64));
  index.dtype = TT_I64;
  if (index.rank != 1) return;
  tt_node *places = tt_hlo_iota(cx->h, &index, 0);
  tt_out_as(cx, 0, tt_search(cx, tt_cast(cx, ends, TT_I64), NULL, places, true));
}

/* The flat positions of the true elements, in order, are scattered into `size` slots; what is left
 * keeps -1 and becomes the fill value. */
void tt_lower_nonzero_static(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  tt_hlo *h = cx->h;
  tt_node *x = tt_in_counted(cx, 0), *mask = tt_flatten(cx, tt_cast(cx, x, TT_BOOL));
  tt_type result = *tt_meta_type(cx, 0), slots = {.dtype = TT_I64, .rank = 1};
  int64_t numel = mask->type.dims[0], stride = numel;
  slots.dims[0] = result.dims[0];
  tt_type flat = {.dtype = TT_I64, .rank = 1, .dims = {numel}};
  tt_node *target = tt_hlo_select(h, mask, tt_count_before(cx, mask), tt_hlo_full(h, &flat, -1.0));
  tt_scatter dims = {.inserted_dims = (int[]){0},
                     .inserted_count = 1,
                     .scatter_map = (int[]){0},
                     .scatter_count = 1,
                     .index_vector_dim = 1};
  target = tt_hlo_reshape(h, target, 2, (int64_t[]){numel, 1});
  tt_node *at = tt_hlo_full(h, &slots, -1.0), *columns[TT_MAX_RANK];
  if (numel > 0) at = tt_hlo_scatter(h, at, target, tt_hlo_iota(h, &flat, 0), &dims, TT_SET);
  tt_node *none = tt_hlo_compare(h, TT_LT, at, tt_hlo_const_i(h, TT_I64, 0));
  for (int i = 0; i < x->type.rank; i++) {
    stride = x->type.dims[i] > 0 ? stride / x->type.dims[i] : 1;
    tt_node *column = tt_hlo_divide(h, at, tt_hlo_const_i(h, TT_I64, stride > 0 ? stride : 1));
    column = tt_hlo_remainder(h, column,
                              tt_hlo_const_i(h, TT_I64, x->type.dims[i] > 0 ? x->type.dims[i] : 1));
    column = tt_hlo_select(h, none, tt_hlo_broadcast_to(h, tt_num(cx, 2, TT_I64), 1, slots.dims),
                           column);
    columns[i] = tt_hlo_reshape(h, column, 2, (int64_t[]){slots.dims[0], 1});
  }
  tt_out_as(cx, 0, tt_hlo_concatenate(h, columns, x->type.rank, 1));
}
