#include "ops/index/index.h"

#include <assert.h>
#include <string.h>

bool tt_out_empty(tt_lower *cx) {
  if (!cx->meta_types || cx->meta_count == 0 || tt_type_numel(cx->meta_types) != 0) return false;
  tt_out(cx, 0, tt_hlo_zeros(cx->h, cx->meta_types));
  return true;
}

tt_node *tt_at_least_1d(tt_lower *cx, tt_node *x) {
  return x->type.rank > 0 ? x : tt_hlo_reshape(cx->h, x, 1, (int64_t[]){1});
}

static tt_node *wrap(tt_lower *cx, tt_node *index, tt_node *size) {
  tt_hlo *h = cx->h;
  index = tt_hlo_convert(h, index, TT_I64);
  tt_node *negative = tt_hlo_compare(h, TT_LT, index, tt_hlo_const_i(h, TT_I64, 0));
  return tt_hlo_select(h, negative, tt_hlo_add(h, index, size), index);
}

tt_node *tt_wrap_index(tt_lower *cx, tt_node *index, int64_t size) {
  return wrap(cx, index, tt_hlo_const_i(cx->h, TT_I64, size));
}

tt_node *tt_clamp_index(tt_lower *cx, int i, int dim, tt_node *index) {
  if (!tt_padded_along(cx, i, dim)) return index;
  tt_hlo *h = cx->h;
  tt_node *count = tt_count(cx, i, &dim, 1, TT_I64);
  index = tt_hlo_convert(h, index, TT_I64);
  return tt_hlo_minimum(h, index, tt_hlo_subtract(h, count, tt_hlo_const_i(h, TT_I64, 1)));
}

tt_node *tt_range_mask(tt_lower *cx, const tt_type *type, int dim, int64_t low, int64_t high,
                       int64_t step) {
  tt_hlo *h = cx->h;
  tt_type line = {.dtype = TT_I64, .rank = 1, .dims = {type->dims[dim]}};
  tt_node *i = tt_hlo_iota(h, &line, 0), *start = tt_hlo_const_i(h, TT_I64, low);
  tt_node *inside = tt_hlo_and(h, tt_hlo_compare(h, TT_GE, i, start),
                               tt_hlo_compare(h, TT_LT, i, tt_hlo_const_i(h, TT_I64, high)));
  if (step > 1) {
    tt_node *phase =
        tt_hlo_remainder(h, tt_hlo_subtract(h, i, start), tt_hlo_const_i(h, TT_I64, step));
    tt_node *hit = tt_hlo_compare(h, TT_EQ, phase, tt_hlo_const_i(h, TT_I64, 0));
    inside = tt_hlo_and(h, inside, hit);
  }
  return tt_hlo_broadcast(h, inside, &dim, type->rank, type->dims);
}

/* -- Prefix sums: within blocks as a product with a triangle of ones, then over the blocks -- */

enum { BLOCK = 128 };

static tt_node *ones_triangle(tt_lower *cx, tt_dtype dtype, int64_t size) {
  tt_type index = {.dtype = TT_I32, .rank = 2, .dims = {size, size}};
  tt_node *mask =
      tt_hlo_compare(cx->h, TT_LE, tt_hlo_iota(cx->h, &index, 0), tt_hlo_iota(cx->h, &index, 1));
  return tt_hlo_convert(cx->h, mask, dtype);
}

/* x has rank 2; sums run along its second dim. */
static tt_node *prefix_rows(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = x->type.dtype;
  int64_t rows = x->type.dims[0], n = x->type.dims[1], blocks = (n + BLOCK - 1) / BLOCK;
  if (n <= BLOCK)
    return tt_hlo_dot_general(h, x, ones_triangle(cx, dtype, n), NULL, NULL, 0, (int[]){1},
                              (int[]){0}, 1, dtype);
  tt_node *zero = tt_like(cx, x, 0.0);
  x = tt_hlo_pad(h, x, zero, (int64_t[]){0, 0}, (int64_t[]){0, blocks * BLOCK - n}, NULL);
  x = tt_hlo_reshape(h, x, 2, (int64_t[]){rows * blocks, BLOCK});
  tt_node *within = prefix_rows(cx, x);
  tt_node *totals = tt_hlo_slice_dim(h, within, 1, BLOCK - 1, BLOCK, 1);
  totals = prefix_rows(cx, tt_hlo_reshape(h, totals, 2, (int64_t[]){rows, blocks}));
  tt_node *before = tt_hlo_pad(h, totals, zero, (int64_t[]){0, 1}, (int64_t[]){0, -1}, NULL);
  int64_t dims[3] = {rows, blocks, BLOCK};
  within = tt_hlo_reshape(h, within, 3, dims);
  within = tt_hlo_add(h, within, tt_hlo_broadcast(h, before, (int[]){0, 1}, 3, dims));
  within = tt_hlo_reshape(h, within, 2, (int64_t[]){rows, blocks * BLOCK});
  return tt_hlo_slice_dim(h, within, 1, 0, n, 1);
}

tt_node *tt_prefix_sum(tt_lower *cx, tt_node *x) {
  tt_type type = x->type;
  int64_t n = type.rank > 0 ? type.dims[type.rank - 1] : 1, numel = tt_type_numel(&type);
  if (numel == 0 || type.rank == 0) return x;
  x = tt_hlo_reshape(cx->h, x, 2, (int64_t[]){numel / n, n});
  tt_precision before = tt_hlo_precision(cx->h, TT_PRECISION_HIGHEST);
  x = prefix_rows(cx, x);
  (void)tt_hlo_precision(cx->h, before);
  return tt_hlo_reshape(cx->h, x, type.rank, type.dims);
}

tt_node *tt_count_before(tt_lower *cx, tt_node *mask) {
  tt_dtype dtype = tt_type_numel(&mask->type) <= 16777216 ? TT_F32 : TT_F64;
  tt_node *one = tt_cast(cx, mask, dtype);
  return tt_cast(cx, tt_hlo_subtract(cx->h, tt_prefix_sum(cx, one), one), TT_I64);
}

/* -- Advanced indexing -- */

/* The broadcast shape of the index tensors in a list argument. */
static tt_type index_shape(tt_lower *cx, int arg) {
  tt_type shape = {.dtype = TT_I64};
  for (int k = 0; k < tt_list_size(cx, arg); k++) {
    tt_node *index = tt_in_at(cx, arg, k);
    if (!index) continue;
    int added = index->type.rank - shape.rank;
    if (added > 0) {
      memmove(shape.dims + added, shape.dims, (size_t)shape.rank * sizeof *shape.dims);
      for (int i = 0; i < added; i++) shape.dims[i] = 1;
      shape.rank += added;
    }
    for (int i = 0; i < index->type.rank; i++) {
      int64_t *dim = &shape.dims[shape.rank - index->type.rank + i];
      if (*dim == 1) *dim = index->type.dims[i];
    }
  }
  return shape;
}

/* Where the broadcast dims stand in the result: in the place of the indexed dims if these are
 * neighbours, else in front. */
static void shape_result(tt_lower *cx, const tt_type *x, const tt_type *shape, tt_picks *picks) {
  bool indexed[TT_MAX_RANK] = {false}, neighbours = true;
  int at = 0, rank = 0;
  for (int k = 0; k < picks->count; k++) {
    indexed[picks->dims[k]] = true;
    if (picks->dims[k] != picks->dims[0] + k) neighbours = false;
  }
  if (neighbours) at = picks->dims[0];
  picks->window_count = 0;
  picks->result = (tt_type){.dtype = x->dtype};
  if (x->rank - picks->count + shape->rank > TT_MAX_RANK) {
    tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "%s: a result of more than %d dims is not supported",
                cx->row->name, TT_MAX_RANK);
    return;
  }
  for (int i = 0; i <= x->rank; i++) {
    if (i == at)
      for (int j = 0; j < shape->rank; j++) picks->result.dims[rank++] = shape->dims[j];
    if (i == x->rank || indexed[i]) continue;
    picks->window[picks->window_count++] = rank;
    picks->result.dims[rank++] = x->dims[i];
  }
  assert(rank <= TT_MAX_RANK);
  picks->result.rank = rank;
}

void tt_pick(tt_lower *cx, int arg, const tt_type *x, tt_purpose purpose, bool check,
             tt_picks *picks) {
  tt_hlo *h = cx->h;
  tt_type shape = index_shape(cx, arg), column = shape;
  tt_node *parts[TT_MAX_RANK];
  *picks = (tt_picks){.count = 0};
  if (shape.rank < TT_MAX_RANK) column.dims[column.rank++] = 1;
  for (int k = 0; k < tt_list_size(cx, arg) && k < x->rank; k++) {
    tt_node *index = tt_in_at(cx, arg, k);
    if (!index) continue;
    if (check) tt_check_index(cx, index, x->dims[k], true, TT_OUT_OF_RANGE, "index");
    tt_node *size = tt_padded_along(cx, 0, k) ? tt_count(cx, 0, &k, 1, TT_I64)
                                              : tt_hlo_const_i(h, TT_I64, x->dims[k]);
    index = tt_pad_at(cx, arg, k, wrap(cx, index, size), TT_MAX); /* padding is out of range */
    if (purpose == TT_TO_READ) index = tt_clamp_index(cx, 0, k, index);
    index = tt_hlo_broadcast_to(h, index, shape.rank, shape.dims);
    parts[picks->count] = tt_hlo_reshape(h, index, column.rank, column.dims);
    picks->dims[picks->count++] = k;
  }
  if (picks->count == 0) {
    picks->indices = tt_hlo_fail(h, TT_INVALID_ARGUMENT, "%s: expected at least one index tensor",
                                 cx->row->name);
    return;
  }
  picks->indices = tt_hlo_concatenate(h, parts, picks->count, shape.rank);
  shape_result(cx, x, &shape, picks);
}

tt_node *tt_picked(tt_lower *cx, tt_node *x, const tt_picks *picks) {
  int64_t sizes[TT_MAX_RANK];
  if (tt_hlo_failed(cx->h) || tt_type_numel(&picks->result) == 0)
    return tt_hlo_zeros(cx->h, &picks->result);
  for (int i = 0; i < x->type.rank; i++) sizes[i] = x->type.dims[i];
  for (int k = 0; k < picks->count; k++) sizes[picks->dims[k]] = 1;
  tt_gather dims = {.offset_dims = picks->window,
                    .offset_count = picks->window_count,
                    .collapsed_dims = picks->dims,
                    .collapsed_count = picks->count,
                    .start_map = picks->dims,
                    .start_count = picks->count,
                    .index_vector_dim = picks->indices->type.rank - 1,
                    .slice_sizes = sizes};
  return tt_hlo_gather(cx->h, x, picks->indices, &dims);
}
