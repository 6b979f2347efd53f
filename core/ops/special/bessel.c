/* Bessel functions of the orders 0 and 1, and the Airy function Ai. */
#include "ops/special/bessel_series.h"
#include "ops/special/special.h"

static const double two_over_pi = 0.63661977236758134308;

/* cos(x - angle) and sin(x - angle) for an angle of pi/4, or 3 pi/4, without rounding x - angle. */
static void wave(tt_lower *cx, tt_node *x, bool turned, tt_node **cosine, tt_node **sine) {
  tt_hlo *h = cx->h;
  tt_node *c = tt_hlo_cosine(h, x), *s = tt_hlo_sine(h, x);
  tt_node *sum = tt_times(cx, tt_hlo_add(h, c, s), 0.70710678118654752440);
  tt_node *gap = tt_times(cx, tt_hlo_subtract(h, s, c), 0.70710678118654752440);
  *cosine = turned ? gap : sum;
  *sine = turned ? tt_hlo_negate(h, sum) : gap;
}

/* J or Y far from 0, of x > 0. */
static tt_node *far_wave(tt_lower *cx, tt_node *x, int order, bool second) {
  tt_hlo *h = cx->h;
  tt_node *c, *s, *inverse = tt_hlo_divide(h, tt_splat(cx, x, 8), x);
  tt_node *t = tt_plus(cx, tt_times(cx, tt_hlo_multiply(h, inverse, inverse), 2), -1);
  tt_node *p = order ? TT_CHEBYSHEV(cx, t, p1) : TT_CHEBYSHEV(cx, t, p0);
  tt_node *q = order ? TT_CHEBYSHEV(cx, t, q1) : TT_CHEBYSHEV(cx, t, q0);
  q = tt_hlo_multiply(h, q, inverse);
  wave(cx, x, order == 1, &c, &s);
  tt_node *y = second ? tt_hlo_add(h, tt_hlo_multiply(h, p, s), tt_hlo_multiply(h, q, c))
                      : tt_hlo_subtract(h, tt_hlo_multiply(h, p, c), tt_hlo_multiply(h, q, s));
  return tt_hlo_multiply(h, y, tt_hlo_sqrt(h, tt_hlo_divide(h, tt_splat(cx, x, two_over_pi), x)));
}

/* J near 0, of x >= 0. */
static tt_node *near_wave(tt_lower *cx, tt_node *x, tt_node *t, int order) {
  if (order == 0) return TT_CHEBYSHEV(cx, t, j0_near);
  return tt_hlo_multiply(cx->h, x, TT_CHEBYSHEV(cx, t, j1_near));
}

static tt_node *near_argument(tt_lower *cx, tt_node *x) {
  return tt_plus(cx, tt_times(cx, tt_hlo_multiply(cx->h, x, x), 1.0 / 32), -1);
}

/* bessel_j0, bessel_j1; param: the order. */
void tt_lower_bessel_j(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  int order = cx->row->param;
  tt_node *x = tt_float_operand(cx, 0, &dtype), *size = tt_hlo_abs(h, x);
  tt_node *y = tt_hlo_select(h, tt_is(cx, size, TT_LE, 8),
                             near_wave(cx, size, near_argument(cx, size), order),
                             far_wave(cx, size, order, false));
  if (order) y = tt_hlo_select(h, tt_sign_bit(cx, x), tt_hlo_negate(h, y), y);
  tt_out_in(cx, 0, y, dtype);
}

/* Where x is 0, and below: `edge` and NaN. */
static tt_node *from_zero(tt_lower *cx, tt_node *x, tt_node *y, double edge) {
  tt_hlo *h = cx->h;
  y = tt_hlo_select(h, tt_is(cx, x, TT_EQ, 0), tt_splat(cx, y, edge), y);
  return tt_hlo_select(h, tt_is(cx, x, TT_LT, 0), tt_splat(cx, y, (double)NAN), y);
}

static tt_node *log_of_half(tt_lower *cx, tt_node *x) {
  return tt_plus(cx, tt_hlo_log(cx->h, x), -0.69314718055994530942);
}

/* bessel_y0, bessel_y1; param: the order. */
void tt_lower_bessel_y(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  int order = cx->row->param;
  tt_node *x = tt_float_operand(cx, 0, &dtype), *t = near_argument(cx, x), *rest;
  tt_node *near = tt_hlo_multiply(h, log_of_half(cx, x), near_wave(cx, x, t, order));
  if (order) {
    near = tt_hlo_subtract(h, near, tt_hlo_divide(h, tt_splat(cx, x, 1), x));
    rest = tt_hlo_multiply(h, x, TT_CHEBYSHEV(cx, t, y1_near));
  } else {
    rest = TT_CHEBYSHEV(cx, t, y0_near);
  }
  near = tt_hlo_add(h, tt_times(cx, near, two_over_pi), rest);
  tt_node *y = tt_hlo_select(h, tt_is(cx, x, TT_LE, 8), near, far_wave(cx, x, order, true));
  tt_out_in(cx, 0, from_zero(cx, x, y, -(double)INFINITY), dtype);
}

/* modified_bessel_k0, modified_bessel_k1; param: the order, plus 2 for those times exp(x). */
void tt_lower_bessel_k(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  int order = cx->row->param % 2;
  bool scaled = cx->row->param >= 2;
  tt_node *x = tt_float_operand(cx, 0, &dtype), *near, *far, *log = log_of_half(cx, x);
  tt_node *t = tt_plus(cx, tt_times(cx, tt_hlo_multiply(h, x, x), 0.5), -1);
  tt_node *s = tt_plus(cx, tt_hlo_divide(h, tt_splat(cx, x, 4), x), -1);
  if (order) {
    tt_node *i1 = tt_hlo_multiply(h, x, TT_CHEBYSHEV(cx, t, i1_near));
    near = tt_hlo_add(h, tt_hlo_multiply(h, log, i1),
                      tt_hlo_divide(h, TT_CHEBYSHEV(cx, t, k1_near), x));
    far = TT_CHEBYSHEV(cx, s, k1_far);
  } else {
    near = tt_hlo_subtract(h, TT_CHEBYSHEV(cx, t, k0_near),
                           tt_hlo_multiply(h, log, TT_CHEBYSHEV(cx, t, i0_near)));
    far = TT_CHEBYSHEV(cx, s, k0_far);
  }
  far = tt_hlo_multiply(h, far, tt_hlo_rsqrt(h, x));
  if (scaled) near = tt_hlo_multiply(h, near, tt_hlo_exponential(h, x));
  else far = tt_hlo_multiply(h, far, tt_hlo_exponential(h, tt_hlo_negate(h, x)));
  tt_node *y = tt_hlo_select(h, tt_is(cx, x, TT_LE, 2), near, far);
  tt_out_in(cx, 0, from_zero(cx, x, y, (double)INFINITY), dtype);
}

/* sin(x) / x */
void tt_lower_spherical_bessel(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype), *one = tt_splat(cx, x, 1);
  tt_node *size = tt_hlo_abs(h, x), *zero = tt_is(cx, x, TT_EQ, 0);
  tt_node *y = tt_hlo_divide(h, tt_hlo_sine(h, x), tt_hlo_select(h, zero, one, x));
  y = tt_hlo_select(h, zero, one, y);
  y = tt_hlo_select(h, tt_is(cx, size, TT_EQ, (double)INFINITY), tt_splat(cx, y, 0), y);
  tt_out_in(cx, 0, y, dtype);
}

/* -- Ai -- */

enum { AIRY_LOW = -5, AIRY_HIGH = 2 };

static double airy_angle(double x) { return 2.0 / 3 * pow(x, 1.5); }

static tt_node *square_of(tt_hlo *h, tt_node *x) { return tt_hlo_multiply(h, x, x); }

void tt_lower_airy_ai(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype), *c, *s;
  tt_node *near = TT_CHEBYSHEV(cx, tt_times(cx, tt_plus(cx, x, 1.5), 1 / 3.5), airy_near);
  tt_node *size = tt_hlo_abs(h, x), *root = tt_hlo_sqrt(h, size);
  tt_node *angle = tt_times(cx, tt_hlo_multiply(h, size, root), 2.0 / 3);
  tt_node *fourth = tt_times(cx, tt_hlo_rsqrt(h, root), 0.56418958354775628695);
  tt_node *t = tt_hlo_divide(h, tt_splat(cx, x, 2 * airy_angle(AIRY_HIGH)), angle);
  tt_node *decay = TT_CHEBYSHEV(cx, tt_plus(cx, t, -1), airy_decay);
  decay = tt_hlo_multiply(h, decay, tt_hlo_exponential(h, tt_hlo_negate(h, angle)));
  decay = tt_times(cx, tt_hlo_multiply(h, decay, fourth), 0.5);
  tt_node *ratio = tt_hlo_divide(h, tt_splat(cx, x, airy_angle(-AIRY_LOW)), angle);
  t = tt_plus(cx, tt_times(cx, square_of(h, ratio), 2), -1);
  wave(cx, angle, false, &c, &s);
  tt_node *q = tt_hlo_multiply(h, TT_CHEBYSHEV(cx, t, airy_q), ratio);
  tt_node *swing =
      tt_hlo_add(h, tt_hlo_multiply(h, TT_CHEBYSHEV(cx, t, airy_p), c), tt_hlo_multiply(h, q, s));
  swing = tt_hlo_multiply(h, swing, fourth);
  tt_node *y = tt_hlo_select(h, tt_is(cx, x, TT_GT, AIRY_HIGH), decay, near);
  y = tt_hlo_select(h, tt_is(cx, x, TT_LT, AIRY_LOW), swing, y);
  tt_node *endless = tt_is(cx, size, TT_EQ, (double)INFINITY);
  tt_out_in(cx, 0, tt_hlo_select(h, endless, tt_splat(cx, y, (double)NAN), y), dtype);
}
