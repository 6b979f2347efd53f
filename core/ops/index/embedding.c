/* Embedding tables: looking rows up, adding gradients into them, shrinking them. */
#include "ops/index/index.h"

void tt_lower_embedding(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  tt_node *weight = tt_in(cx, 0), *index = tt_in(cx, 1);
  tt_check_index(cx, index, weight->type.dims[0], false, TT_OUT_OF_RANGE, "index");
  tt_out_as(cx, 0, tt_hlo_take(cx->h, weight, index, 0));
}

tt_node *tt_by_frequency(tt_lower *cx, tt_node *rows, tt_node *index, int64_t size) {
  tt_hlo *h = cx->h;
  tt_type line = {.dtype = rows->type.dtype, .rank = 1, .dims = {size}}, ones = line;
  ones.dims[0] = rows->type.dims[0];
  tt_node *counts =
      tt_scatter_rows(cx, tt_hlo_zeros(h, &line), index, tt_hlo_full(h, &ones, 1.0), TT_ADD);
  tt_node *own = tt_hlo_take(h, counts, index, 0);
  return tt_hlo_divide(h, rows, tt_hlo_broadcast(h, own, (int[]){0}, 2, rows->type.dims));
}

/* grad, indices, num_weights, padding_idx, scale_grad_by_freq */
void tt_lower_embedding_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *grad = tt_in_counted(cx, 0), *index = tt_pad(cx, 1, tt_in(cx, 1), TT_MAX);
  index = tt_flatten(cx, index);
  int64_t rows = tt_int(cx, 2), padding = tt_int(cx, 3), n = index->type.dims[0];
  int64_t width = grad->type.rank > 0 ? grad->type.dims[grad->type.rank - 1] : 1;
  tt_type table = {.dtype = tt_compute_dtype(grad->type.dtype), .rank = 2, .dims = {rows, width}};
  grad = tt_cast(cx, tt_hlo_reshape(h, grad, 2, (int64_t[]){n, width}), table.dtype);
  index = tt_cast(cx, index, TT_I64);
  if (tt_padded(cx, 1)) index = tt_hlo_maximum(h, index, tt_hlo_const_i(h, TT_I64, -1));
  if (padding >= 0) {
    tt_node *skip = tt_hlo_compare(h, TT_EQ, index, tt_hlo_const_i(h, TT_I64, padding));
    index = tt_hlo_select(h, skip, tt_hlo_full(h, &index->type, -1.0), index);
  }
  if (tt_bool(cx, 4) && n > 0) grad = tt_by_frequency(cx, grad, index, rows);
  tt_out_as(cx, 0, tt_scatter_rows(cx, tt_hlo_zeros(h, &table), index, grad, TT_ADD));
}

/* weight, indices, max_norm, norm_type. A row used twice is written twice with the same values. */
void tt_lower_embedding_renorm(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *weight = tt_in(cx, 0), *index = tt_flatten(cx, tt_in(cx, 1));
  if (tt_type_numel(&index->type) == 0 || weight->type.rank != 2) {
    tt_out_as(cx, 0, weight);
    return;
  }
  tt_dtype compute = tt_compute_dtype(weight->type.dtype);
  tt_node *rows = tt_cast(cx, tt_hlo_take(h, weight, index, 0), compute);
  tt_node *limit = tt_num(cx, 2, compute), *p = tt_num(cx, 3, compute), *size = tt_hlo_abs(h, rows);
  int last = 1;
  tt_node *norm = tt_hlo_reduce(h, TT_SUM, tt_hlo_power(h, size, p), &last, 1);
  norm = tt_hlo_power(h, norm, tt_hlo_divide(h, tt_like(cx, p, 1.0), p));
  tt_node *infinite = tt_hlo_compare(h, TT_EQ, p, tt_hlo_highest(h, compute));
  norm = tt_hlo_select(h, tt_hlo_broadcast_to(h, infinite, 1, norm->type.dims),
                       tt_extreme(cx, TT_MAX, size, &last, 1), norm);
  tt_node *scale = tt_hlo_divide(h, limit, tt_hlo_add(h, norm, tt_like(cx, norm, 1e-7)));
  scale = tt_hlo_select(h, tt_hlo_compare(h, TT_GT, norm, limit), scale,
                        tt_hlo_full(h, &norm->type, 1.0));
  scale = tt_hlo_broadcast(h, scale, (int[]){0}, 2, rows->type.dims);
  rows = tt_cast(cx, tt_hlo_multiply(h, rows, scale), weight->type.dtype);
  tt_out_as(cx, 0, tt_scatter_rows(cx, weight, index, rows, TT_SET));
}
