/* Where the windows of a convolution lie, and what it adds up in. */
#ifndef TT_GEOMETRY_H
#define TT_GEOMETRY_H

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

#endif
