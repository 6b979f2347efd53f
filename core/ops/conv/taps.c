/* A convolution without one: XLA's compilers for accelerators leave integers to libraries that know
 * real numbers only. Each element of the kernel, a tap, meets the places of the input that it is
 * moved over; a product of matrices adds their channels up. */
#include "ops/conv/taps.h"

typedef struct taps {
  tt_lower *cx;
  const tt_conv *conv;
  tt_node *x, *w; /* x is padded, [n, c, in..]; w is [o, c/groups, k..] */
  int64_t out[TT_MAX_RANK];
  int64_t at[TT_MAX_RANK]; /* the tap, by dims of space */
} taps;

static int64_t factor(const int64_t *list, int d) { return list ? list[d] : 1; }

/* Zeros around the input, and between its places. */
static tt_node *padded(tt_lower *cx, const tt_conv *conv, tt_node *x) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0}, between[TT_MAX_RANK] = {0};
  for (int d = 0; d < conv->spatial; d++) {
    low[2 + d] = conv->padding ? conv->padding[2 * d] : 0;
    high[2 + d] = conv->padding ? conv->padding[2 * d + 1] : 0;
    between[2 + d] = factor(conv->lhs_dilation, d) - 1;
  }
  return tt_hlo_pad(cx->h, x, tt_hlo_const(cx->h, x->type.dtype, 0), low, high, between);
}

/* What the tap meets, of one group: [n, c/groups, places] */
static tt_node *met(const taps *t, int64_t group) {
  tt_hlo *h = t->cx->h;
  int64_t channels = t->w->type.dims[1], places = 1;
  tt_node *x = tt_hlo_slice_dim(h, t->x, 1, group * channels, (group + 1) * channels, 1);
  for (int d = 0; d < t->conv->spatial; d++) {
    int64_t start = t->at[d] * factor(t->conv->rhs_dilation, d), step = factor(t->conv->stride, d);
    x = tt_hlo_slice_dim(h, x, 2 + d, start, start + (t->out[d] - 1) * step + 1, step);
    places *= t->out[d];
  }
  return tt_hlo_reshape(h, x, 3, (int64_t[]){x->type.dims[0], channels, places});
}

/* The tap's weights of one group: [o/groups, c/groups] */
static tt_node *weights(const taps *t, int64_t group, int64_t groups) {
  tt_hlo *h = t->cx->h;
  int64_t outputs = t->w->type.dims[0] / groups;
  tt_node *w = tt_hlo_slice_dim(h, t->w, 0, group * outputs, (group + 1) * outputs, 1);
  for (int d = 0; d < t->conv->spatial; d++)
    w = tt_hlo_slice_dim(h, w, 2 + d, t->at[d], t->at[d] + 1, 1);
  return tt_hlo_reshape(h, w, 2, (int64_t[]){outputs, t->w->type.dims[1]});
}

/* One tap's share of a group: [o/groups, n, places] */
static tt_node *share(const taps *t, int64_t group, int64_t groups) {
  const int one = 1;
  tt_node *w = weights(t, group, groups), *x = met(t, group);
  return tt_hlo_dot_general(t->cx->h, w, x, NULL, NULL, 0, &one, &one, 1, x->type.dtype);
}

static bool next_tap(taps *t) {
  for (int d = TT_MAX_RANK - 1; d >= 0; d--) {
    if (d >= t->conv->spatial) continue;
    if (++t->at[d] < t->w->type.dims[2 + d]) return true;
    t->at[d] = 0;
  }
  return false;
}

tt_node *tt_convolution_by_taps(tt_lower *cx, tt_node *x, tt_node *w, const tt_conv *conv) {
  taps t = {.cx = cx, .conv = conv, .x = padded(cx, conv, x), .w = w};
  int64_t groups = conv->feature_groups ? conv->feature_groups : 1;
  int64_t dims[TT_MAX_RANK] = {w->type.dims[0], x->type.dims[0]};
  for (int d = 0; d < conv->spatial; d++) {
    int64_t reach = (w->type.dims[2 + d] - 1) * factor(conv->rhs_dilation, d) + 1;
    t.out[d] = (t.x->type.dims[2 + d] - reach) / factor(conv->stride, d) + 1;
    dims[2 + d] = t.out[d];
  }
  tt_node *result = NULL;
  for (int64_t group = 0; group < groups; group++) {
    tt_node *sum = share(&t, group, groups);
    while (next_tap(&t)) sum = tt_hlo_add(cx->h, sum, share(&t, group, groups));
    tt_node *both[] = {result, sum};
    result = result ? tt_hlo_concatenate(cx->h, both, 2, 0) : sum;
  }
  return tt_move_dim(cx, tt_hlo_reshape(cx->h, result, x->type.rank, dims), 0, 1);
}
