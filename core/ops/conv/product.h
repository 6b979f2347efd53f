/* Convolutions as products of matrices. x is [n, c, in..], y is [n, o, out..], and w, the kernel,
 * is [o, c / groups, k..]. */
#ifndef TT_PRODUCT_H
#define TT_PRODUCT_H

#include "ops/conv/geometry.h"

/* A kernel of one element: x [n, c, in..], w [o, c, 1..] -> [n, o, in..]; `adjoint`: x [n, o, in..]
 * -> [n, c, in..] */
tt_node *tt_product_of_channels(tt_lower *cx, tt_node *x, tt_node *w, bool adjoint);

/* The convolution's y, and the gradients of its x and its w; NULL where it should be no product. */
tt_node *tt_product_convolve(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *w,
                             const int64_t *out);
tt_node *tt_product_input_grad(tt_lower *cx, const tt_geometry *g, tt_node *y, tt_node *w,
                               const int64_t *in);
tt_node *tt_product_weight_grad(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *y,
                                const tt_type *w);

#endif
