/* Linear maps along one dim of a tensor, as a few weighted reads ("taps") per result element:
 * resampling, unfolding, pooling, and, by turning the map around, their gradients. */
#ifndef TT_TAPS_H
#define TT_TAPS_H

#include "ops/nn.h"

/* One term of a map: result[to] += weight * x[from]. */
typedef struct tt_term {
  int64_t from, to;
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
/* Terms with `from` or `to` out of range, or weight 0, are left out. */
void tt_map_add(tt_map *map, int64_t from, int64_t to, double weight);
/* The transposed map: the gradient of the given one. In place. */
void tt_map_transpose(tt_map *map);
/* x with dim `dim` mapped; in x's dtype. */
tt_node *tt_map_apply(tt_lower *cx, tt_node *x, int dim, const tt_map *map);
/* x with dim `dim` of size map->in replaced by two: [most terms of a result, map->out], and
 * whether each place is a term (rank 2, bool). Unused places read x[0]. */
tt_node *tt_map_spread(tt_lower *cx, tt_node *x, int dim, const tt_map *map, tt_node **used);

/* The windows of a pooling: window o reads positions o * stride - padding + j * dilation. */
tt_map tt_map_windows(tt_lower *cx, int64_t in, int64_t out, int64_t size, int64_t stride,
                      int64_t padding, int64_t dilation);
/* The windows of an adaptive pooling: o * in / out up to the ceiling of (o + 1) * in / out. */
tt_map tt_map_adaptive(tt_lower *cx, int64_t in, int64_t out, bool average);

#endif
