/* What the files of special functions share. */
#ifndef TT_SPECIAL_H
#define TT_SPECIAL_H

#include "ops/pointwise/pointwise.h"

/* Argument i in the dtype that the function is computed in; *dtype is its result's. */
tt_node *tt_float_operand(tt_lower *cx, int i, tt_dtype *dtype);
/* Clenshaw's sum of a Chebyshev series, as long as the dtype can tell. */
tt_node *tt_chebyshev(tt_lower *cx, tt_node *t, const double *series, int count);
#define TT_CHEBYSHEV(cx, t, series)                                                                \
  tt_chebyshev(cx, t, series, (int)(sizeof(series) / sizeof *(series)))

#endif
