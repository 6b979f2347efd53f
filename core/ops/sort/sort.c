/* Sorting, order statistics, and searching in what is sorted. NaN is the largest value. */
#include "ops/sort/sort.h"
#include "ops/sort/search.h"

#include "ops/index/index.h"

#include <math.h>

/* -- Keys: up to 32 bits of value and the index in one U64 -- */

/* Such keys are unique and their order is plain, so that one fast sort of one operand, neither
 * stable nor with a payload, is a stable sort of values and indices. */
static bool has_key(const tt_node *x, int dim) {
  return tt_dtype_bytes(x->type.dtype) <= 4 && !tt_is_complex(x->type.dtype) &&
         x->type.dims[dim] <= UINT32_MAX;
}

/* U32 in the order of x. Floats: -0 equals 0, and NaN, whatever its sign, is the largest. */
static tt_node *ordered_bits(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_kind kind = tt_dtype_kind(x->type.dtype);
  tt_node *top = tt_hlo_const_i(h, TT_U32, INT64_C(1) << 31);
  if (kind == TT_KIND_BOOL || kind == TT_KIND_UNSIGNED) return tt_hlo_convert(h, x, TT_U32);
  if (kind == TT_KIND_SIGNED)
    return tt_hlo_xor(h, tt_hlo_bitcast(h, tt_hlo_convert(h, x, TT_I32), TT_U32), top);
  x = tt_hlo_convert(h, x, TT_F32);
  tt_node *zero = tt_hlo_const(h, TT_F32, 0.0), *bits = tt_hlo_bitcast(h, x, TT_U32);
  tt_node *none = tt_hlo_zeros(h, &bits->type);
  bits = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, x, zero), none, bits);
  tt_node *negative = tt_hlo_compare(h, TT_GE, bits, top);
  bits = tt_hlo_select(h, negative, tt_hlo_not(h, bits), tt_hlo_xor(h, bits, top));
  return tt_hlo_select(h, tt_hlo_compare(h, TT_NE, x, x), tt_hlo_not(h, none), bits);
}

static tt_node *make_keys(tt_lower *cx, tt_node *x, int dim, bool descending) {
  tt_hlo *h = cx->h;
  tt_type index = x->type;
  index.dtype = TT_U64;
  tt_node *bits = ordered_bits(cx, x);
  bits = tt_hlo_convert(h, descending ? tt_hlo_not(h, bits) : bits, TT_U64);
  bits = tt_hlo_shift_left(h, bits, tt_hlo_const_i(h, TT_U64, 32));
  return tt_hlo_or(h, bits, tt_hlo_iota(h, &index, dim));
}

static tt_node *index_of(tt_lower *cx, tt_node *keys) {
  return tt_hlo_convert(cx->h, tt_hlo_convert(cx->h, keys, TT_U32), TT_I64);
}

static void smaller_key(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_compare(h, TT_LT, args[0], args[1]);
}

static tt_node *sort_keys(tt_lower *cx, tt_node *keys, int dim) {
  tt_node *sorted;
  tt_hlo_sort(cx->h, 1, &keys, dim, false, smaller_key, NULL, &sorted);
  return sorted;
}

/* -- Sorting -- */

/* Whether a comes before b; user is NULL for ascending order. */
static void comes_before(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  tt_node *a = args[0], *b = args[1];
  results[0] = tt_hlo_compare(h, user ? TT_GT : TT_LT, a, b);
  if (!tt_is_float(a->type.dtype)) return;
  tt_node *first = user ? a : b, *second = user ? b : a;
  tt_node *nan = tt_hlo_and(h, tt_hlo_compare(h, TT_NE, first, first),
                            tt_hlo_compare(h, TT_EQ, second, second));
  results[0] = tt_hlo_or(h, results[0], nan);
}

static void sorted_along(tt_lower *cx, tt_node *x, int dim, bool descending, tt_node **values,
                         tt_node **indices) {
  tt_hlo *h = cx->h;
  tt_type index = x->type;
  index.dtype = TT_I64;
  if (x->type.dims[dim] <= 1) {
    *values = x;
    *indices = tt_hlo_zeros(h, &index);
    return;
  }
  if (has_key(x, dim)) {
    *indices = index_of(cx, sort_keys(cx, make_keys(cx, x, dim, descending), dim));
    *values = tt_hlo_take_along(h, x, *indices, dim);
    return;
  }
  index.dtype = x->type.dims[dim] <= INT32_MAX ? TT_I32 : TT_I64;
  tt_node *xs[2] = {x, tt_hlo_iota(h, &index, dim)}, *sorted[2];
  static char down;
  tt_hlo_sort(h, 2, xs, dim, true, comes_before, descending ? &down : NULL, sorted);
  *values = sorted[0];
  *indices = tt_cast(cx, sorted[1], TT_I64);
}

/* -- The first k of a sort -- */

/* How long blocks must be for the least work, or 1 if a plain sort is best. */
static int64_t block_length(int64_t n, int64_t k) {
  int64_t length = 1;
  while (length * length * k < n) length++;
  int64_t work = (n + length - 1) / length + k * length;
  return length > 1 && work < n / 2 ? length : 1;
}

/* The k smallest of each row of [rows, n], ascending. They lie in the k blocks whose least keys are
 * the smallest; a key tells its block. */
static tt_node *smallest_keys(tt_lower *cx, tt_node *keys, int64_t k) {
  tt_hlo *h = cx->h;
  int64_t rows = keys->type.dims[0], n = keys->type.dims[1], length = block_length(n, k);
  int along = 1, inner = 2;
  if (k == 1) return tt_reduce_keep(cx, TT_MIN, keys, &along, 1, true);
  if (length == 1) return tt_hlo_slice_dim(h, sort_keys(cx, keys, 1), 1, 0, k, 1);
  int64_t blocks = (n + length - 1) / length;
  tt_node *most = tt_hlo_not(h, tt_hlo_const_i(h, TT_U64, 0));
  keys = tt_hlo_pad(h, keys, most, (int64_t[]){0, 0}, (int64_t[]){0, blocks * length - n}, NULL);
  keys = tt_hlo_reshape(h, keys, 3, (int64_t[]){rows, blocks, length});
  tt_node *least = sort_keys(cx, tt_hlo_reduce(h, TT_MIN, keys, &inner, 1), 1);
  tt_node *at = index_of(cx, tt_hlo_slice_dim(h, least, 1, 0, k, 1));
  at = tt_hlo_divide(h, at, tt_hlo_const_i(h, TT_I64, length));
  tt_node *row = tt_hlo_iota(h, &at->type, 0);
  at = tt_hlo_add(h, at, tt_hlo_multiply(h, row, tt_hlo_const_i(h, TT_I64, blocks)));
  keys = tt_hlo_reshape(h, keys, 2, (int64_t[]){rows * blocks, length});
  keys = tt_hlo_reshape(h, tt_hlo_take(h, keys, at, 0), 2, (int64_t[]){rows, k * length});
  return tt_hlo_slice_dim(h, sort_keys(cx, keys, 1), 1, 0, k, 1);
}

void tt_first_sorted(tt_lower *cx, tt_node *x, int dim, bool descending, int64_t k,
                     tt_node **values, tt_node **indices) {
  tt_hlo *h = cx->h;
  int perm[TT_MAX_RANK], last = x->type.rank - 1;
  int64_t n = x->type.dims[dim];
  if (!has_key(x, dim) || n <= 1) {
    sorted_along(cx, x, dim, descending, values, indices);
    *values = tt_hlo_slice_dim(h, *values, dim, 0, k, 1);
    *indices = tt_hlo_slice_dim(h, *indices, dim, 0, k, 1);
    return;
  }
  for (int i = 0; i <= last; i++) perm[i] = i == dim ? last : i == last ? dim : i;
  tt_node *keys = tt_hlo_transpose(h, make_keys(cx, x, dim, descending), perm);
  tt_type type = keys->type;
  keys = tt_hlo_reshape(h, keys, 2, (int64_t[]){tt_type_numel(&type) / n, n});
  type.dims[last] = k;
  keys = tt_hlo_reshape(h, smallest_keys(cx, keys, k), type.rank, type.dims);
  *indices = tt_hlo_transpose(h, index_of(cx, keys), perm);
  *values = tt_hlo_take_along(h, x, *indices, dim);
}

/* Argument 0, whose padding comes last in that order, behind what equals it. */
static tt_node *in_padding_last(tt_lower *cx, bool descending) {
  tt_node *x = tt_in(cx, 0);
  if (tt_is_float(x->type.dtype) && !descending) return tt_pad_with(cx, 0, x, tt_like(cx, x, NAN));
  return tt_pad(cx, 0, x, descending ? TT_MAX : TT_MIN);
}

static void state_pair(tt_lower *cx, tt_node *values, tt_node *indices) {
  const tt_type *type = tt_meta_type(cx, 0);
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, values, type->rank, type->dims));
  tt_out_as(cx, 1, tt_hlo_reshape(cx->h, indices, type->rank, type->dims));
}

/* States two empty results when the promise is empty. */
static bool pair_empty(tt_lower *cx) {
  if (!tt_out_empty(cx)) return false;
  if (cx->meta_count > 1) tt_out(cx, 1, tt_hlo_zeros(cx->h, tt_meta_type(cx, 1)));
  return true;
}

/* self, stable, dim, descending */
void tt_lower_sort(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = in_padding_last(cx, tt_bool(cx, 3)), *values, *indices;
  int dim = tt_dim(cx, 2, x->type.rank);
  sorted_along(cx, tt_at_least_1d(cx, x), dim, tt_bool(cx, 3), &values, &indices);
  state_pair(cx, values, indices);
}

/* self, k, dim, largest, sorted */
void tt_lower_topk(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = in_padding_last(cx, tt_bool(cx, 3)), *values, *indices;
  int dim = tt_dim(cx, 2, x->type.rank);
  int64_t k = x->type.rank == 0 ? 1 : tt_int(cx, 1); /* PyTorch looks at no k of a number */
  tt_first_sorted(cx, tt_at_least_1d(cx, x), dim, tt_bool(cx, 3), k, &values, &indices);
  state_pair(cx, values, indices);
}

/* self, k, dim */
void tt_lower_kthvalue(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = in_padding_last(cx, false), *values, *indices;
  int dim = tt_dim(cx, 2, x->type.rank);
  int64_t k = tt_int(cx, 1);
  tt_first_sorted(cx, tt_at_least_1d(cx, x), dim, false, k, &values, &indices);
  state_pair(cx, tt_hlo_slice_dim(cx->h, values, dim, k - 1, k, 1),
             tt_hlo_slice_dim(cx->h, indices, dim, k - 1, k, 1));
}

/* -- Median -- */

/* The lower median's place along dim in sorted x, of which n elements count and the others are NaN
 * as well; with size 1 there. If NaN counts and there is one, the place of the first NaN; if not,
 * NaNs are left out of the count. */
static tt_node *median_place(tt_lower *cx, tt_node *x, int dim, tt_node *n, bool skip_nan) {
  tt_hlo *h = cx->h;
  tt_node *is_nan = tt_hlo_compare(h, TT_NE, x, x);
  tt_node *nans = tt_reduce_keep(cx, TT_SUM, tt_hlo_convert(h, is_nan, TT_I64), &dim, 1, true);
  tt_node *one = tt_hlo_const_i(h, TT_I64, 1), *two = tt_hlo_const_i(h, TT_I64, 2);
  tt_node *valid = tt_hlo_subtract(h, tt_hlo_const_i(h, TT_I64, x->type.dims[dim]), nans);
  if (skip_nan) {
    tt_node *last = tt_hlo_subtract(h, valid, one);
    return tt_hlo_divide(h, tt_hlo_maximum(h, last, tt_hlo_const_i(h, TT_I64, 0)), two);
  }
  tt_node *middle = tt_hlo_divide(h, tt_hlo_subtract(h, n, one), two);
  middle = tt_hlo_broadcast_to(h, middle, valid->type.rank, valid->type.dims);
  return tt_hlo_select(h, tt_hlo_compare(h, TT_LT, valid, n), valid, middle);
}

/* Of x, of which n elements count along dim (rank-0 I64). */
static void median_along(tt_lower *cx, tt_node *x, int dim, tt_node *n, tt_node **value,
                         tt_node **index) {
  tt_hlo *h = cx->h;
  tt_node *values, *indices;
  int64_t middle = (x->type.dims[dim] - 1) / 2;
  sorted_along(cx, x, dim, false, &values, &indices);
  if (!tt_is_float(x->type.dtype) && !tt_padded(cx, 0)) {
    *value = tt_hlo_slice_dim(h, values, dim, middle, middle + 1, 1);
    *index = tt_hlo_slice_dim(h, indices, dim, middle, middle + 1, 1);
    return;
  }
  tt_node *place = median_place(cx, x, dim, n, cx->row->param == 1);
  *value = tt_hlo_take_along(h, values, place, dim);
  *index = tt_hlo_take_along(h, indices, place, dim);
}

void tt_lower_median(tt_lower *cx) {
  int all[TT_MAX_RANK], rank = tt_in(cx, 0)->type.rank;
  for (int i = 0; i < rank; i++) all[i] = i;
  tt_node *x = tt_flatten(cx, in_padding_last(cx, false)), *value, *index;
  if (x->type.dims[0] == 0) {
    tt_out_as(cx, 0, tt_hlo_divide(cx->h, tt_like(cx, x, 0.0), tt_like(cx, x, 0.0)));
    return;
  }
  median_along(cx, x, 0, tt_count(cx, 0, all, rank, TT_I64), &value, &index);
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, value, 0, NULL));
}

/* self, dim */
void tt_lower_median_dim(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = in_padding_last(cx, false), *value, *index;
  int rank = x->type.rank, dim = tt_dim(cx, 1, rank);
  median_along(cx, tt_at_least_1d(cx, x), dim, tt_count(cx, 0, &dim, rank > 0, TT_I64), &value,
               &index);
  state_pair(cx, value, index);
}

/* -- Mode: the smallest of the most frequent values, and its last index -- */

/* At each place of the sorted last dim, which was argument 0's `dim`, how many elements in a row up
 * to it are equal (a NaN is alone); none where there is padding. */
static tt_node *run_lengths(tt_lower *cx, tt_node *sorted, int dim) {
  tt_hlo *h = cx->h;
  tt_type type = sorted->type, index = type;
  index.dtype = TT_I64;
  int last = type.rank - 1;
  int64_t n = type.dims[last], low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  low[last] = 1;
  tt_node *begins = tt_hlo_compare(h, TT_NE, tt_hlo_slice_dim(h, sorted, last, 1, n, 1),
                                   tt_hlo_slice_dim(h, sorted, last, 0, n - 1, 1));
  begins = tt_hlo_convert(h, begins, TT_F64);
  begins = tt_hlo_pad(h, begins, tt_like(cx, begins, 0.0), low, high, NULL);
  tt_node *run = tt_prefix_sum(cx, begins), *start = tt_search(cx, run, NULL, run, false);
  tt_node *length = tt_hlo_subtract(h, tt_hlo_iota(h, &index, last), start);
  length = tt_hlo_add(h, length, tt_hlo_const_i(h, TT_I64, 1));
  return tt_pad_along(cx, 0, dim, length, last, TT_SUM);
}

/* The first place of the greatest element along the last dim, with size 1 there. */
static tt_node *first_greatest(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  int last = x->type.rank - 1;
  tt_node *most = tt_reduce_keep(cx, TT_MAX, x, &last, 1, true);
  most = tt_hlo_broadcast_to(h, most, x->type.rank, x->type.dims);
  tt_node *place = tt_hlo_iota(h, &x->type, last);
  tt_node *far = tt_hlo_full(h, &x->type, (double)x->type.dims[last]);
  place = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, x, most), place, far);
  return tt_reduce_keep(cx, TT_MIN, place, &last, 1, true);
}

void tt_lower_mode(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = in_padding_last(cx, false), *values, *indices;
  int dim = tt_dim(cx, 1, x->type.rank), perm[TT_MAX_RANK];
  x = tt_at_least_1d(cx, x);
  if (!tt_need_rank(cx, x, 1)) return;
  int last = x->type.rank - 1;
  for (int i = 0; i <= last; i++) perm[i] = i;
  perm[dim] = last;
  perm[last] = dim;
  x = tt_hlo_transpose(cx->h, x, perm);
  sorted_along(cx, x, last, false, &values, &indices);
  tt_node *place = first_greatest(cx, run_lengths(cx, values, dim));
  values = tt_hlo_take_along(cx->h, values, place, last);
  indices = tt_hlo_take_along(cx->h, indices, place, last);
  state_pair(cx, tt_hlo_transpose(cx->h, values, perm), tt_hlo_transpose(cx->h, indices, perm));
}

/* -- Membership -- */

enum { FEW = 64 };

static tt_node *largest_of(tt_hlo *h, tt_node *x) {
  tt_node *most = tt_hlo_identity(h, TT_MIN, x->type.dtype);
  return tt_hlo_broadcast_to(h, most, x->type.rank, x->type.dims);
}

/* Few test elements are compared one by one; many are sorted and searched. */
static tt_node *contained(tt_lower *cx, tt_node *x, tt_node *tests) {
  tt_hlo *h = cx->h;
  tt_type type = x->type;
  int64_t n = tt_type_numel(&type), count = tt_type_numel(&tests->type), last = 1;
  if (n == 0 || count == 0) {
    type.dtype = TT_BOOL;
    return tt_hlo_zeros(h, &type);
  }
  x = tt_flatten(cx, x);
  tests = tt_flatten(cx, tests);
  tt_node *found;
  if (count <= FEW) {
    int64_t dims[2] = {n, count};
    int along = (int)last;
    found = tt_hlo_compare(h, TT_EQ, tt_hlo_broadcast(h, x, (int[]){0}, 2, dims),
                           tt_hlo_broadcast(h, tests, (int[]){1}, 2, dims));
    found = tt_hlo_reduce(h, TT_OR, found, &along, 1);
  } else {
    tt_node *sorted, *order;
    sorted_along(cx, tests, 0, false, &sorted, &order);
    tt_node *nan = tt_hlo_compare(h, TT_NE, sorted, sorted), *most = largest_of(h, sorted);
    tt_node *place = tt_search(cx, tt_hlo_select(h, nan, most, sorted), NULL, x, false);
    found = tt_hlo_compare(h, TT_EQ, tt_hlo_take(h, sorted, place, 0), x);
  }
  return tt_hlo_reshape(h, found, type.rank, type.dims);
}

/* elements, test elements, assume_unique, invert */
void tt_lower_isin(tt_lower *cx) {
  tt_dtype dtype = cx->result_type == TT_BOOL ? TT_U8 : cx->result_type;
  tt_node *x = tt_cast(cx, tt_in(cx, 0), dtype), *tests = tt_cast(cx, tt_in(cx, 1), dtype);
  if (tt_padded(cx, 1)) { /* by another of the test elements */
    tt_node *first = tt_hlo_slice_dim(cx->h, tt_flatten(cx, tests), 0, 0, 1, 1);
    tests = tt_pad_with(cx, 1, tests, tt_hlo_reshape(cx->h, first, 0, NULL));
  }
  tt_node *found = contained(cx, x, tests);
  tt_out_as(cx, 0, tt_bool(cx, 3) ? tt_hlo_not(cx->h, found) : found);
}
