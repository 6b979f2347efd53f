/* Linear maps along one dim of a tensor, as a few weighted reads ("taps") per result element:
 * resampling, unfolding, pooling, and their gradients.
 *
 * A map is a list of terms; a table arranges them as [taps, out]. Where a tap reads at a constant
 * step it becomes a slice, else a gather. */
#ifndef TT_TAPS_H
#define TT_TAPS_H

#include "ops/nn.h"

#define TT_ANY_TAP (-1) /* the first free tap of that result */

/* One term of a map: result[to] += weight * x[from]. */
typedef struct tt_term {
  int64_t from, to, tap;
  double weight;
} tt_term;

typedef struct tt_map {
  int64_t in, out;
  tt_term *terms;
  int64_t count, capacity;
  bool weighted; /* some weight is not 1 */
} tt_map;

/* A map with room for `capacity` terms, in the builder's arena. */
tt_map tt_map_make(tt_lower *cx, int64_t in, int64_t out, int64_t capacity);
/* Terms with `from` or `to` out of range are left out. A result's taps must differ; giving the
 * same tap to terms at a constant step makes reading it cheap. */
void tt_map_add(tt_map *map, int64_t from, int64_t to, int64_t tap, double weight);
/* The transposed map: the gradient of the given one. In place. */
void tt_map_transpose(tt_map *map);

typedef struct tt_taps {
  int64_t in, out, taps;
  int64_t *from;  /* [taps][out]; 0 where not used */
  double *weight; /* [taps][out]; 0 where not used */
  int64_t *used;  /* [taps][out]: 0 or 1 */
  bool full, weighted;
} tt_taps;

/* false when the builder has failed. */
bool tt_map_table(tt_lower *cx, const tt_map *map, tt_taps *out);
/* x with dim `dim` read at one tap; `fill` (rank 0) where it is not used. */
tt_node *tt_taps_read(tt_lower *cx, tt_node *x, int dim, const tt_taps *taps, int64_t tap,
                      tt_node *fill);
/* x with dim `dim` replaced by two, [taps, out]; `fill` (rank 0) where not used. */
tt_node *tt_taps_spread(tt_lower *cx, tt_node *x, int dim, const tt_taps *taps, tt_node *fill);
/* x with dim `dim` mapped; in x's dtype. */
tt_node *tt_map_apply(tt_lower *cx, tt_node *x, int dim, const tt_map *map);

/* The windows of a pooling: window o reads positions o * stride - padding + j * dilation. */
typedef struct tt_windows {
  int64_t in, out, size, stride, padding, dilation;
} tt_windows;
tt_map tt_map_windows(tt_lower *cx, const tt_windows *w);
/* The transposed map: for each position the windows that contain it. */
tt_map tt_map_window_grads(tt_lower *cx, const tt_windows *w);
/* The windows of an adaptive pooling: o * in / out up to the ceiling of (o + 1) * in / out. */
tt_map tt_map_adaptive(tt_lower *cx, int64_t in, int64_t out, bool average);

#endif
