#include "ops/conv/integers.h"

#include <assert.h>

/* -- Taps: the elements of a kernel [o, c, k..] in space -- */

static int64_t count_taps(const tt_type *kernel) {
  int64_t taps = 1;
  for (int d = 2; d < kernel->rank; d++) taps *= kernel->dims[d];
  return taps;
}

/* Where a tap, by its number, is along each dim of the kernel's space. at: [spatial] */
static void find_tap(const tt_type *kernel, int spatial, int64_t tap, int64_t *at) {
  assert(spatial > 0 && spatial <= TT_MAX_SPATIAL);
  for (int d = spatial - 1; d >= 0; d--) {
    at[d] = tap % kernel->dims[2 + d];
    tap /= kernel->dims[2 + d];
  }
}

static int64_t factor(const int64_t *list, int d) { return list ? list[d] : 1; }

/* Zeros around the input, and between its places. */
static tt_node *padded(tt_lower *cx, const tt_conv *conv, tt_node *x) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0}, between[TT_MAX_RANK] = {0};
  for (int d = 0; d < conv->spatial; d++) {
    low[2 + d] = conv->padding[2 * d];
    high[2 + d] = conv->padding[2 * d + 1];
    between[2 + d] = factor(conv->lhs_dilation, d) - 1;
  }
  return tt_hlo_pad(cx->h, x, tt_hlo_const(cx->h, x->type.dtype, 0), low, high, between);
}

/* What one tap of the kernel, by its number, meets: x is padded. */
static tt_node *met_by(tt_lower *cx, const tt_conv *conv, tt_node *x, const tt_type *w,
                       int64_t tap) {
  int64_t at[TT_MAX_SPATIAL];
  find_tap(w, conv->spatial, tap, at);
  for (int d = 0; d < conv->spatial; d++) {
    int64_t spread = factor(conv->rhs_dilation, d);
    int64_t last = x->type.dims[2 + d] - (w->dims[2 + d] - 1 - at[d]) * spread;
    x = tt_hlo_slice_dim(cx->h, x, 2 + d, at[d] * spread, last, factor(conv->stride, d));
  }
  return x;
}

/* w [o, c, k..] -> [o, c, 1..] */
static tt_node *take_tap(tt_lower *cx, tt_node *w, int64_t tap) {
  int64_t at[TT_MAX_SPATIAL];
  find_tap(&w->type, w->type.rank - 2, tap, at);
  for (int d = 2; d < w->type.rank; d++)
    w = tt_hlo_slice_dim(cx->h, w, d, at[d - 2], at[d - 2] + 1, 1);
  return w;
}

/* The share of one tap in a group: a product of matrices [o, c] and [c, places]. */
static tt_node *share(tt_lower *cx, const tt_conv *conv, tt_node *x, tt_node *w, int64_t tap) {
  tt_node *met = met_by(cx, conv, x, &w->type, tap);
  int64_t dims[TT_MAX_RANK], o = w->type.dims[0], c = w->type.dims[1], places = 1;
  const int zero = 0, one = 1, two = 2;
  for (int d = 0; d < met->type.rank; d++) dims[d] = met->type.dims[d];
  for (int d = 2; d < met->type.rank; d++) places *= dims[d];
  w = tt_hlo_reshape(cx->h, take_tap(cx, w, tap), 2, (int64_t[]){o, c});
  w = tt_hlo_broadcast(cx->h, w, (const int[]){1, 2}, 3, (int64_t[]){dims[0], o, c});
  tt_node *flat = tt_hlo_reshape(cx->h, met, 3, (int64_t[]){dims[0], dims[1], places});
  tt_node *y =
      tt_hlo_dot_general(cx->h, w, flat, &zero, &zero, 1, &two, &one, 1, tt_conv_sum_dtype(met));
  dims[1] = o;
  return tt_hlo_reshape(cx->h, y, met->type.rank, dims);
}

tt_node *tt_convolve_integers(tt_lower *cx, tt_node *x, tt_node *w, const tt_conv *conv) {
  int64_t channels = w->type.dims[1], outputs = w->type.dims[0] / conv->feature_groups;
  int64_t taps = count_taps(&w->type);
  tt_node *result = NULL;
  x = padded(cx, conv, x);
  for (int64_t g = 0; g < conv->feature_groups; g++) {
    tt_node *from = tt_hlo_slice_dim(cx->h, x, 1, g * channels, (g + 1) * channels, 1);
    tt_node *by = tt_hlo_slice_dim(cx->h, w, 0, g * outputs, (g + 1) * outputs, 1);
    tt_node *sum = share(cx, conv, from, by, 0);
    for (int64_t tap = 1; tap < taps; tap++)
      sum = tt_hlo_add(cx->h, sum, share(cx, conv, from, by, tap));
    tt_node *both[] = {result, sum};
    result = result ? tt_hlo_concatenate(cx->h, both, 2, 1) : sum;
  }
  return result;
}
