/* Convolutions as products of matrices, for XLA's CPU compiler. It moves the channels of all three
 * operands of a convolution last and back, each with a kernel of its own. */
#include "ops/conv/product.h"

/* -- A kernel of one element: matrices [channels, places] are taken as they lie -- */

static bool is_one_element(const tt_lower *cx, const tt_geometry *g, const int64_t *kernel) {
  bool one = cx->target->xla_cpu && g->groups == 1;
  for (int d = 0; d < g->spatial; d++) one = one && kernel[d] == 1 && g->padding[d] == 0;
  return one;
}

/* Of each dim the places that windows begin at: [n, c, in..] -> [n, c, out..] */
static tt_node *thin(tt_lower *cx, const tt_geometry *g, tt_node *x, const int64_t *out) {
  for (int d = 0; d < g->spatial; d++) {
    int64_t stop = out[d] ? (out[d] - 1) * g->stride[d] + 1 : 0;
    x = tt_hlo_slice_dim(cx->h, x, 2 + d, 0, stop, g->stride[d]);
  }
  return x;
}

/* The opposite, with zeros between them: [n, c, out..] -> [n, c, in..] */
static tt_node *spread(tt_lower *cx, const tt_geometry *g, tt_node *y, const int64_t *in) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0}, between[TT_MAX_RANK] = {0};
  for (int d = 0; d < g->spatial; d++) {
    int64_t out = y->type.dims[2 + d];
    between[2 + d] = g->stride[d] - 1;
    high[2 + d] = in[d] - (out ? (out - 1) * g->stride[d] + 1 : 0);
  }
  return tt_hlo_pad(cx->h, y, tt_hlo_const(cx->h, y->type.dtype, 0), low, high, between);
}

/* [n, c, in..] -> [n, c, places] */
static tt_node *flat(tt_lower *cx, tt_node *x) {
  int64_t places = 1;
  for (int d = 2; d < x->type.rank; d++) places *= x->type.dims[d];
  return tt_hlo_reshape(cx->h, x, 3, (int64_t[]){x->type.dims[0], x->type.dims[1], places});
}

tt_node *tt_product_of_channels(tt_lower *cx, tt_node *x, tt_node *w, bool adjoint) {
  int64_t dims[TT_MAX_RANK], o = w->type.dims[0], c = w->type.dims[1];
  const int zero = 0, one = 1, two = 2;
  for (int d = 0; d < x->type.rank; d++) dims[d] = x->type.dims[d];
  w = tt_hlo_reshape(cx->h, w, 2, (int64_t[]){o, c});
  w = tt_hlo_broadcast(cx->h, w, (const int[]){1, 2}, 3, (int64_t[]){dims[0], o, c});
  tt_node *y = tt_hlo_dot_general(cx->h, w, flat(cx, x), &zero, &zero, 1, adjoint ? &one : &two,
                                  &one, 1, tt_conv_sum_dtype(x));
  dims[1] = adjoint ? c : o;
  return tt_hlo_reshape(cx->h, y, x->type.rank, dims);
}

/* x [n, c, in..], y [n, o, in..] -> [o, c, 1..] */
static tt_node *multiply_places(tt_lower *cx, tt_node *x, tt_node *y) {
  int64_t dims[TT_MAX_RANK] = {y->type.dims[1], x->type.dims[1]};
  const int zero = 0;
  for (int d = 2; d < x->type.rank; d++) dims[d] = 1;
  tt_node *each = tt_contract(cx, flat(cx, y), flat(cx, x), 1, 2, 2, tt_conv_sum_dtype(x));
  return tt_hlo_reshape(cx->h, tt_sum(cx, each, &zero, 1), x->type.rank, dims);
}

/* -- A large kernel that meets few places --
 *
 * Moving the channels of such a kernel last takes longer than the convolution. Gathering what each
 * place sees, of all taps, as a matrix [channels * taps, places] leaves the kernel as it lies. */

/* Of one element: the product of each image has a copy of the kernel, so that is compared. */
static bool has_few_places(const tt_lower *cx, const tt_geometry *g, const tt_type *w,
                           int64_t batch, const int64_t *out) {
  const double o = (double)w->dims[0], c = (double)w->dims[1];
  const int64_t taps = tt_count_taps(w);
  double places = 1;
  if (!cx->target->xla_cpu || g->groups > 1) return false;
  for (int d = 0; d < g->spatial; d++) places *= (double)out[d];
  if (batch == 0 || places == 0 || taps == 0 || taps > TT_MOST_TAPS) return false;
  if (is_one_element(cx, g, w->dims + 2)) return places * (o + c) <= o * c;
  return (double)batch * places <= o;
}

/* Exchanges the first two dims. */
static tt_node *swap(tt_lower *cx, tt_node *x) { return tt_move_dim(cx, x, 1, 0); }

/* [n, c, ...] -> [c, the others] */
static tt_node *by_channel(tt_lower *cx, tt_node *x) {
  int64_t channels = x->type.dims[1], numel = tt_type_numel(&x->type);
  int64_t others = channels ? numel / channels : 0;
  return tt_hlo_reshape(cx->h, swap(cx, x), 2, (int64_t[]){channels, others});
}

/* [n, c, in..] -> [c * taps, n * places] */
static tt_node *gather_taps(tt_lower *cx, const tt_geometry *g, tt_node *x, const int64_t *out,
                            const tt_type *w) {
  int64_t low[TT_MAX_RANK] = {0}, between[TT_MAX_RANK] = {0}, at[TT_MAX_SPATIAL];
  int64_t channels = x->type.dims[1], places = x->type.dims[0], taps = tt_count_taps(w);
  tt_node *seen[TT_MOST_TAPS];
  for (int d = 0; d < g->spatial; d++) {
    low[2 + d] = g->padding[d];
    places *= out[d];
  }
  x = swap(cx, tt_hlo_pad(cx->h, x, tt_hlo_const(cx->h, x->type.dtype, 0), low, low, between));
  for (int64_t tap = 0; tap < taps; tap++) {
    tt_node *part = x;
    tt_find_tap(w, g->spatial, tap, at);
    for (int d = 0; d < g->spatial; d++) {
      int64_t start = at[d] * g->dilation[d], stop = start + (out[d] - 1) * g->stride[d] + 1;
      part = tt_hlo_slice_dim(cx->h, part, 2 + d, start, stop, g->stride[d]);
    }
    seen[tap] = tt_hlo_reshape(cx->h, part, 3, (int64_t[]){channels, 1, places});
  }
  x = tt_hlo_concatenate(cx->h, seen, (int)taps, 1);
  return tt_hlo_reshape(cx->h, x, 2, (int64_t[]){channels * taps, places});
}

/* w [o, c, k..] -> [o, c * taps] */
static tt_node *as_matrix(tt_lower *cx, tt_node *w) {
  int64_t o = w->type.dims[0];
  return tt_hlo_reshape(cx->h, w, 2, (int64_t[]){o, o ? tt_type_numel(&w->type) / o : 0});
}

static tt_node *product(tt_lower *cx, tt_node *a, int a_dim, tt_node *b, int b_dim) {
  return tt_contract(cx, a, b, 0, a_dim, b_dim, tt_conv_sum_dtype(a));
}

static tt_node *convolve_few(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *w,
                             const int64_t *out) {
  int64_t dims[TT_MAX_RANK] = {w->type.dims[0], x->type.dims[0]};
  for (int d = 0; d < g->spatial; d++) dims[2 + d] = out[d];
  tt_node *taps = gather_taps(cx, g, x, out, &w->type);
  tt_node *y = product(cx, as_matrix(cx, w), 1, taps, 0);
  return swap(cx, tt_hlo_reshape(cx->h, y, x->type.rank, dims));
}

/* What each tap gives back to the places that it saw, added up. */
static tt_node *scatter_taps(tt_lower *cx, const tt_geometry *g, tt_node *seen, const tt_type *w,
                             const int64_t *in) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0}, between[TT_MAX_RANK] = {0};
  int64_t at[TT_MAX_SPATIAL], taps = tt_count_taps(w);
  int rank = g->spatial + 2;
  tt_node *sum = NULL, *zero = tt_hlo_const(cx->h, seen->type.dtype, 0);
  for (int64_t tap = 0; tap < taps; tap++) {
    tt_node *part = tt_hlo_slice_dim(cx->h, seen, rank, tap, tap + 1, 1);
    part = tt_hlo_reshape(cx->h, part, rank, seen->type.dims);
    tt_find_tap(w, g->spatial, tap, at);
    for (int d = 0; d < g->spatial; d++) {
      low[2 + d] = at[d] * g->dilation[d];
      between[2 + d] = g->stride[d] - 1;
      high[2 + d] = in[d] + 2 * g->padding[d] - low[2 + d] -
                    ((seen->type.dims[2 + d] - 1) * g->stride[d] + 1);
    }
    part = tt_hlo_pad(cx->h, part, zero, low, high, between);
    sum = sum ? tt_hlo_add(cx->h, sum, part) : part;
  }
  for (int d = 0; d < g->spatial; d++)
    sum = tt_hlo_slice_dim(cx->h, sum, 2 + d, g->padding[d], g->padding[d] + in[d], 1);
  return sum;
}

static tt_node *few_input_grad(tt_lower *cx, const tt_geometry *g, tt_node *y, tt_node *w,
                               const int64_t *in) {
  int64_t dims[TT_MAX_RANK] = {y->type.dims[0]};
  int rank = y->type.rank;
  for (int d = 0; d < g->spatial; d++) dims[1 + d] = y->type.dims[2 + d];
  dims[rank - 1] = w->type.dims[1];
  dims[rank] = tt_count_taps(&w->type);
  tt_node *seen = product(cx, by_channel(cx, y), 0, as_matrix(cx, w), 0);
  seen = tt_hlo_reshape(cx->h, seen, rank + 1, dims);
  return scatter_taps(cx, g, tt_move_dim(cx, seen, rank - 1, 1), &w->type, in);
}

static tt_node *few_weight_grad(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *y,
                                const tt_type *w) {
  tt_node *taps = gather_taps(cx, g, x, y->type.dims + 2, w);
  return tt_hlo_reshape(cx->h, product(cx, by_channel(cx, y), 1, taps, 1), w->rank, w->dims);
}

/* -- Either -- */

tt_node *tt_product_convolve(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *w,
                             const int64_t *out) {
  if (has_few_places(cx, g, &w->type, x->type.dims[0], out)) return convolve_few(cx, g, x, w, out);
  if (!is_one_element(cx, g, w->type.dims + 2)) return NULL;
  return tt_product_of_channels(cx, thin(cx, g, x, out), w, false);
}

tt_node *tt_product_input_grad(tt_lower *cx, const tt_geometry *g, tt_node *y, tt_node *w,
                               const int64_t *in) {
  if (has_few_places(cx, g, &w->type, y->type.dims[0], y->type.dims + 2))
    return few_input_grad(cx, g, y, w, in);
  if (!is_one_element(cx, g, w->type.dims + 2)) return NULL;
  return spread(cx, g, tt_product_of_channels(cx, y, w, true), in);
}

tt_node *tt_product_weight_grad(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *y,
                                const tt_type *w) {
  const int64_t *out = y->type.dims + 2;
  if (has_few_places(cx, g, w, y->type.dims[0], out)) return few_weight_grad(cx, g, x, y, w);
  return is_one_element(cx, g, w->dims + 2) ? multiply_places(cx, thin(cx, g, x, out), y) : NULL;
}
