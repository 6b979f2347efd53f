/* Sampling an image at the points of a grid. Along each dim a point reads a few taps: an index, a
 * weight, and the weight's slope with respect to the grid's coordinate. Values and both gradients
 * are sums over the combinations of taps. */
#include "ops/nn.h"

enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };
enum { MAX_DIMS = 3, MAX_TAPS = 4 };

typedef struct tap {
  tt_node *index, *inside, *weight, *slope; /* [n, points]; index F32/F64, whole and clipped */
} tap;

typedef struct sampler {
  int dims, mode, padding, taps;
  bool align;
  int64_t n, channels, points, plane, size[MAX_DIMS];
  tt_dtype dtype;
  tt_node *image; /* [n, channels, plane] */
  tap tap[MAX_DIMS][MAX_TAPS];
} sampler;

static tt_node *constant_as(tt_lower *cx, tt_node *x, double value) {
  return tt_hlo_full(cx->h, &x->type, value);
}

/* Reflects x between low / 2 and high / 2; flips the sign of *slope where x is on the way back. */
static tt_node *reflect(tt_lower *cx, tt_node *x, double low, double high, tt_node **slope) {
  tt_hlo *h = cx->h;
  if (low == high) {
    if (slope) *slope = constant_as(cx, x, 0);
    return constant_as(cx, x, 0);
  }
  double start = low / 2, span = (high - low) / 2;
  tt_node *far = tt_plus(cx, x, -start), *distance = tt_hlo_abs(h, far);
  tt_node *rest = tt_hlo_remainder(h, distance, tt_like(cx, x, span));
  tt_node *turns = tt_hlo_floor(h, tt_hlo_divide(h, distance, tt_like(cx, x, span)));
  tt_node *odd =
      tt_hlo_compare(h, TT_NE, tt_hlo_remainder(h, turns, tt_like(cx, x, 2)), tt_like(cx, x, 0));
  tt_node *back = tt_hlo_subtract(h, tt_like(cx, x, span), rest);
  if (slope) {
    tt_node *below = tt_hlo_compare(h, TT_LT, far, tt_like(cx, x, 0));
    tt_node *flipped = tt_hlo_xor(h, below, odd);
    *slope = tt_hlo_select(h, flipped, tt_hlo_negate(h, *slope), *slope);
  }
  return tt_plus(cx, tt_hlo_select(h, odd, back, rest), start);
}

/* Clips x to 0..size-1; zeroes *slope where that changes it. */
static tt_node *clip(tt_lower *cx, tt_node *x, int64_t size, tt_node **slope) {
  tt_hlo *h = cx->h;
  tt_node *low = tt_like(cx, x, 0), *high = tt_like(cx, x, (double)(size - 1));
  if (slope) {
    tt_node *free =
        tt_hlo_and(h, tt_hlo_compare(h, TT_GT, x, low), tt_hlo_compare(h, TT_LT, x, high));
    *slope = tt_where_or_zero(cx, free, *slope);
  }
  return tt_hlo_minimum(h, tt_hlo_maximum(h, x, low), high);
}

static tt_node *apply_padding(tt_lower *cx, const sampler *s, tt_node *x, int64_t size,
                              tt_node **slope) {
  if (s->padding == ZEROS) return x;
  if (s->padding == REFLECTION) {
    double last = (double)size;
    x = s->align ? reflect(cx, x, 0, 2 * (last - 1), slope)
                 : reflect(cx, x, -1, 2 * last - 1, slope);
  }
  return clip(cx, x, size, slope);
}

static tap make_tap(tt_lower *cx, const sampler *s, tt_node *at, tt_node *weight, tt_node *slope,
                    int64_t size) {
  if (s->mode == BICUBIC) at = apply_padding(cx, s, at, size, NULL);
  tt_node *high = tt_like(cx, at, (double)(size - 1)), *low = tt_like(cx, at, 0);
  tt_node *inside = tt_hlo_and(cx->h, tt_hlo_compare(cx->h, TT_GE, at, low),
                               tt_hlo_compare(cx->h, TT_LE, at, high));
  return (tap){clip(cx, at, size, NULL), inside, weight, slope};
}

/* Keys' cubic kernel with a = -0.75 at distance x, and its derivative. */
static void cubic(tt_lower *cx, tt_node *x, bool far, tt_node **value, tt_node **slope) {
  tt_hlo *h = cx->h;
  const double a = -0.75;
  double c3 = far ? a : a + 2, c2 = far ? -5 * a : -(a + 3), c1 = far ? 8 * a : 0,
         c0 = far ? -4 * a : 1;
  tt_node *y = tt_plus(cx, tt_times(cx, x, c3), c2);
  y = tt_plus(cx, tt_hlo_multiply(h, y, x), c1);
  *value = tt_plus(cx, tt_hlo_multiply(h, y, x), c0);
  y = tt_plus(cx, tt_times(cx, x, 3 * c3), 2 * c2);
  *slope = tt_plus(cx, tt_hlo_multiply(h, y, x), c1);
}

static void cubic_taps(tt_lower *cx, sampler *s, int d, tt_node *at, tt_node *slope) {
  tt_hlo *h = cx->h;
  tt_node *floor = tt_hlo_floor(h, at), *t = tt_hlo_subtract(h, at, floor);
  for (int j = 0; j < 4; j++) {
    bool before = j < 2;
    tt_node *distance = before ? tt_plus(cx, t, 1 - j) : tt_plus(cx, tt_hlo_negate(h, t), j - 1);
    tt_node *weight, *turn;
    cubic(cx, distance, j == 0 || j == 3, &weight, &turn);
    turn = tt_hlo_multiply(h, before ? turn : tt_hlo_negate(h, turn), slope);
    s->tap[d][j] = make_tap(cx, s, tt_plus(cx, floor, j - 1), weight, turn, s->size[d]);
  }
}

/* The taps of dim d, from the grid's coordinates in -1..1. */
static void taps_of(tt_lower *cx, sampler *s, int d, tt_node *grid) {
  tt_hlo *h = cx->h;
  double size = (double)s->size[d], scale = s->align ? (size - 1) / 2 : size / 2;
  tt_node *at = tt_plus(cx, tt_times(cx, tt_plus(cx, grid, 1), scale), s->align ? 0 : -0.5);
  tt_node *slope = constant_as(cx, at, scale);
  if (s->mode == BICUBIC) {
    cubic_taps(cx, s, d, at, slope);
    return;
  }
  at = apply_padding(cx, s, at, s->size[d], &slope);
  if (s->mode == NEAREST) {
    tt_node *one = constant_as(cx, at, 1), *zero = constant_as(cx, at, 0);
    s->tap[d][0] = make_tap(cx, s, tt_hlo_round_nearest_even(h, at), one, zero, s->size[d]);
    return;
  }
  tt_node *floor = tt_hlo_floor(h, at), *t = tt_hlo_subtract(h, at, floor);
  tt_node *rest = tt_hlo_subtract(h, constant_as(cx, t, 1), t);
  s->tap[d][0] = make_tap(cx, s, floor, rest, tt_hlo_negate(h, slope), s->size[d]);
  s->tap[d][1] = make_tap(cx, s, tt_plus(cx, floor, 1), t, slope, s->size[d]);
}

/* input, grid, interpolation_mode, padding_mode, align_corners, from argument `first` on */
static bool sampler_of(tt_lower *cx, int first, sampler *s) {
  tt_hlo *h = cx->h;
  tt_node *image = tt_in(cx, first), *grid = tt_in(cx, first + 1);
  *s = (sampler){.dims = cx->row->param,
                 .mode = (int)tt_int(cx, first + 2),
                 .padding = (int)tt_int(cx, first + 3),
                 .align = tt_bool(cx, first + 4)};
  if (image->type.rank != s->dims + 2 || grid->type.rank != s->dims + 2 ||
      grid->type.dims[s->dims + 1] != s->dims || (s->mode == BICUBIC && s->dims != 2)) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "grid_sampler: the grid does not fit the input");
    return false;
  }
  s->taps = s->mode == NEAREST ? 1 : s->mode == BICUBIC ? 4 : 2;
  s->dtype = tt_compute_dtype(image->type.dtype);
  s->n = image->type.dims[0];
  s->channels = image->type.dims[1];
  s->points = s->plane = 1;
  for (int d = 0; d < s->dims; d++) {
    s->points *= grid->type.dims[1 + d];
    s->plane *= s->size[d] = image->type.dims[2 + d];
  }
  image = tt_hlo_reshape(h, image, 3, (int64_t[]){s->n, s->channels, s->plane});
  s->image = tt_cast(cx, image, s->dtype);
  grid = tt_hlo_reshape(h, grid, 3, (int64_t[]){s->n, s->points, s->dims});
  grid = tt_cast(cx, grid, s->dtype);
  for (int d = 0; d < s->dims; d++) {
    int last = s->dims - 1 - d; /* the grid names the last dim first */
    tt_node *at = tt_hlo_slice_dim(h, grid, 2, last, last + 1, 1);
    taps_of(cx, s, d, tt_hlo_reshape(h, at, 2, (int64_t[]){s->n, s->points}));
  }
  return !tt_hlo_failed(h);
}

static int combinations(const sampler *s) {
  int count = 1;
  for (int d = 0; d < s->dims; d++) count *= s->taps;
  return count;
}

/* Combination c: each dim's tap in `chosen`; the flat index, I32 [n, points]; and whether all of
 * its taps are inside. */
static tt_node *choose(tt_lower *cx, const sampler *s, int c, const tap **chosen,
                       tt_node **inside) {
  tt_hlo *h = cx->h;
  tt_node *flat = NULL;
  *inside = NULL;
  for (int d = 0; d < s->dims; d++, c /= s->taps) {
    chosen[d] = &s->tap[d][c % s->taps];
    tt_node *index = tt_cast(cx, chosen[d]->index, TT_I32);
    if (flat) flat = tt_hlo_multiply(h, flat, tt_hlo_const_i(h, TT_I32, s->size[d]));
    flat = flat ? tt_hlo_add(h, flat, index) : index;
    *inside = *inside ? tt_hlo_and(h, *inside, chosen[d]->inside) : chosen[d]->inside;
  }
  return flat;
}

/* The image at flat indices: [n, channels, points] */
static tt_node *read_image(tt_lower *cx, const sampler *s, tt_node *flat) {
  static const int zero[] = {0}, one[] = {1}, two[] = {2};
  tt_gather dims = {.offset_dims = one,
                    .offset_count = 1,
                    .collapsed_dims = two,
                    .collapsed_count = 1,
                    .operand_batch = zero,
                    .index_batch = zero,
                    .batch_count = 1,
                    .start_map = two,
                    .start_count = 1,
                    .index_vector_dim = 2,
                    .slice_sizes = (int64_t[]){1, s->channels, 1}};
  return tt_hlo_gather(cx->h, s->image, tt_unsqueeze(cx, flat, 2), &dims);
}

/* The product of the chosen weights, with dim `turned`'s slope for its weight; 0 if not inside. */
static tt_node *product(tt_lower *cx, const sampler *s, const tap *const *chosen, int turned,
                        tt_node *inside) {
  tt_node *w = NULL;
  for (int d = 0; d < s->dims; d++) {
    tt_node *factor = d == turned ? chosen[d]->slope : chosen[d]->weight;
    w = w ? tt_hlo_multiply(cx->h, w, factor) : factor;
  }
  return tt_where_or_zero(cx, inside, w);
}

static tt_node *over_channels(tt_lower *cx, const sampler *s, tt_node *x) {
  return tt_hlo_broadcast(cx->h, x, (const int[]){0, 2}, 3,
                          (int64_t[]){s->n, s->channels, s->points});
}

static tt_node *plus(tt_lower *cx, tt_node *sum, tt_node *x) {
  return sum ? tt_hlo_add(cx->h, sum, x) : x;
}

/* input, grid, interpolation_mode, padding_mode, align_corners; param: spatial dims */
void tt_lower_grid_sampler(tt_lower *cx) {
  sampler s;
  const tap *chosen[MAX_DIMS];
  tt_node *sum = NULL, *inside;
  if (!sampler_of(cx, 0, &s)) return;
  for (int c = 0; c < combinations(&s); c++) {
    tt_node *flat = choose(cx, &s, c, chosen, &inside);
    tt_node *value = read_image(cx, &s, flat);
    value = tt_where_or_zero(cx, over_channels(cx, &s, inside), value);
    tt_node *weight = product(cx, &s, chosen, -1, inside);
    sum = plus(cx, sum, tt_hlo_multiply(cx->h, value, over_channels(cx, &s, weight)));
  }
  const tt_type *grid = &tt_in(cx, 1)->type;
  int64_t dims[MAX_DIMS + 2] = {s.n, s.channels};
  for (int d = 0; d < s.dims; d++) dims[2 + d] = grid->dims[1 + d];
  sum = tt_hlo_reshape(cx->h, sum, s.dims + 2, dims);
  tt_out_as(cx, 0, tt_cast(cx, sum, tt_in(cx, 0)->type.dtype));
}

/* Adds updates [n, channels, points] to `image` at flat indices; those not inside are dropped. */
static tt_node *add_at(tt_lower *cx, const sampler *s, tt_node *image, tt_node *flat,
                       tt_node *inside, tt_node *updates) {
  static const int zero[] = {0}, one[] = {1}, two[] = {2};
  tt_scatter dims = {.window_dims = one,
                     .window_count = 1,
                     .inserted_dims = two,
                     .inserted_count = 1,
                     .operand_batch = zero,
                     .index_batch = zero,
                     .batch_count = 1,
                     .scatter_map = two,
                     .scatter_count = 1,
                     .index_vector_dim = 2};
  tt_node *nowhere = tt_hlo_full(cx->h, &flat->type, (double)s->plane);
  flat = tt_hlo_select(cx->h, inside, flat, nowhere);
  return tt_hlo_scatter(cx->h, image, tt_unsqueeze(cx, flat, 2), updates, &dims, TT_ADD);
}

/* grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask[2];
 * param: spatial dims */
void tt_lower_grid_sampler_backward(tt_lower *cx) {
  sampler s;
  const tap *chosen[MAX_DIMS];
  tt_node *inside, *slopes[MAX_DIMS] = {NULL};
  if (!sampler_of(cx, 1, &s)) return;
  tt_node *image = tt_hlo_zeros(cx->h, &s.image->type);
  tt_node *g = tt_hlo_reshape(cx->h, tt_in(cx, 0), 3, (int64_t[]){s.n, s.channels, s.points});
  g = tt_cast(cx, g, s.dtype);
  for (int c = 0; c < combinations(&s); c++) {
    tt_node *flat = choose(cx, &s, c, chosen, &inside);
    if (tt_flag(cx, 6, 0)) {
      tt_node *weight = over_channels(cx, &s, product(cx, &s, chosen, -1, inside));
      image = add_at(cx, &s, image, flat, inside, tt_hlo_multiply(cx->h, g, weight));
    }
    if (!tt_flag(cx, 6, 1)) continue;
    tt_node *dot = tt_hlo_multiply(cx->h, g, read_image(cx, &s, flat));
    dot = tt_sum(cx, dot, (const int[]){1}, 1);
    for (int d = 0; d < s.dims; d++) {
      tt_node *turn = tt_hlo_multiply(cx->h, dot, product(cx, &s, chosen, d, inside));
      slopes[d] = plus(cx, slopes[d], turn);
    }
  }
  const tt_type *input = &tt_in(cx, 1)->type, *grid = &tt_in(cx, 2)->type;
  if (tt_flag(cx, 6, 0)) {
    image = tt_hlo_reshape(cx->h, image, input->rank, input->dims);
    tt_out_as(cx, 0, tt_cast(cx, image, input->dtype));
  }
  if (tt_flag(cx, 6, 1)) {
    tt_node *parts[MAX_DIMS];
    for (int d = 0; d < s.dims; d++) parts[s.dims - 1 - d] = tt_unsqueeze(cx, slopes[d], 2);
    tt_node *all = tt_hlo_concatenate(cx->h, parts, s.dims, 2);
    all = tt_hlo_reshape(cx->h, all, grid->rank, grid->dims);
    tt_out_as(cx, 1, tt_cast(cx, all, grid->dtype));
  }
}
