/* Gated linear unit: the first half of a dim times the sigmoid of its second half. */
#include "ops/lower.h"

static void halves(tt_lower *cx, tt_node *x, int dim, tt_node **a, tt_node **b) {
  int64_t half = x->type.dims[dim] / 2;
  if (x->type.rank == 0 || x->type.dims[dim] % 2 != 0) {
    *a = *b = tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                          "Halving dimension must be even, but dimension %d is size %lld", dim,
                          (long long)x->type.dims[dim]);
    return;
  }
  x = tt_cast(cx, x, tt_compute_dtype(x->type.dtype));
  *a = tt_hlo_slice_dim(cx->h, x, dim, 0, half, 1);
  *b = tt_hlo_slice_dim(cx->h, x, dim, half, 2 * half, 1);
}

static tt_node *one_minus(tt_lower *cx, tt_node *x) {
  return tt_hlo_subtract(cx->h, tt_like(cx, x, 1.0), x);
}

/* self, dim */
void tt_lower_glu(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *a, *b;
  halves(cx, x, tt_dim(cx, 1, x->type.rank), &a, &b);
  tt_node *y = tt_hlo_multiply(cx->h, a, tt_hlo_logistic(cx->h, b));
  tt_out_as(cx, 0, tt_cast(cx, y, x->type.dtype));
}

/* grad_output, self, dim */
void tt_lower_glu_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 1), *a, *b, *parts[2];
  int dim = tt_dim(cx, 2, x->type.rank);
  halves(cx, x, dim, &a, &b);
  tt_node *grad = tt_cast(cx, tt_in(cx, 0), a->type.dtype), *gate = tt_hlo_logistic(h, b);
  parts[0] = tt_hlo_multiply(h, gate, grad);
  parts[1] = tt_hlo_multiply(h, one_minus(cx, gate), tt_hlo_multiply(h, parts[0], a));
  tt_out_as(cx, 0, tt_cast(cx, tt_hlo_concatenate(h, parts, 2, dim), x->type.dtype));
}

/* glu, x, dx, dim */
void tt_lower_glu_jvp(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 1), *a, *b, *da, *db;
  int dim = tt_dim(cx, 3, x->type.rank);
  halves(cx, x, dim, &a, &b);
  halves(cx, tt_in(cx, 2), dim, &da, &db);
  tt_node *gate = tt_hlo_logistic(h, b), *y = tt_cast(cx, tt_in(cx, 0), a->type.dtype);
  tt_node *rest = tt_hlo_multiply(h, tt_hlo_multiply(h, db, y), one_minus(cx, gate));
  y = tt_hlo_add(h, tt_hlo_multiply(h, da, gate), rest);
  tt_out_as(cx, 0, tt_cast(cx, y, x->type.dtype));
}
