/* Distances between the rows of two matrices. */
#include "ops/linalg/linalg.h"

/* x's rows against the other operand's: a dim of size 1 put in at `at`, counted from the end. */
static tt_node *stretched(tt_lower *cx, tt_node *x, int at) {
  int64_t dims[TT_MAX_RANK + 1];
  int rank = x->type.rank, place = rank - at;
  if (!tt_need_rank(cx, x, at)) return x;
  for (int i = 0; i < rank; i++) dims[i >= place ? i + 1 : i] = x->type.dims[i];
  dims[place] = 1;
  return tt_hlo_reshape(cx->h, x, rank + 1, dims);
}

/* a[.., i, None, :] - b[.., None, j, :] */
static tt_node *differences(tt_lower *cx, tt_node *a, tt_node *b) {
  tt_node *pair[2] = {stretched(cx, a, 1), stretched(cx, b, 2)};
  tt_broadcast_all(cx, pair, 2);
  return tt_hlo_subtract(cx->h, pair[0], pair[1]);
}

static tt_node *distance(tt_lower *cx, tt_node *difference, double p) {
  tt_hlo *h = cx->h;
  int last = difference->type.rank - 1;
  tt_node *size = tt_hlo_abs(h, difference);
  if (isinf(p)) return tt_extreme(cx, TT_MAX, size, &last, 1);
  tt_node *terms = p == 0
                       ? tt_hlo_minimum(h, tt_hlo_ceil(h, size), tt_hlo_full(h, &size->type, 1.0))
                   : p == 1 ? size
                   : p == 2 ? tt_hlo_multiply(h, size, size)
                            : tt_hlo_power(h, size, tt_hlo_full(h, &size->type, p));
  tt_node *sum = tt_hlo_reduce(h, TT_SUM, terms, &last, 1);
  if (p == 0 || p == 1) return sum;
  if (p == 2) return tt_hlo_sqrt(h, sum);
  return tt_hlo_power(h, sum, tt_hlo_full(h, &sum->type, 1 / p));
}

/* (x1, x2, p, compute_mode) */
void tt_lower_cdist(tt_lower *cx) {
  tt_dtype dtype = tt_in(cx, 0)->type.dtype, compute = tt_compute_dtype(dtype);
  tt_node *a = tt_cast(cx, tt_in_counted(cx, 0), compute);
  tt_node *b = tt_cast(cx, tt_in_counted(cx, 1), compute);
  double p = tt_float(cx, 2);
  tt_node *difference = differences(cx, a, b);
  if (a->type.dims[a->type.rank - 1] == 0 && isinf(p)) p = 1;
  tt_out_in(cx, 0, distance(cx, difference, p), dtype);
}

/* The derivative of the distance by each difference. */
static tt_node *slope(tt_lower *cx, tt_node *difference, tt_node *distance, double p) {
  tt_hlo *h = cx->h;
  tt_node *sign = tt_sign(cx, difference), *size = tt_hlo_abs(h, difference);
  tt_node *zeros = tt_hlo_zeros(h, &difference->type), *y;
  if (p == 0) return zeros;
  if (p == 1) return sign;
  if (isinf(p)) return tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, size, distance), sign, zeros);
  tt_node *share = tt_hlo_divide(h, size, distance);
  if (p == 2) y = tt_hlo_divide(h, difference, distance);
  else y = tt_hlo_multiply(h, sign, tt_hlo_power(h, share, tt_hlo_full(h, &share->type, p - 1)));
  tt_node *none = tt_hlo_compare(h, TT_EQ, distance, zeros);
  if (p < 2) none = tt_hlo_or(h, none, tt_hlo_compare(h, TT_EQ, size, zeros));
  return tt_hlo_select(h, none, zeros, y);
}

/* (grad, x1, x2, p, cdist): the gradient of x1. */
void tt_lower_cdist_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_in(cx, 1)->type.dtype, compute = tt_compute_dtype(dtype);
  if (tt_type_numel(&tt_in(cx, 0)->type) == 0) {
    tt_out(cx, 0, tt_hlo_zeros(h, &tt_in(cx, 1)->type));
    return;
  }
  tt_node *grad = tt_in_as(cx, 0, compute), *known = tt_in_as(cx, 4, compute);
  tt_node *difference = differences(cx, tt_in_as(cx, 1, compute), tt_in_as(cx, 2, compute));
  tt_node *xs[3] = {difference, stretched(cx, grad, 0), stretched(cx, known, 0)};
  tt_broadcast_all(cx, xs, 3);
  tt_node *terms = tt_hlo_multiply(h, xs[1], slope(cx, xs[0], xs[2], tt_float(cx, 3)));
  int other = terms->type.rank - 2;
  terms = tt_pad_along(cx, 0, tt_in(cx, 0)->type.rank - 1, terms, other, TT_SUM);
  tt_out_in(cx, 0, tt_hlo_reduce(h, TT_SUM, terms, &other, 1), dtype);
}
