/* RoIAlign: the average of an image at points on a grid in each bin, interpolated linearly. */
#include "ops/vision/roi.h"

typedef struct axis {
  tt_node *start, *bin; /* [count, bins]: where a bin begins, and its size */
  tt_node *points;      /* I32 [count, bins] */
} axis;

typedef struct align {
  axis axis[2];
  tt_node *rows;             /* forward: the image */
  tt_node *gradient, *share; /* backward: [count, bins, channels]; the points of each bin */
} align;

/* The pixels beside a point, and their weights, [count, bins of the axis]. */
typedef struct side {
  tt_node *index[2], *weight[2], *inside;
} side;

static axis axis_of(const tt_roi *roi, int d, bool aligned, int64_t sampling) {
  tt_hlo *h = roi->cx->h;
  tt_node *from = roi->edge[d][0], *to = roi->edge[d][1];
  if (aligned) {
    from = tt_roi_rounded(roi, tt_plus(roi->cx, from, -0.5));
    to = tt_roi_rounded(roi, tt_plus(roi->cx, to, -0.5));
  }
  tt_node *extent = tt_roi_rounded(roi, tt_hlo_subtract(h, to, from));
  if (!aligned) extent = tt_hlo_maximum(h, extent, tt_like(roi->cx, extent, 1));
  tt_node *bins = tt_hlo_full(h, &extent->type, (double)roi->bins[d]);
  tt_node *bin = tt_roi_rounded(roi, tt_quotient(roi->cx, extent, bins));
  bin = tt_roi_along(roi, bin, d);
  tt_node *offset = tt_hlo_multiply(h, tt_roi_bin(roi, d, roi->compute), bin);
  axis a = {.bin = bin};
  a.start = tt_hlo_add(h, tt_roi_along(roi, from, d), tt_roi_rounded(roi, offset));
  a.start = tt_roi_rounded(roi, a.start);
  tt_type points = bin->type;
  points.dtype = TT_I32;
  a.points = sampling > 0 ? tt_hlo_full(h, &points, (double)sampling)
                          : tt_hlo_convert(h, tt_hlo_ceil(h, bin), TT_I32);
  return a;
}

static side side_of(const tt_roi *roi, const axis *a, int d, tt_node *point) {
  tt_hlo *h = roi->cx->h;
  tt_node *middle = tt_plus(roi->cx, tt_hlo_convert(h, point, roi->compute), 0.5);
  tt_node *at = tt_roi_rounded(roi, tt_hlo_multiply(h, a->bin, middle));
  at = tt_quotient(roi->cx, at, tt_hlo_convert(h, a->points, roi->compute));
  at = tt_roi_rounded(roi, tt_hlo_add(h, a->start, tt_roi_rounded(roi, at)));
  double size = (double)roi->size[d];
  tt_node *zero = tt_like(roi->cx, at, 0), *last = tt_like(roi->cx, at, size - 1);
  tt_node *inside = tt_hlo_and(h, tt_hlo_compare(h, TT_GE, at, tt_like(roi->cx, at, -1)),
                               tt_hlo_compare(h, TT_LE, at, tt_like(roi->cx, at, size)));
  at = tt_hlo_minimum(h, tt_hlo_maximum(h, at, zero), last);
  tt_node *floor = tt_hlo_floor(h, at), *rest = tt_hlo_subtract(h, at, floor);
  side s = {.inside = inside, .weight = {tt_hlo_subtract(h, tt_like(roi->cx, at, 1), rest), rest}};
  s.index[0] = tt_hlo_convert(h, floor, TT_I32);
  s.index[1] = tt_hlo_convert(h, tt_hlo_minimum(h, tt_plus(roi->cx, floor, 1), last), TT_I32);
  return s;
}

/* The points' pixels, four of them, and their weights; narrows `inside` to those on the image. */
static void corners(const tt_roi *roi, const align *a, tt_node *const *point, tt_node **inside,
                    tt_node **index, tt_node **weight) {
  tt_hlo *h = roi->cx->h;
  side s[2];
  for (int d = 0; d < 2; d++) {
    s[d] = side_of(roi, &a->axis[d], d, point[d]);
    *inside = tt_hlo_and(h, *inside, tt_roi_spread(roi, s[d].inside, d));
  }
  for (int k = 0; k < 4; k++) {
    int y = k / 2, x = k % 2;
    index[k] = tt_roi_at(roi, s[0].index[y], s[1].index[x]);
    weight[k] = tt_hlo_multiply(h, tt_roi_spread(roi, s[0].weight[y], 0),
                                tt_roi_spread(roi, s[1].weight[x], 1));
  }
}

static void add_values(const tt_roi *roi, tt_node *const *point, tt_node *inside, tt_node **state,
                       void *user) {
  tt_hlo *h = roi->cx->h;
  const align *a = user;
  tt_node *index[4], *weight[4], *sum = NULL;
  corners(roi, a, point, &inside, index, weight);
  for (int k = 0; k < 4; k++) {
    tt_node *value = tt_cast(roi->cx, tt_hlo_take(h, a->rows, index[k], 0), roi->compute);
    value = tt_hlo_multiply(h, tt_roi_each(roi, weight[k]), value);
    sum = sum ? tt_hlo_add(h, sum, value) : value;
  }
  sum = tt_where_or_zero(roi->cx, tt_roi_each(roi, inside), sum);
  state[0] = tt_hlo_add(h, state[0], sum);
}

static void add_gradients(const tt_roi *roi, tt_node *const *point, tt_node *inside,
                          tt_node **state, void *user) {
  tt_hlo *h = roi->cx->h;
  const align *a = user;
  tt_node *index[4], *weight[4];
  corners(roi, a, point, &inside, index, weight);
  for (int k = 0; k < 4; k++) {
    tt_node *part = tt_hlo_multiply(h, a->gradient, tt_roi_each(roi, weight[k]));
    part = tt_hlo_divide(h, part, a->share);
    state[0] = tt_roi_add(roi, state[0], index[k], inside, part);
  }
}

/* The numbers of points, as a divisor of what belongs to bins. */
static tt_node *share_of(const tt_roi *roi, const align *a, bool least) {
  tt_hlo *h = roi->cx->h;
  tt_node *count = tt_hlo_multiply(h, tt_roi_spread(roi, a->axis[0].points, 0),
                                   tt_roi_spread(roi, a->axis[1].points, 1));
  if (least) count = tt_hlo_maximum(h, count, tt_hlo_const_i(h, TT_I32, 1));
  return tt_roi_each(roi, tt_hlo_convert(h, count, roi->compute));
}

static void align_of(const tt_roi *roi, bool aligned, int64_t sampling, align *a) {
  for (int d = 0; d < 2; d++) a->axis[d] = axis_of(roi, d, aligned, sampling);
}

/* input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, and, where each bin does
 * not have channels of its own (param), aligned */
void tt_lower_roi_align(tt_lower *cx) {
  tt_roi roi;
  align a = {.rows = NULL};
  bool own = cx->row->param;
  if (!tt_roi_begin(cx, 2, 0, own, own ? 2 : 1, &roi)) return;
  align_of(&roi, own || tt_bool(cx, 6), tt_int(cx, 5), &a);
  a.rows = tt_roi_rows(&roi);
  tt_type type = {roi.compute, 4, {roi.count, roi.bins[0], roi.bins[1], roi.channels}};
  tt_node *sum = tt_hlo_zeros(cx->h, &type);
  tt_node *const points[] = {a.axis[0].points, a.axis[1].points};
  tt_roi_each_point(&roi, points, add_values, &a, 1, &sum);
  sum = tt_hlo_divide(cx->h, sum, share_of(&roi, &a, !own));
  tt_roi_out_bins(&roi, 0, tt_cast(cx, sum, roi.dtype));
  if (own) tt_roi_out_mapping(&roi);
}

/* grad, rois, spatial_scale, pooled_height, pooled_width, the image's sizes, sampling_ratio,
 * aligned; where each bin has its own channels: grad, rois, channel_mapping, spatial_scale,
 * pooled_height, pooled_width, sampling_ratio, the image's sizes */
void tt_lower_roi_align_backward(tt_lower *cx) {
  tt_roi roi;
  align a = {.rows = NULL};
  bool own = cx->row->param;
  if (!tt_roi_begin(cx, own ? 3 : 2, own ? 7 : 5, own, 1, &roi)) return;
  align_of(&roi, own || tt_bool(cx, 10), tt_int(cx, own ? 6 : 9), &a);
  a.gradient = tt_roi_gradient(&roi);
  a.share = share_of(&roi, &a, false);
  tt_node *rows = tt_roi_no_rows(&roi);
  tt_node *const points[] = {a.axis[0].points, a.axis[1].points};
  tt_roi_each_point(&roi, points, add_gradients, &a, 1, &rows);
  tt_roi_out_image(&roi, rows);
}
