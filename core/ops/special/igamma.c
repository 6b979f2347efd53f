/* The regularized incomplete gamma functions: a series where x is small beside a, a continued
 * fraction elsewhere, each run until all elements have settled. */
#include "ops/pointwise/pointwise.h"

enum { MOST_STEPS = 2000 };

static tt_node *number(tt_hlo *h, const tt_node *like, double value) {
  return tt_hlo_const(h, like->type.dtype, value);
}

static tt_node *settled_limit(tt_hlo *h, const tt_node *like) {
  return number(h, like, like->type.dtype == TT_F64 ? 2.3e-16 : 6e-8);
}

/* args: step, x, a + step, term, sum. */
static void series_more(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *least = tt_hlo_multiply(h, args[4], settled_limit(h, args[4]));
  tt_node *moving = tt_hlo_reduce_all(h, TT_OR, tt_hlo_compare(h, TT_GT, args[3], least));
  tt_node *early = tt_hlo_compare(h, TT_LT, args[0], tt_hlo_const_i(h, TT_I32, MOST_STEPS));
  results[0] = tt_hlo_and(h, moving, early);
}

static void series_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *n = tt_hlo_add(h, args[2], number(h, args[2], 1));
  tt_node *term = tt_hlo_multiply(h, args[3], tt_hlo_divide(h, args[1], n));
  results[0] = tt_hlo_add(h, args[0], tt_hlo_const_i(h, TT_I32, 1));
  results[1] = args[1];
  results[2] = n;
  results[3] = term;
  results[4] = tt_hlo_add(h, args[4], term);
}

/* 1 + x / (a + 1) + x^2 / ((a + 1) (a + 2)) + .. */
static tt_node *series(tt_hlo *h, tt_node *a, tt_node *x) {
  tt_node *one = tt_hlo_full(h, &x->type, 1), *out[5];
  tt_node *inits[5] = {tt_hlo_const_i(h, TT_I32, 0), x, a, one, one};
  tt_hlo_while(h, 5, inits, series_more, series_step, NULL, out);
  return out[4];
}

/* Lentz's method. args: step, a, b, c, d, value, last factor. */
static void fraction_more(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *off = tt_hlo_abs(h, tt_hlo_subtract(h, args[6], number(h, args[6], 1)));
  tt_node *moving =
      tt_hlo_reduce_all(h, TT_OR, tt_hlo_compare(h, TT_GT, off, settled_limit(h, off)));
  tt_node *early = tt_hlo_compare(h, TT_LT, args[0], tt_hlo_const_i(h, TT_I32, MOST_STEPS));
  results[0] = tt_hlo_and(h, moving, early);
}

static void fraction_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *step = tt_hlo_add(h, args[0], tt_hlo_const_i(h, TT_I32, 1));
  tt_node *i = tt_hlo_convert(h, step, args[1]->type.dtype);
  tt_node *top = tt_hlo_multiply(h, i, tt_hlo_subtract(h, args[1], i));
  tt_node *b = tt_hlo_add(h, args[2], number(h, args[2], 2));
  tt_node *c = tt_hlo_add(h, b, tt_hlo_divide(h, top, args[3]));
  tt_node *d = tt_hlo_add(h, b, tt_hlo_multiply(h, top, args[4]));
  d = tt_hlo_divide(h, number(h, d, 1), d);
  tt_node *factor = tt_hlo_multiply(h, c, d);
  results[0] = step;
  results[1] = args[1];
  results[2] = b;
  results[3] = c;
  results[4] = d;
  results[5] = tt_hlo_multiply(h, args[5], factor);
  results[6] = factor;
}

static tt_node *fraction(tt_hlo *h, tt_node *a, tt_node *x) {
  tt_node *b = tt_hlo_add(h, tt_hlo_subtract(h, x, a), number(h, x, 1)), *out[7];
  tt_node *d = tt_hlo_divide(h, number(h, b, 1), b);
  tt_node *inits[7] = {tt_hlo_const_i(h, TT_I32, 0), a, b, tt_hlo_full(h, &x->type, 1e30), d, d,
                       tt_hlo_full(h, &x->type, 2)};
  tt_hlo_while(h, 7, inits, fraction_more, fraction_step, NULL, out);
  return out[5];
}

typedef struct sides {
  tt_node *a, *x, *small; /* small: where the series is used */
  bool upper;
} sides;

static tt_node *at(tt_hlo *h, tt_node *x, double value) {
  return tt_hlo_compare(h, TT_EQ, x, number(h, x, value));
}

/* The function where a and x are positive and finite. */
static tt_node *usual_value(tt_lower *cx, const sides *s) {
  tt_hlo *h = cx->h;
  tt_node *a = s->a, *x = s->x, *zero = number(h, x, 0), *one = tt_hlo_full(h, &x->type, 1);
  tt_node *usual =
      tt_hlo_and(h, tt_hlo_compare(h, TT_GT, x, zero), tt_hlo_compare(h, TT_GT, a, zero));
  usual = tt_hlo_and(h, usual, tt_hlo_and(h, tt_hlo_is_finite(h, x), tt_hlo_is_finite(h, a)));
  tt_node *near = tt_hlo_and(h, usual, s->small),
          *far = tt_hlo_and(h, usual, tt_hlo_not(h, s->small));
  tt_node *sum = series(h, tt_hlo_select(h, near, a, one),
                        tt_hlo_select(h, near, x, tt_hlo_zeros(h, &x->type)));
  tt_node *tail = fraction(h, tt_hlo_select(h, far, a, one),
                           tt_hlo_select(h, far, x, tt_hlo_full(h, &x->type, 50)));
  tt_node *power = tt_hlo_subtract(h, tt_hlo_multiply(h, a, tt_hlo_log(h, x)), x);
  tt_node *scale = tt_hlo_exponential(h, tt_hlo_subtract(h, power, tt_hlo_lgamma(h, a)));
  tt_node *lower = tt_hlo_divide(h, tt_hlo_multiply(h, scale, sum), a);
  tt_node *upper = tt_hlo_multiply(h, scale, tail);
  if (s->upper) return tt_hlo_select(h, s->small, tt_hlo_subtract(h, one, lower), upper);
  return tt_hlo_select(h, s->small, lower, tt_hlo_subtract(h, one, upper));
}

/* igamma (lower), or igammac (upper) when param is 1. In f64: the factor before the sums loses
 * digits as a grows. */
void tt_lower_igamma(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx);
  sides s = {.upper = cx->row->param == 1};
  tt_operands(cx, &s.a, &s.x, TT_F64);
  tt_node *a = s.a, *x = s.x, *zero = number(h, x, 0), *inf = number(h, x, (double)INFINITY);
  s.small =
      tt_hlo_or(h, tt_hlo_compare(h, TT_LE, x, number(h, x, 1)), tt_hlo_compare(h, TT_LE, x, a));
  tt_node *y = usual_value(cx, &s), *nan = tt_hlo_full(h, &y->type, (double)NAN);
  tt_node *none = tt_hlo_full(h, &y->type, s.upper), *all = tt_hlo_full(h, &y->type, !s.upper);
  y = tt_hlo_select(h, tt_hlo_or(h, tt_is_nan(cx, a), tt_is_nan(cx, x)), nan, y);
  tt_node *x_ends = tt_hlo_compare(h, TT_EQ, x, inf);
  y = tt_hlo_select(h, x_ends, all, y);
  y = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, a, inf), tt_hlo_select(h, x_ends, nan, none), y);
  y = tt_hlo_select(h, at(h, x, 0), none, y);
  tt_node *some = tt_hlo_select(h, tt_hlo_compare(h, TT_GT, x, zero), all, nan);
  y = tt_hlo_select(h, at(h, a, 0), some, y);
  tt_node *negative =
      tt_hlo_or(h, tt_hlo_compare(h, TT_LT, a, zero), tt_hlo_compare(h, TT_LT, x, zero));
  tt_out_in(cx, 0, tt_hlo_select(h, negative, nan, y), dtype);
}
