/* Derivatives of gamma and beta variables by their parameters: of a variable x with the
 * distribution function F and the density f, dx/da = -F_a / f. In f64, as sums of opposite signs
 * meet. */
#include "ops/pointwise/pointwise.h"

enum { MOST_STEPS = 10000 };

static tt_node *num(tt_hlo *h, double value) { return tt_hlo_const(h, TT_F64, value); }

static tt_node *early(tt_hlo *h, tt_node *step) {
  return tt_hlo_compare(h, TT_LT, step, num(h, MOST_STEPS));
}

/* -- A hypergeometric series of positive terms with its derivative by a --
 * The terms are t(n) = t(n - 1) z (s + n - 1) / (c + n), or without s where that is NULL; s and c
 * grow by `s_slope` and `c_slope` with a. */
typedef struct series {
  tt_node *z, *s, *c;
  bool s_moves, c_moves;
} series;

/* args: n, term, the logarithm's derivative, sum, the sum's derivative. */
static void series_more(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *size = tt_hlo_abs(h, tt_hlo_multiply(h, args[1], args[2]));
  tt_node *term = tt_hlo_maximum(h, args[1], size),
          *all = tt_hlo_add(h, args[3], tt_hlo_abs(h, args[4]));
  tt_node *moving = tt_hlo_compare(h, TT_GT, term, tt_hlo_multiply(h, all, num(h, 1e-17)));
  results[0] = tt_hlo_and(h, tt_hlo_reduce_all(h, TT_OR, moving), early(h, args[0]));
}

static void series_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const series *f = user;
  tt_node *n = tt_hlo_add(h, args[0], num(h, 1)), *below = tt_hlo_add(h, f->c, n);
  tt_node *factor = tt_hlo_divide(h, f->z, below), *slope = args[2], *one = num(h, 1);
  if (f->c_moves)
    slope = tt_hlo_subtract(
        h, slope,
        tt_hlo_divide(h, tt_hlo_broadcast_to(h, one, below->type.rank, below->type.dims), below));
  if (f->s) {
    tt_node *above = tt_hlo_add(h, f->s, args[0]);
    factor = tt_hlo_multiply(h, factor, above);
    if (f->s_moves)
      slope = tt_hlo_add(
          h, slope,
          tt_hlo_divide(h, tt_hlo_broadcast_to(h, one, above->type.rank, above->type.dims), above));
  }
  tt_node *term = tt_hlo_multiply(h, args[1], factor);
  results[0] = n;
  results[1] = term;
  results[2] = slope;
  results[3] = tt_hlo_add(h, args[3], term);
  results[4] = tt_hlo_add(h, args[4], tt_hlo_multiply(h, term, slope));
}

static tt_node *sum_series(tt_hlo *h, series *f, tt_node **derivative) {
  tt_node *zeros = tt_hlo_zeros(h, &f->z->type), *ones = tt_hlo_full(h, &f->z->type, 1), *out[5];
  tt_node *inits[5] = {num(h, 0), ones, zeros, ones, zeros};
  tt_hlo_while(h, 5, inits, series_more, series_step, f, out);
  *derivative = out[4];
  return out[3];
}

/* -- The continued fraction of the upper incomplete gamma function, and its derivative by a -- */

typedef struct fraction {
  tt_node *a, *x;
} fraction;

/* args: i, c, its derivative, d, its derivative, value, its derivative, last factor, its derivative
 */
static void fraction_more(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *off = tt_hlo_abs(h, tt_hlo_subtract(h, args[7], num(h, 1)));
  off = tt_hlo_maximum(h, off, tt_hlo_abs(h, args[8]));
  tt_node *moving = tt_hlo_reduce_all(h, TT_OR, tt_hlo_compare(h, TT_GT, off, num(h, 1e-15)));
  results[0] = tt_hlo_and(h, moving, early(h, args[0]));
}

/* Lentz's method: c = b + t / c, d = 1 / (b + t d), where t = i (a - i) and b = x - a + 1 + 2 i. */
static void fraction_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const fraction *f = user;
  tt_node *i = tt_hlo_add(h, args[0], num(h, 1)), *c = args[1], *dc = args[2], *d = args[3],
          *dd = args[4];
  tt_node *t = tt_hlo_multiply(h, i, tt_hlo_subtract(h, f->a, i));
  tt_node *b = tt_hlo_add(h, tt_hlo_subtract(h, f->x, f->a),
                          tt_hlo_add(h, tt_hlo_multiply(h, i, num(h, 2)), num(h, 1)));
  tt_node *share = tt_hlo_divide(h, t, c), *one = num(h, 1);
  tt_node *wide = tt_hlo_broadcast_to(h, i, c->type.rank, c->type.dims);
  /* dt/da = i, db/da = -1 */
  tt_node *new_dc = tt_hlo_divide(h, tt_hlo_subtract(h, wide, tt_hlo_multiply(h, share, dc)), c);
  results[1] = tt_hlo_add(h, b, share);
  results[2] = tt_hlo_subtract(h, new_dc, one);
  tt_node *below = tt_hlo_add(h, b, tt_hlo_multiply(h, t, d));
  tt_node *slope = tt_hlo_add(h, tt_hlo_multiply(h, i, d), tt_hlo_multiply(h, t, dd));
  results[3] = tt_hlo_divide(h, tt_hlo_broadcast_to(h, one, c->type.rank, c->type.dims), below);
  results[4] = tt_hlo_negate(h, tt_hlo_multiply(h, tt_hlo_subtract(h, slope, one),
                                                tt_hlo_multiply(h, results[3], results[3])));
  results[0] = i;
  results[7] = tt_hlo_multiply(h, results[1], results[3]);
  results[8] = tt_hlo_add(h, tt_hlo_multiply(h, results[2], results[3]),
                          tt_hlo_multiply(h, results[1], results[4]));
  results[5] = tt_hlo_multiply(h, args[5], results[7]);
  results[6] = tt_hlo_add(h, tt_hlo_multiply(h, args[6], results[7]),
                          tt_hlo_multiply(h, args[5], results[8]));
}

static tt_node *sum_fraction(tt_hlo *h, fraction *f, tt_node **derivative) {
  tt_node *b = tt_hlo_add(h, tt_hlo_subtract(h, f->x, f->a), num(h, 1)), *out[9];
  tt_node *zeros = tt_hlo_zeros(h, &b->type), *ones = tt_hlo_full(h, &b->type, 1);
  tt_node *d = tt_hlo_divide(h, ones, b), *dd = tt_hlo_multiply(h, d, d);
  tt_node *inits[9] = {num(h, 0), tt_hlo_full(h, &b->type, 1e300), zeros, d, dd, d,
                       dd,        tt_hlo_full(h, &b->type, 2),     zeros};
  tt_hlo_while(h, 9, inits, fraction_more, fraction_step, f, out);
  *derivative = out[6];
  return out[5];
}

/* -- The operators -- */

/* (alpha, x): of a gamma variable x by its parameter. */
void tt_lower_standard_gamma_grad(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_in(cx, 0)->type.dtype;
  tt_node *a, *x, *slope;
  tt_operands(cx, &a, &x, TT_F64);
  tt_node *ones = tt_hlo_full(h, &x->type, 1), *least = num(h, 1e-300);
  x = tt_hlo_maximum(h, x, least);
  tt_node *near = tt_hlo_compare(h, TT_LE, x, tt_hlo_maximum(h, ones, tt_hlo_add(h, a, num(h, 1))));
  tt_node *log_x = tt_hlo_log(h, x);
  series lower = {
      .z = tt_hlo_select(h, near, x, tt_hlo_zeros(h, &x->type)), .c = a, .c_moves = true};
  tt_node *sum = sum_series(h, &lower, &slope);
  tt_node *rate = tt_hlo_subtract(h, log_x, tt_hlo_digamma(h, tt_hlo_add(h, a, num(h, 1))));
  tt_node *low = tt_hlo_add(h, tt_hlo_multiply(h, sum, rate), slope);
  low = tt_hlo_negate(h, tt_hlo_divide(h, tt_hlo_multiply(h, x, low), a));
  fraction upper = {.a = tt_hlo_select(h, near, ones, a),
                    .x = tt_hlo_select(h, near, tt_hlo_full(h, &x->type, 50), x)};
  tt_node *value = sum_fraction(h, &upper, &slope);
  rate = tt_hlo_subtract(h, log_x, tt_hlo_digamma(h, a));
  tt_node *high = tt_hlo_add(h, tt_hlo_multiply(h, value, rate), slope);
  tt_out_in(cx, 0, tt_hlo_select(h, near, low, tt_hlo_multiply(h, x, high)), dtype);
}

/* (x, alpha, total): of a beta variable x by its first parameter alpha, over 1 - x; the second is
 * total - alpha. */
void tt_lower_dirichlet_grad(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *xs[3], *low_slope, *high_slope;
  tt_dtype dtype = tt_in(cx, 0)->type.dtype;
  for (int i = 0; i < 3; i++) xs[i] = tt_in_as(cx, i, TT_F64);
  tt_broadcast_all(cx, xs, 3);
  tt_node *x = tt_hlo_clamp(h, num(h, 1e-300), xs[0], num(h, 1)), *a = xs[1], *total = xs[2];
  tt_node *b = tt_hlo_subtract(h, total, a), *zeros = tt_hlo_zeros(h, &x->type);
  tt_node *rest = tt_hlo_subtract(h, tt_hlo_full(h, &x->type, 1), x);
  tt_node *low = tt_hlo_compare(h, TT_LE, tt_hlo_multiply(h, x, total), a);
  tt_node *rate = tt_hlo_add(h, tt_hlo_log(h, x), tt_hlo_digamma(h, total));
  series lower = {tt_hlo_select(h, low, x, zeros), total, a, true, true};
  series upper = {tt_hlo_select(h, low, zeros, rest), total, b, true, false};
  tt_node *low_sum = sum_series(h, &lower, &low_slope),
          *high_sum = sum_series(h, &upper, &high_slope);
  tt_node *next = tt_hlo_digamma(h, tt_hlo_add(h, a, num(h, 1)));
  tt_node *below = tt_hlo_multiply(h, low_sum, tt_hlo_subtract(h, rate, next));
  below = tt_hlo_negate(h, tt_hlo_divide(h, tt_hlo_add(h, below, low_slope), a));
  tt_node *above = tt_hlo_multiply(h, high_sum, tt_hlo_subtract(h, rate, tt_hlo_digamma(h, a)));
  above = tt_hlo_divide(h, tt_hlo_add(h, above, high_slope), b);
  tt_out_in(cx, 0, tt_hlo_multiply(h, x, tt_hlo_select(h, low, below, above)), dtype);
}
