/* Where the windows of a convolution lie, and what it adds up in. */
#ifndef TT_GEOMETRY_H
#define TT_GEOMETRY_H

#include "ops/nn.h"

#include <assert.h>

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

/* The elements of a kernel [o, c/groups, k..] in space are its taps. */
enum { TT_MOST_TAPS = 64 }; /* of one that is taken apart into them */

static inline int64_t tt_count_taps(const tt_type *kernel) {
  int64_t taps = 1;
  for (int d = 2; d < kernel->rank; d++) taps *= kernel->dims[d];
  return taps;
}

/* Where a tap, by its number, is along each dim of the kernel's space. at: [spatial] */
static inline void tt_find_tap(const tt_type *kernel, int spatial, int64_t tap, int64_t *at) {
  assert(spatial > 0 && spatial <= TT_MAX_SPATIAL);
  for (int d = spatial - 1; d >= 0; d--) {
    at[d] = tap % kernel->dims[2 + d];
    tap /= kernel->dims[2 + d];
  }
}

#endif
