/* The gamma function's logarithm and its derivative, where CHLO's are not exact. */
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

tt_node *tt_digamma(tt_lower *cx, tt_node *x) {
  tt_node *pole = tt_hlo_divide(cx->h, tt_splat(cx, x, -1), x);
  return tt_hlo_select(cx->h, tt_is(cx, x, TT_EQ, 0), pole, tt_hlo_digamma(cx->h, x));
}

void tt_lower_digamma(tt_lower *cx) {
  tt_dtype dtype;
  tt_node *x = tt_float_operand(cx, 0, &dtype);
  tt_out_in(cx, 0, tt_digamma(cx, x), dtype);
}
