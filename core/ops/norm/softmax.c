/* Softmax, its logarithm, and their gradients; weight normalization and renorm. */
#include "ops/nn.h"

static int softmax_dim(tt_lower *cx, tt_node **x, int dim_arg) {
  if ((*x)->type.rank == 0) *x = tt_unsqueeze(cx, *x, 0);
  return tt_dim(cx, dim_arg, (*x)->type.rank);
}

/* A reduction along `dim`, spread back over x. */
static tt_node *around(tt_lower *cx, tt_reducer reducer, tt_node *x, int dim) {
  return tt_unreduce(cx, tt_hlo_reduce(cx->h, reducer, x, &dim, 1), &dim, 1, &x->type);
}

static void out_in_shape(tt_lower *cx, tt_node *y, tt_node *x, tt_dtype dtype) {
  tt_out_as(cx, 0, tt_cast(cx, tt_hlo_reshape(cx->h, y, x->type.rank, x->type.dims), dtype));
}

/* exp(x - max) / sum; rows that are -inf everywhere give 0 if `safe`, else NaN */
static tt_node *softmax(tt_lower *cx, tt_node *x, int dim, bool safe) {
  tt_node *max = safe ? tt_extreme(cx, TT_MAX, x, &dim, 1) /* which NaN makes no row of -inf */
                      : tt_hlo_reduce(cx->h, TT_MAX, x, &dim, 1);
  max = tt_unreduce(cx, max, &dim, 1, &x->type);
  tt_node *e = tt_hlo_exponential(cx->h, tt_hlo_subtract(cx->h, x, max));
  tt_node *y = tt_hlo_divide(cx->h, e, around(cx, TT_SUM, e, dim));
  if (!safe) return y;
  tt_node *lowest = tt_hlo_lowest(cx->h, x->type.dtype);
  return tt_where_or_zero(cx, tt_hlo_compare(cx->h, TT_NE, max, lowest), y);
}

/* self, dim, half_to_float */
void tt_lower_softmax(tt_lower *cx) {
  tt_node *input = tt_in(cx, 0), *x = input;
  int dim = softmax_dim(cx, &x, 1);
  x = tt_cast(cx, x, tt_compute_dtype(x->type.dtype));
  tt_dtype dtype = tt_bool(cx, 2) ? TT_F32 : input->type.dtype;
  out_in_shape(cx, softmax(cx, x, dim, false), input, dtype);
}

/* self, dim, dtype? */
void tt_lower_safe_softmax(tt_lower *cx) {
  tt_dtype dtype = tt_dtype_arg(cx, 2, tt_in(cx, 0)->type.dtype);
  tt_node *input = tt_cast(cx, tt_in(cx, 0), dtype), *x = input;
  int dim = softmax_dim(cx, &x, 1);
  x = tt_cast(cx, x, tt_compute_dtype(dtype));
  out_in_shape(cx, softmax(cx, x, dim, true), input, dtype);
}

/* self, dim, half_to_float */
void tt_lower_log_softmax(tt_lower *cx) {
  tt_node *input = tt_in(cx, 0), *x = input;
  int dim = softmax_dim(cx, &x, 1);
  x = tt_cast(cx, x, tt_compute_dtype(x->type.dtype));
  x = tt_hlo_subtract(cx->h, x, around(cx, TT_MAX, x, dim));
  tt_node *sum = around(cx, TT_SUM, tt_hlo_exponential(cx->h, x), dim);
  x = tt_hlo_subtract(cx->h, x, tt_hlo_log(cx->h, sum));
  out_in_shape(cx, x, input, tt_bool(cx, 2) ? TT_F32 : input->type.dtype);
}

/* grad_output, output, dim, input_dtype; param 0: softmax, 1: log_softmax */
void tt_lower_softmax_backward(tt_lower *cx) {
  tt_node *g = tt_in(cx, 0), *y = tt_in(cx, 1), *input = g;
  tt_dtype result = tt_dtype_arg(cx, 3, g->type.dtype);
  tt_dtype dtype = tt_compute_dtype(g->type.dtype);
  int dim = softmax_dim(cx, &g, 2);
  softmax_dim(cx, &y, 2);
  g = tt_cast(cx, g, dtype);
  y = tt_cast(cx, y, dtype);
  if (cx->row->param == 0) {
    tt_node *dot = around(cx, TT_SUM, tt_hlo_multiply(cx->h, g, y), dim);
    g = tt_hlo_multiply(cx->h, y, tt_hlo_subtract(cx->h, g, dot));
  } else {
    tt_node *sum = around(cx, TT_SUM, g, dim);
    g = tt_hlo_subtract(cx->h, g, tt_hlo_multiply(cx->h, tt_hlo_exponential(cx->h, y), sum));
  }
  out_in_shape(cx, g, input, result);
}

/* self, mask (true: left out), dim?, mask_type? (0: [L, L], 1: [B, L], 2: self's shape); NaN where
 * all of a row is left out */
void tt_lower_masked_softmax(tt_lower *cx) {
  tt_node *input = tt_in(cx, 0), *mask = tt_cast(cx, tt_in(cx, 1), TT_BOOL);
  const tt_type *type = &input->type;
  int64_t kind = tt_has(cx, 3) ? tt_int(cx, 3) : 2;
  if (kind == 1 && mask->type.rank == 2 && type->rank >= 2) {
    mask = tt_hlo_broadcast(cx->h, mask, (const int[]){0, type->rank - 1}, type->rank, type->dims);
  }
  mask = tt_hlo_broadcast_to(cx->h, mask, type->rank, type->dims);
  int dim = tt_has(cx, 2) ? tt_dim(cx, 2, type->rank) : type->rank - 1;
  tt_node *x = tt_cast(cx, input, tt_compute_dtype(type->dtype));
  tt_node *lowest = tt_hlo_lowest(cx->h, x->type.dtype);
  lowest = tt_hlo_broadcast_to(cx->h, lowest, type->rank, type->dims);
  tt_node *y = softmax(cx, tt_hlo_select(cx->h, mask, lowest, x), dim, false);
  tt_out_as(cx, 0, tt_cast(cx, y, type->dtype));
}

/* grad_output, output, mask, dim? */
void tt_lower_masked_softmax_backward(tt_lower *cx) {
  tt_node *grad = tt_in(cx, 0);
  tt_dtype dtype = tt_compute_dtype(grad->type.dtype);
  tt_node *g = tt_cast(cx, grad, dtype), *y = tt_cast(cx, tt_in(cx, 1), dtype);
  tt_node *mask =
      tt_hlo_broadcast_to(cx->h, tt_cast(cx, tt_in(cx, 2), TT_BOOL), g->type.rank, g->type.dims);
  int dim = tt_has(cx, 3) ? tt_dim(cx, 3, g->type.rank) : g->type.rank - 1;
  y = tt_where_or_zero(cx, tt_hlo_not(cx->h, mask), y);
  tt_node *dot = around(cx, TT_SUM, tt_hlo_multiply(cx->h, g, y), dim);
  g = tt_hlo_multiply(cx->h, y, tt_hlo_subtract(cx->h, g, dot));
  tt_out_as(cx, 0, tt_cast(cx, g, grad->type.dtype));
}

static int dims_but(int rank, int dim, int *dims) {
  int count = 0;
  for (int d = 0; d < rank; d++) {
    if (d != dim) dims[count++] = d;
  }
  return count;
}

/* v, g, dim -> v * g / norm, norm; the norm is over every dim but `dim` and has g's shape */
void tt_lower_weight_norm(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *weight = tt_in(cx, 0), *size = tt_in(cx, 1);
  int rank = weight->type.rank, dim = tt_dim(cx, 2, rank), dims[TT_MAX_RANK];
  int count = dims_but(rank, dim, dims);
  tt_node *v = tt_cast(cx, weight, tt_compute_dtype(weight->type.dtype));
  tt_node *g = tt_cast(cx, size, v->type.dtype);
  tt_node *norm = tt_hlo_sqrt(h, tt_sum(cx, tt_square(cx, v), dims, count));
  norm = tt_hlo_reshape(h, norm, size->type.rank, size->type.dims);
  tt_node *scale = tt_hlo_broadcast_to(h, tt_hlo_divide(h, g, norm), rank, v->type.dims);
  tt_out_as(cx, 0, tt_cast(cx, tt_hlo_multiply(h, v, scale), weight->type.dtype));
  tt_out_as(cx, 1, norm);
}

/* grad_w, saved_v, saved_g, saved_norms, dim -> grad_v, grad_g */
void tt_lower_weight_norm_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *weight = tt_in(cx, 1), *size = tt_in(cx, 2);
  int rank = weight->type.rank, dim = tt_dim(cx, 4, rank), dims[TT_MAX_RANK];
  int count = dims_but(rank, dim, dims);
  tt_dtype dtype = tt_compute_dtype(weight->type.dtype);
  tt_node *grad = tt_cast(cx, tt_in(cx, 0), dtype), *v = tt_cast(cx, weight, dtype);
  tt_node *g = tt_cast(cx, size, dtype), *norm = tt_cast(cx, tt_in(cx, 3), dtype);
  tt_node *dot = tt_sum(cx, tt_hlo_multiply(h, grad, v), dims, count);
  dot = tt_hlo_reshape(h, dot, size->type.rank, size->type.dims);
  tt_node *along = tt_hlo_divide(h, dot, tt_square(cx, norm));
  along = tt_hlo_multiply(h, v, tt_hlo_broadcast_to(h, along, rank, v->type.dims));
  tt_node *scale = tt_hlo_broadcast_to(h, tt_hlo_divide(h, g, norm), rank, v->type.dims);
  tt_node *grad_v = tt_hlo_multiply(h, scale, tt_hlo_subtract(h, grad, along));
  tt_out_as(cx, 0, tt_cast(cx, grad_v, weight->type.dtype));
  tt_out_as(cx, 1, tt_cast(cx, tt_hlo_divide(h, dot, norm), size->type.dtype));
}

static tt_node *p_norm(tt_lower *cx, tt_node *x, double p, const int *dims, int count) {
  tt_hlo *h = cx->h;
  tt_node *size = tt_hlo_abs(h, x);
  if (p == 1) return tt_sum(cx, size, dims, count);
  if (p == 2) return tt_hlo_sqrt(h, tt_sum(cx, tt_square(cx, size), dims, count));
  if (p > 1e300) return tt_extreme(cx, TT_MAX, size, dims, count);
  tt_node *sum = tt_sum(cx, tt_hlo_power(h, size, tt_like(cx, size, p)), dims, count);
  return tt_hlo_power(h, sum, tt_like(cx, sum, 1 / p));
}

/* self, p (static), dim, maxnorm */
void tt_lower_renorm(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *input = tt_in(cx, 0);
  int rank = input->type.rank, dim = tt_dim(cx, 2, rank), dims[TT_MAX_RANK];
  int count = dims_but(rank, dim, dims);
  tt_node *x = tt_cast(cx, input, tt_compute_dtype(input->type.dtype));
  tt_node *norm = p_norm(cx, x, tt_float(cx, 1), dims, count);
  tt_node *max = tt_num(cx, 3, norm->type.dtype);
  tt_node *shrink = tt_hlo_divide(h, max, tt_plus(cx, norm, 1e-7));
  tt_node *one = tt_hlo_full(h, &norm->type, 1);
  tt_node *factor = tt_hlo_select(h, tt_hlo_compare(h, TT_GT, norm, max), shrink, one);
  tt_node *scale = tt_unreduce(cx, tt_cast(cx, factor, x->type.dtype), dims, count, &x->type);
  tt_out_as(cx, 0, tt_cast(cx, tt_hlo_multiply(h, x, scale), input->type.dtype));
}
