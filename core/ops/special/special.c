/* Special functions by series of Chebyshev, and the error function's relatives. */
#include "ops/special/special.h"

tt_node *tt_float_operand(tt_lower *cx, int i, tt_dtype *dtype) {
  *dtype = tt_float_result_dtype(cx);
  return tt_in_as(cx, i, tt_compute_dtype(*dtype));
}

tt_node *tt_chebyshev(tt_lower *cx, tt_node *t, const double *series, int count) {
  tt_hlo *h = cx->h;
  double least = t->type.dtype == TT_F64 ? 1e-18 : 1e-10;
  while (count > 2 && fabs(series[count - 1]) < least) count--;
  tt_node *twice = tt_hlo_add(h, t, t), *b1 = tt_splat(cx, t, series[count - 1]), *b2 = NULL;
  for (int i = count - 2; i > 0; i--) {
    tt_node *b0 = tt_plus(cx, tt_hlo_multiply(h, twice, b1), series[i]);
    if (b2) b0 = tt_hlo_subtract(h, b0, b2);
    b2 = b1;
    b1 = b0;
  }
  tt_node *sum = tt_plus(cx, tt_hlo_multiply(h, t, b1), series[0] / 2);
  return b2 ? tt_hlo_subtract(h, sum, b2) : sum;
}

/* exp(-x) I0(x) on 0..8 in x/4 - 1, and sqrt(x) exp(-x) I0(x) above in 16/x - 1. */
static const double i0e_near[] = {
    0.676795274409476085,       -0.30468267234319839868,    0.17162090152220877535,
    -0.094901097048047644421,   0.049305284239670708488,    -0.023737414805899468816,
    0.010546460394594998318,    -0.0043243099950505759443,  0.0016394756169413357984,
    -0.00057637557453858236588, 0.00018850288509584165573,  -0.00005754195010082103704,
    0.000016448448070728897089, -4.4167383584587505636e-6,  1.1173875391201037182e-6,
    -2.6707938539406117339e-7,  6.0469950225419189493e-8,   -1.3000250099862480421e-8,
    2.6598237246823866503e-9,   -5.1897956016352629067e-10, 9.6758090353732369122e-11,
    -1.7268262914415557072e-11, 2.9550526631296398346e-12,  -4.8564467831119294609e-13,
    7.6761854986049356169e-14,  -1.1685332877993451681e-14, 1.7153912855551330306e-15,
    -2.4312798465479546936e-16, 3.3307945188222380978e-17,  -4.4153416464793393795e-18};
static const double i0e_far[] = {
    0.80449041101410883161,     0.0033691164782556940899,   0.000068897583469168239843,
    2.891370520834756483e-6,    2.0489185894690637418e-7,   2.2666689904981780646e-8,
    3.3962320257083863452e-9,   4.9406023882249695891e-10,  1.1889147107846438342e-11,
    -3.1499165279632413645e-11, -1.3215811840447713119e-11, -1.7941785315068061178e-12,
    7.1801244513836662337e-13,  3.8527783827421427011e-13,  1.540086217521409827e-14,
    -4.1505693472872220867e-14, -9.554846698828307649e-15,  3.8116806693526224245e-15,
    1.7725601330565263778e-15,  -3.4254856196772191577e-16, -2.8276239805165832434e-16,
    3.4612228676974575151e-17,  4.4656214202967580337e-17,  -4.8305044859440215258e-18,
    -7.2331804878749699742e-18};
/* (1 + 2x) exp(x^2) erfc(x) in (x - 3.75) / (x + 3.75). */
static const double erfcx_series[] = {
    2.3551578691348035082,      -0.0045900545806464773309,  -0.084249133366517915584,
    0.059209939998191890498,    -0.026658668435305752277,   0.0090749976707052650939,
    -0.0024131635404176081909,  0.00049077583652580863229,  -0.000069169733025012063671,
    4.1390279860730101675e-6,   7.7403830661984906686e-7,   -2.1886401049234395661e-7,
    1.0764999465910670377e-8,   4.5219598112182868979e-9,   -7.7544002088313511065e-10,
    -6.3180883408866844944e-11, 2.8687950109306698981e-11,  1.945586854577734723e-13,
    -9.6546967484334389059e-13, 3.2525481481487398415e-14,  3.3478119482868053878e-14,
    -1.8645628804193131015e-15, -1.2507950530688647085e-15, 7.4182352566240434639e-17,
    5.0681489047961113176e-17,  -2.2370566594359995893e-18, -2.1873429443030176572e-18,
    2.6766327399258769197e-20};

static tt_node *bessel_i0e(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_node *size = tt_hlo_abs(h, x), *sixteen = tt_splat(cx, x, 16);
  tt_node *near = TT_CHEBYSHEV(cx, tt_plus(cx, tt_times(cx, size, 0.25), -1), i0e_near);
  tt_node *t = tt_plus(cx, tt_hlo_divide(h, sixteen, size), -1);
  tt_node *far = tt_hlo_multiply(h, TT_CHEBYSHEV(cx, t, i0e_far), tt_hlo_rsqrt(h, size));
  return tt_hlo_select(h, tt_is(cx, size, TT_LE, 8), near, far);
}

/* param: order 0 or 1, plus 2 for the exponentially scaled function. */
void tt_lower_bessel_i(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype);
  tt_node *y = cx->row->param % 2 ? tt_hlo_bessel_i1e(cx->h, x) : bessel_i0e(cx, x);
  if (cx->row->param < 2) y = tt_hlo_multiply(h, y, tt_hlo_exponential(h, tt_hlo_abs(h, x)));
  if (cx->row->param % 2) y = tt_hlo_select(h, tt_is(cx, x, TT_EQ, 0), tt_splat(cx, y, 0), y);
  tt_out_in(cx, 0, y, dtype);
}

static tt_node *erfcx(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_node *size = tt_hlo_abs(h, x);
  tt_node *t = tt_hlo_divide(h, tt_plus(cx, size, -3.75), tt_plus(cx, size, 3.75));
  t = tt_hlo_select(h, tt_is(cx, size, TT_EQ, (double)INFINITY), tt_splat(cx, t, 1), t);
  tt_node *y =
      tt_hlo_divide(h, TT_CHEBYSHEV(cx, t, erfcx_series), tt_plus(cx, tt_times(cx, size, 2), 1));
  tt_node *square = tt_hlo_exponential(h, tt_hlo_multiply(h, x, x));
  return tt_hlo_select(h, tt_is(cx, x, TT_LT, 0), tt_hlo_subtract(h, tt_times(cx, square, 2), y),
                       y);
}

void tt_lower_erfcx(tt_lower *cx) {
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype);
  tt_out_in(cx, 0, erfcx(cx, x), dtype);
}

/* The logarithm of the normal distribution function. */
static tt_node *log_ndtr(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_node *t = tt_times(cx, x, 0.70710678118654752440);
  tt_node *tail = tt_hlo_log(h, tt_times(cx, erfcx(cx, tt_hlo_negate(h, t)), 0.5));
  tail = tt_hlo_subtract(h, tail, tt_hlo_multiply(h, t, t));
  tt_node *body = tt_hlo_log_plus_one(h, tt_times(cx, tt_hlo_erfc(cx->h, t), -0.5));
  return tt_hlo_select(h, tt_is(cx, x, TT_LT, -1), tail, body);
}

void tt_lower_log_ndtr(tt_lower *cx) {
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype);
  tt_out_in(cx, 0, log_ndtr(cx, x), dtype);
}

/* The normal quantile: erfinv in the middle, Newton's method on log_ndtr in the tails. */
void tt_lower_ndtri(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  tt_node *p = tt_float_operand(cx, 0, &dtype);
  tt_node *high = tt_is(cx, p, TT_GT, 0.5), *q = tt_plus(cx, tt_hlo_negate(h, p), 1);
  tt_node *log_p = tt_hlo_log(h, tt_hlo_select(h, high, q, p));
  tt_node *x = tt_hlo_negate(h, tt_hlo_sqrt(h, tt_times(cx, log_p, -2)));
  for (int i = 0; i < 4; i++) {
    tt_node *log_cdf = log_ndtr(cx, x);
    tt_node *log_slope =
        tt_plus(cx, tt_times(cx, tt_hlo_multiply(h, x, x), -0.5), -0.91893853320467274178);
    tt_node *slope = tt_hlo_exponential(h, tt_hlo_subtract(h, log_slope, log_cdf));
    x = tt_hlo_subtract(h, x, tt_hlo_divide(h, tt_hlo_subtract(h, log_cdf, log_p), slope));
  }
  tt_node *tail = tt_hlo_select(h, high, tt_hlo_negate(h, x), x);
  tt_node *centred = tt_plus(cx, tt_times(cx, p, 2), -1);
  tt_node *body = tt_times(cx, tt_hlo_erf_inv(cx->h, centred), 1.41421356237309504880);
  tt_node *middle = tt_is(cx, tt_hlo_abs(h, centred), TT_LT, 0.8);
  tt_node *edge = tt_hlo_not(h, tt_hlo_and(h, tt_is(cx, p, TT_GT, 0), tt_is(cx, p, TT_LT, 1)));
  tt_out_in(cx, 0, tt_hlo_select(h, tt_hlo_or(h, middle, edge), body, tail), dtype);
}

/* -x log(x), 0 at 0, -inf below. */
void tt_lower_entr(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype);
  tt_node *y = tt_hlo_negate(h, tt_hlo_multiply(h, x, tt_hlo_log(h, x)));
  y = tt_hlo_select(h, tt_is(cx, x, TT_EQ, 0), tt_splat(cx, x, 0), y);
  y = tt_hlo_select(h, tt_is(cx, x, TT_LT, 0), tt_splat(cx, x, -(double)INFINITY), y);
  tt_out_in(cx, 0, y, dtype);
}
