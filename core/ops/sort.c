/* Sorting, order statistics, and searching in what is sorted. NaN is the largest value. */
#include "ops/index.h"

static tt_dtype sort_dtype(tt_dtype dtype) { return dtype == TT_BOOL ? TT_U8 : dtype; }

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

void tt_sorted(tt_lower *cx, tt_node *x, int dim, bool descending, tt_node **values,
               tt_node **indices) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = x->type.dtype;
  tt_type index = x->type;
  index.dtype = x->type.dims[dim] <= INT32_MAX ? TT_I32 : TT_I64;
  if (x->type.dims[dim] <= 1) {
    index.dtype = TT_I64;
    *values = x;
    *indices = tt_hlo_zeros(h, &index);
    return;
  }
  tt_node *xs[2] = {tt_cast(cx, x, sort_dtype(dtype)), tt_hlo_iota(h, &index, dim)}, *sorted[2];
  static char down;
  tt_hlo_sort(h, 2, xs, dim, true, comes_before, descending ? &down : NULL, sorted);
  *values = tt_cast(cx, sorted[0], dtype);
  *indices = tt_cast(cx, sorted[1], TT_I64);
}

static void state_pair(tt_lower *cx, tt_node *values, tt_node *indices) {
  const tt_type *type = tt_promised(cx, 0);
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, values, type->rank, type->dims));
  tt_out_as(cx, 1, tt_hlo_reshape(cx->h, indices, type->rank, type->dims));
}

/* States two empty results when the promise is empty. */
static bool pair_empty(tt_lower *cx) {
  if (!tt_out_empty(cx)) return false;
  if (cx->promised_count > 1) tt_out(cx, 1, tt_hlo_zeros(cx->h, tt_promised(cx, 1)));
  return true;
}

/* self, stable, dim, descending */
void tt_lower_sort(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = tt_in(cx, 0), *values, *indices;
  int dim = tt_dim(cx, 2, x->type.rank);
  tt_sorted(cx, tt_at_least_1d(cx, x), dim, tt_bool(cx, 3), &values, &indices);
  state_pair(cx, values, indices);
}

/* self, k, dim, largest, sorted */
void tt_lower_topk(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = tt_in(cx, 0), *values, *indices;
  int dim = tt_dim(cx, 2, x->type.rank);
  tt_sorted(cx, tt_at_least_1d(cx, x), dim, tt_bool(cx, 3), &values, &indices);
  int64_t k = tt_int(cx, 1);
  state_pair(cx, tt_hlo_slice_dim(cx->h, values, dim, 0, k, 1),
             tt_hlo_slice_dim(cx->h, indices, dim, 0, k, 1));
}

/* self, k, dim */
void tt_lower_kthvalue(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = tt_in(cx, 0), *values, *indices;
  int dim = tt_dim(cx, 2, x->type.rank);
  tt_sorted(cx, tt_at_least_1d(cx, x), dim, false, &values, &indices);
  int64_t k = tt_int(cx, 1);
  state_pair(cx, tt_hlo_slice_dim(cx->h, values, dim, k - 1, k, 1),
             tt_hlo_slice_dim(cx->h, indices, dim, k - 1, k, 1));
}

/* -- Median -- */

/* The lower median's place along dim in sorted x, with size 1 there. If NaN counts and there is
 * one, the place of the first NaN; if not, NaNs are left out of the count. */
static tt_node *median_place(tt_lower *cx, tt_node *x, int dim, bool skip_nan) {
  tt_hlo *h = cx->h;
  int64_t n = x->type.dims[dim];
  tt_node *is_nan = tt_hlo_compare(h, TT_NE, x, x);
  tt_node *nans = tt_reduce_keep(cx, TT_SUM, tt_hlo_convert(h, is_nan, TT_I64), &dim, 1, true);
  tt_node *zero = tt_hlo_const_i(h, TT_I64, 0), *two = tt_hlo_const_i(h, TT_I64, 2);
  tt_node *valid = tt_hlo_subtract(h, tt_hlo_const_i(h, TT_I64, n), nans);
  if (!skip_nan) {
    tt_node *middle = tt_hlo_full(h, &nans->type, (double)((n - 1) / 2));
    return tt_hlo_select(h, tt_hlo_compare(h, TT_GT, nans, zero), valid, middle);
  }
  valid = tt_hlo_subtract(h, valid, tt_hlo_const_i(h, TT_I64, 1));
  return tt_hlo_divide(h, tt_hlo_maximum(h, valid, zero), two);
}

static void median_along(tt_lower *cx, tt_node *x, int dim, tt_node **value, tt_node **index) {
  tt_hlo *h = cx->h;
  tt_node *values, *indices;
  int64_t n = x->type.dims[dim], middle = (n - 1) / 2;
  tt_sorted(cx, x, dim, false, &values, &indices);
  if (!tt_is_float(x->type.dtype)) {
    *value = tt_hlo_slice_dim(h, values, dim, middle, middle + 1, 1);
    *index = tt_hlo_slice_dim(h, indices, dim, middle, middle + 1, 1);
    return;
  }
  tt_node *place = median_place(cx, x, dim, cx->row->param == 1);
  *value = tt_hlo_take_along(h, values, place, dim);
  *index = tt_hlo_take_along(h, indices, place, dim);
}

void tt_lower_median(tt_lower *cx) {
  tt_node *x = tt_flatten(cx, tt_in(cx, 0)), *value, *index;
  if (x->type.dims[0] == 0) {
    tt_out_as(cx, 0, tt_hlo_divide(cx->h, tt_like(cx, x, 0.0), tt_like(cx, x, 0.0)));
    return;
  }
  median_along(cx, x, 0, &value, &index);
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, value, 0, NULL));
}

/* self, dim */
void tt_lower_median_dim(tt_lower *cx) {
  if (pair_empty(cx)) return;
  tt_node *x = tt_in(cx, 0), *value, *index;
  median_along(cx, tt_at_least_1d(cx, x), tt_dim(cx, 1, x->type.rank), &value, &index);
  state_pair(cx, value, index);
}

/* -- Mode: the smallest of the most frequent values, and its last index -- */

/* How many equal elements end at each place of the sorted last dim. */
static tt_node *run_lengths(tt_lower *cx, tt_node *sorted) {
  tt_hlo *h = cx->h;
  tt_type index = sorted->type;
  index.dtype = TT_I64;
  tt_node *start = tt_search(cx, sorted, sorted, false);
  tt_node *length = tt_hlo_subtract(h, tt_hlo_iota(h, &index, index.rank - 1), start);
  tt_node *one = tt_hlo_const_i(h, TT_I64, 1);
  return tt_hlo_maximum(h, tt_hlo_add(h, length, one), one);
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
  tt_node *x = tt_in(cx, 0), *values, *indices;
  int dim = tt_dim(cx, 1, x->type.rank), perm[TT_MAX_RANK];
  x = tt_at_least_1d(cx, x);
  int last = x->type.rank - 1;
  for (int i = 0; i <= last; i++) perm[i] = i;
  perm[dim] = last;
  perm[last] = dim;
  x = tt_hlo_transpose(cx->h, x, perm);
  tt_sorted(cx, x, last, false, &values, &indices);
  tt_node *place = first_greatest(cx, run_lengths(cx, values));
  values = tt_hlo_take_along(cx->h, values, place, last);
  indices = tt_hlo_take_along(cx->h, indices, place, last);
  state_pair(cx, tt_hlo_transpose(cx->h, values, perm), tt_hlo_transpose(cx->h, indices, perm));
}

/* -- Membership -- */

enum { FEW = 64 };

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
    tt_sorted(cx, tests, 0, false, &sorted, &order);
    found = tt_hlo_take(h, sorted, tt_search(cx, sorted, x, false), 0);
    found = tt_hlo_compare(h, TT_EQ, found, x);
  }
  return tt_hlo_reshape(h, found, type.rank, type.dims);
}

/* elements, test elements, assume_unique, invert */
void tt_lower_isin(tt_lower *cx) {
  tt_dtype dtype = sort_dtype(cx->common);
  tt_node *x = tt_cast(cx, tt_in(cx, 0), dtype), *tests = tt_cast(cx, tt_in(cx, 1), dtype);
  tt_node *found = contained(cx, x, tests);
  tt_out_as(cx, 0, tt_bool(cx, 3) ? tt_hlo_not(cx->h, found) : found);
}
