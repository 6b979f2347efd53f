/* Sums, products, extremes, truth, moments. */
#include "ops/pointwise/pointwise.h"

/* An operand and the dims to reduce away. */
typedef struct tt_reduction {
  tt_node *x;
  int dims[TT_MAX_RANK];
  int count;
  bool keep;
  int64_t size; /* elements that become one */
} tt_reduction;

/* Reads the dims from argument `dim` (negative: all) and keepdim from argument `keep` (negative:
 * no), of the operand x. */
static tt_reduction reduction_of(tt_lower *cx, tt_node *x, int dim, int keep) {
  tt_reduction r = {.x = x, .size = 1};
  r.count = tt_dims(cx, dim, x->type.rank, true, r.dims);
  r.keep = keep >= 0 && tt_bool(cx, keep);
  for (int i = 0; i < r.count; i++) r.size *= x->type.dims[r.dims[i]];
  return r;
}

/* The same of another node of the same shape. */
static tt_node *reduce_node(tt_lower *cx, tt_reducer reducer, const tt_reduction *r, tt_node *x) {
  if (r->count == 0) return x;
  return tt_reduce_keep(cx, reducer, x, r->dims, r->count, r->keep);
}

static tt_node *reduce_by(tt_lower *cx, tt_reducer reducer, const tt_reduction *r) {
  return reduce_node(cx, reducer, r, r->x);
}

/* Gives a reduced node the dims of the operand again, by broadcasting. */
static tt_node *reduction_spread(tt_lower *cx, const tt_reduction *r, tt_node *y) {
  const tt_type *full = &r->x->type;
  tt_type kept = *full;
  for (int i = 0; i < r->count; i++) kept.dims[r->dims[i]] = 1;
  return tt_hlo_broadcast_to(cx->h, tt_hlo_reshape(cx->h, y, kept.rank, kept.dims), full->rank,
                             full->dims);
}

static tt_dtype sum_dtype(tt_lower *cx, tt_node *x) {
  bool whole = tt_is_integer(x->type.dtype) || x->type.dtype == TT_BOOL;
  return tt_meta_dtype(cx, 0, whole ? TT_I64 : x->type.dtype);
}

/* param: the position of the dims, or 0 when the operator reduces everything. */
static tt_reduction sum_operand(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  int at = cx->row->param;
  x = tt_cast_wrapping(cx, x, tt_compute_dtype(dtype));
  return reduction_of(cx, x, at ? at : -1, at ? at + 1 : -1);
}

/* Numbers and booleans each by their own reducer. */
static void sum_of(tt_lower *cx, tt_node *x, tt_reducer numbers, tt_reducer bools) {
  tt_dtype dtype = sum_dtype(cx, x);
  tt_reduction r = sum_operand(cx, x, dtype);
  tt_out_in(cx, 0, reduce_by(cx, dtype == TT_BOOL ? bools : numbers, &r), dtype);
}

void tt_lower_sum(tt_lower *cx) { sum_of(cx, tt_in(cx, 0), TT_SUM, TT_OR); }

void tt_lower_prod(tt_lower *cx) { sum_of(cx, tt_in(cx, 0), TT_PROD, TT_AND); }

void tt_lower_nansum(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_node *nan = tt_is_nan(cx, x); /* of complex numbers: either part is */
  sum_of(cx, tt_hlo_select(cx->h, nan, tt_hlo_zeros(cx->h, &x->type), x), TT_SUM, TT_OR);
}

static tt_node *mean_of(tt_lower *cx, const tt_reduction *r) {
  tt_node *sum = reduce_by(cx, TT_SUM, r);
  return tt_quotient(cx, sum, tt_count(cx, 0, r->dims, r->count, sum->type.dtype));
}

void tt_lower_mean(tt_lower *cx) {
  tt_dtype dtype = tt_meta_dtype(cx, 0, tt_in(cx, 0)->type.dtype);
  tt_reduction r = sum_operand(cx, tt_in(cx, 0), dtype);
  tt_out_in(cx, 0, mean_of(cx, &r), dtype);
}

void tt_lower_count_nonzero(tt_lower *cx) {
  tt_reduction r = reduction_of(cx, tt_in_as(cx, 0, TT_BOOL), 1, -1);
  tt_node *ones = tt_cast(cx, r.x, TT_I64);
  tt_out_as(cx, 0, reduce_node(cx, TT_SUM, &r, ones));
}

static tt_reducer for_dtype(tt_reducer reducer, tt_dtype dtype) {
  if (dtype != TT_BOOL) return reducer;
  return reducer == TT_MAX ? TT_OR : reducer == TT_MIN ? TT_AND : reducer;
}

/* amax, amin, and max, min of everything; param: the reducer. */
void tt_lower_extreme(tt_lower *cx) {
  tt_reduction r = reduction_of(cx, tt_in(cx, 0), 1, 2);
  tt_reducer reducer = for_dtype((tt_reducer)cx->row->param, r.x->type.dtype);
  tt_out_as(cx, 0, reduce_by(cx, reducer, &r));
}

void tt_lower_aminmax(tt_lower *cx) {
  tt_reduction r = reduction_of(cx, tt_in(cx, 0), 1, 2);
  tt_dtype dtype = r.x->type.dtype;
  tt_out_as(cx, 0, reduce_by(cx, for_dtype(TT_MIN, dtype), &r));
  tt_node *x = tt_pad(cx, 0, r.x, TT_MAX); /* where it is padded, it is for the smallest */
  tt_out_as(cx, 1, reduce_node(cx, for_dtype(TT_MAX, dtype), &r, x));
}

/* any and all; param: the reducer. */
void tt_lower_truth(tt_lower *cx) {
  tt_node *x = tt_in_as(cx, 0, TT_BOOL);
  bool nothing = tt_has(cx, 1) && tt_list_size(cx, 1) == 0;
  if (nothing) {
    tt_out_as(cx, 0, x);
    return;
  }
  tt_reduction r = reduction_of(cx, x, 1, 2);
  tt_out_as(cx, 0, reduce_by(cx, (tt_reducer)cx->row->param, &r));
}

/* The first place along `dim` where x equals its extreme (NaN is the extreme); keeps the dim. */
static tt_node *first_place(tt_lower *cx, tt_node *x, tt_node *extreme, int dim) {
  tt_hlo *h = cx->h;
  int64_t size = x->type.dims[dim];
  tt_type type = x->type;
  type.dtype = size <= INT32_MAX ? TT_I32 : TT_I64;
  tt_node *wide = tt_hlo_broadcast_to(h, extreme, x->type.rank, x->type.dims);
  tt_node *hit = tt_hlo_compare(h, TT_EQ, x, wide);
  if (tt_is_float(x->type.dtype)) hit = tt_hlo_or(h, hit, tt_is_nan(cx, x));
  tt_node *last = tt_hlo_broadcast_to(h, tt_hlo_const_i(h, type.dtype, size), type.rank, type.dims);
  tt_node *place = tt_hlo_select(h, hit, tt_hlo_iota(h, &type, dim), last);
  return tt_cast(cx, tt_reduce_keep(cx, TT_MIN, place, &dim, 1, true), TT_I64);
}

static tt_node *drop_dim(tt_lower *cx, tt_node *x, int dim, bool keep) {
  if (keep) return x;
  int64_t dims[TT_MAX_RANK];
  int rank = 0;
  for (int i = 0; i < x->type.rank; i++)
    if (i != dim) dims[rank++] = x->type.dims[i];
  return tt_hlo_reshape(cx->h, x, rank, dims);
}

/* max.dim and min.dim: values and places; param: the reducer. */
void tt_lower_extreme_dim(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_type place_type = {.dtype = TT_I64};
  if (x->type.rank == 0) {
    tt_out_as(cx, 0, x);
    tt_out_as(cx, 1, tt_hlo_zeros(cx->h, &place_type));
    return;
  }
  int dim = tt_dim(cx, 1, x->type.rank);
  bool keep = tt_bool(cx, 2);
  tt_reducer reducer = for_dtype((tt_reducer)cx->row->param, x->type.dtype);
  tt_node *extreme = tt_reduce_keep(cx, reducer, x, &dim, 1, true);
  tt_out_as(cx, 0, drop_dim(cx, extreme, dim, keep));
  tt_node *place = tt_place_counted(cx, 0, dim, first_place(cx, x, extreme, dim));
  tt_out_as(cx, 1, drop_dim(cx, place, dim, keep));
}

/* A place among all elements of x, padding counted, becomes one among those that there are. */
static tt_node *without_padding(tt_lower *cx, const tt_type *type, tt_node *place) {
  if (!tt_padded(cx, 0)) return place;
  tt_hlo *h = cx->h;
  tt_node *made = tt_hlo_zeros(h, &place->type), *rest = place;
  tt_node *stride = tt_hlo_const_i(h, TT_I64, 1);
  for (int i = type->rank - 1; i >= 0; i--) {
    tt_node *size = tt_hlo_const_i(h, TT_I64, type->dims[i]);
    tt_node *along = tt_place_counted(cx, 0, i, tt_hlo_remainder(h, rest, size));
    made = tt_hlo_add(h, made, tt_hlo_multiply(h, along, stride));
    rest = tt_hlo_divide(h, rest, size);
    stride = tt_hlo_multiply(h, stride, tt_count(cx, 0, &i, 1, TT_I64));
  }
  return made;
}

/* argmax and argmin, of everything as rank 1 when dim is None; param: the reducer. */
void tt_lower_arg_extreme(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_type place_type = {.dtype = TT_I64};
  bool all = !tt_has(cx, 1), keep = tt_bool(cx, 2);
  int rank = x->type.rank;
  if (rank == 0) {
    tt_out_as(cx, 0, tt_hlo_zeros(cx->h, &place_type));
    return;
  }
  if (all) x = tt_flatten(cx, x);
  int dim = all ? 0 : tt_dim(cx, 1, rank);
  tt_reducer reducer = for_dtype((tt_reducer)cx->row->param, x->type.dtype);
  tt_node *extreme = tt_reduce_keep(cx, reducer, x, &dim, 1, true);
  tt_node *place = first_place(cx, x, extreme, dim);
  if (!all) place = tt_place_counted(cx, 0, dim, place);
  place = drop_dim(cx, place, dim, keep && !all);
  if (all) place = without_padding(cx, &tt_in(cx, 0)->type, place);
  if (all && keep) {
    int64_t ones[TT_MAX_RANK];
    for (int i = 0; i < rank; i++) ones[i] = 1;
    place = tt_hlo_reshape(cx->h, place, rank, ones);
  }
  tt_out_as(cx, 0, place);
}

/* |x|^2, real. */
static tt_node *square_size(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  if (!tt_is_complex(x->type.dtype)) return tt_hlo_multiply(h, x, x);
  tt_node *re = tt_hlo_real(h, x), *im = tt_hlo_imag(h, x);
  return tt_hlo_add(h, tt_hlo_multiply(h, re, re), tt_hlo_multiply(h, im, im));
}

enum { STD = 1, WITH_MEAN = 2 };

/* The elements that a variance counts, as a number like y; 0 at least. */
static tt_node *freedom(tt_lower *cx, const tt_reduction *r, tt_node *y, double correction) {
  if (!tt_padded(cx, 0)) {
    double left = (double)r->size - correction;
    return tt_like(cx, y, left > 0 ? left : 0);
  }
  tt_node *left = tt_plus(cx, tt_count(cx, 0, r->dims, r->count, y->type.dtype), -correction);
  return tt_hlo_maximum(cx->h, left, tt_like(cx, y, 0));
}

/* (self, dim, *, correction, keepdim); param: STD | WITH_MEAN. */
void tt_lower_var(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_in(cx, 0)->type.dtype;
  tt_reduction r = reduction_of(cx, tt_in_as(cx, 0, tt_compute_dtype(dtype)), 1, 3);
  tt_node *mean = mean_of(cx, &r);
  tt_node *square = square_size(cx, tt_hlo_subtract(h, r.x, reduction_spread(cx, &r, mean)));
  tt_node *sum = reduce_node(cx, TT_SUM, &r, tt_pad(cx, 0, square, TT_SUM));
  tt_node *y = tt_quotient(cx, sum, freedom(cx, &r, sum, tt_has(cx, 2) ? tt_float(cx, 2) : 1));
  if (cx->row->param & STD) y = tt_hlo_sqrt(h, y);
  tt_out_in(cx, 0, y, tt_dtype_real(dtype));
  if (cx->row->param & WITH_MEAN) tt_out_in(cx, 1, mean, dtype);
}

void tt_lower_logsumexp(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx);
  if (tt_is_complex(dtype)) {
    tt_hlo_fail(h, TT_UNIMPLEMENTED, "logsumexp: complex operands are not supported");
    return;
  }
  tt_reduction r = reduction_of(cx, tt_in_as(cx, 0, tt_compute_dtype(dtype)), 1, 2);
  if (tt_list_size(cx, 1) == 0 && r.count > 0 && !r.keep) { /* PyTorch's kernels, too, refuse it */
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "logsumexp: a list of no dims needs keepdim=True");
    return;
  }
  r.x = tt_pad(cx, 0, r.x, TT_MAX);
  tt_node *high = reduce_by(cx, TT_MAX, &r);
  tt_node *endless =
      tt_hlo_compare(h, TT_EQ, tt_hlo_abs(h, high), tt_like(cx, high, (double)INFINITY));
  high = tt_hlo_select(h, endless, tt_hlo_zeros(h, &high->type), high);
  tt_node *terms = tt_hlo_exponential(h, tt_hlo_subtract(h, r.x, reduction_spread(cx, &r, high)));
  tt_node *sum = reduce_node(cx, TT_SUM, &r, terms);
  tt_out_in(cx, 0, tt_hlo_add(h, high, tt_hlo_log(h, sum)), dtype);
}

/* The p-norm of r.x, or the sum of the powers without the root. */
static tt_node *norm_of(tt_lower *cx, const tt_reduction *r, double p, bool root) {
  tt_hlo *h = cx->h;
  if (p == 2) {
    tt_node *sum = reduce_node(cx, TT_SUM, r, square_size(cx, r->x));
    return root ? tt_hlo_sqrt(h, sum) : sum;
  }
  tt_node *size = tt_hlo_abs(h, r->x);
  if (p < 0) size = tt_pad(cx, 0, size, TT_MIN);
  if (isinf(p)) return reduce_node(cx, p > 0 ? TT_MAX : TT_MIN, r, size);
  if (p == 1) return reduce_node(cx, TT_SUM, r, size);
  if (p == 0) {
    tt_node *some = tt_hlo_compare(h, TT_NE, size, tt_like(cx, size, 0));
    return reduce_node(cx, TT_SUM, r, tt_cast(cx, some, size->type.dtype));
  }
  tt_node *powers = tt_hlo_power(h, size, tt_hlo_full(h, &size->type, p));
  tt_node *sum = reduce_node(cx, TT_SUM, r, powers);
  return root ? tt_hlo_power(h, sum, tt_hlo_full(h, &sum->type, 1 / p)) : sum;
}

static void lower_norm(tt_lower *cx, int dim, int keep, int dtype_at, bool root) {
  tt_node *x = tt_in(cx, 0);
  tt_dtype dtype = dtype_at < 0 ? x->type.dtype : tt_dtype_arg(cx, dtype_at, x->type.dtype);
  tt_reduction r = reduction_of(cx, tt_cast(cx, x, tt_compute_dtype(dtype)), dim, keep);
  double p = tt_has(cx, 1) ? tt_float(cx, 1) : 2;
  tt_out_in(cx, 0, norm_of(cx, &r, p, root), tt_dtype_real(dtype));
}

/* (self, ord, dim, keepdim, *, dtype); param 1: without the root. */
void tt_lower_vector_norm(tt_lower *cx) { lower_norm(cx, 2, 3, 4, cx->row->param == 0); }

/* (self, ord, dtype), of everything; param 1: without the root. */
void tt_lower_full_norm(tt_lower *cx) { lower_norm(cx, -1, -1, 2, cx->row->param == 0); }

/* (self, p, dim, keepdim[, dtype]) */
void tt_lower_dim_norm(tt_lower *cx) { lower_norm(cx, 2, 3, 4, true); }
