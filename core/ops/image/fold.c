/* Unfolding of sliding blocks (im2col) and its adjoint (col2im), one spatial dim after the other.
 */
#include "ops/image/taps.h"

typedef struct blocks {
  int64_t kernel[2], dilation[2], padding[2], stride[2], in[2], out[2];
} blocks;

static void read_pair(tt_lower *cx, int i, int64_t *pair) {
  int count = 0;
  const int64_t *list = tt_ints(cx, i, &count);
  pair[0] = count > 0 ? list[0] : 1;
  pair[1] = count > 1 ? list[1] : pair[0];
}

/* kernel_size, dilation, padding, stride, from argument `first` on */
static blocks blocks_of(tt_lower *cx, int first, const int64_t *in) {
  blocks b = {0};
  read_pair(cx, first, b.kernel);
  read_pair(cx, first + 1, b.dilation);
  read_pair(cx, first + 2, b.padding);
  read_pair(cx, first + 3, b.stride);
  for (int d = 0; d < 2; d++) {
    b.in[d] = in[d];
    if (b.kernel[d] < 1 || b.dilation[d] < 1 || b.stride[d] < 1 || b.padding[d] < 0) {
      tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                  "unfold: kernel, dilation and stride must be positive");
      return b;
    }
    b.out[d] = (in[d] + 2 * b.padding[d] - b.dilation[d] * (b.kernel[d] - 1) - 1) / b.stride[d] + 1;
    if (b.out[d] < 0) b.out[d] = 0;
  }
  return b;
}

/* The map from positions of dim d to (kernel offset, block). */
static tt_map block_map(tt_lower *cx, const blocks *b, int d) {
  tt_map map = tt_map_make(cx, b->in[d], b->kernel[d] * b->out[d], b->kernel[d] * b->out[d]);
  for (int64_t j = 0; map.capacity && j < b->kernel[d]; j++) {
    for (int64_t o = 0; o < b->out[d]; o++) {
      tt_map_add(&map, o * b->stride[d] - b->padding[d] + j * b->dilation[d], j * b->out[d] + o,
                 TT_ANY_TAP, 1);
    }
  }
  return map;
}

/* self [n, c, h, w] or [c, h, w], kernel_size, dilation, padding, stride */
void tt_lower_im2col(tt_lower *cx) {
  tt_node *input = tt_in(cx, 0);
  bool batched = input->type.rank == 4;
  tt_node *x = batched ? input : tt_unsqueeze(cx, input, 0);
  blocks b = blocks_of(cx, 1, x->type.dims + 2);
  if (tt_hlo_failed(cx->h)) return;
  for (int d = 0; d < 2; d++) {
    tt_map map = block_map(cx, &b, d);
    x = tt_map_apply(cx, x, 2 + d, &map);
  }
  x = tt_split_dim(cx, x, 3, b.kernel[1], b.out[1]);
  x = tt_split_dim(cx, x, 2, b.kernel[0], b.out[0]); /* n, c, kh, oh, kw, ow */
  x = tt_hlo_transpose(cx->h, x, (const int[]){0, 1, 2, 4, 3, 5});
  int64_t dims[] = {x->type.dims[0], x->type.dims[1] * b.kernel[0] * b.kernel[1],
                    b.out[0] * b.out[1]};
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, x, batched ? 3 : 2, batched ? dims : dims + 1));
}

/* self [n, c * kh * kw, blocks] or without n, output_size, kernel_size, dilation, padding, stride
 */
void tt_lower_col2im(tt_lower *cx) {
  tt_node *input = tt_in(cx, 0);
  bool batched = input->type.rank == 3;
  tt_node *x = batched ? input : tt_unsqueeze(cx, input, 0);
  int64_t size[2];
  read_pair(cx, 1, size);
  blocks b = blocks_of(cx, 2, size);
  if (tt_hlo_failed(cx->h)) return;
  int64_t n = x->type.dims[0], area = b.kernel[0] * b.kernel[1], c = x->type.dims[1] / area;
  x = tt_cast(cx, x, tt_compute_dtype(x->type.dtype));
  x = tt_hlo_reshape(cx->h, x, 6, (int64_t[]){n, c, b.kernel[0], b.kernel[1], b.out[0], b.out[1]});
  x = tt_hlo_transpose(cx->h, x, (const int[]){0, 1, 2, 4, 3, 5});
  x = tt_merge_dim(cx, tt_merge_dim(cx, x, 4), 2);
  for (int d = 1; d >= 0; d--) {
    tt_map map = block_map(cx, &b, d);
    tt_map_transpose(&map);
    x = tt_map_apply(cx, x, 2 + d, &map);
  }
  x = tt_cast(cx, x, input->type.dtype);
  tt_out_as(cx, 0, batched ? x : tt_merge_dim(cx, x, 0));
}
