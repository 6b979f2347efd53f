/* Embedding bags: sums, means, or maxima of the table's rows over stretches of the indices. */
#include "ops/index/index.h"
#include "ops/nn.h"
#include "ops/pointwise/pointwise.h"
#include "ops/sort/search.h"

enum { BAG_SUM = 0, BAG_MEAN = 1, BAG_MAX = 2 };

/* The indices (I64, rank 1), -1 where they are padding, of either kind. */
static tt_node *valid_index(tt_lower *cx, int arg, int padding_arg) {
  tt_hlo *h = cx->h;
  tt_node *index = tt_cast(cx, tt_in(cx, arg), TT_I64);
  index = tt_flatten(cx, tt_pad_with(cx, arg, index, tt_hlo_const_i(h, TT_I64, -1)));
  int64_t padding = tt_has(cx, padding_arg) ? tt_int(cx, padding_arg) : -1;
  if (padding < 0) return index;
  tt_node *skip = tt_hlo_compare(h, TT_EQ, index, tt_hlo_const_i(h, TT_I64, padding));
  return tt_hlo_select(h, skip, tt_hlo_full(h, &index->type, -1.0), index);
}

/* Whether each index counts. */
static tt_node *counts(tt_lower *cx, tt_node *index) {
  return tt_hlo_compare(cx->h, TT_GE, index, tt_hlo_const_i(cx->h, TT_I64, 0));
}

/* Zeros in the rows that do not count, whatever padding reads. */
static tt_node *counted_rows(tt_lower *cx, tt_node *rows, tt_node *index) {
  tt_node *valid = tt_hlo_broadcast(cx->h, counts(cx, index), (int[]){0}, 2, rows->type.dims);
  return tt_where_or_zero(cx, valid, rows);
}

static tt_node *times_column(tt_lower *cx, tt_node *rows, tt_node *column) {
  column = tt_cast(cx, column, rows->type.dtype);
  column = tt_hlo_broadcast_to(cx->h, column, rows->type.rank, rows->type.dims);
  return tt_hlo_multiply(cx->h, rows, column);
}

static tt_node *as_column(tt_lower *cx, tt_node *x) {
  return tt_hlo_reshape(cx->h, x, 2, (int64_t[]){tt_type_numel(&x->type), 1});
}

/* The rows that the indices name; what padding reads does not matter. */
static tt_node *picked_rows(tt_lower *cx, tt_node *weight, tt_node *index, tt_dtype dtype) {
  return tt_cast(cx, tt_hlo_take(cx->h, weight, index, 0), dtype);
}

/* The rows to be compared: NaN is the lowest, but in the first row of a bag, where it is the most.
 */
static tt_node *comparable(tt_lower *cx, tt_node *rows, tt_node *is_first) {
  tt_hlo *h = cx->h;
  tt_node *dropped = tt_hlo_and(h, tt_is_nan(cx, rows), tt_hlo_not(h, is_first));
  tt_node *lowest = tt_hlo_lowest(h, rows->type.dtype);
  return tt_hlo_select(h, dropped, tt_hlo_broadcast_to(h, lowest, 2, rows->type.dims), rows);
}

/* Maxima, and for each the index of the first row that has it; 0 for empty bags. */
static tt_node *bag_maxima(tt_lower *cx, tt_node *rows, tt_node *index, tt_node *bag,
                           const tt_type *result, tt_node **winners) {
  tt_hlo *h = cx->h;
  tt_type place_type = rows->type, slots = *result;
  place_type.dtype = slots.dtype = TT_I64;
  double n = (double)rows->type.dims[0];
  tt_node *target = tt_hlo_select(h, counts(cx, index), bag, tt_hlo_full(h, &bag->type, -1.0));
  tt_node *place = tt_hlo_iota(h, &place_type, 0), *none = tt_hlo_full(h, &slots, n);
  tt_node *begin = tt_hlo_take(h, tt_scatter_rows(cx, none, target, place, TT_SMIN), bag, 0);
  rows = comparable(cx, rows, tt_hlo_compare(h, TT_EQ, begin, place));
  tt_node *start = tt_hlo_broadcast_to(h, tt_hlo_lowest(h, rows->type.dtype), 2, result->dims);
  tt_node *most = tt_scatter_rows(cx, start, target, rows, TT_SMAX);
  tt_node *hit = tt_hlo_compare(h, TT_EQ, tt_hlo_take(h, most, bag, 0), rows);
  hit = tt_hlo_or(h, hit, tt_is_nan(cx, rows));
  tt_node *at = tt_hlo_select(h, hit, place, tt_hlo_full(h, &place_type, n));
  tt_node *first = tt_scatter_rows(cx, none, target, at, TT_SMIN);
  tt_node *empty = tt_hlo_compare(h, TT_EQ, first, none);
  *winners = tt_hlo_select(h, empty, tt_hlo_zeros(h, &slots), tt_hlo_take(h, index, first, 0));
  return tt_hlo_select(h, empty, tt_hlo_zeros(h, &most->type), most);
}

/* Sums of rows by bag; means if `sizes` is given. */
static tt_node *bag_sums(tt_lower *cx, tt_node *rows, tt_node *index, tt_node *bag,
                         const tt_type *result, tt_node *sizes) {
  tt_hlo *h = cx->h;
  rows = counted_rows(cx, rows, index);
  if (tt_has(cx, 6)) rows = times_column(cx, rows, as_column(cx, tt_in_counted(cx, 6)));
  tt_node *sum = tt_scatter_rows(cx, tt_hlo_zeros(h, result), bag, rows, TT_ADD);
  if (!sizes) return sum;
  tt_node *count =
      tt_cast(cx, tt_hlo_maximum(h, sizes, tt_hlo_const_i(h, TT_I64, 1)), result->dtype);
  return tt_quotient(cx, sum, tt_hlo_broadcast(h, count, (int[]){0}, 2, result->dims));
}

/* weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
 * include_last_offset, padding_idx -> output, bag of each index, bag sizes, winners */
void tt_lower_embedding_bag(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *weight = tt_in(cx, 0), *index = valid_index(cx, 1, 8), *winners = NULL, *y;
  tt_node *offsets = tt_cast(cx, tt_in(cx, 2), TT_I64);
  tt_dtype compute = tt_compute_dtype(weight->type.dtype);
  int64_t mode = tt_int(cx, 4), n = index->type.dims[0], bags = offsets->type.dims[0];
  tt_check_index(cx, tt_in(cx, 1), weight->type.dims[0], false, TT_INVALID_ARGUMENT, "index");
  if (tt_bool(cx, 7)) bags--;
  if (tt_has(cx, 6) && tt_in(cx, 6)->type.dtype != weight->type.dtype) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "embedding_bag: per_sample_weights are of another dtype");
    return;
  }
  tt_type result = {.dtype = compute, .rank = 2, .dims = {bags, weight->type.dims[1]}};
  tt_type line = {.dtype = TT_I64, .rank = 1, .dims = {n}}, per_bag = line;
  per_bag.dims[0] = offsets->type.dims[0];
  tt_node *place = tt_place_counted(cx, 1, 0, tt_hlo_iota(h, &line, 0));
  tt_node *bag = tt_search(cx, offsets, NULL, place, true);
  bag = tt_hlo_subtract(h, bag, tt_hlo_const_i(h, TT_I64, 1));
  tt_node *one = tt_cast(cx, counts(cx, index), TT_I64);
  tt_node *sizes = tt_scatter_rows(cx, tt_hlo_zeros(h, &per_bag), bag, one, TT_ADD);
  tt_node *own = tt_hlo_slice_dim(h, sizes, 0, 0, bags, 1);
  tt_node *rows = picked_rows(cx, weight, index, compute);
  if (mode == BAG_MAX)
    y = n > 0 && bags > 0 ? bag_maxima(cx, rows, index, bag, &result, &winners)
                          : tt_hlo_zeros(h, &result);
  else y = bag_sums(cx, rows, index, bag, &result, mode == BAG_MEAN ? own : NULL);
  result.dtype = TT_I64;
  if (mode == BAG_MAX && !winners) winners = tt_hlo_zeros(h, &result);
  line.dims[0] = 0;
  tt_out_as(cx, 0, tt_cast(cx, y, weight->type.dtype));
  tt_out_as(cx, 1, bag);
  tt_out_as(cx, 2, sizes);
  tt_out_as(cx, 3, winners ? winners : tt_hlo_zeros(h, &line));
}

/* Each output's gradient goes to the row that won. */
static tt_node *maxima_backward(tt_lower *cx, tt_node *grad, tt_node *winners, tt_node *sizes,
                                const tt_type *table) {
  tt_hlo *h = cx->h;
  int64_t bags = grad->type.dims[0], count = tt_type_numel(&grad->type);
  tt_type place = grad->type;
  place.dtype = TT_I64;
  sizes = tt_hlo_slice_dim(h, tt_cast(cx, sizes, TT_I64), 0, 0, bags, 1);
  tt_node *used = tt_hlo_compare(h, TT_GT, sizes, tt_hlo_const_i(h, TT_I64, 0));
  used = tt_hlo_broadcast(h, used, (int[]){0}, 2, place.dims);
  tt_node *at =
      tt_hlo_multiply(h, tt_cast(cx, winners, TT_I64), tt_hlo_const_i(h, TT_I64, place.dims[1]));
  at = tt_hlo_add(h, at, tt_hlo_iota(h, &place, 1));
  at = tt_hlo_select(h, used, at, tt_hlo_full(h, &place, -1.0));
  tt_type flat = {.dtype = grad->type.dtype, .rank = 1, .dims = {tt_type_numel(table)}};
  tt_node *sum = tt_scatter_rows(cx, tt_hlo_zeros(h, &flat), tt_hlo_reshape(h, at, 1, &count),
                                 tt_flatten(cx, grad), TT_ADD);
  return tt_hlo_reshape(h, sum, 2, table->dims);
}

/* _embedding_bag_dense_backward: grad, indices, offset2bag, bag_size, maximum_indices, num_weights,
 * scale_grad_by_freq, mode, per_sample_weights, padding_idx. _embedding_bag_backward (param 1) has
 * offsets before offset2bag, and sparse after mode. */
void tt_lower_embedding_bag_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  int shift = cx->row->param, tail = 2 * shift;
  tt_node *grad = tt_in(cx, 0), *index = valid_index(cx, 1, 9 + tail);
  tt_node *bag = tt_cast(cx, tt_in(cx, 2 + shift), TT_I64), *sizes = tt_in(cx, 3 + shift);
  int64_t mode = tt_int(cx, 7 + shift), rows = tt_int(cx, 5 + shift);
  tt_dtype dtype = grad->type.dtype, compute = tt_compute_dtype(dtype);
  tt_type table = {.dtype = compute, .rank = 2, .dims = {rows, grad->type.dims[1]}};
  grad = tt_cast(cx, grad, compute);
  if (shift && tt_bool(cx, 9)) {
    tt_hlo_fail(h, TT_UNIMPLEMENTED,
                "embedding_bag: sparse gradients are not supported; use "
                "sparse=False");
    return;
  }
  if (mode == BAG_MAX) {
    tt_node *sum = maxima_backward(cx, grad, tt_in(cx, 4 + shift), sizes, &table);
    tt_out_as(cx, 0, tt_cast(cx, sum, dtype));
    return;
  }
  if (index->type.dims[0] == 0) {
    tt_out_as(cx, 0, tt_cast(cx, tt_hlo_zeros(h, &table), dtype));
    return;
  }
  tt_node *each = tt_hlo_take(h, grad, bag, 0);
  if (mode == BAG_MEAN) {
    tt_node *size = tt_hlo_take(h, tt_cast(cx, sizes, compute), bag, 0);
    size = tt_hlo_maximum(h, size, tt_like(cx, size, 1.0));
    each = tt_quotient(cx, each, tt_hlo_broadcast(h, size, (int[]){0}, 2, each->type.dims));
  }
  if (tt_has(cx, 8 + tail)) each = times_column(cx, each, as_column(cx, tt_in(cx, 8 + tail)));
  if (tt_bool(cx, 6 + shift)) each = tt_by_frequency(cx, each, index, rows);
  tt_node *sum = tt_scatter_rows(cx, tt_hlo_zeros(h, &table), index, each, TT_ADD);
  tt_out_as(cx, 0, tt_cast(cx, sum, dtype));
}

/* grad, weight, indices, offsets, offset2bag, mode, padding_idx: the product of each index's row
 * and its bag's gradient. */
void tt_lower_embedding_bag_weights_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *grad = tt_in(cx, 0), *weight = tt_in(cx, 1), *index = valid_index(cx, 2, 6);
  tt_dtype dtype = grad->type.dtype, compute = tt_compute_dtype(dtype);
  int last = 1;
  tt_node *bag = tt_cast(cx, tt_in(cx, 4), TT_I64);
  tt_node *each = tt_hlo_take(h, tt_cast(cx, grad, compute), bag, 0);
  each = tt_hlo_multiply(h, each, picked_rows(cx, weight, index, compute));
  each = counted_rows(cx, each, index);
  tt_out_as(cx, 0, tt_cast(cx, tt_hlo_reduce(h, TT_SUM, each, &last, 1), dtype));
}
