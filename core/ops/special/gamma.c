/* The gamma function's logarithm and its derivatives, where CHLO's are not exact, and zeta. */
#include "ops/special/special.h"

/* lgamma(x) / ((x - 1) (x - 2)) on 0.75..2.25 in (x - 1.5) / 0.75. */
static const double near_zeros[] = {
    1.0063673136017301565,      -0.12106206737250127182,     0.020910425358552457607,
    -0.0041779929893163502559,  0.00090026302392085756033,   -0.00020287927285893475994,
    0.000047072066182774115024, -0.000011145551722345646061, 2.678647139808519188e-6,
    -6.5117508679775983391e-7,  1.597447652327773043e-7,     -3.9480178213314518111e-8,
    9.8180269319616201592e-9,   -2.454479012485274213e-9,    6.1641128490150106369e-10,
    -1.5542026666279419049e-10, 3.9324834314255040495e-11,   -9.9811360197078058588e-12,
    2.5404212358724416973e-12,  -6.4822307812564356859e-13,  1.6578060134627766757e-13,
    -4.2485899866836553737e-14, 1.0908893848029689288e-14,   -2.8059106111865753193e-15,
    7.228773472698541319e-16,   -1.865092154919639769e-16,   4.8187442781406760477e-17,
    -1.246589142421538644e-17,  3.2287240771918042876e-18};

/* CHLO's is a difference of numbers near 1 where the function is near 0, at 1 and 2. */
void tt_lower_lgamma(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype), *middle = tt_plus(cx, x, -1.5);
  tt_node *zeros = tt_hlo_multiply(h, tt_plus(cx, x, -1), tt_plus(cx, x, -2));
  tt_node *series = TT_CHEBYSHEV(cx, tt_times(cx, middle, 1 / 0.75), near_zeros);
  tt_node *near = tt_is(cx, tt_hlo_abs(h, middle), TT_LE, 0.75);
  tt_node *y = tt_hlo_select(h, near, tt_hlo_multiply(h, zeros, series), tt_hlo_lgamma(h, x));
  y = tt_hlo_select(h, tt_is(cx, zeros, TT_EQ, 0), tt_splat(cx, y, 0), y); /* not -0 */
  tt_out_in(cx, 0, y, dtype);
}

/* Infinite at zero, with the sign that it has on that side. */
static tt_node *digamma(tt_lower *cx, tt_node *x) {
  tt_node *pole = tt_hlo_divide(cx->h, tt_splat(cx, x, -1), x);
  return tt_hlo_select(cx->h, tt_is(cx, x, TT_EQ, 0), pole, tt_hlo_digamma(cx->h, x));
}

void tt_lower_digamma(tt_lower *cx) {
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype);
  tt_out_in(cx, 0, digamma(cx, x), dtype);
}

/* -- Zeta, and the derivatives of digamma -- */

/* Whether any q (args[1]) is still to be moved to the right. */
static void zeta_more(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *q = args[1];
  tt_node *low = tt_hlo_const(h, q->type.dtype, -1000), *one = tt_hlo_const(h, q->type.dtype, 1);
  tt_node *more = tt_hlo_and(h, tt_hlo_compare(h, TT_LT, q, one), tt_hlo_compare(h, TT_GT, q, low));
  results[0] = tt_hlo_reduce_all(h, TT_OR, more);
}

static void zeta_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *s = args[0], *q = args[1], *one = tt_hlo_const(h, q->type.dtype, 1);
  tt_node *low = tt_hlo_compare(h, TT_LT, q, one);
  tt_node *term = tt_hlo_power(h, q, tt_hlo_negate(h, s));
  results[0] = s;
  results[1] = tt_hlo_select(h, low, tt_hlo_add(h, q, one), q);
  results[2] = tt_hlo_select(h, low, tt_hlo_add(h, args[2], term), args[2]);
}

/* CHLO's function is exact enough from 1 on; terms below are added one by one. */
static tt_node *zeta(tt_lower *cx, tt_node *s, tt_node *q) {
  tt_hlo *h = cx->h;
  tt_node *inits[3] = {s, q, tt_hlo_zeros(h, &q->type)}, *moved[3];
  tt_hlo_while(h, 3, inits, zeta_more, zeta_step, NULL, moved);
  tt_node *y = tt_hlo_add(h, moved[2], tt_hlo_zeta(h, s, moved[1]));
  tt_node *whole = tt_hlo_compare(h, TT_EQ, q, tt_hlo_floor(h, q));
  tt_node *pole = tt_hlo_and(h, whole, tt_is(cx, q, TT_LE, 0));
  tt_node *odd =
      tt_hlo_and(h, tt_is(cx, q, TT_LT, 0), tt_hlo_compare(h, TT_NE, s, tt_hlo_floor(h, s)));
  y = tt_hlo_select(h, odd, tt_splat(cx, y, (double)NAN), y);
  y = tt_hlo_select(h, pole, tt_splat(cx, y, (double)INFINITY), y);
  y = tt_hlo_select(h, tt_is(cx, s, TT_EQ, 1), tt_splat(cx, y, (double)INFINITY), y);
  return tt_hlo_select(h, tt_is(cx, s, TT_LT, 1), tt_splat(cx, y, (double)NAN), y);
}

void tt_lower_zeta(tt_lower *cx) {
  tt_node *ab[2];
  tt_dtype dtype = tt_float_operands(cx, &ab[0], &ab[1]);
  tt_out_in(cx, 0, zeta(cx, ab[0], ab[1]), dtype);
}

/* polygamma(n, x), for n = 1 reflected where x is below a half. */
void tt_lower_polygamma(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 1, &dtype), *y;
  double n = (double)tt_int(cx, 0);
  if (n == 0) {
    y = digamma(cx, x);
  } else if (n == 1) {
    tt_node *low = tt_is(cx, x, TT_LT, 0.5), *mirror = tt_plus(cx, tt_hlo_negate(h, x), 1);
    tt_node *direct = tt_hlo_zeta(h, tt_splat(cx, x, 2), tt_hlo_select(h, low, mirror, x)),
            *pi = tt_times(cx, x, 3.14159265358979323846);
    tt_node *ratio = tt_hlo_divide(h, tt_splat(cx, x, 3.14159265358979323846), tt_hlo_sine(h, pi));
    tt_node *reflected = tt_hlo_subtract(h, tt_hlo_multiply(h, ratio, ratio), direct);
    y = tt_hlo_select(h, low, reflected, direct);
  } else {
    y = zeta(cx, tt_splat(cx, x, n + 1), x);
    y = tt_times(cx, y, ((int64_t)n % 2 ? 1 : -1) * tgamma(n + 1));
  }
  tt_out_in(cx, 0, y, dtype);
}
