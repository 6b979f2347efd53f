/* Histograms. */
#include "ops/index/index.h"
#include "ops/sort/search.h"

/* Both bounds zero or equal: the bounds are the least and the greatest element. */
static void histogram_bounds(tt_lower *cx, tt_node *x, tt_node **low, tt_node **high) {
  tt_hlo *h = cx->h;
  int dim = 0;
  *low = tt_num(cx, 2, x->type.dtype);
  *high = tt_num(cx, 3, x->type.dtype);
  if (x->type.dims[0] > 0) {
    tt_node *given = tt_hlo_compare(h, TT_NE, *low, *high);
    *low = tt_hlo_select(h, given, *low, tt_extreme(cx, TT_MIN, x, &dim, 1));
    *high = tt_hlo_select(h, given, *high, tt_extreme(cx, TT_MAX, x, &dim, 1));
  }
  tt_node *flat = tt_hlo_compare(h, TT_EQ, *low, *high), *one = tt_like(cx, x, 1.0);
  *low = tt_hlo_select(h, flat, tt_hlo_subtract(h, *low, one), *low);
  *high = tt_hlo_select(h, flat, tt_hlo_add(h, *high, one), *high);
}

/* self, bins, min, max */
void tt_lower_histc(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_flatten(cx, tt_in(cx, 0)), *low, *high;
  int64_t bins = tt_int(cx, 1), n = x->type.dims[0];
  x = tt_cast(cx, x, tt_is_float(x->type.dtype) ? tt_compute_dtype(x->type.dtype) : TT_I64);
  tt_type counts = {.dtype = x->type.dtype, .rank = 1, .dims = {bins}};
  if (n == 0) {
    tt_out_as(cx, 0, tt_hlo_zeros(h, &counts));
    return;
  }
  histogram_bounds(cx, x, &low, &high);
  if (tt_is_float(x->type.dtype))
    tt_check(cx, tt_hlo_not(h, tt_hlo_is_finite(h, tt_hlo_subtract(h, high, low))),
             TT_INVALID_ARGUMENT, "histc: expected finite elements, or a range");
  tt_node *inside =
      tt_hlo_and(h, tt_hlo_compare(h, TT_GE, x, low), tt_hlo_compare(h, TT_LE, x, high));
  tt_node *at = tt_hlo_multiply(h, tt_hlo_subtract(h, x, low), tt_like(cx, x, (double)bins));
  at = tt_hlo_convert(h, tt_quotient(cx, at, tt_hlo_subtract(h, high, low)), TT_I64);
  at = tt_hlo_minimum(h, at, tt_hlo_const_i(h, TT_I64, bins - 1));
  at = tt_hlo_select(h, inside, at, tt_hlo_full(h, &at->type, -1.0));
  tt_node *one = tt_hlo_full(h, &x->type, 1.0);
  tt_out_as(cx, 0, tt_scatter_rows(cx, tt_hlo_zeros(h, &counts), at, one, TT_ADD));
}

/* bins + 1 numbers from low to high. */
static tt_node *even_edges(tt_lower *cx, tt_node *low, tt_node *high, int64_t bins) {
  tt_hlo *h = cx->h;
  tt_type line = {.dtype = low->type.dtype, .rank = 1, .dims = {bins + 1}};
  tt_node *i = tt_hlo_iota(h, &line, 0), *all = tt_like(cx, low, (double)bins);
  tt_node *step = tt_quotient(cx, tt_hlo_subtract(h, high, low), all);
  tt_node *up = tt_hlo_add(h, low, tt_hlo_multiply(h, i, step));
  tt_node *down = tt_hlo_subtract(h, high, tt_hlo_multiply(h, tt_hlo_subtract(h, all, i), step));
  int64_t half = bins / 2 + 1;
  return tt_hlo_select(h, tt_hlo_compare(h, TT_LT, i, tt_like(cx, low, (double)half)), up, down);
}

/* Given as a pair, or the least and the greatest element; bounds that are equal move apart. */
static tt_node *data_edges(tt_lower *cx, tt_node *x, int64_t bins) {
  tt_hlo *h = cx->h;
  int dim = 0;
  bool empty = x->type.dims[0] == 0;
  tt_node *low = tt_like(cx, x, 0.0), *high = tt_like(cx, x, empty ? 1.0 : 0.0);
  if (tt_has(cx, 2)) {
    low = tt_num_at(cx, 2, 0, x->type.dtype);
    high = tt_num_at(cx, 2, 1, x->type.dtype);
  } else if (!empty) {
    low = tt_extreme(cx, TT_MIN, x, &dim, 1);
    high = tt_extreme(cx, TT_MAX, x, &dim, 1);
  }
  tt_node *flat = tt_hlo_compare(h, TT_EQ, low, high), *half = tt_like(cx, x, 0.5);
  low = tt_hlo_select(h, flat, tt_hlo_subtract(h, low, half), low);
  high = tt_hlo_select(h, flat, tt_hlo_add(h, high, half), high);
  return even_edges(cx, low, high, bins);
}

/* The bin of each element, the last of which has both its edges; -1 outside. */
static tt_node *bins_of(tt_lower *cx, tt_node *x, tt_node *edges) {
  tt_hlo *h = cx->h;
  int64_t bins = edges->type.dims[0] - 1;
  tt_node *one = tt_hlo_const_i(h, TT_I64, 1), *count = tt_hlo_const_i(h, TT_I64, bins);
  tt_node *at = tt_hlo_subtract(h, tt_search(cx, edges, NULL, x, true), one);
  tt_node *end = tt_hlo_reshape(h, tt_hlo_slice_dim(h, edges, 0, bins, bins + 1, 1), 0, NULL);
  tt_node *last = tt_hlo_subtract(h, count, one);
  tt_node *on_end = tt_hlo_compare(h, TT_EQ, x, end);
  at = tt_hlo_select(h, on_end, tt_hlo_broadcast_to(h, last, 1, at->type.dims), at);
  tt_node *beyond = tt_hlo_compare(h, TT_GE, at, count);
  return tt_hlo_select(h, beyond, tt_hlo_full(h, &at->type, -1.0), at);
}

/* self, bins or their edges (param 1), range unless edges, weight, density -> counts, edges */
void tt_lower_histogram(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *self = tt_in(cx, 0), *x = tt_flatten(cx, self);
  int weight_arg = cx->row->param == 1 ? 2 : 3, dim = 0;
  tt_node *edges = cx->row->param == 1 ? tt_cast(cx, tt_in(cx, 1), x->type.dtype)
                                       : data_edges(cx, x, tt_int(cx, 1));
  tt_type counts = {.dtype = x->type.dtype, .rank = 1, .dims = {edges->type.dims[0] - 1}};
  tt_node *weight = tt_hlo_full(h, &x->type, 1.0), *sum = tt_hlo_zeros(h, &counts);
  if (tt_has(cx, weight_arg))
    weight = tt_cast(cx, tt_flatten(cx, tt_in(cx, weight_arg)), x->type.dtype);
  if (x->type.dims[0] > 0) sum = tt_scatter_rows(cx, sum, bins_of(cx, x, edges), weight, TT_ADD);
  if (tt_bool(cx, weight_arg + 1)) {
    int64_t n = counts.dims[0];
    tt_node *width = tt_hlo_subtract(h, tt_hlo_slice_dim(h, edges, 0, 1, n + 1, 1),
                                     tt_hlo_slice_dim(h, edges, 0, 0, n, 1));
    sum = tt_quotient(cx, sum, tt_hlo_reduce(h, TT_SUM, sum, &dim, 1));
    sum = tt_hlo_divide(h, sum, width);
  }
  tt_out_as(cx, 0, sum);
  tt_out_as(cx, 1, edges);
}
