/* Convolutions of integers, where the compiler has none. */
#ifndef TT_TAPS_H
#define TT_TAPS_H

#include "ops/nn.h"

/* What tt_hlo_convolution is for operands of one dtype that lie in StableHLO's order of PyTorch's
 * dims (conv's input, kernel and output are NULL, as is `reverse`; there is one batch group), in
 * that dtype: [n, c, in..], [o, c/groups, k..] -> [n, o, out..]. The operands must not be empty. */
tt_node *tt_convolution_by_taps(tt_lower *cx, tt_node *x, tt_node *w, const tt_conv *conv);

#endif
