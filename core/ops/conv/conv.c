/* Convolution and its gradients. What the host's library does not compute (host.c) is one of three
 * programs: the convolution itself, its gradient with respect to the input (also the forward pass
 * of a transposed convolution), and its gradient with respect to the weight. Each pads so that its
 * result has the size asked for. */
#include "ops/conv/host.h"
#include "ops/conv/integers.h"

static void read_list(tt_lower *cx, int i, int spatial, int64_t *out) {
  int count = 0;
  const int64_t *list = tt_ints(cx, i, &count);
  for (int d = 0; d < spatial; d++) {
    out[d] = count == 0 ? 0 : list[count == 1 ? 0 : d < count ? d : count - 1];
  }
}

/* stride, padding, dilation, transposed, output_padding, groups, from argument `first` on */
static tt_geometry geometry_of(tt_lower *cx, int first, tt_node *input) {
  tt_geometry g = {.spatial = input->type.rank - 2};
  if (g.spatial < 1 || g.spatial > TT_MAX_SPATIAL) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "convolution: the input needs 3 to %d dims, got %d",
                TT_MAX_SPATIAL + 2, input->type.rank);
    g.spatial = 0;
  }
  read_list(cx, first, g.spatial, g.stride);
  read_list(cx, first + 1, g.spatial, g.padding);
  read_list(cx, first + 2, g.spatial, g.dilation);
  g.transposed = tt_bool(cx, first + 3);
  read_list(cx, first + 4, g.spatial, g.output_padding);
  g.groups = tt_int(cx, first + 5);
  for (int d = 0; d < g.spatial; d++) {
    if (g.stride[d] < 1 || g.dilation[d] < 1 || g.groups < 1) {
      tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                  "convolution: stride, dilation and groups must be positive");
    }
  }
  return g;
}

/* Padding before and after dim d so that windows of `reach` at `step` start at -low and fill
 * `out` places. */
static void pad_for(int64_t *pair, int64_t low, int64_t in, int64_t reach, int64_t step,
                    int64_t out) {
  pair[0] = low;
  pair[1] = (out - 1) * step + reach - in - low;
}

/* Cuts negative padding off, which plugins handle worse than a slice. */
static tt_node *crop(tt_lower *cx, tt_node *x, int first, int spatial, int64_t *padding) {
  for (int d = 0; d < spatial; d++) {
    int64_t size = x->type.dims[first + d], *pair = padding + (size_t)(2 * d);
    int64_t start = pair[0] < 0 ? -pair[0] : 0, stop = size + (pair[1] < 0 ? pair[1] : 0);
    if (start >= stop) continue;
    if (start > 0 || stop < size) x = tt_hlo_slice_dim(cx->h, x, first + d, start, stop, 1);
    if (pair[0] < 0) pair[0] = 0;
    if (pair[1] < 0) pair[1] = 0;
  }
  return x;
}

/* -- By XLA, which leaves those of integers to libraries that have none, but on CPUs -- */

static tt_node *convolution(tt_lower *cx, tt_node *x, tt_node *w, const tt_conv *conv) {
  bool real = tt_is_float(x->type.dtype) || tt_is_complex(x->type.dtype);
  bool empty = tt_type_numel(&x->type) == 0 || tt_type_numel(&w->type) == 0;
  if (real || empty || cx->target->xla_cpu)
    return tt_hlo_convolution(cx->h, x, w, conv, tt_conv_sum_dtype(x));
  return tt_convolve_integers(cx, x, w, conv);
}

/* x [n, c, in..], w [o, c/groups, k..] -> [n, o, out..] */
static tt_node *convolve(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *w,
                         const int64_t *out) {
  int64_t padding[2 * TT_MAX_SPATIAL];
  for (int d = 0; d < g->spatial; d++) {
    int64_t reach = (w->type.dims[2 + d] - 1) * g->dilation[d] + 1;
    pad_for(padding + (size_t)(2 * d), g->padding[d], x->type.dims[2 + d], reach, g->stride[d],
            out[d]);
  }
  x = crop(cx, x, 2, g->spatial, padding);
  tt_conv conv = {.spatial = g->spatial,
                  .stride = g->stride,
                  .rhs_dilation = g->dilation,
                  .padding = padding,
                  .feature_groups = g->groups};
  return convolution(cx, x, w, &conv);
}

/* w [groups * a, b, k..] -> [groups * b, a, k..], turned around in space */
static tt_node *adjoint_kernel(tt_lower *cx, const tt_geometry *g, tt_node *w) {
  int dims[TT_MAX_SPATIAL];
  for (int d = 0; d < g->spatial; d++) dims[d] = 2 + d;
  w = tt_hlo_reverse(cx->h, w, dims, g->spatial);
  int64_t a = w->type.dims[0] / g->groups;
  w = tt_split_dim(cx, w, 0, g->groups, a);
  return tt_merge_dim(cx, tt_move_dim(cx, w, 1, 2), 0);
}

/* y [n, o, out..], w [o, c/groups, k..] -> the gradient [n, c, in..] of convolve's x */
static tt_node *convolve_input_grad(tt_lower *cx, const tt_geometry *g, tt_node *y, tt_node *w,
                                    const int64_t *in) {
  int64_t padding[2 * TT_MAX_SPATIAL];
  for (int d = 0; d < g->spatial; d++) {
    int64_t reach = (w->type.dims[2 + d] - 1) * g->dilation[d] + 1, size = y->type.dims[2 + d];
    pad_for(padding + (size_t)(2 * d), reach - 1 - g->padding[d],
            size > 0 ? (size - 1) * g->stride[d] + 1 : 0, reach, 1, in[d]);
  }
  tt_conv conv = {.spatial = g->spatial,
                  .lhs_dilation = g->stride,
                  .rhs_dilation = g->dilation,
                  .padding = padding,
                  .feature_groups = g->groups};
  return convolution(cx, y, adjoint_kernel(cx, g, w), &conv);
}

/* x [n, c, in..], y [n, o, out..] -> the gradient [o, c/groups, k..] of convolve's w. The batch
 * becomes the feature dim; groups become feature groups by folding them into it. */
static tt_node *convolve_weight_grad(tt_lower *cx, const tt_geometry *g, tt_node *x, tt_node *y,
                                     const tt_type *w) {
  const int64_t *k = w->dims + 2;
  int64_t padding[2 * TT_MAX_SPATIAL];
  int dims[2 + TT_MAX_SPATIAL] = {1, 0};
  for (int d = 0; d < g->spatial; d++) {
    dims[2 + d] = 2 + d;
    int64_t reach = (y->type.dims[2 + d] - 1) * g->stride[d] + 1;
    pad_for(padding + (size_t)(2 * d), g->padding[d], x->type.dims[2 + d], reach, g->dilation[d],
            k[d]);
  }
  x = crop(cx, x, 2, g->spatial, padding);
  if (g->groups > 1) {
    x = tt_split_dim(cx, x, 1, g->groups, x->type.dims[1] / g->groups);
    x = tt_merge_dim(cx, tt_move_dim(cx, x, 1, 0), 0);
  }
  tt_conv conv = {.spatial = g->spatial,
                  .stride = g->dilation,
                  .rhs_dilation = g->stride,
                  .padding = padding,
                  .feature_groups = g->groups,
                  .input = dims,
                  .kernel = dims,
                  .output = dims};
  return tt_hlo_convolution(cx->h, x, y, &conv, tt_conv_sum_dtype(x));
}

static bool check_channels(tt_lower *cx, const tt_geometry *g, tt_node *input, tt_node *weight) {
  int64_t given = input->type.dims[1];
  int64_t wanted = g->transposed ? weight->type.dims[0] : weight->type.dims[1] * g->groups;
  if (weight->type.rank == input->type.rank && given == wanted &&
      weight->type.dims[0] % g->groups == 0) {
    return true;
  }
  tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
              "convolution: the weight expects %lld input channels, but the input has %lld",
              (long long)wanted, (long long)given);
  return false;
}

/* input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups */
void tt_lower_convolution(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *w = tt_in(cx, 1), *y;
  tt_geometry g = geometry_of(cx, 3, x);
  if (tt_hlo_failed(cx->h) || !check_channels(cx, &g, x, w)) return;
  w = tt_cast(cx, w, x->type.dtype);
  int64_t out[TT_MAX_SPATIAL];
  for (int d = 0; d < g.spatial; d++) {
    int64_t in = x->type.dims[2 + d], reach = (w->type.dims[2 + d] - 1) * g.dilation[d] + 1;
    int64_t room = in + 2 * g.padding[d] - reach;
    if (!g.transposed && room < 0) {
      tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                  "Calculated padded input size per channel: (%lld). Kernel size: (%lld). Kernel "
                  "size can't be greater than actual input size",
                  (long long)(room + reach), (long long)reach);
      return;
    }
    out[d] = g.transposed ? (in - 1) * g.stride[d] - 2 * g.padding[d] + reach + g.output_padding[d]
                          : room / g.stride[d] + 1;
  }
  tt_node *bias = tt_has(cx, 2) ? tt_in(cx, 2) : NULL;
  if (tt_host_convolves(cx, &g, x, w)) {
    y = tt_host_convolution(cx, &g, x, w, bias, out);
  } else {
    y = g.transposed ? convolve_input_grad(cx, &g, x, w, out) : convolve(cx, &g, x, w, out);
    if (bias) {
      bias = tt_cast(cx, bias, y->type.dtype);
      y = tt_hlo_add(cx->h, y, tt_along(cx, bias, 1, &y->type));
    }
  }
  tt_out_as(cx, 0, tt_cast(cx, y, x->type.dtype));
}

/* grad [n, o, out..] -> [o] */
static tt_node *bias_grad(tt_lower *cx, tt_node *grad) {
  int dims[TT_MAX_RANK], count = 0;
  for (int d = 0; d < grad->type.rank; d++) {
    if (d != 1) dims[count++] = d;
  }
  return tt_sum(cx, tt_cast(cx, grad, tt_conv_sum_dtype(grad)), dims, count);
}

/* grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups,
 * output_mask[3] */
void tt_lower_convolution_backward(tt_lower *cx) {
  tt_node *grad = tt_in_counted(cx, 0), *x = tt_in_counted(cx, 1), *w = tt_in(cx, 2);
  tt_geometry g = geometry_of(cx, 3, x);
  if (tt_hlo_failed(cx->h) || !check_channels(cx, &g, x, w)) return;
  tt_node *input = tt_cast(cx, x, grad->type.dtype), *kernel = tt_cast(cx, w, grad->type.dtype);
  tt_node *out[3] = {NULL};
  bool wanted[3];
  for (int i = 0; i < 3; i++) wanted[i] = tt_flag(cx, 9, i);
  if (tt_host_convolves(cx, &g, grad, kernel)) {
    tt_host_convolution_backward(cx, &g, grad, input, kernel, wanted, out);
  } else {
    const int64_t *in = x->type.dims + 2;
    if (wanted[0])
      out[0] = g.transposed ? convolve(cx, &g, grad, kernel, in)
                            : convolve_input_grad(cx, &g, grad, kernel, in);
    if (wanted[1])
      out[1] = g.transposed ? convolve_weight_grad(cx, &g, grad, input, &w->type)
                            : convolve_weight_grad(cx, &g, input, grad, &w->type);
    if (wanted[2]) out[2] = bias_grad(cx, grad);
  }
  for (int i = 0; i < 3; i++)
    if (out[i]) tt_out_as(cx, i, tt_cast(cx, out[i], i == 0 ? x->type.dtype : w->type.dtype));
}
