/* Max pooling with the flat positions of the maxima, and its gradient.
 *
 * Dims are pooled one after the other, carrying the position along; -1 marks padding. The first
 * of equal maxima wins, and a NaN wins over everything, the last NaN over the others. */
#include "ops/pool/pool.h"

#define UNROLL 16 /* windows up to this size are unrolled */

typedef struct winner {
  tt_node *value, *index; /* index I32 (I64 for a huge plane), of value's shape */
} winner;

static tt_node *is_nan(tt_lower *cx, tt_node *x) { return tt_hlo_compare(cx->h, TT_NE, x, x); }

/* Flat row-major positions in the dims at[0..spatial-1] of a tensor of `shape`. */
static tt_node *positions(tt_lower *cx, const tt_type *shape, const int *at, int spatial) {
  tt_type type = *shape;
  int64_t area = 1;
  for (int d = 0; d < spatial; d++) area *= type.dims[at[d]];
  type.dtype = area > INT32_MAX ? TT_I64 : TT_I32;
  tt_node *position = tt_hlo_iota(cx->h, &type, at[spatial - 1]);
  int64_t step = type.dims[at[spatial - 1]];
  for (int d = spatial - 2; d >= 0; d--) {
    tt_node *part = tt_hlo_iota(cx->h, &type, at[d]);
    part = tt_hlo_multiply(cx->h, part, tt_hlo_const_i(cx->h, type.dtype, step));
    position = tt_hlo_add(cx->h, position, part);
    step *= type.dims[at[d]];
  }
  return position;
}

/* The elements at place j of the windows along spatial dim d. */
static winner place(tt_lower *cx, winner w, const tt_pooling *p, int d, int64_t j) {
  int dim = p->lead + d;
  int64_t start = j * p->dilation[d], stop = start + (p->out[d] - 1) * p->stride[d] + 1;
  return (winner){tt_hlo_slice_dim(cx->h, w.value, dim, start, stop, p->stride[d]),
                  tt_hlo_slice_dim(cx->h, w.index, dim, start, stop, p->stride[d])};
}

/* One dim, by comparing shifted slices in order. */
static winner pool_slices(tt_lower *cx, winner w, const tt_pooling *p, int d) {
  tt_hlo *h = cx->h;
  tt_node *none = tt_hlo_const_i(h, w.index->type.dtype, -1);
  w.value = tt_pool_pad(cx, w.value, p, d, tt_hlo_lowest(h, w.value->type.dtype));
  w.index = tt_pool_pad(cx, w.index, p, d, none);
  winner best = place(cx, w, p, d, 0);
  for (int64_t j = 1; j < p->kernel[d]; j++) {
    winner next = place(cx, w, p, d, j);
    tt_node *take = tt_hlo_compare(h, TT_GT, next.value, best.value);
    if (tt_is_float(w.value->type.dtype)) take = tt_hlo_or(h, take, is_nan(cx, next.value));
    if (p->padding[d] > 0) take = tt_hlo_or(h, take, tt_hlo_compare(h, TT_EQ, best.index, none));
    best.value = tt_hlo_select(h, take, next.value, best.value);
    best.index = tt_hlo_select(h, take, next.index, best.index);
  }
  return best;
}

void tt_keep_winner(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *b = args[0], *bi = args[1], *v = args[2], *i = args[3];
  tt_node *zero = tt_hlo_const_i(h, i->type.dtype, 0);
  tt_node *larger = tt_hlo_compare(h, TT_GT, v, b);
  tt_node *tied = tt_hlo_and(h, tt_hlo_compare(h, TT_EQ, v, b), tt_hlo_compare(h, TT_LT, i, bi));
  tt_node *take = tt_hlo_or(h, larger, tied);
  if (tt_is_float(v->type.dtype)) {
    tt_node *v_nan = tt_hlo_compare(h, TT_NE, v, v), *b_nan = tt_hlo_compare(h, TT_NE, b, b);
    tt_node *later = tt_hlo_or(h, tt_hlo_not(h, b_nan), tt_hlo_compare(h, TT_GT, i, bi));
    take = tt_hlo_or(h, take, tt_hlo_and(h, v_nan, later));
  }
  take = tt_hlo_or(h, take, tt_hlo_compare(h, TT_LT, bi, zero));
  take = tt_hlo_and(h, take, tt_hlo_compare(h, TT_GE, i, zero));
  results[0] = tt_hlo_select(h, take, v, b);
  results[1] = tt_hlo_select(h, take, i, bi);
}

/* One dim, by spreading the windows of any map out and reducing them. */
static winner pool_map(tt_lower *cx, winner w, int dim, const tt_map *map) {
  tt_hlo *h = cx->h;
  tt_taps taps;
  if (!tt_map_table(cx, map, &taps)) return w;
  tt_node *inits[] = {tt_hlo_lowest(h, w.value->type.dtype),
                      tt_hlo_const_i(h, w.index->type.dtype, -1)};
  tt_node *xs[] = {tt_taps_spread(cx, w.value, dim, &taps, inits[0]),
                   tt_taps_spread(cx, w.index, dim, &taps, inits[1])};
  tt_node *results[2];
  tt_hlo_reduce_n(h, 2, xs, inits, &dim, 1, tt_keep_winner, NULL, results);
  return (winner){results[0], results[1]};
}

static winner start(tt_lower *cx, tt_node *input, int spatial) {
  int at[TT_MAX_POOL] = {0}, lead = input->type.rank - spatial;
  for (int d = 0; d < spatial; d++) at[d] = lead + d;
  return (winner){input, positions(cx, &input->type, at, spatial)};
}

static void out_winner(tt_lower *cx, winner w) {
  tt_out_as(cx, 0, w.value);
  tt_out_as(cx, 1, tt_cast(cx, w.index, TT_I64));
}

/* self, kernel_size, stride, padding, dilation, ceil_mode; param: spatial dims */
void tt_lower_max_pool(tt_lower *cx) {
  tt_pooling p;
  tt_node *input = tt_in(cx, 0);
  if (!tt_pool_read(cx, input, cx->row->param, 1, 4, 5, &p)) return;
  winner w = start(cx, input, p.spatial);
  for (int d = p.spatial - 1; d >= 0; d--) {
    if (p.kernel[d] <= UNROLL) {
      w = pool_slices(cx, w, &p, d);
      continue;
    }
    tt_windows windows = tt_pool_windows(&p, d);
    tt_map map = tt_map_windows(cx, &windows);
    w = pool_map(cx, w, p.lead + d, &map);
  }
  out_winner(cx, w);
}

/* self, output_size; param: spatial dims */
void tt_lower_adaptive_max_pool(tt_lower *cx) {
  int spatial = cx->row->param;
  int64_t out[TT_MAX_POOL];
  tt_node *input = tt_in(cx, 0);
  if (!tt_pool_fits(cx, input, spatial)) return;
  tt_spatial_list(cx, 1, spatial, 1, out);
  winner w = start(cx, input, spatial);
  for (int d = spatial - 1; d >= 0; d--) {
    int dim = input->type.rank - spatial + d;
    tt_map map = tt_map_adaptive(cx, input->type.dims[dim], out[d], false);
    w = pool_map(cx, w, dim, &map);
  }
  out_winner(cx, w);
}

/* A gradient and the positions it goes to, as read by the elements of the input. */
typedef struct reader {
  tt_node *g, *index, *none;
  const tt_taps *taps;
  int spatial, lead;
} reader;

static tt_node *sum_hits(tt_lower *cx, const reader *r, const int *at, const int *over) {
  tt_node *position = positions(cx, &r->index->type, at, r->spatial);
  tt_node *hit = tt_hlo_compare(cx->h, TT_EQ, r->index, position);
  tt_node *g = tt_where_or_zero(cx, hit, r->g);
  return over ? tt_sum(cx, g, over, r->spatial) : g;
}

/* Few combinations of taps: each one is read, compared and added. */
static tt_node *unrolled(tt_lower *cx, const reader *r, int64_t combinations) {
  int at[TT_MAX_POOL];
  tt_node *sum = NULL, *zero = tt_like(cx, r->g, 0);
  for (int d = 0; d < r->spatial; d++) at[d] = r->lead + d;
  for (int64_t c = 0; c < combinations; c++) {
    reader one = *r;
    int64_t rest = c;
    for (int d = 0; d < r->spatial; d++) {
      int64_t tap = rest % r->taps[d].taps;
      rest /= r->taps[d].taps;
      one.g = tt_taps_read(cx, one.g, at[d], &r->taps[d], tap, zero);
      one.index = tt_taps_read(cx, one.index, at[d], &r->taps[d], tap, r->none);
    }
    tt_node *term = sum_hits(cx, &one, at, NULL);
    sum = sum ? tt_hlo_add(cx->h, sum, term) : term;
  }
  return sum;
}

static tt_node *reduced(tt_lower *cx, reader r) {
  int at[TT_MAX_POOL], over[TT_MAX_POOL];
  tt_node *zero = tt_like(cx, r.g, 0);
  for (int d = r.spatial - 1; d >= 0; d--) {
    r.g = tt_taps_spread(cx, r.g, r.lead + d, &r.taps[d], zero);
    r.index = tt_taps_spread(cx, r.index, r.lead + d, &r.taps[d], r.none);
    over[d] = r.lead + 2 * d;
    at[d] = r.lead + 2 * d + 1;
  }
  return sum_hits(cx, &r, at, over);
}

/* Each input element gathers from the windows that contain it those whose maximum it was. */
static void out_gathered(tt_lower *cx, tt_node *input, int spatial, const tt_map *maps,
                         int indices) {
  tt_taps taps[TT_MAX_POOL];
  int64_t area = 1, combinations = 1;
  reader r = {
      .g = tt_in(cx, 0), .taps = taps, .spatial = spatial, .lead = input->type.rank - spatial};
  for (int d = 0; d < spatial; d++) {
    if (!tt_map_table(cx, &maps[d], &taps[d])) return;
    area *= input->type.dims[r.lead + d];
    combinations *= taps[d].taps;
  }
  tt_dtype index_dtype = area > INT32_MAX ? TT_I64 : TT_I32;
  r.index = tt_cast(cx, tt_in(cx, indices), index_dtype);
  r.none = tt_hlo_const_i(cx->h, index_dtype, -1);
  r.g = tt_cast(cx, r.g, tt_compute_dtype(r.g->type.dtype));
  bool few = combinations >= 1 && combinations <= UNROLL;
  tt_node *dx = few ? unrolled(cx, &r, combinations) : reduced(cx, r);
  tt_out_as(cx, 0, tt_cast(cx, dx, input->type.dtype));
}

/* grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices;
 * param: spatial dims */
void tt_lower_max_pool_backward(tt_lower *cx) {
  tt_pooling p;
  tt_map maps[TT_MAX_POOL];
  tt_node *input = tt_in(cx, 1);
  if (!tt_pool_read(cx, input, cx->row->param, 2, 5, 6, &p)) return;
  for (int d = 0; d < p.spatial; d++) {
    tt_windows windows = tt_pool_windows(&p, d);
    maps[d] = tt_map_window_grads(cx, &windows);
  }
  out_gathered(cx, input, p.spatial, maps, 7);
}

/* grad_output, self, indices; param: spatial dims */
void tt_lower_adaptive_max_pool_backward(tt_lower *cx) {
  int spatial = cx->row->param;
  tt_map maps[TT_MAX_POOL];
  tt_node *grad = tt_in(cx, 0), *input = tt_in(cx, 1);
  if (!tt_pool_fits(cx, input, spatial)) return;
  for (int d = 0; d < spatial; d++) {
    int dim = input->type.rank - spatial + d;
    maps[d] = tt_map_adaptive(cx, input->type.dims[dim], grad->type.dims[dim], false);
    tt_map_transpose(&maps[d]);
  }
  out_gathered(cx, input, spatial, maps, 2);
}
