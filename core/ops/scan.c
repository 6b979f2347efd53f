/* Running sums, products, extremes: doubling steps, so n elements take log2(n) of them. */
#include "ops/reduce.h"

/* Combines `n` nodes of what comes before with `n` of what comes after. */
typedef void (*tt_scan_fn)(tt_lower *cx, tt_node *const *before, tt_node *const *after,
                           tt_node **out);

enum { MAX_PARTS = 2 };

static void scan(tt_lower *cx, tt_node **parts, int n, int dim, tt_scan_fn combine) {
  tt_hlo *h = cx->h;
  int64_t size = parts[0]->type.rank > 0 ? parts[0]->type.dims[dim] : 1;
  for (int64_t step = 1; step < size; step *= 2) {
    tt_node *before[MAX_PARTS], *after[MAX_PARTS], *out[MAX_PARTS];
    for (int i = 0; i < n; i++) {
      before[i] = tt_hlo_slice_dim(h, parts[i], dim, 0, size - step, 1);
      after[i] = tt_hlo_slice_dim(h, parts[i], dim, step, size, 1);
    }
    combine(cx, before, after, out);
    for (int i = 0; i < n; i++) {
      tt_node *head = tt_hlo_slice_dim(h, parts[i], dim, 0, step, 1);
      parts[i] = tt_hlo_concatenate(h, (tt_node *[]){head, out[i]}, 2, dim);
    }
  }
}

static void combine_op(tt_lower *cx, tt_node *const *before, tt_node *const *after,
                       tt_node **out) {
  out[0] = tt_hlo_binary(cx->h, (tt_hlo_op)cx->row->param, before[0], after[0]);
}

/* cumsum and cumprod; param: the tt_hlo_op. */
void tt_lower_cumulate(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  bool whole = tt_is_integer(x->type.dtype) || x->type.dtype == TT_BOOL;
  tt_dtype dtype = tt_result_dtype(cx, 0, whole ? TT_I64 : x->type.dtype);
  x = tt_cast(cx, x, tt_compute_dtype(dtype));
  scan(cx, &x, 1, tt_dim(cx, 1, x->type.rank), combine_op);
  tt_out_in(cx, 0, x, dtype);
}

/* The later of two equal values wins, and NaN wins over all. */
static void combine_extreme(tt_lower *cx, tt_node *const *before, tt_node *const *after,
                            tt_node **out) {
  tt_hlo *h = cx->h;
  tt_node *later = tt_hlo_compare(h, (tt_cmp)cx->row->param, after[0], before[0]);
  if (tt_is_float(after[0]->type.dtype)) later = tt_hlo_or(h, later, tt_is_nan(cx, after[0]));
  for (int i = 0; i < 2; i++) out[i] = tt_hlo_select(h, later, after[i], before[i]);
}

/* cummax and cummin; param: TT_GE or TT_LE. */
void tt_lower_cumulate_extreme(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int dim = tt_dim(cx, 1, x->type.rank);
  tt_type type = x->type;
  type.dtype = TT_I64;
  tt_node *place = type.rank > 0 ? tt_hlo_iota(cx->h, &type, dim) : tt_hlo_zeros(cx->h, &type);
  tt_node *parts[2] = {x, place};
  scan(cx, parts, 2, dim, combine_extreme);
  tt_out_as(cx, 0, parts[0]);
  tt_out_as(cx, 1, parts[1]);
}

static void combine_logaddexp(tt_lower *cx, tt_node *const *before, tt_node *const *after,
                              tt_node **out) {
  tt_hlo *h = cx->h;
  tt_node *a = before[0], *b = after[0], *high = tt_hlo_maximum(h, a, b);
  tt_node *gap = tt_hlo_negate(h, tt_hlo_abs(h, tt_hlo_subtract(h, a, b)));
  tt_node *y = tt_hlo_add(h, high, tt_hlo_log_plus_one(h, tt_hlo_exponential(h, gap)));
  tt_node *endless =
      tt_hlo_compare(h, TT_EQ, tt_hlo_abs(h, high), tt_like(cx, high, (double)INFINITY));
  out[0] = tt_hlo_select(h, endless, high, y);
}

void tt_lower_logcumsumexp(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_dtype dtype = x->type.dtype;
  if (tt_is_complex(dtype)) {
    tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "logcumsumexp: complex operands are not supported");
    return;
  }
  x = tt_cast(cx, x, tt_compute_dtype(dtype));
  scan(cx, &x, 1, tt_dim(cx, 1, x->type.rank), combine_logaddexp);
  tt_out_in(cx, 0, x, dtype);
}
