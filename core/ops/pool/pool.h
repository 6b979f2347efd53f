/* The geometry that max and average pooling share. */
#ifndef TT_POOL_H
#define TT_POOL_H

#include "ops/image/taps.h"

#define TT_MAX_POOL 3

typedef struct tt_pooling {
  int spatial, lead; /* spatial dims, and dims before them */
  int64_t in[TT_MAX_POOL], out[TT_MAX_POOL];
  int64_t kernel[TT_MAX_POOL], stride[TT_MAX_POOL], padding[TT_MAX_POOL], dilation[TT_MAX_POOL];
} tt_pooling;

/* Whether the input has one or two dims before `spatial` ones that can be pooled: else fails. */
static inline bool tt_pool_fits(tt_lower *cx, const tt_node *input, int spatial) {
  int lead = input->type.rank - spatial;
  if (spatial >= 1 && spatial <= TT_MAX_POOL && lead >= 1 && lead <= 2) return true;
  tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "pooling: expected an input of %d or %d dims, got %d",
              spatial + 1, spatial + 2, input->type.rank);
  return false;
}

/* Reads kernel_size, stride, padding from argument `first` on; dilation and ceil_mode are given
 * by their positions, 0 if there is none. */
bool tt_pool_read(tt_lower *cx, tt_node *input, int spatial, int first, int dilation, int ceil_mode,
                  tt_pooling *out);
/* The windows along spatial dim d. */
tt_windows tt_pool_windows(const tt_pooling *pool, int d);
/* The elements of a list argument, one for each spatial dim; a single one stands for all. */
void tt_spatial_list(tt_lower *cx, int i, int spatial, int64_t otherwise, int64_t *out);
/* Pads dim `dim` so that window places fill it, with `value`; cuts what no window reaches. */
tt_node *tt_pool_pad(tt_lower *cx, tt_node *x, const tt_pooling *pool, int d, tt_node *value);

/* A reduction's body over (value, position): the maximum, NaN above all; -1 positions lose, the
 * first of equal values wins, and the last of NaNs, in whatever order they are met. */
void tt_keep_winner(tt_hlo *h, tt_node *const *args, tt_node **results, void *user);

#endif
