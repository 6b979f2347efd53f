/* Sampling an image at the points of a grid, whose coordinates are -1 and 1 at its edges. */
#include "ops/image/sampler.h"

enum { BILINEAR, NEAREST, BICUBIC };
enum { ZEROS, BORDER, REFLECTION };

typedef struct grid {
  tt_sampler s;
  int mode, padding;
  bool align;
} grid;

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

static tt_node *apply_padding(tt_lower *cx, const grid *g, tt_node *x, int64_t size,
                              tt_node **slope) {
  if (g->padding == ZEROS) return x;
  if (g->padding == REFLECTION) {
    double last = (double)size;
    x = g->align ? reflect(cx, x, 0, 2 * (last - 1), slope)
                 : reflect(cx, x, -1, 2 * last - 1, slope);
  }
  return clip(cx, x, size, slope);
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

static void cubic_taps(tt_lower *cx, grid *g, int d, tt_node *at, tt_node *slope) {
  tt_hlo *h = cx->h;
  int64_t size = g->s.size[d];
  tt_node *floor = tt_hlo_floor(h, at), *t = tt_hlo_subtract(h, at, floor);
  for (int j = 0; j < 4; j++) {
    bool before = j < 2;
    tt_node *distance = before ? tt_plus(cx, t, 1 - j) : tt_plus(cx, tt_hlo_negate(h, t), j - 1);
    tt_node *weight, *turn, *pixel = apply_padding(cx, g, tt_plus(cx, floor, j - 1), size, NULL);
    cubic(cx, distance, j == 0 || j == 3, &weight, &turn);
    turn = tt_hlo_multiply(h, before ? turn : tt_hlo_negate(h, turn), slope);
    g->s.tap[d][j] = tt_tap_at(cx, pixel, weight, turn, size);
  }
}

/* The taps of dim d, from the grid's coordinates in -1..1. */
static void taps_of(tt_lower *cx, grid *g, int d, tt_node *x) {
  int64_t count = g->s.size[d];
  double size = (double)count, scale = g->align ? (size - 1) / 2 : size / 2;
  tt_node *at = tt_plus(cx, tt_times(cx, tt_plus(cx, x, 1), scale), g->align ? 0 : -0.5);
  tt_node *slope = constant_as(cx, at, scale);
  if (g->mode == BICUBIC) {
    cubic_taps(cx, g, d, at, slope);
    return;
  }
  at = apply_padding(cx, g, at, count, &slope);
  if (g->mode == BILINEAR) {
    tt_linear_taps(cx, &g->s, d, at, slope);
    return;
  }
  tt_node *one = constant_as(cx, at, 1), *zero = constant_as(cx, at, 0);
  g->s.tap[d][0] = tt_tap_at(cx, tt_hlo_round_nearest_even(cx->h, at), one, zero, count);
}

/* input, grid, interpolation_mode, padding_mode, align_corners, from argument `first` on */
static bool grid_of(tt_lower *cx, int first, grid *g) {
  tt_hlo *h = cx->h;
  tt_node *image = tt_in(cx, first), *at = tt_in_counted(cx, first + 1);
  tt_sampler *s = &g->s;
  *g = (grid){.s.dims = cx->row->param,
              .mode = (int)tt_int(cx, first + 2),
              .padding = (int)tt_int(cx, first + 3),
              .align = tt_bool(cx, first + 4)};
  if (image->type.rank != s->dims + 2 || at->type.rank != s->dims + 2 ||
      at->type.dims[s->dims + 1] != s->dims || (g->mode == BICUBIC && s->dims != 2)) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "grid_sampler: the grid does not fit the input");
    return false;
  }
  s->taps = g->mode == NEAREST ? 1 : g->mode == BICUBIC ? 4 : 2;
  s->dtype = tt_compute_dtype(image->type.dtype);
  s->n = image->type.dims[0];
  s->channels = image->type.dims[1];
  s->points = s->plane = 1;
  for (int d = 0; d < s->dims; d++) {
    s->points *= at->type.dims[1 + d];
    s->plane *= s->size[d] = image->type.dims[2 + d];
  }
  image = tt_hlo_reshape(h, image, 3, (int64_t[]){s->n, s->channels, s->plane});
  s->image = tt_cast(cx, image, s->dtype);
  at = tt_hlo_reshape(h, at, 3, (int64_t[]){s->n, s->points, s->dims});
  at = tt_cast(cx, at, s->dtype);
  for (int d = 0; d < s->dims; d++) {
    int last = s->dims - 1 - d; /* the grid names the last dim first */
    tt_node *x = tt_hlo_slice_dim(h, at, 2, last, last + 1, 1);
    taps_of(cx, g, d, tt_hlo_reshape(h, x, 2, (int64_t[]){s->n, s->points}));
  }
  return !tt_hlo_failed(h);
}

/* input, grid, interpolation_mode, padding_mode, align_corners; param: spatial dims */
void tt_lower_grid_sampler(tt_lower *cx) {
  grid g;
  if (!grid_of(cx, 0, &g)) return;
  const tt_type *at = &tt_in(cx, 1)->type;
  int64_t dims[TT_SAMPLER_DIMS + 2] = {g.s.n, g.s.channels};
  for (int d = 0; d < g.s.dims; d++) dims[2 + d] = at->dims[1 + d];
  tt_node *sum = tt_hlo_reshape(cx->h, tt_sampled(cx, &g.s), g.s.dims + 2, dims);
  tt_out_as(cx, 0, tt_cast(cx, sum, tt_in(cx, 0)->type.dtype));
}

/* grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask[2];
 * param: spatial dims */
void tt_lower_grid_sampler_backward(tt_lower *cx) {
  grid to;
  tt_node *image, *slopes[TT_SAMPLER_DIMS], *parts[TT_SAMPLER_DIMS];
  if (!grid_of(cx, 1, &to)) return;
  const tt_sampler *s = &to.s;
  bool wants_image = tt_flag(cx, 6, 0), wants_grid = tt_flag(cx, 6, 1);
  tt_node *g =
      tt_hlo_reshape(cx->h, tt_in_counted(cx, 0), 3, (int64_t[]){s->n, s->channels, s->points});
  g = tt_cast(cx, g, s->dtype);
  tt_sampled_backward(cx, s, g, wants_image ? &image : NULL, wants_grid ? slopes : NULL);
  const tt_type *input = &tt_in(cx, 1)->type, *at = &tt_in(cx, 2)->type;
  if (wants_image) {
    image = tt_hlo_reshape(cx->h, image, input->rank, input->dims);
    tt_out_as(cx, 0, tt_cast(cx, image, input->dtype));
  }
  if (!wants_grid) return;
  for (int d = 0; d < s->dims; d++) parts[s->dims - 1 - d] = tt_unsqueeze(cx, slopes[d], 2);
  tt_node *all = tt_hlo_concatenate(cx->h, parts, s->dims, 2);
  all = tt_hlo_reshape(cx->h, all, at->rank, at->dims);
  tt_out_as(cx, 1, tt_cast(cx, all, at->dtype));
}
