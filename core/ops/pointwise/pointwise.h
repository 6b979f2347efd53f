/* What the files of the pointwise family share. */
#ifndef TT_POINTWISE_H
#define TT_POINTWISE_H

#include "ops/ops.h"

#include <math.h>

/* The promised dtype of result k, or `otherwise`: where the common dtype counts numbers (alpha, a
 * factor) that PyTorch leaves out of the promotion. */
tt_dtype tt_promised_dtype(const tt_lower *cx, int k, tt_dtype otherwise);
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

/* PyTorch's sign: 0 for NaN; real operands only. */
tt_node *tt_sign(tt_lower *cx, tt_node *x);
/* Whether the sign bit is set, of -0.0 and NaN too. */
tt_node *tt_sign_bit(tt_lower *cx, tt_node *x);

#endif
