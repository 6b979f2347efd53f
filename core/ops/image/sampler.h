/* Sampling images at points. Along each dim a point reads a few taps: an index, a weight, and the
 * weight's slope with respect to the point's coordinate. Values and both gradients are sums over
 * the combinations of taps. */
#ifndef TT_SAMPLER_H
#define TT_SAMPLER_H

#include "ops/nn.h"

enum { TT_SAMPLER_DIMS = 3, TT_SAMPLER_TAPS = 4 };

typedef struct tt_tap {
  tt_node *index, *inside, *weight, *slope; /* [n, points]; index F32/F64, whole and clipped */
} tt_tap;

typedef struct tt_sampler {
  int dims, taps;
  int64_t n, channels, points, plane, size[TT_SAMPLER_DIMS];
  tt_dtype dtype;
  tt_node *image; /* [n, channels, plane] */
  tt_tap tap[TT_SAMPLER_DIMS][TT_SAMPLER_TAPS];
} tt_sampler;

/* The tap at a whole coordinate of a dim of this size; what is not inside counts as 0. */
tt_tap tt_tap_at(tt_lower *cx, tt_node *at, tt_node *weight, tt_node *slope, int64_t size);
/* Sets dim d's two taps, of linear interpolation at `at`, [n, points] in pixels. slope: that of
 * `at` with respect to the coordinate. */
void tt_linear_taps(tt_lower *cx, tt_sampler *s, int d, tt_node *at, tt_node *slope);
/* [n, channels, points] */
tt_node *tt_sampled(tt_lower *cx, const tt_sampler *s);
/* x, [n, points], for each channel. */
tt_node *tt_sampler_spread(tt_lower *cx, const tt_sampler *s, tt_node *x);
/* Of g, [n, channels, points]: the gradient of the image, and, for each dim, that of the points'
 * coordinates, [n, points]. NULL: not wanted. */
void tt_sampled_backward(tt_lower *cx, const tt_sampler *s, tt_node *g, tt_node **image,
                         tt_node **coordinates);

#endif
