/* Orthogonal polynomials of a varying degree, by their three-term recurrences. */
#include "ops/pointwise/pointwise.h"

/* The kinds, as params of the rows. */
enum {
  CHEBYSHEV_T,
  CHEBYSHEV_U,
  CHEBYSHEV_V,
  CHEBYSHEV_W,
  HERMITE_H,
  HERMITE_HE,
  LAGUERRE,
  LEGENDRE,
  SHIFTED = 16
};

static tt_node *c(tt_hlo *h, const tt_node *like, double value) {
  return tt_hlo_const(h, like->type.dtype, value);
}

static tt_node *twice_plus(tt_hlo *h, tt_node *x, double add) {
  return tt_hlo_add(h, tt_hlo_add(h, x, x), c(h, x, add));
}

/* args: k, x, degree, the value of degree k - 1, of degree k. */
static void poly_more(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_reduce_all(h, TT_OR, tt_hlo_compare(h, TT_GT, args[2], args[0]));
}

static void poly_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const int *kind = user;
  tt_node *k = args[0], *x = args[1], *p = args[3], *q = args[4], *next;
  tt_node *up = tt_hlo_add(h, k, c(h, k, 1)), *old = tt_hlo_multiply(h, p, k);
  switch (*kind) {
  case HERMITE_H:
    next = tt_hlo_subtract(h, tt_hlo_multiply(h, tt_hlo_add(h, x, x), q), tt_hlo_add(h, old, old));
    break;
  case HERMITE_HE:
    next = tt_hlo_subtract(h, tt_hlo_multiply(h, x, q), old);
    break;
  case LAGUERRE:
    next = tt_hlo_multiply(h, tt_hlo_subtract(h, twice_plus(h, k, 1), x), q);
    next = tt_hlo_divide(h, tt_hlo_subtract(h, next, old), up);
    break;
  case LEGENDRE:
    next = tt_hlo_multiply(h, tt_hlo_multiply(h, x, twice_plus(h, k, 1)), q);
    next = tt_hlo_divide(h, tt_hlo_subtract(h, next, old), up);
    break;
  default:
    next = tt_hlo_subtract(h, tt_hlo_multiply(h, tt_hlo_add(h, x, x), q), p);
    break;
  }
  tt_node *more = tt_hlo_compare(h, TT_GT, args[2], k);
  results[0] = up;
  results[1] = x;
  results[2] = args[2];
  results[3] = tt_hlo_select(h, more, q, p);
  results[4] = tt_hlo_select(h, more, next, q);
}

/* The polynomial of degree 1. */
static tt_node *first_degree(tt_hlo *h, int kind, tt_node *x) {
  switch (kind) {
  case CHEBYSHEV_U:
  case HERMITE_H:
    return tt_hlo_add(h, x, x);
  case CHEBYSHEV_V:
    return twice_plus(h, x, -1);
  case CHEBYSHEV_W:
    return twice_plus(h, x, 1);
  case LAGUERRE:
    return tt_hlo_subtract(h, c(h, x, 1), x);
  default:
    return x;
  }
}

/* Chebyshev's polynomials inside -1..1 as trigonometric functions; NULL for the others. */
static tt_node *closed_form(tt_hlo *h, int kind, tt_node *x, tt_node *n) {
  tt_node *angle = tt_hlo_acos(h, x), *half = tt_hlo_multiply(h, angle, c(h, angle, 0.5));
  tt_node *middle = tt_hlo_multiply(h, tt_hlo_add(h, n, c(h, n, 0.5)), angle);
  switch (kind) {
  case CHEBYSHEV_T:
    return tt_hlo_cosine(h, tt_hlo_multiply(h, n, angle));
  case CHEBYSHEV_U:
    middle = tt_hlo_multiply(h, tt_hlo_add(h, n, c(h, n, 1)), angle);
    return tt_hlo_divide(h, tt_hlo_sine(h, middle), tt_hlo_sine(h, angle));
  case CHEBYSHEV_V:
    return tt_hlo_divide(h, tt_hlo_cosine(h, middle), tt_hlo_cosine(h, half));
  case CHEBYSHEV_W:
    return tt_hlo_divide(h, tt_hlo_sine(h, middle), tt_hlo_sine(h, half));
  default:
    return NULL;
  }
}

/* (x, n); param: the kind, or'ed with SHIFTED for the argument 2x - 1. */
void tt_lower_polynomial(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx);
  int kind = cx->row->param & ~SHIFTED;
  tt_node *x, *n, *out[5];
  tt_operands(cx, &x, &n, tt_compute_dtype(dtype));
  n = tt_trunc(cx, n);
  if (cx->row->param & SHIFTED) x = twice_plus(h, x, -1);
  tt_node *one = tt_hlo_full(h, &x->type, 1), *zero = tt_hlo_zeros(h, &x->type);
  tt_node *first = first_degree(h, kind, x), *closed = closed_form(h, kind, x, n), *degree = n;
  tt_node *inside = tt_hlo_compare(h, TT_LT, tt_hlo_abs(h, x), one);
  tt_node *high = tt_hlo_compare(h, TT_GT, n, c(h, n, kind == CHEBYSHEV_T ? 6 : 8));
  tt_node *direct = tt_hlo_and(h, inside, high);
  if (closed) degree = tt_hlo_select(h, direct, one, n);
  tt_node *inits[5] = {c(h, x, 1), x, degree, one, first};
  tt_hlo_while(h, 5, inits, poly_more, poly_step, &kind, out);
  tt_node *y = closed ? tt_hlo_select(h, direct, closed, out[4]) : out[4];
  y = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, n, zero), one, y);
  y = tt_hlo_select(h, tt_hlo_compare(h, TT_LT, n, zero), zero, y);
  tt_out_in(cx, 0, y, dtype);
}
