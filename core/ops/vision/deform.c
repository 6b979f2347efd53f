/* Deformable convolution: each tap of the kernel reads the image at an offset of its own,
 * interpolated linearly; what it reads may be weighted by a mask. */
#include "ops/image/sampler.h"
#include "ops/pointwise/pointwise.h"

/* Where the arguments are. */
enum { WEIGHT = 1, OFFSET, MASK, BIAS, STRIDE, PAD = 7, DILATION = 9, GROUPS = 11, OFFSET_GROUPS };
enum { USE_MASK = 13, RESULTS = 5 };

typedef struct deform {
  tt_lower *cx;
  tt_sampler s; /* n: images times offset groups; points: taps times result's pixels */
  int64_t images, channels, out_channels, groups, taps, pixels, kernel[2], out[2];
  tt_node *weight;         /* [groups, out_channels / groups, channels / groups * taps] */
  tt_node *mask, *sampled; /* [n, channels of a group, points]; no mask: NULL */
  tt_node *columns;        /* what is multiplied by the weight, as by_group has it */
} deform;

static int64_t product(const int64_t *dims) { return dims[0] * dims[1]; }

/* Sizes; whether the operands fit each other. */
static bool measure(deform *f, int first) {
  tt_lower *cx = f->cx;
  const tt_type *x = &tt_in(cx, first)->type, *w = &tt_in(cx, first + WEIGHT)->type,
                *offset = &tt_in(cx, first + OFFSET)->type, *mask = &tt_in(cx, first + MASK)->type;
  int64_t groups = tt_int(cx, first + GROUPS), parts = tt_int(cx, first + OFFSET_GROUPS);
  bool masked = tt_bool(cx, first + USE_MASK);
  bool fits = x->rank == 4 && w->rank == 4 && offset->rank == 4 && groups > 0 && parts > 0 &&
              w->dims[1] * groups == x->dims[1] && w->dims[0] % groups == 0 &&
              x->dims[1] % parts == 0 && offset->dims[0] == x->dims[0] &&
              offset->dtype == x->dtype && w->dtype == x->dtype;
  f->taps = fits ? product(w->dims + 2) : 0;
  fits = fits && f->taps > 0 && offset->dims[1] == parts * 2 * f->taps &&
         (!masked || (mask->rank == 4 && mask->dims[0] == x->dims[0] &&
                      mask->dims[1] == parts * f->taps && mask->dims[2] == offset->dims[2] &&
                      mask->dims[3] == offset->dims[3] && mask->dtype == x->dtype));
  for (int d = 0; fits && d < 2; d++) {
    int64_t stride = tt_int(cx, first + STRIDE + d), pad = tt_int(cx, first + PAD + d),
            dilation = tt_int(cx, first + DILATION + d);
    f->kernel[d] = w->dims[2 + d];
    f->s.size[d] = x->dims[2 + d];
    int64_t room = f->s.size[d] + 2 * pad - (dilation * (f->kernel[d] - 1) + 1);
    f->out[d] = offset->dims[2 + d];
    fits = stride > 0 && pad >= 0 && dilation > 0 && room >= 0 && f->out[d] == room / stride + 1;
  }
  if (!fits) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                "input, weight, offset and mask do not fit each other; expected an offset of shape "
                "[N, 2 * offset groups * kernel, height and width of the result]");
    return false;
  }
  f->images = x->dims[0];
  f->channels = x->dims[1];
  f->out_channels = w->dims[0];
  f->groups = groups;
  f->pixels = product(f->out);
  f->s.dims = f->s.taps = 2;
  f->s.n = f->images * parts;
  f->s.channels = f->channels / parts;
  f->s.points = f->taps * f->pixels;
  f->s.plane = product(f->s.size);
  f->s.dtype = tt_compute_dtype(x->dtype);
  return true;
}

/* Dim d's coordinates of all points, [n, points]. */
static tt_node *coordinates(deform *f, int first, int d, tt_node *offsets) {
  tt_lower *cx = f->cx;
  tt_hlo *h = cx->h;
  tt_type all = {f->s.dtype, 5, {f->s.n, f->kernel[0], f->kernel[1], f->out[0], f->out[1]}};
  double stride = (double)tt_int(cx, first + STRIDE + d), pad = (double)tt_int(cx, first + PAD + d),
         dilation = (double)tt_int(cx, first + DILATION + d);
  tt_node *pixel = tt_plus(cx, tt_times(cx, tt_hlo_iota(h, &all, 3 + d), stride), -pad);
  tt_node *at = tt_hlo_add(h, pixel, tt_times(cx, tt_hlo_iota(h, &all, 1 + d), dilation));
  offsets = tt_hlo_slice_dim(h, offsets, 2, d, d + 1, 1);
  at = tt_hlo_add(h, at, tt_hlo_reshape(h, offsets, all.rank, all.dims));
  tt_dtype dtype = tt_in(cx, first)->type.dtype;
  if (dtype != f->s.dtype) at = tt_rounded(cx, at, dtype);
  return tt_hlo_reshape(h, at, 2, (int64_t[]){f->s.n, f->s.points});
}

/* x, as the sampler has it or a result, as [images, groups, channels of a group, pixels]. */
static tt_node *by_group(const deform *f, tt_node *x, int64_t channels) {
  int64_t dims[4] = {f->images, f->groups, channels / f->groups, f->pixels};
  return tt_hlo_reshape(f->cx->h, x, 4, dims);
}

/* Fills what is computed; false when the builder has failed. */
static bool read_points(deform *f, int first) {
  tt_lower *cx = f->cx;
  tt_hlo *h = cx->h;
  tt_sampler *s = &f->s;
  tt_node *x = tt_in_as(cx, first, s->dtype), *offset = tt_in_as(cx, first + OFFSET, s->dtype);
  s->image = tt_hlo_reshape(h, x, 3, (int64_t[]){s->n, s->channels, s->plane});
  offset = tt_hlo_reshape(h, offset, 4, (int64_t[]){s->n, f->taps, 2, f->pixels});
  for (int d = 0; d < 2; d++) {
    tt_node *at = coordinates(f, first, d, offset);
    tt_linear_taps(cx, s, d, at, tt_hlo_full(h, &at->type, 1));
  }
  tt_node *columns = f->sampled = tt_sampled(cx, s);
  if (tt_bool(cx, first + USE_MASK)) {
    tt_node *mask = tt_in_as(cx, first + MASK, s->dtype);
    mask = tt_hlo_reshape(h, mask, 2, (int64_t[]){s->n, s->points});
    f->mask = tt_sampler_spread(cx, s, mask);
    columns = tt_hlo_multiply(h, columns, f->mask);
  }
  f->columns = by_group(f, columns, f->channels * f->taps);
  int64_t dims[3] = {f->groups, f->out_channels / f->groups, f->channels / f->groups * f->taps};
  f->weight = tt_hlo_reshape(h, tt_in_as(cx, first + WEIGHT, s->dtype), 3, dims);
  return !tt_hlo_failed(h);
}

/* The weight's dim `contract` times x's channels, as by_group has it. */
static tt_node *weighted(const deform *f, int contract, tt_node *x) {
  const int zero = 0, one = 1, two = 2;
  x = tt_hlo_dot_general(f->cx->h, f->weight, x, &zero, &one, 1, &contract, &two, 1, f->s.dtype);
  return tt_hlo_transpose(f->cx->h, x, (const int[]){2, 0, 1, 3});
}

/* input, weight, offset, mask, bias, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w,
 * groups, offset_groups, use_mask */
void tt_lower_deform_conv2d(tt_lower *cx) {
  deform f = {.cx = cx};
  if (!measure(&f, 0)) return;
  tt_type type = {tt_in(cx, 0)->type.dtype, 4, {0, f.out_channels, f.out[0], f.out[1]}};
  if (!f.images) tt_out_as(cx, 0, tt_hlo_zeros(cx->h, &type));
  if (!f.images || !read_points(&f, 0)) return;
  tt_node *y = weighted(&f, 2, f.columns), *bias = tt_in_as(cx, BIAS, f.s.dtype);
  y = tt_hlo_reshape(cx->h, y, 4, (int64_t[]){f.images, f.out_channels, f.out[0], f.out[1]});
  y = tt_hlo_add(cx->h, y, tt_along(cx, bias, 1, &y->type));
  tt_out_as(cx, 0, tt_cast(cx, y, tt_in(cx, 0)->type.dtype));
}

/* Result k, a gradient, in the shape and dtype of the argument after it. */
static void out_like(tt_lower *cx, int k, tt_node *x) {
  const tt_type *type = &tt_in(cx, 1 + k)->type;
  x = tt_cast(cx, x, type->dtype);
  tt_out_as(cx, k, tt_hlo_reshape(cx->h, x, type->rank, type->dims));
}

/* grad, and the arguments of the convolution */
void tt_lower_deform_conv2d_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  deform f = {.cx = cx};
  if (!measure(&f, 1)) return;
  for (int k = 0; !f.images && k < RESULTS; k++)
    tt_out_as(cx, k, tt_hlo_zeros(h, &tt_in(cx, 1 + k)->type));
  if (!f.images || !read_points(&f, 1)) return;
  const tt_sampler *s = &f.s;
  tt_node *g = tt_in_as(cx, 0, s->dtype), *image, *slopes[TT_SAMPLER_DIMS];
  tt_node *bias = tt_sum(cx, g, (const int[]){0, 2, 3}, 3);
  g = by_group(&f, g, f.out_channels);
  const int one = 1, outer[] = {0, 3};
  tt_node *weight = tt_hlo_dot_general(h, g, f.columns, &one, &one, 1, outer, outer, 2, s->dtype);
  tt_node *columns = weighted(&f, 1, g);
  columns = tt_hlo_reshape(h, columns, 3, (int64_t[]){s->n, s->channels, s->points});
  tt_node *mask = tt_hlo_zeros(h, &tt_in(cx, 1 + MASK)->type);
  if (f.mask) {
    mask = tt_sum(cx, tt_hlo_multiply(h, columns, f.sampled), (const int[]){1}, 1);
    columns = tt_hlo_multiply(h, columns, f.mask);
  }
  tt_sampled_backward(cx, s, columns, &image, slopes);
  for (int d = 0; d < 2; d++)
    slopes[d] = tt_hlo_reshape(h, slopes[d], 4, (int64_t[]){s->n, f.taps, 1, f.pixels});
  tt_node *results[] = {image, weight, tt_hlo_concatenate(h, slopes, 2, 2), mask, bias};
  for (int k = 0; k < RESULTS; k++) out_like(cx, k, results[k]);
}
