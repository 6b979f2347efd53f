/* Max unpooling, and fractional max pooling with its gradient: planes are flattened, and positions
 * in them are gathered or scattered. */
#include "ops/pool/pool.h"

typedef struct planes {
  int lead, spatial;
  int64_t count, area; /* planes, and elements of one */
} planes;

static planes planes_of(const tt_type *type, int spatial) {
  planes p = {.lead = type->rank - spatial, .spatial = spatial, .count = 1, .area = 1};
  for (int d = 0; d < type->rank; d++) *(d < p.lead ? &p.count : &p.area) *= type->dims[d];
  return p;
}

static tt_node *flat_planes(tt_lower *cx, tt_node *x, int spatial) {
  planes p = planes_of(&x->type, spatial);
  return tt_hlo_reshape(cx->h, x, 2, (int64_t[]){p.count, p.area});
}

/* Puts or adds updates [planes, n] at positions [planes, n] of zeros [planes, area]. */
static tt_node *scatter_planes(tt_lower *cx, tt_node *updates, tt_node *index, int64_t area,
                               tt_combiner combiner) {
  static const int zero[] = {0}, one[] = {1};
  tt_type type = updates->type;
  type.dims[1] = area;
  tt_scatter dims = {.inserted_dims = one,
                     .inserted_count = 1,
                     .operand_batch = zero,
                     .index_batch = zero,
                     .batch_count = 1,
                     .scatter_map = one,
                     .scatter_count = 1,
                     .index_vector_dim = 2};
  return tt_hlo_scatter(cx->h, tt_hlo_zeros(cx->h, &type), tt_unsqueeze(cx, index, 2), updates,
                        &dims, combiner);
}

/* self, indices, output_size, ..; param: spatial dims */
void tt_lower_max_unpool(tt_lower *cx) {
  int spatial = cx->row->param;
  tt_node *x = tt_in(cx, 0), *index = tt_in(cx, 1);
  tt_type type = x->type;
  tt_spatial_list(cx, 2, spatial, 1, type.dims + (type.rank - spatial));
  planes out = planes_of(&type, spatial);
  tt_check_index(cx, index, out.area, false, TT_INVALID_ARGUMENT, "max index");
  tt_node *y = scatter_planes(cx, flat_planes(cx, x, spatial), flat_planes(cx, index, spatial),
                              out.area, TT_SET);
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, y, type.rank, type.dims));
}

/* The window starts along dim d: [planes, out], F32 or F64 arithmetic as PyTorch's. */
static tt_node *starts(tt_lower *cx, tt_node *sample, int64_t in, int64_t out, int64_t kernel) {
  tt_hlo *h = cx->h;
  tt_type type = {.dtype = sample->type.dtype, .rank = 2, .dims = {sample->type.dims[0], out}};
  tt_type whole = type;
  whole.dtype = TT_I32;
  tt_node *last = tt_hlo_full(h, &whole, (double)(in - kernel));
  if (out <= 1) return last;
  double alpha = (double)(in - kernel) / (double)(out - 1);
  if (type.dtype == TT_F32) alpha = (double)((float)(in - kernel) / (float)(out - 1));
  tt_node *u = tt_along(cx, sample, 0, &type), *step = tt_hlo_iota(h, &type, 1);
  tt_node *start = tt_cast(cx, tt_times(cx, tt_hlo_add(h, step, u), alpha), TT_I32);
  start = tt_hlo_subtract(h, start, tt_cast(cx, tt_times(cx, u, alpha), TT_I32));
  tt_node *at = tt_hlo_iota(h, &whole, 1);
  tt_node *is_last = tt_hlo_compare(h, TT_EQ, at, tt_hlo_const_i(h, TT_I32, out - 1));
  return tt_hlo_select(h, is_last, last, start);
}

/* One place a plane, of samples that may be for more: a lone image takes the first ones. */
static tt_node *places_of(tt_lower *cx, tt_node *sample, int64_t count, int spatial) {
  sample = tt_hlo_reshape(cx->h, sample, 2,
                          (int64_t[]){tt_type_numel(&sample->type) / spatial, spatial});
  return tt_hlo_slice_dim(cx->h, sample, 0, 0, count, 1);
}

/* self, kernel_size, output_size, random_samples [n, c, spatial]; param: spatial dims */
void tt_lower_fractional_max_pool(tt_lower *cx) {
  tt_hlo *h = cx->h;
  int spatial = cx->row->param, over[TT_MAX_POOL];
  int64_t kernel[TT_MAX_POOL], out[TT_MAX_POOL];
  tt_node *input = tt_in(cx, 0), *sample = tt_in(cx, 3), *flat = NULL;
  planes p = planes_of(&input->type, spatial);
  tt_spatial_list(cx, 1, spatial, 1, kernel);
  tt_spatial_list(cx, 2, spatial, 1, out);
  sample = places_of(cx, sample, p.count, spatial);
  tt_type type = {.dtype = TT_I32, .rank = 1 + 2 * spatial, .dims = {p.count}};
  for (int d = 0; d < spatial; d++) {
    type.dims[1 + d] = out[d]; /* [planes, out.., kernel..] */
    type.dims[1 + spatial + d] = kernel[d];
    over[d] = 1 + spatial + d;
  }
  for (int d = 0; d < spatial; d++) {
    int column = spatial == 2 ? 1 - d : d; /* two dims are sampled last dim first */
    int64_t in = input->type.dims[p.lead + d];
    tt_node *u = tt_hlo_slice_dim(h, sample, 1, column, column + 1, 1);
    u = tt_cast(cx, tt_hlo_reshape(h, u, 1, &p.count), tt_compute_dtype(u->type.dtype));
    tt_node *at = starts(cx, u, in, out[d], kernel[d]);
    at = tt_hlo_broadcast(h, at, (const int[]){0, 1 + d}, type.rank, type.dims);
    at = tt_hlo_add(h, at, tt_hlo_iota(h, &type, 1 + spatial + d));
    if (flat) flat = tt_hlo_multiply(h, flat, tt_hlo_const_i(h, TT_I32, in));
    flat = flat ? tt_hlo_add(h, flat, at) : at;
  }
  int64_t reads = p.count > 0 ? tt_type_numel(&type) / p.count : 0;
  tt_node *index = tt_hlo_reshape(h, flat, 2, (int64_t[]){p.count, reads});
  tt_node *value = tt_hlo_take_along(h, flat_planes(cx, input, spatial), index, 1);
  tt_node *xs[] = {tt_hlo_reshape(h, value, type.rank, type.dims), flat}, *results[2];
  tt_node *inits[] = {tt_hlo_lowest(h, input->type.dtype), tt_hlo_const_i(h, TT_I32, -1)};
  tt_hlo_reduce_n(h, 2, xs, inits, over, spatial, tt_keep_winner, NULL, results);
  tt_type shape = input->type;
  for (int d = 0; d < spatial; d++) shape.dims[p.lead + d] = out[d];
  tt_out_as(cx, 0, tt_hlo_reshape(h, results[0], shape.rank, shape.dims));
  tt_out_as(cx, 1, tt_cast(cx, tt_hlo_reshape(h, results[1], shape.rank, shape.dims), TT_I64));
}

/* grad_output, self, kernel_size, output_size, indices; param: spatial dims */
void tt_lower_fractional_max_pool_backward(tt_lower *cx) {
  int spatial = cx->row->param;
  tt_node *grad = tt_in(cx, 0), *input = tt_in(cx, 1), *index = tt_in(cx, 4);
  planes p = planes_of(&input->type, spatial);
  tt_node *g = tt_cast(cx, grad, tt_compute_dtype(grad->type.dtype));
  g = scatter_planes(cx, flat_planes(cx, g, spatial), flat_planes(cx, index, spatial), p.area,
                     TT_ADD);
  g = tt_hlo_reshape(cx->h, g, input->type.rank, input->type.dims);
  tt_out_as(cx, 0, tt_cast(cx, g, input->type.dtype));
}
