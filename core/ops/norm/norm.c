/* Layer, RMS and group normalization: rows of a matrix are standardized. */
#include "ops/nn.h"

static const int COLUMNS[] = {1};

/* x as [rows, columns] in the dtype that PyTorch computes in. */
static tt_node *as_rows(tt_lower *cx, tt_node *x, int64_t rows, int64_t columns) {
  tt_node *flat = tt_hlo_reshape(cx->h, x, 2, (int64_t[]){rows, columns});
  return tt_cast(cx, flat, tt_compute_dtype(x->type.dtype));
}

static tt_node *row_mean(tt_lower *cx, tt_node *x) { return tt_mean(cx, x, COLUMNS, 1); }

static tt_node *on_rows(tt_lower *cx, tt_node *v, tt_node *x) {
  return tt_along(cx, v, 0, &x->type);
}

/* (x - mean) * rstd by rows. */
static tt_node *standardize(tt_lower *cx, tt_node *x, tt_node *eps, tt_node **mean,
                            tt_node **rstd) {
  tt_hlo *h = cx->h;
  *mean = tt_average(cx, x, COLUMNS, 1);
  tt_node *summed = tt_hlo_subtract(h, x, on_rows(cx, *mean, x)); /* for the sum alone: tt_once */
  tt_node *squares = tt_sum(cx, tt_square(cx, summed), COLUMNS, 1);
  tt_node *variance = tt_times(cx, squares, 1 / (double)x->type.dims[1]);
  *rstd = tt_hlo_rsqrt(h, tt_hlo_add(h, variance, eps));
  x = tt_hlo_subtract(h, x, on_rows(cx, tt_once(cx, *mean), x));
  return tt_hlo_multiply(h, x, on_rows(cx, *rstd, x));
}

/* The gradient of standardize, given that of its result. */
static tt_node *standardize_grad(tt_lower *cx, tt_node *g, tt_node *normed, tt_node *rstd,
                                 bool centered) {
  tt_hlo *h = cx->h;
  tt_node *along = row_mean(cx, tt_hlo_multiply(h, g, normed));
  tt_node *dx = tt_hlo_subtract(h, g, tt_hlo_multiply(h, normed, on_rows(cx, along, g)));
  if (centered) dx = tt_hlo_subtract(h, dx, on_rows(cx, row_mean(cx, g), g));
  return tt_hlo_multiply(h, dx, on_rows(cx, rstd, g));
}

typedef struct split {
  int64_t rows, columns;
} split;

/* How the trailing normalized_shape cuts the input in rows. */
static split split_at(tt_lower *cx, tt_node *x, int shape_arg) {
  int inner = 0;
  tt_ints(cx, shape_arg, &inner);
  split s = {1, 1};
  for (int d = 0; d < x->type.rank; d++) {
    *(d < x->type.rank - inner ? &s.rows : &s.columns) *= x->type.dims[d];
  }
  return s;
}

/* Row i's optional weight as a vector over the columns. */
static tt_node *column_vector(tt_lower *cx, int i, tt_node *x) {
  tt_node *v = tt_hlo_reshape(cx->h, tt_in(cx, i), 1, &x->type.dims[1]);
  return tt_along(cx, tt_cast(cx, v, x->type.dtype), 1, &x->type);
}

/* States statistics of rows as [outer dims.., 1..]. */
static void out_rows(tt_lower *cx, int k, tt_node *v, tt_node *x, int shape_arg) {
  int inner = 0;
  tt_ints(cx, shape_arg, &inner);
  tt_type type = x->type;
  for (int d = type.rank - inner; d < type.rank; d++) {
    if (d >= 0) type.dims[d] = 1;
  }
  tt_out_as(cx, k, tt_hlo_reshape(cx->h, v, type.rank, type.dims));
}

static tt_node *back(tt_lower *cx, tt_node *y, tt_node *x) {
  return tt_cast(cx, tt_hlo_reshape(cx->h, y, x->type.rank, x->type.dims), x->type.dtype);
}

/* input, normalized_shape, weight?, bias?, eps */
void tt_lower_layer_norm(tt_lower *cx) {
  tt_node *input = tt_in(cx, 0), *mean, *rstd;
  split s = split_at(cx, input, 1);
  tt_node *x = as_rows(cx, input, s.rows, s.columns);
  tt_node *y = standardize(cx, x, tt_num(cx, 4, x->type.dtype), &mean, &rstd);
  if (tt_has(cx, 2)) y = tt_hlo_multiply(cx->h, y, column_vector(cx, 2, x));
  if (tt_has(cx, 3)) y = tt_hlo_add(cx->h, y, column_vector(cx, 3, x));
  tt_out_as(cx, 0, back(cx, y, input));
  out_rows(cx, 1, mean, input, 1);
  out_rows(cx, 2, rstd, input, 1);
}

static tt_node *row_stats(tt_lower *cx, int i, tt_node *x) {
  tt_node *v = tt_hlo_reshape(cx->h, tt_in_counted(cx, i), 1, x->type.dims);
  return tt_cast(cx, v, x->type.dtype);
}

/* States the gradient of a weight or bias: the sum over rows in the parameter's shape. */
static void out_parameter(tt_lower *cx, int k, tt_node *g, int parameter) {
  static const int rows[] = {0};
  const tt_type *type = &tt_in(cx, parameter)->type;
  tt_node *sum = tt_hlo_reshape(cx->h, tt_sum(cx, g, rows, 1), type->rank, type->dims);
  tt_out_as(cx, k, tt_cast(cx, sum, type->dtype));
}

/* grad_out, input, normalized_shape, mean, rstd, weight?, bias?, output_mask[3] */
void tt_lower_layer_norm_backward(tt_lower *cx) {
  tt_node *input = tt_in_counted(cx, 1);
  split s = split_at(cx, input, 2);
  tt_node *x = as_rows(cx, input, s.rows, s.columns);
  tt_node *grad = as_rows(cx, tt_in_counted(cx, 0), s.rows, s.columns);
  tt_node *rstd = row_stats(cx, 4, x);
  tt_node *centered = tt_hlo_subtract(cx->h, x, on_rows(cx, row_stats(cx, 3, x), x));
  tt_node *normed = tt_hlo_multiply(cx->h, centered, on_rows(cx, rstd, x));
  tt_node *g = tt_has(cx, 5) ? tt_hlo_multiply(cx->h, grad, column_vector(cx, 5, x)) : grad;
  if (tt_flag(cx, 7, 0)) {
    tt_out_as(cx, 0, back(cx, standardize_grad(cx, g, normed, rstd, true), input));
  }
  if (tt_flag(cx, 7, 1) && tt_has(cx, 5)) {
    out_parameter(cx, 1, tt_hlo_multiply(cx->h, grad, normed), 5);
  }
  if (tt_flag(cx, 7, 2) && tt_has(cx, 6)) out_parameter(cx, 2, grad, 6);
}

/* grad_out, input, normalized_shape, rstd, weight?, output_mask[2] */
void tt_lower_rms_norm_backward(tt_lower *cx) {
  tt_node *input = tt_in_counted(cx, 1);
  split s = split_at(cx, input, 2);
  tt_node *x = as_rows(cx, input, s.rows, s.columns);
  tt_node *grad = as_rows(cx, tt_in_counted(cx, 0), s.rows, s.columns);
  tt_node *rstd = row_stats(cx, 3, x);
  tt_node *normed = tt_hlo_multiply(cx->h, x, on_rows(cx, rstd, x));
  tt_node *g = tt_has(cx, 4) ? tt_hlo_multiply(cx->h, grad, column_vector(cx, 4, x)) : grad;
  if (tt_flag(cx, 5, 0)) {
    tt_out_as(cx, 0, back(cx, standardize_grad(cx, g, normed, rstd, false), input));
  }
  if (tt_flag(cx, 5, 1) && tt_has(cx, 4)) {
    out_parameter(cx, 1, tt_hlo_multiply(cx->h, grad, normed), 4);
  }
}

/* -- Group normalization: a row is one group of one sample; weights go by channel -- */

typedef struct groups {
  int64_t n, channels, size, count;
} groups;

static groups groups_of(tt_lower *cx, int first) {
  return (groups){tt_int(cx, first), tt_int(cx, first + 1), tt_int(cx, first + 2),
                  tt_int(cx, first + 3)};
}

static tt_node *group_rows(tt_lower *cx, tt_node *x, const groups *g) {
  if (g->count < 1 || g->channels % g->count) {
    return tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                       "group_norm: %lld channels cannot be cut into %lld groups",
                       (long long)g->channels, (long long)g->count);
  }
  return as_rows(cx, x, g->n * g->count, g->channels / g->count * g->size);
}

static tt_node *by_channel(tt_lower *cx, tt_node *x, const groups *g) {
  return tt_hlo_reshape(cx->h, x, 3, (int64_t[]){g->n, g->channels, g->size});
}

/* x[n, c, s] * weight[c], or + bias[c] */
static tt_node *channel_op(tt_lower *cx, tt_hlo_op op, tt_node *x, int i) {
  tt_node *v = tt_cast(cx, tt_in(cx, i), x->type.dtype);
  return tt_hlo_binary(cx->h, op, x, tt_along(cx, v, 1, &x->type));
}

/* input, weight?, bias?, N, C, HxW, group, eps */
void tt_lower_group_norm(tt_lower *cx) {
  tt_node *input = tt_in(cx, 0), *mean, *rstd;
  groups g = groups_of(cx, 3);
  tt_node *x = group_rows(cx, input, &g);
  tt_node *y = standardize(cx, x, tt_num(cx, 7, x->type.dtype), &mean, &rstd);
  y = by_channel(cx, y, &g);
  if (tt_has(cx, 1)) y = channel_op(cx, TT_HLO_multiply, y, 1);
  if (tt_has(cx, 2)) y = channel_op(cx, TT_HLO_add, y, 2);
  tt_out_as(cx, 0, back(cx, y, input));
  tt_out_as(cx, 1, tt_hlo_reshape(cx->h, mean, 2, (int64_t[]){g.n, g.count}));
  tt_out_as(cx, 2, tt_hlo_reshape(cx->h, rstd, 2, (int64_t[]){g.n, g.count}));
}

/* grad_out, input, mean, rstd, weight?, N, C, HxW, group, output_mask[3] */
void tt_lower_group_norm_backward(tt_lower *cx) {
  static const int but_channel[] = {0, 2};
  tt_node *input = tt_in(cx, 1);
  groups g = groups_of(cx, 5);
  tt_node *x = group_rows(cx, input, &g), *rstd = row_stats(cx, 3, x);
  tt_node *centered = tt_hlo_subtract(cx->h, x, on_rows(cx, row_stats(cx, 2, x), x));
  tt_node *normed = tt_hlo_multiply(cx->h, centered, on_rows(cx, rstd, x));
  tt_node *grad = tt_cast(cx, by_channel(cx, tt_in(cx, 0), &g), x->type.dtype);
  if (tt_flag(cx, 9, 0)) {
    tt_node *y = tt_has(cx, 4) ? channel_op(cx, TT_HLO_multiply, grad, 4) : grad;
    y = group_rows(cx, y, &g);
    tt_out_as(cx, 0, back(cx, standardize_grad(cx, y, normed, rstd, true), input));
  }
  if (tt_flag(cx, 9, 1)) {
    tt_node *product = tt_hlo_multiply(cx->h, grad, by_channel(cx, normed, &g));
    tt_out_as(cx, 1, tt_cast(cx, tt_sum(cx, product, but_channel, 2), input->type.dtype));
  }
  if (tt_flag(cx, 9, 2)) {
    tt_out_as(cx, 2, tt_cast(cx, tt_sum(cx, grad, but_channel, 2), input->type.dtype));
  }
}
