/* Padding by a constant, by reflection, or by repeating the edge; and the gradients. Negative
 * padding crops. */
#include "ops/nn.h"

enum { REFLECT, REPLICATE };

/* The padding of dim d: the list starts with the last dim. */
static void pair_of(tt_lower *cx, int i, int rank, int d, int64_t *low, int64_t *high) {
  int count = 0, at = 2 * (rank - 1 - d);
  const int64_t *list = tt_ints(cx, i, &count);
  *low = at < count ? list[at] : 0;
  *high = at + 1 < count ? list[at + 1] : 0;
}

/* self, pad, value */
void tt_lower_constant_pad(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int64_t low[TT_MAX_RANK], high[TT_MAX_RANK];
  tt_node *value = tt_num(cx, 2, x->type.dtype);
  for (int d = 0; d < x->type.rank; d++) {
    pair_of(cx, 1, x->type.rank, d, &low[d], &high[d]);
    if (tt_padded_along(cx, 0, d))
      high[d] = tt_meta_type(cx, 0)->dims[d] - low[d] - x->type.dims[d];
  }
  x = tt_pad_with(cx, 0, x, value);
  tt_out_as(cx, 0, tt_hlo_pad(cx->h, x, value, low, high, NULL));
}

/* x[start..stop) along dim, turned around */
static tt_node *mirror(tt_lower *cx, tt_node *x, int dim, int64_t start, int64_t stop) {
  tt_node *part = tt_hlo_slice_dim(cx->h, x, dim, start, stop, 1);
  return tt_hlo_reverse(cx->h, part, &dim, 1);
}

/* The plane at `at` along dim, n times */
static tt_node *repeat(tt_lower *cx, tt_node *x, int dim, int64_t at, int64_t n) {
  tt_node *edge = tt_hlo_slice_dim(cx->h, x, dim, at, at + 1, 1);
  tt_type type = edge->type;
  type.dims[dim] = n;
  return tt_hlo_broadcast_to(cx->h, edge, type.rank, type.dims);
}

static bool check_pad(tt_lower *cx, int kind, int64_t n, int64_t low, int64_t high) {
  bool fits = kind == REFLECT ? low < n && high < n : n > 0;
  if (!fits || n + low + high < 0) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                "Padding size should be less than the corresponding input dimension, but got: "
                "padding (%lld, %lld) at a dimension of size %lld",
                (long long)low, (long long)high, (long long)n);
    return false;
  }
  return true;
}

static tt_node *pad_dim(tt_lower *cx, tt_node *x, int kind, int dim, int64_t low, int64_t high) {
  int64_t n = x->type.dims[dim];
  if (!check_pad(cx, kind, n, low, high)) return x;
  tt_node *parts[3];
  int count = 0;
  if (low > 0) {
    parts[count++] = kind == REFLECT ? mirror(cx, x, dim, 1, low + 1) : repeat(cx, x, dim, 0, low);
  }
  parts[count++] = x;
  if (high > 0) {
    parts[count++] =
        kind == REFLECT ? mirror(cx, x, dim, n - 1 - high, n - 1) : repeat(cx, x, dim, n - 1, high);
  }
  if (count > 1) x = tt_hlo_concatenate(cx->h, parts, count, dim);
  int64_t start = low < 0 ? -low : 0, stop = x->type.dims[dim] + (high < 0 ? high : 0);
  return low < 0 || high < 0 ? tt_hlo_slice_dim(cx->h, x, dim, start, stop, 1) : x;
}

/* x with zeros before and after along dim */
static tt_node *place(tt_lower *cx, tt_node *x, int dim, int64_t before, int64_t after) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  low[dim] = before;
  high[dim] = after;
  return tt_hlo_pad(cx->h, x, tt_like(cx, x, 0), low, high, NULL);
}

/* The part of a gradient that a border of `g` gives back: a border plane each to its own. */
static tt_node *fold_border(tt_lower *cx, tt_node *g, int kind, int dim, int64_t start,
                            int64_t stop) {
  if (kind == REFLECT) return mirror(cx, g, dim, start, stop);
  tt_node *part = tt_hlo_slice_dim(cx->h, g, dim, start, stop, 1);
  return tt_reduce_keep(cx, TT_SUM, part, &dim, 1, true);
}

static tt_node *pad_dim_grad(tt_lower *cx, tt_node *g, int kind, int dim, int64_t n, int64_t low,
                             int64_t high) {
  if (!check_pad(cx, kind, n, low, high)) return g;
  if (low < 0 || high < 0) g = place(cx, g, dim, low < 0 ? -low : 0, high < 0 ? -high : 0);
  int64_t before = low > 0 ? low : 0, size = g->type.dims[dim], offset = kind == REFLECT ? 1 : 0;
  tt_node *dx = tt_hlo_slice_dim(cx->h, g, dim, before, before + n, 1);
  if (low > 0) {
    tt_node *part = fold_border(cx, g, kind, dim, 0, low);
    part = place(cx, part, dim, offset, n - offset - part->type.dims[dim]);
    dx = tt_hlo_add(cx->h, dx, part);
  }
  if (high > 0) {
    tt_node *part = fold_border(cx, g, kind, dim, size - high, size);
    part = place(cx, part, dim, n - offset - part->type.dims[dim], offset);
    dx = tt_hlo_add(cx->h, dx, part);
  }
  return dx;
}

/* self, padding; param: 0 reflection, 1 replication */
void tt_lower_edge_pad(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  for (int d = 0; d < x->type.rank; d++) {
    int64_t low, high;
    pair_of(cx, 1, x->type.rank, d, &low, &high);
    if (low || high) x = pad_dim(cx, x, cx->row->param, d, low, high);
  }
  tt_out_as(cx, 0, x);
}

/* grad_output, self, padding; param as above */
void tt_lower_edge_pad_backward(tt_lower *cx) {
  tt_node *grad = tt_in(cx, 0), *input = tt_in(cx, 1);
  tt_node *g = tt_cast(cx, grad, tt_compute_dtype(grad->type.dtype));
  for (int d = 0; d < input->type.rank; d++) {
    int64_t low, high;
    pair_of(cx, 2, input->type.rank, d, &low, &high);
    if (low || high) g = pad_dim_grad(cx, g, cx->row->param, d, input->type.dims[d], low, high);
  }
  tt_out_as(cx, 0, tt_cast(cx, g, grad->type.dtype));
}
