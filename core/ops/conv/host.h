/* Convolutions by the host's library, of which programs may order them (ops/order.h): a call of one
 * order, whose cost is its products. */
#ifndef TT_CONV_HOST_H
#define TT_CONV_HOST_H

#include "ops/conv/geometry.h"

/* Whether the library computes this one, of these operands, of which none is empty. */
bool tt_host_convolves(const tt_lower *cx, const tt_geometry *g, const tt_node *x,
                       const tt_node *w);

/* y [n, o, out..]; bias: NULL or [o]. */
tt_node *tt_host_convolution(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *w,
                             tt_node *bias, const int64_t *out);

/* The gradients of x, w, and the bias, in out[0..2]; NULL where `wanted` is false. */
void tt_host_convolution_backward(tt_lower *cx, const tt_geometry *g, tt_node *dy, tt_node *x,
                                  tt_node *w, const bool *wanted, tt_node **out);

#endif
