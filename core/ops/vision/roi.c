#include "ops/vision/roi.h"

#include "ops/index/index.h"
#include "ops/pointwise/pointwise.h"

enum { MAX_STATE = 2 };

/* -- What is given -- */

static bool fits(const tt_roi *roi, const tt_type *x, const tt_type *boxes, const char *name) {
  tt_hlo *h = roi->cx->h;
  if (x->rank != 4 || boxes->rank != 2 || boxes->dims[1] != 5)
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "expected %s of 4 dims, and rois of shape [K, 5]", name);
  else if (x->dtype != boxes->dtype)
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "expected rois of dtype %s as %s, got %s",
                tt_dtype_name(x->dtype), name, tt_dtype_name(boxes->dtype));
  else if (x->dtype != TT_F16 && x->dtype != TT_F32 && x->dtype != TT_F64)
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "\"%s\" not implemented for %s; convert to float32",
                roi->cx->row->name, tt_dtype_name(x->dtype));
  return !tt_hlo_failed(h);
}

/* The boxes' numbers, and where their images begin. */
static void read_boxes(tt_roi *roi, tt_node *boxes, tt_node *scale) {
  tt_hlo *h = roi->cx->h;
  static const int column[2][2] = {{2, 4}, {1, 3}}; /* of image, x1, y1, x2, y2 */
  boxes = tt_cast(roi->cx, boxes, roi->compute);
  for (int axis = 0; axis < 2; axis++)
    for (int end = 0; end < 2; end++) {
      int at = column[axis][end];
      tt_node *edge = tt_hlo_slice_dim(h, boxes, 1, at, at + 1, 1);
      edge = tt_hlo_reshape(h, edge, 1, &roi->count);
      roi->edge[axis][end] = tt_roi_rounded(roi, tt_hlo_multiply(h, edge, scale));
    }
  tt_node *image = tt_hlo_slice_dim(h, boxes, 1, 0, 1, 1);
  image = tt_hlo_convert(h, tt_hlo_reshape(h, image, 1, &roi->count), TT_I32);
  tt_check_index(roi->cx, image, roi->images, false, TT_OUT_OF_RANGE, "rois");
  int64_t plane = roi->size[0] * roi->size[1];
  tt_type all = {TT_I32, 3, {roi->count, roi->bins[0], roi->bins[1]}};
  image = tt_hlo_broadcast(h, image, (const int[]){0}, 3, all.dims);
  roi->first = tt_hlo_multiply(h, image, tt_hlo_const_i(h, TT_I32, roi->sections * plane));
  if (roi->sections == 1) return;
  tt_node *row = tt_hlo_iota(h, &all, 1), *bin = tt_hlo_iota(h, &all, 2);
  bin = tt_hlo_add(h, bin, tt_hlo_multiply(h, row, tt_hlo_const_i(h, TT_I32, roi->bins[1])));
  bin = tt_hlo_multiply(h, bin, tt_hlo_const_i(h, TT_I32, plane));
  roi->first = tt_hlo_add(h, roi->first, bin);
}

static void out_zeros(const tt_roi *roi, int sizes, int results) {
  tt_type type = {roi->dtype, 4, {roi->count, roi->channels, roi->bins[0], roi->bins[1]}};
  if (sizes)
    type = (tt_type){
        roi->dtype, 4, {roi->images, roi->channels * roi->sections, roi->size[0], roi->size[1]}};
  for (int k = 0; k < results; k++) {
    if (k) type.dtype = TT_I32;
    tt_out_as(roi->cx, k, tt_hlo_zeros(roi->cx->h, &type));
  }
}

bool tt_roi_begin(tt_lower *cx, int scale, int sizes, bool sections, int results, tt_roi *roi) {
  tt_node *x = tt_in(cx, 0), *boxes = tt_in(cx, 1);
  *roi = (tt_roi){.cx = cx, .dtype = x->type.dtype, .compute = tt_compute_dtype(x->type.dtype)};
  if (!fits(roi, &x->type, &boxes->type, sizes ? "grad" : "input")) return false;
  int64_t image[4];
  for (int i = 0; i < 4; i++) image[i] = sizes ? tt_int(cx, sizes + i) : x->type.dims[i];
  for (int axis = 0; axis < 2; axis++) {
    roi->bins[axis] = tt_int(cx, scale + 1 + axis);
    roi->size[axis] = image[2 + axis];
  }
  roi->count = boxes->type.dims[0];
  roi->images = image[0];
  roi->sections = sections ? roi->bins[0] * roi->bins[1] : 1;
  if (roi->bins[0] < 0 || roi->bins[1] < 0 || (sections && !roi->sections) ||
      image[1] % roi->sections) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                "input channels must be a multiple of pooling height * pooling width");
    return false;
  }
  roi->channels = image[1] / roi->sections;
  int64_t pixels = image[0] * image[1] * image[2] * image[3];
  if (pixels > INT32_MAX) {
    tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "images of more than 2^31 - 1 numbers");
    return false;
  }
  if (!pixels || !roi->count || !roi->bins[0] || !roi->bins[1]) {
    out_zeros(roi, sizes, results);
    return false;
  }
  read_boxes(roi, boxes, tt_num(cx, scale, roi->compute));
  return !tt_hlo_failed(cx->h);
}

/* -- Images as rows of channels, bins with channels last -- */

tt_node *tt_roi_rows(const tt_roi *roi) {
  tt_hlo *h = roi->cx->h;
  int64_t n = roi->images, s = roi->sections, c = roi->channels;
  tt_node *x = tt_in(roi->cx, 0);
  x = tt_hlo_reshape(h, x, 5, (int64_t[]){n, c, s, roi->size[0], roi->size[1]});
  x = tt_hlo_transpose(h, x, (const int[]){0, 2, 3, 4, 1});
  return tt_hlo_reshape(h, x, 2, (int64_t[]){n * s * roi->size[0] * roi->size[1], c});
}

tt_node *tt_roi_no_rows(const tt_roi *roi) {
  int64_t rows = roi->images * roi->sections * roi->size[0] * roi->size[1];
  return tt_hlo_zeros(roi->cx->h, &(tt_type){roi->compute, 2, {rows, roi->channels}});
}

void tt_roi_out_image(const tt_roi *roi, tt_node *rows) {
  tt_hlo *h = roi->cx->h;
  int64_t n = roi->images, s = roi->sections, c = roi->channels, *size = (int64_t *)roi->size;
  rows = tt_hlo_reshape(h, rows, 5, (int64_t[]){n, s, size[0], size[1], c});
  rows = tt_hlo_transpose(h, rows, (const int[]){0, 4, 1, 2, 3});
  rows = tt_hlo_reshape(h, rows, 4, (int64_t[]){n, c * s, size[0], size[1]});
  tt_out_as(roi->cx, 0, tt_cast(roi->cx, rows, roi->dtype));
}

tt_node *tt_roi_gradient(const tt_roi *roi) {
  tt_node *g = tt_hlo_transpose(roi->cx->h, tt_in(roi->cx, 0), (const int[]){0, 2, 3, 1});
  return tt_cast(roi->cx, g, roi->compute);
}

void tt_roi_out_bins(const tt_roi *roi, int k, tt_node *x) {
  tt_out_as(roi->cx, k, tt_hlo_transpose(roi->cx->h, x, (const int[]){0, 3, 1, 2}));
}

void tt_roi_out_mapping(const tt_roi *roi) {
  tt_hlo *h = roi->cx->h;
  int64_t dims[4] = {roi->count, roi->channels, roi->bins[0], roi->bins[1]};
  tt_type flat = {TT_I32, 1, {roi->channels * roi->bins[0] * roi->bins[1]}};
  tt_node *x = tt_hlo_reshape(h, tt_hlo_iota(h, &flat, 0), 3, dims + 1);
  tt_out_as(roi->cx, 1, tt_hlo_broadcast(h, x, (const int[]){1, 2, 3}, 4, dims));
}

/* -- Numbers for boxes and bins -- */

tt_node *tt_roi_rounded(const tt_roi *roi, tt_node *x) {
  return roi->dtype == roi->compute ? tt_product_apart(roi->cx, x)
                                    : tt_rounded(roi->cx, x, roi->dtype);
}

tt_node *tt_roi_along(const tt_roi *roi, tt_node *x, int axis) {
  return tt_hlo_broadcast(roi->cx->h, x, (const int[]){0}, 2,
                          (int64_t[]){roi->count, roi->bins[axis]});
}

tt_node *tt_roi_bin(const tt_roi *roi, int axis, tt_dtype dtype) {
  return tt_hlo_iota(roi->cx->h, &(tt_type){dtype, 2, {roi->count, roi->bins[axis]}}, 1);
}

tt_node *tt_roi_spread(const tt_roi *roi, tt_node *x, int axis) {
  return tt_hlo_broadcast(roi->cx->h, x, (const int[]){0, 1 + axis}, 3,
                          (int64_t[]){roi->count, roi->bins[0], roi->bins[1]});
}

tt_node *tt_roi_each(const tt_roi *roi, tt_node *x) {
  return tt_hlo_broadcast(roi->cx->h, x, (const int[]){0, 1, 2}, 4,
                          (int64_t[]){roi->count, roi->bins[0], roi->bins[1], roi->channels});
}

tt_node *tt_roi_at(const tt_roi *roi, tt_node *y, tt_node *x) {
  tt_hlo *h = roi->cx->h;
  y = tt_hlo_multiply(h, y, tt_hlo_const_i(h, TT_I32, roi->size[1]));
  tt_node *at = tt_hlo_add(h, tt_roi_spread(roi, y, 0), tt_roi_spread(roi, x, 1));
  return tt_hlo_add(h, roi->first, at);
}

/* -- The loop -- */

typedef struct loop {
  const tt_roi *roi;
  tt_node *points[2], *width, *end; /* along y and x; the most along x; of the loop */
  tt_roi_step step;
  void *user;
  int n;
} loop;

static void more_points(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  results[0] = tt_hlo_compare(h, TT_LT, args[0], ((const loop *)user)->end);
}

static void next_point(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const loop *l = user;
  tt_node *y = tt_hlo_divide(h, args[0], l->width);
  tt_node *point[2] = {y, tt_hlo_subtract(h, args[0], tt_hlo_multiply(h, y, l->width))};
  tt_node *has[2];
  for (int axis = 0; axis < 2; axis++) {
    has[axis] = tt_hlo_compare(h, TT_LT, point[axis], l->points[axis]);
    has[axis] = tt_roi_spread(l->roi, has[axis], axis);
  }
  for (int i = 0; i < l->n; i++) results[1 + i] = args[1 + i];
  l->step(l->roi, point, tt_hlo_and(h, has[0], has[1]), results + 1, l->user);
  results[0] = tt_hlo_add(h, args[0], tt_hlo_const_i(h, TT_I32, 1));
}

void tt_roi_each_point(const tt_roi *roi, tt_node *const *points, tt_roi_step step, void *user,
                       int n, tt_node **state) {
  tt_hlo *h = roi->cx->h;
  loop l = {roi, {points[0], points[1]}, NULL, NULL, step, user, n};
  tt_node *one = tt_hlo_const_i(h, TT_I32, 1);
  l.width = tt_hlo_maximum(h, tt_hlo_reduce_all(h, TT_MAX, points[1]), one);
  l.end = tt_hlo_multiply(h, tt_hlo_reduce_all(h, TT_MAX, points[0]), l.width);
  tt_node *inits[1 + MAX_STATE] = {tt_hlo_const_i(h, TT_I32, 0)}, *results[1 + MAX_STATE];
  for (int i = 0; i < n; i++) inits[1 + i] = state[i];
  tt_hlo_while(h, 1 + n, inits, more_points, next_point, &l, results);
  for (int i = 0; i < n; i++) state[i] = results[1 + i];
}

tt_node *tt_roi_add(const tt_roi *roi, tt_node *rows, tt_node *index, tt_node *inside,
                    tt_node *updates) {
  tt_hlo *h = roi->cx->h;
  tt_node *nowhere = tt_hlo_full(h, &index->type, (double)rows->type.dims[0]);
  index = tt_flatten(roi->cx, tt_hlo_select(h, inside, index, nowhere));
  updates = tt_hlo_reshape(h, updates, 2, (int64_t[]){index->type.dims[0], roi->channels});
  return tt_scatter_rows(roi->cx, rows, index, updates, TT_ADD);
}
