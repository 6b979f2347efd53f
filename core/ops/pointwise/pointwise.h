/* What the files of the pointwise family share. */
#ifndef TT_POINTWISE_H
#define TT_POINTWISE_H

#include "ops/lower.h"

#include <math.h>

/* Argument i is a number known now and equal to `value`. */
bool tt_static_equals(const tt_lower *cx, int i, double value);
tt_node *tt_is_nan(tt_lower *cx, tt_node *x);
/* The angle of the point (x, y). */
tt_node *tt_atan2(tt_lower *cx, tt_node *y, tt_node *x);
/* Rounds a float towards zero. */
tt_node *tt_trunc(tt_lower *cx, tt_node *x);
/* Argument i, a number, in `dtype`; PyTorch rounds numbers to the operands' common dtype, even
 * where it computes in a wider one. */
tt_node *tt_number(tt_lower *cx, int i, tt_dtype dtype);
/* x, which is computed in a wider dtype, in this one, rounded for good. */
tt_node *tt_settled(tt_lower *cx, tt_node *x, tt_dtype dtype);
/* The same, then as wide as before. */
tt_node *tt_rounded(tt_lower *cx, tt_node *x, tt_dtype dtype);
/* Arguments 0 and 1, tensors or numbers, in `dtype` and in one shape. */
void tt_operands(tt_lower *cx, tt_node **a, tt_node **b, tt_dtype dtype);
/* The same in the floating dtype that the operator computes in; returns the result's dtype. */
tt_dtype tt_float_operands(tt_lower *cx, tt_node **a, tt_node **b);

/* x itself if it is real. */
tt_node *tt_conjugate(tt_lower *cx, tt_node *x);
/* PyTorch's sign: 0 for NaN; real operands only. */
tt_node *tt_sign(tt_lower *cx, tt_node *x);
/* Whether the sign bit is set, of -0.0 and NaN too. */
tt_node *tt_sign_bit(tt_lower *cx, tt_node *x);

/* Of a tensor and a known number: c in x's shape, x compared to c. */
static inline tt_node *tt_splat(tt_lower *cx, tt_node *x, double c) {
  return tt_hlo_broadcast_to(cx->h, tt_like(cx, x, c), x->type.rank, x->type.dims);
}
static inline tt_node *tt_is(tt_lower *cx, tt_node *x, tt_cmp cmp, double c) {
  return tt_hlo_compare(cx->h, cmp, x, tt_like(cx, x, c));
}

#endif
