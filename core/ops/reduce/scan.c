/* Running sums, products, extremes: windows that reach back to the beginning, which compilers know
 * how to scan in parallel. */
#include "ops/pointwise/pointwise.h"

static tt_node *running(tt_lower *cx, tt_reducer reducer, tt_node *x, int dim) {
  if (x->type.rank == 0 || tt_type_numel(&x->type) == 0) return x;
  int64_t size[TT_MAX_RANK], padding[2 * TT_MAX_RANK] = {0};
  for (int i = 0; i < x->type.rank; i++) size[i] = 1;
  size[dim] = x->type.dims[dim];
  padding[2 * dim] = size[dim] - 1;
  tt_window window = {.size = size, .padding = padding};
  return tt_hlo_reduce_window(cx->h, reducer, x, &window);
}

/* cumsum and cumprod; param: the reducer. */
void tt_lower_cumulate(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  bool whole = tt_is_integer(x->type.dtype) || x->type.dtype == TT_BOOL;
  tt_dtype dtype = tt_meta_dtype(cx, 0, whole ? TT_I64 : x->type.dtype);
  x = tt_cast_wrapping(cx, x, tt_compute_dtype(dtype));
  x = running(cx, (tt_reducer)cx->row->param, x, tt_dim(cx, 1, x->type.rank));
  tt_out_in(cx, 0, x, dtype);
}

/* cummax and cummin; param: the reducer. An element that equals the extreme so far set it, so the
 * place is that of the last such element; NaN sets it always. */
void tt_lower_cumulate_extreme(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *in = tt_in(cx, 0);
  tt_node *x = in->type.dtype == TT_BOOL ? tt_cast(cx, in, TT_U8) : in;
  int dim = tt_dim(cx, 1, x->type.rank);
  tt_type type = x->type;
  type.dtype = TT_I32;
  tt_node *extreme = running(cx, (tt_reducer)cx->row->param, x, dim);
  tt_node *sets = tt_hlo_compare(h, TT_EQ, x, extreme), *zeros = tt_hlo_zeros(h, &type);
  if (tt_is_float(x->type.dtype)) sets = tt_hlo_or(h, sets, tt_is_nan(cx, x));
  tt_node *place = type.rank > 0 ? tt_hlo_iota(h, &type, dim) : zeros;
  tt_out_in(cx, 0, extreme, in->type.dtype);
  tt_out_in(cx, 1, running(cx, TT_MAX, tt_hlo_select(h, sets, place, zeros), dim), TT_I64);
}

/* Complex numbers are ordered by their real parts. */
static tt_node *logaddexp(tt_lower *cx, tt_node *a, tt_node *b) {
  tt_hlo *h = cx->h;
  tt_node *swap = tt_hlo_compare(h, TT_LT, tt_hlo_real(h, a), tt_hlo_real(h, b));
  tt_node *high = tt_hlo_select(h, swap, b, a), *low = tt_hlo_select(h, swap, a, b);
  tt_node *rest = tt_hlo_exponential(h, tt_hlo_subtract(h, low, high));
  tt_node *y = tt_hlo_add(h, high, tt_hlo_log_plus_one(h, rest)), *top = tt_hlo_real(h, high);
  tt_node *endless =
      tt_hlo_compare(h, TT_EQ, tt_hlo_abs(h, top), tt_like(cx, top, (double)INFINITY));
  y = tt_hlo_select(h, endless, high, y);
  return tt_hlo_select(h, tt_is_nan(cx, tt_hlo_real(h, b)), b, y);
}

typedef struct scan_task {
  tt_lower *cx;
  tt_node *x;
  int dim;
} scan_task;

/* args: the place, the sum before it, all sums. */
static void next_element(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const scan_task *task = user;
  tt_node *starts[TT_MAX_RANK];
  for (int i = 0; i < task->x->type.rank; i++)
    starts[i] = i == task->dim ? args[0] : tt_hlo_const_i(h, TT_I64, 0);
  tt_node *next = tt_hlo_dynamic_slice(h, task->x, starts, args[1]->type.dims);
  results[1] = logaddexp(task->cx, args[1], next);
  results[2] = tt_hlo_dynamic_update_slice(h, args[2], results[1], starts);
}

/* One element after the other: the imaginary part, which is known but for whole turns, is that of
 * the greatest so far, and so depends on the order. */
static tt_node *complex_logcumsumexp(tt_lower *cx, tt_node *x, int dim) {
  tt_hlo *h = cx->h;
  scan_task task = {cx, x, dim};
  tt_node *inits[3] = {tt_hlo_const_i(h, TT_I64, 1), tt_hlo_slice_dim(h, x, dim, 0, 1, 1), x};
  tt_node *out[3];
  tt_hlo_count_up(h, x->type.dims[dim], 3, inits, next_element, &task, out);
  return out[2];
}

/* Doubling steps: after k of them each element stands for the 2^k before it. */
void tt_lower_logcumsumexp(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0);
  tt_dtype dtype = x->type.dtype;
  x = tt_cast(cx, x, tt_compute_dtype(dtype));
  int dim = tt_dim(cx, 1, x->type.rank);
  int64_t size = x->type.rank > 0 ? x->type.dims[dim] : 1;
  if (tt_is_complex(dtype) && size > 1) {
    tt_out_in(cx, 0, complex_logcumsumexp(cx, x, dim), dtype);
    return;
  }
  for (int64_t step = 1; step < size; step *= 2) {
    tt_node *before = tt_hlo_slice_dim(h, x, dim, 0, size - step, 1);
    tt_node *after = tt_hlo_slice_dim(h, x, dim, step, size, 1);
    tt_node *parts[2] = {tt_hlo_slice_dim(h, x, dim, 0, step, 1), logaddexp(cx, before, after)};
    x = tt_hlo_concatenate(h, parts, 2, dim);
  }
  tt_out_in(cx, 0, x, dtype);
}
