/* RoIPool: the largest number of each bin, or the average of a bin's own channels. The bins begin
 * and end at whole pixels, and may share these. */
#include "ops/index/index.h"
#include "ops/vision/roi.h"

#include <float.h>

typedef struct pool {
  tt_node *start[2], *points[2]; /* I32 [count, bins of the axis] */
  tt_node *rows;                 /* forward: the image */
  tt_node *share;                /* backward: what each pixel gets, [count, bins, channels] */
} pool;

static tt_node *whole(const tt_roi *roi, tt_node *x) {
  return tt_hlo_convert(roi->cx->h, x, TT_I32);
}

/* floor(k * size), or ceil((k + 1) * size), from the box's first pixel on, clipped. */
static tt_node *border(const tt_roi *roi, int d, bool end, tt_node *size, tt_node *first,
                       int64_t limit) {
  tt_hlo *h = roi->cx->h;
  tt_node *k = tt_roi_bin(roi, d, roi->compute);
  if (end) k = tt_plus(roi->cx, k, 1);
  tt_node *at = tt_roi_rounded(roi, tt_hlo_multiply(h, k, tt_roi_along(roi, size, d)));
  at = whole(roi, end ? tt_hlo_ceil(h, at) : tt_hlo_floor(h, at));
  at = tt_hlo_add(h, at, tt_roi_along(roi, first, d));
  tt_node *zero = tt_hlo_const_i(h, TT_I32, 0), *last = tt_hlo_const_i(h, TT_I32, limit);
  return tt_hlo_clamp(h, zero, at, last);
}

/* more: 1 where a box's last pixel counts as inside. limit: what the image's sizes lack of that. */
static void bins_of(const tt_roi *roi, int more, int limit, pool *p) {
  tt_hlo *h = roi->cx->h;
  for (int d = 0; d < 2; d++) {
    tt_node *from = whole(roi, tt_hlo_round_nearest_afz(h, roi->edge[d][0]));
    tt_node *to = whole(roi, tt_hlo_round_nearest_afz(h, roi->edge[d][1]));
    tt_node *extent = tt_plus(roi->cx, tt_hlo_subtract(h, to, from), more);
    extent = tt_hlo_maximum(h, extent, tt_like(roi->cx, extent, 1));
    extent = tt_roi_rounded(roi, tt_hlo_convert(h, extent, roi->compute));
    tt_node *bins = tt_hlo_full(h, &extent->type, (double)roi->bins[d]);
    tt_node *size = tt_roi_rounded(roi, tt_quotient(roi->cx, extent, bins));
    p->start[d] = border(roi, d, false, size, from, roi->size[d] - limit);
    tt_node *end = border(roi, d, true, size, from, roi->size[d] - limit);
    p->points[d] = tt_hlo_subtract(h, end, p->start[d]);
  }
}

/* Where the points lie on the image's plane, or, with the image and section, in its rows. */
static tt_node *index_of(const tt_roi *roi, const pool *p, tt_node *const *point) {
  tt_hlo *h = roi->cx->h;
  return tt_roi_at(roi, tt_hlo_add(h, p->start[0], point[0]), tt_hlo_add(h, p->start[1], point[1]));
}

static void take_larger(const tt_roi *roi, tt_node *const *point, tt_node *inside, tt_node **state,
                        void *user) {
  tt_hlo *h = roi->cx->h;
  const pool *p = user;
  tt_node *index = index_of(roi, p, point);
  tt_node *value = tt_hlo_take(h, p->rows, index, 0);
  tt_node *larger = tt_hlo_compare(h, TT_GT, value, state[0]);
  larger = tt_hlo_and(h, tt_roi_each(roi, inside), larger);
  index = tt_roi_each(roi, tt_hlo_subtract(h, index, roi->first));
  state[0] = tt_hlo_select(h, larger, value, state[0]);
  state[1] = tt_hlo_select(h, larger, index, state[1]);
}

static tt_node *has_points(const tt_roi *roi, const pool *p) {
  tt_hlo *h = roi->cx->h;
  tt_node *some[2], *zero = tt_hlo_const_i(h, TT_I32, 0);
  for (int d = 0; d < 2; d++)
    some[d] = tt_roi_spread(roi, tt_hlo_compare(h, TT_GT, p->points[d], zero), d);
  return tt_hlo_and(h, some[0], some[1]);
}

/* input, rois, spatial_scale, pooled_height, pooled_width */
void tt_lower_roi_pool(tt_lower *cx) {
  tt_roi roi;
  pool p;
  tt_hlo *h = cx->h;
  if (!tt_roi_begin(cx, 2, 0, false, 2, &roi)) return;
  bins_of(&roi, 1, 0, &p);
  p.rows = tt_roi_rows(&roi);
  tt_type type = {roi.dtype, 4, {roi.count, roi.bins[0], roi.bins[1], roi.channels}}, where = type;
  where.dtype = TT_I32;
  tt_node *least = tt_hlo_full(h, &type, -FLT_MAX), *some = tt_roi_each(&roi, has_points(&roi, &p));
  tt_node *state[2] = {tt_where_or_zero(cx, some, least), tt_hlo_full(h, &where, -1)};
  tt_roi_each_point(&roi, p.points, take_larger, &p, 2, state);
  for (int k = 0; k < 2; k++) tt_roi_out_bins(&roi, k, state[k]);
}

/* grad, rois, argmax, spatial_scale, pooled_height, pooled_width, the image's sizes */
void tt_lower_roi_pool_backward(tt_lower *cx) {
  tt_roi roi;
  tt_hlo *h = cx->h;
  if (!tt_roi_begin(cx, 3, 6, false, 1, &roi)) return;
  int64_t numbers = roi.images * roi.size[0] * roi.size[1] * roi.channels;
  tt_node *at = tt_hlo_transpose(h, tt_cast(cx, tt_in(cx, 2), TT_I32), (const int[]){0, 2, 3, 1});
  tt_node *some = tt_hlo_compare(h, TT_GE, at, tt_hlo_const_i(h, TT_I32, 0));
  at = tt_hlo_add(h, at, tt_roi_each(&roi, roi.first));
  at = tt_hlo_multiply(h, at, tt_hlo_const_i(h, TT_I32, roi.channels));
  at = tt_hlo_add(h, at, tt_hlo_iota(h, &at->type, 3));
  at = tt_hlo_select(h, some, at, tt_hlo_full(h, &at->type, (double)numbers));
  tt_node *table = tt_flatten(cx, tt_roi_no_rows(&roi));
  tt_node *g = tt_flatten(cx, tt_roi_gradient(&roi));
  tt_roi_out_image(&roi, tt_scatter_rows(cx, table, tt_flatten(cx, at), g, TT_ADD));
}

/* -- Position-sensitive -- */

static void add_pixel(const tt_roi *roi, tt_node *const *point, tt_node *inside, tt_node **state,
                      void *user) {
  tt_hlo *h = roi->cx->h;
  const pool *p = user;
  tt_node *value = tt_hlo_take(h, p->rows, index_of(roi, p, point), 0);
  value =
      tt_where_or_zero(roi->cx, tt_roi_each(roi, inside), tt_cast(roi->cx, value, roi->compute));
  state[0] = tt_hlo_add(h, state[0], value);
}

static void add_share(const tt_roi *roi, tt_node *const *point, tt_node *inside, tt_node **state,
                      void *user) {
  const pool *p = user;
  state[0] = tt_roi_add(roi, state[0], index_of(roi, p, point), inside, p->share);
}

/* x by the number of its bin's pixels; 0 where there are none. */
static tt_node *averaged(const tt_roi *roi, const pool *p, tt_node *x) {
  tt_hlo *h = roi->cx->h;
  tt_node *area =
      tt_hlo_multiply(h, tt_roi_spread(roi, p->points[0], 0), tt_roi_spread(roi, p->points[1], 1));
  x = tt_hlo_divide(h, x, tt_roi_each(roi, tt_hlo_convert(h, area, roi->compute)));
  return tt_where_or_zero(roi->cx, tt_roi_each(roi, has_points(roi, p)), x);
}

/* input, rois, spatial_scale, pooled_height, pooled_width */
void tt_lower_ps_roi_pool(tt_lower *cx) {
  tt_roi roi;
  pool p;
  if (!tt_roi_begin(cx, 2, 0, true, 2, &roi)) return;
  bins_of(&roi, 0, 1, &p);
  p.rows = tt_roi_rows(&roi);
  tt_type type = {roi.compute, 4, {roi.count, roi.bins[0], roi.bins[1], roi.channels}};
  tt_node *sum = tt_hlo_zeros(cx->h, &type);
  tt_roi_each_point(&roi, p.points, add_pixel, &p, 1, &sum);
  tt_roi_out_bins(&roi, 0, tt_cast(cx, averaged(&roi, &p, sum), roi.dtype));
  tt_roi_out_mapping(&roi);
}

/* grad, rois, channel_mapping, spatial_scale, pooled_height, pooled_width, the image's sizes.
 * torchvision clips to the whole image here, and leaves out its last row and column above. */
void tt_lower_ps_roi_pool_backward(tt_lower *cx) {
  tt_roi roi;
  pool p;
  if (!tt_roi_begin(cx, 3, 6, true, 1, &roi)) return;
  bins_of(&roi, 0, 0, &p);
  p.share = averaged(&roi, &p, tt_roi_gradient(&roi));
  tt_node *rows = tt_roi_no_rows(&roi);
  tt_roi_each_point(&roi, p.points, add_share, &p, 1, &rows);
  tt_roi_out_image(&roi, rows);
}
