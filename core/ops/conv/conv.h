/* What convolutions and their gradients share: their geometry, and those that are products of
 * matrices. x is [n, c, in..], y [n, o, out..], w [o, c/groups, k..]. */
#ifndef TT_CONV_H
#define TT_CONV_H

#include "ops/nn.h"

#define TT_MAX_SPATIAL 8

typedef struct tt_geometry {
  int spatial;
  int64_t stride[TT_MAX_SPATIAL], padding[TT_MAX_SPATIAL], dilation[TT_MAX_SPATIAL];
  int64_t output_padding[TT_MAX_SPATIAL], groups;
  bool transposed;
} tt_geometry;

/* The convolution's own element type: half precision accumulates in f32. */
static inline tt_dtype tt_conv_sum_dtype(const tt_node *x) {
  return tt_compute_dtype(x->type.dtype);
}

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
