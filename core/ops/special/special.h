/* What the files of special functions share. */
#ifndef TT_SPECIAL_H
#define TT_SPECIAL_H

#include "ops/pointwise/pointwise.h"

/* Of a tensor and a known number: x + c, c x, c in x's shape, x compared to c. */
static inline tt_node *tt_plus(tt_lower *cx, tt_node *x, double c) {
  return tt_hlo_add(cx->h, x, tt_like(cx, x, c));
}
static inline tt_node *tt_times(tt_lower *cx, tt_node *x, double c) {
  return tt_hlo_multiply(cx->h, x, tt_like(cx, x, c));
}
static inline tt_node *tt_splat(tt_lower *cx, tt_node *x, double c) {
  return tt_hlo_broadcast_to(cx->h, tt_like(cx, x, c), x->type.rank, x->type.dims);
}
static inline tt_node *tt_is(tt_lower *cx, tt_node *x, tt_cmp cmp, double c) {
  return tt_hlo_compare(cx->h, cmp, x, tt_like(cx, x, c));
}

/* Argument i in the dtype that the function is computed in; *dtype is its result's. */
tt_node *tt_float_operand(tt_lower *cx, int i, tt_dtype *dtype);
/* Infinite at zero, with the sign that it has on that side. */
tt_node *tt_digamma(tt_lower *cx, tt_node *x);
/* Clenshaw's sum of a Chebyshev series, as long as the dtype can tell. */
tt_node *tt_chebyshev(tt_lower *cx, tt_node *t, const double *series, int count);
#define TT_CHEBYSHEV(cx, t, series)                                                                \
  tt_chebyshev(cx, t, series, (int)(sizeof(series) / sizeof *(series)))

#endif
