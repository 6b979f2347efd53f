/* Convolutions of integers where XLA has none: each element of the kernel, a tap, is a kernel of
 * one element for the places that it meets. */
#ifndef TT_CONV_INTEGERS_H
#define TT_CONV_INTEGERS_H

#include "ops/conv/geometry.h"

/* x [n, c, in..], w [o, c / groups, k..] -> [n, o, out..]; none is empty. */
tt_node *tt_convolve_integers(tt_lower *cx, tt_node *x, tt_node *w, const tt_conv *conv);

#endif
