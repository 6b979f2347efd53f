/* Average pooling, adaptive average pooling, and their gradients. */
#include "ops/pool/pool.h"

#define SMALL 8 /* windows up to this size */

void tt_spatial_list(tt_lower *cx, int i, int spatial, int64_t otherwise, int64_t *out) {
  int count = 0;
  const int64_t *list = tt_ints(cx, i, &count);
  for (int d = 0; d < spatial; d++) {
    out[d] = count == 0 ? otherwise : list[count == 1 ? 0 : d < count ? d : count - 1];
  }
}

static int64_t places(const tt_pooling *p, int d, bool ceil_mode) {
  int64_t room = p->in[d] + 2 * p->padding[d] - p->dilation[d] * (p->kernel[d] - 1) - 1;
  if (ceil_mode) room += p->stride[d] - 1;
  int64_t n = (room < 0 ? -((-room + p->stride[d] - 1) / p->stride[d]) : room / p->stride[d]) + 1;
  /* the last window has to start inside the input or its left padding */
  if (ceil_mode && (n - 1) * p->stride[d] >= p->in[d] + p->padding[d]) n--;
  return n;
}

bool tt_pool_read(tt_lower *cx, tt_node *input, int spatial, int first, int dilation, int ceil_mode,
                  tt_pooling *out) {
  tt_pooling p = {.spatial = spatial, .lead = input->type.rank - spatial};
  if (!tt_pool_fits(cx, input, spatial)) return false;
  tt_spatial_list(cx, first, spatial, 1, p.kernel);
  int count = 0;
  tt_ints(cx, first + 1, &count);
  tt_spatial_list(cx, count ? first + 1 : first, spatial, 1, p.stride);
  tt_spatial_list(cx, first + 2, spatial, 0, p.padding);
  for (int d = 0; d < spatial; d++) p.dilation[d] = 1;
  if (dilation) tt_spatial_list(cx, dilation, spatial, 1, p.dilation);
  for (int d = 0; d < spatial; d++) {
    p.in[d] = input->type.dims[p.lead + d];
    if (p.kernel[d] < 1 || p.stride[d] < 1 || p.dilation[d] < 1 || p.padding[d] < 0) {
      tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "pooling: kernel and stride must be positive");
      return false;
    }
    p.out[d] = places(&p, d, tt_bool(cx, ceil_mode));
    if (p.out[d] < 1) {
      tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "pooling: an input of size %lld is too small",
                  (long long)p.in[d]);
      return false;
    }
  }
  *out = p;
  return !tt_hlo_failed(cx->h);
}

tt_node *tt_pool_pad(tt_lower *cx, tt_node *x, const tt_pooling *p, int d, tt_node *value) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  int64_t reach = (p->out[d] - 1) * p->stride[d] + (p->kernel[d] - 1) * p->dilation[d] + 1;
  low[p->lead + d] = p->padding[d];
  high[p->lead + d] = reach - p->in[d] - p->padding[d];
  if (!low[p->lead + d] && !high[p->lead + d]) return x;
  return tt_hlo_pad(cx->h, x, value, low, high, NULL);
}

tt_windows tt_pool_windows(const tt_pooling *p, int d) {
  return (tt_windows){.in = p->in[d],
                      .out = p->out[d],
                      .size = p->kernel[d],
                      .stride = p->stride[d],
                      .padding = p->padding[d],
                      .dilation = p->dilation[d]};
}

/* -- Average pooling -- */

/* self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override; `first` is
 * the position of kernel_size. Divides x, whose spatial dims are the windows, by their sizes. */
static tt_node *divide_by_size(tt_lower *cx, tt_node *x, const tt_pooling *p, int first) {
  if (tt_has(cx, first + 5)) {
    int64_t divisor = tt_int(cx, first + 5);
    if (divisor == 0) return tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "divisor must be not zero");
    return tt_quotient(cx, x, tt_like(cx, x, (double)divisor));
  }
  bool padded = tt_bool(cx, first + 4);
  double common = 1;
  for (int d = 0; d < p->spatial; d++) {
    int64_t *sizes = tt_scratch(cx, p->out[d]);
    if (tt_hlo_failed(cx->h)) return x;
    bool same = true;
    for (int64_t o = 0; o < p->out[d]; o++) {
      int64_t start = o * p->stride[d] - p->padding[d], stop = start + p->kernel[d];
      int64_t limit = p->in[d] + (padded ? p->padding[d] : 0);
      if (stop > limit) stop = limit;
      if (!padded && start < 0) start = 0;
      sizes[o] = stop > start ? stop - start : 1;
      same &= sizes[o] == sizes[0];
    }
    if (same) {
      common *= (double)sizes[0];
      continue;
    }
    tt_node *size = tt_hlo_const_i64s(cx->h, TT_I32, sizes, p->out[d]);
    size = tt_cast(cx, size, x->type.dtype);
    x = tt_quotient(cx, x, tt_along(cx, size, p->lead + d, &x->type));
  }
  return common == 1 ? x : tt_quotient(cx, x, tt_like(cx, x, common));
}

/* Small windows are sums of a few slices, which compile to one loop. */
static tt_node *window_sums(tt_lower *cx, tt_node *x, const tt_pooling *p, int d) {
  int64_t size[TT_MAX_RANK], stride[TT_MAX_RANK];
  if (p->kernel[d] <= SMALL) {
    tt_windows windows = tt_pool_windows(p, d);
    tt_map map = tt_map_windows(cx, &windows);
    return tt_map_apply(cx, x, p->lead + d, &map);
  }
  for (int i = 0; i < x->type.rank; i++) size[i] = stride[i] = 1;
  size[p->lead + d] = p->kernel[d];
  stride[p->lead + d] = p->stride[d];
  tt_window window = {.size = size, .stride = stride};
  x = tt_pool_pad(cx, x, p, d, tt_like(cx, x, 0));
  return tt_hlo_reduce_window(cx->h, TT_SUM, x, &window);
}

/* self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override;
 * param: spatial dims */
void tt_lower_avg_pool(tt_lower *cx) {
  tt_pooling p;
  tt_node *input = tt_in(cx, 0), *x = tt_cast(cx, input, tt_compute_dtype(input->type.dtype));
  if (!tt_pool_read(cx, input, cx->row->param, 1, 0, 4, &p)) return;
  for (int d = p.spatial - 1; d >= 0; d--) x = window_sums(cx, x, &p, d);
  tt_out_as(cx, 0, tt_cast(cx, divide_by_size(cx, x, &p, 1), input->type.dtype));
}

/* grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad,
 * divisor_override; param: spatial dims */
void tt_lower_avg_pool_backward(tt_lower *cx) {
  tt_pooling p;
  tt_node *grad = tt_in(cx, 0), *input = tt_in(cx, 1);
  if (!tt_pool_read(cx, input, cx->row->param, 2, 0, 5, &p)) return;
  tt_node *g = tt_cast(cx, grad, tt_compute_dtype(grad->type.dtype));
  g = divide_by_size(cx, g, &p, 2);
  for (int d = 0; d < p.spatial; d++) {
    tt_windows windows = tt_pool_windows(&p, d);
    tt_map map = tt_map_window_grads(cx, &windows);
    g = tt_map_apply(cx, g, p.lead + d, &map);
  }
  tt_out_as(cx, 0, tt_cast(cx, g, input->type.dtype));
}

/* -- Adaptive average pooling -- */

/* All windows have one size: the mean over blocks. */
static tt_node *block_mean(tt_lower *cx, tt_node *x, int lead, int spatial, const int64_t *out) {
  int dims[TT_MAX_POOL];
  for (int d = spatial - 1; d >= 0; d--) {
    x = tt_split_dim(cx, x, lead + d, out[d], x->type.dims[lead + d] / out[d]);
    dims[d] = lead + 2 * d + 1;
  }
  return tt_mean(cx, x, dims, spatial);
}

/* self, output_size; param: spatial dims */
void tt_lower_adaptive_avg_pool(tt_lower *cx) {
  int spatial = cx->row->param;
  tt_node *input = tt_in(cx, 0), *x = tt_cast(cx, input, tt_compute_dtype(input->type.dtype));
  int lead = input->type.rank - spatial;
  int64_t out[TT_MAX_POOL];
  if (!tt_pool_fits(cx, input, spatial)) return;
  tt_spatial_list(cx, 1, spatial, 1, out);
  bool even = true, empty = false;
  for (int d = 0; d < spatial; d++) {
    empty |= out[d] == 0;
    even &= !empty && input->type.dims[lead + d] % out[d] == 0;
  }
  if (even) {
    x = block_mean(cx, x, lead, spatial, out);
  } else {
    for (int d = 0; d < spatial; d++) {
      tt_map map = tt_map_adaptive(cx, input->type.dims[lead + d], out[d], true);
      x = tt_map_apply(cx, x, lead + d, &map);
    }
  }
  tt_out_as(cx, 0, tt_cast(cx, x, input->type.dtype));
}

/* grad_output, self; param: spatial dims */
void tt_lower_adaptive_avg_pool_backward(tt_lower *cx) {
  int spatial = cx->row->param;
  tt_node *grad = tt_in(cx, 0), *input = tt_in(cx, 1);
  int lead = input->type.rank - spatial;
  if (!tt_pool_fits(cx, input, spatial)) return;
  tt_node *g = tt_cast(cx, grad, tt_compute_dtype(grad->type.dtype));
  for (int d = 0; d < spatial; d++) {
    int64_t in = input->type.dims[lead + d], out = grad->type.dims[lead + d];
    if (out == 1 && in > 0) {
      tt_type wide = g->type;
      wide.dims[lead + d] = in;
      g = tt_quotient(cx, g, tt_like(cx, g, (double)in));
      g = tt_hlo_broadcast_to(cx->h, g, wide.rank, wide.dims);
      continue;
    }
    tt_map map = tt_map_adaptive(cx, in, out, true);
    tt_map_transpose(&map);
    g = tt_map_apply(cx, g, lead + d, &map);
  }
  tt_out_as(cx, 0, tt_cast(cx, g, input->type.dtype));
}
