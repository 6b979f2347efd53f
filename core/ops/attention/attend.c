#include "ops/attention/attend.h"

#include "ops/random/philox.h"

#include <assert.h>
#include <string.h>

/* a [.., i, x] times b [.., j, x] or b [.., x, j], by `transposed_b`; a [.., x, i] likewise */
static tt_node *matmul(tt_lower *cx, tt_node *a, tt_node *b, bool transposed_a, bool transposed_b,
                       tt_dtype result) {
  int n = a->type.rank - 2;
  return tt_contract(cx, a, b, n, transposed_a ? n : n + 1, transposed_b ? n + 1 : n, result);
}

/* Between [.., heads, rows, x] and [.., key's heads, group * rows, x]. */
static tt_node *regroup(tt_lower *cx, tt_node *x, int64_t group, bool joined) {
  if (group == 1) return x;
  int64_t dims[TT_MAX_RANK];
  int rank = x->type.rank, heads = rank - 3, rows = rank - 2;
  assert(group > 1 && heads >= 0);
  memcpy(dims, x->type.dims, sizeof dims);
  dims[heads] = joined ? dims[heads] / group : dims[heads] * group;
  dims[rows] = joined ? dims[rows] * group : dims[rows] / group;
  return tt_hlo_reshape(cx->h, x, rank, dims);
}

/* A row for each position of the query: x [.., l, i] times y [.., j, i], or [.., i, j]. */
static tt_node *of_queries(tt_lower *cx, const tt_attention *a, tt_node *x, tt_node *y,
                           bool transposed_y) {
  x = matmul(cx, regroup(cx, x, a->group, true), y, false, transposed_y, a->dtype);
  return regroup(cx, x, a->group, false);
}

/* A row for each position of the key: x [.., l, s], transposed, times y [.., l, j]. */
static tt_node *of_keys(tt_lower *cx, const tt_attention *a, tt_node *x, tt_node *y) {
  x = regroup(cx, x, a->group, true);
  return matmul(cx, x, regroup(cx, y, a->group, true), true, false, a->dtype);
}

/* q k^T * scale + bias, -inf where masked: [.., l, s] */
static tt_node *logits(tt_lower *cx, const tt_attention *a) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_hlo_multiply(h, of_queries(cx, a, a->q, a->k, true), a->scale);
  const tt_type *type = &x->type;
  tt_node *lowest = tt_hlo_lowest(h, a->dtype);
  lowest = tt_hlo_broadcast_to(h, lowest, type->rank, type->dims);
  if (a->bias) {
    tt_node *bias = tt_hlo_broadcast_to(h, a->bias, type->rank, type->dims);
    x = bias->type.dtype == TT_BOOL ? tt_hlo_select(h, bias, x, lowest)
                                    : tt_hlo_add(h, x, tt_cast(cx, bias, a->dtype));
  }
  if (a->causal) {
    tt_type ids = *type;
    ids.dtype = TT_I32;
    tt_node *row = tt_hlo_iota(h, &ids, a->last - 1);
    if (a->first) row = tt_hlo_add(h, row, a->first);
    tt_node *past = tt_hlo_compare(h, TT_GE, row, tt_hlo_iota(h, &ids, a->last));
    x = tt_hlo_select(h, past, x, lowest);
  }
  return tt_pad_along(cx, a->key, a->last - 1, x, a->last, TT_MAX);
}

static tt_node *across(tt_lower *cx, tt_node *row, const tt_attention *a, const tt_type *type) {
  return tt_unreduce(cx, row, &a->last, 1, type);
}

/* NULL: they are as they lie. */
static tt_node *places_of_logits(tt_lower *cx, const tt_attention *a, const tt_type *type) {
  tt_axis axes[TT_MAX_RANK];
  int query = a->key - 1;
  for (int d = 0; d < a->last; d++) axes[d] = (tt_axis){query, d};
  axes[a->last] = (tt_axis){a->key, a->last - 1};
  bool padded = tt_padded(cx, query) || tt_padded(cx, a->key);
  return padded ? tt_places_counted(cx, type, axes) : NULL;
}

/* What dropout multiplies each probability by: 0, or 1 / (1 - p). NULL without dropout. */
static tt_node *dropout_factor(tt_lower *cx, const tt_attention *a, const tt_type *type) {
  if (a->dropout <= 0) return NULL;
  tt_hlo *h = cx->h;
  if (a->dropout >= 1) return tt_hlo_zeros(h, type);
  double keep = 1 - a->dropout;
  tt_node *keep_one = tt_hlo_const(h, TT_F32, keep);
  tt_node *kept = tt_dropout_mask(cx, type, keep_one, places_of_logits(cx, a, type));
  tt_node *factor = tt_hlo_const(h, type->dtype, 1 / keep);
  return tt_where_or_zero(cx, kept, tt_hlo_broadcast_to(h, factor, type->rank, type->dims));
}

typedef struct row_sum {
  tt_node *e;       /* exp(x - max) */
  tt_node *divisor; /* the sum of e along a row, 1 where that is 0 */
  tt_node *lse;     /* log of the sum of exp(x) */
} row_sum;

/* A row that is masked everywhere has exponentials 0, and so its output will be 0. */
static row_sum row_sums(tt_lower *cx, const tt_attention *a, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_node *max = tt_hlo_reduce(h, TT_MAX, x, &a->last, 1);
  tt_node *empty = tt_hlo_compare(h, TT_EQ, max, tt_hlo_lowest(h, a->dtype));
  tt_node *shift = tt_hlo_select(h, empty, tt_hlo_zeros(h, &max->type), max);
  tt_node *e = tt_hlo_exponential(h, tt_hlo_subtract(h, x, across(cx, shift, a, &x->type)));
  tt_node *sum = tt_hlo_reduce(h, TT_SUM, e, &a->last, 1);
  tt_node *divisor = tt_hlo_select(h, empty, tt_hlo_full(h, &sum->type, 1), sum);
  return (row_sum){e, divisor, tt_hlo_add(h, shift, tt_hlo_log(h, sum))};
}

/* It draws for each probability, as softmax, dropout and a product do, from the same place. */
tt_attended tt_attend(tt_lower *cx, const tt_attention *a) {
  tt_hlo *h = cx->h;
  tt_node *x = logits(cx, a);
  row_sum r = row_sums(cx, a, x);
  tt_node *factor = dropout_factor(cx, a, &x->type);
  if (factor) cx->drawn = tt_type_numel(&x->type);
  tt_node *p = tt_hlo_divide(h, r.e, across(cx, r.divisor, a, &x->type));
  if (factor) p = tt_hlo_multiply(h, p, factor);
  tt_node *y = of_queries(cx, a, tt_cast(cx, p, a->v->type.dtype), a->v, false);
  return (tt_attended){tt_cast(cx, y, a->q->type.dtype), r.lse};
}

/* Sums what `type` was broadcast over. */
static tt_node *unbroadcast(tt_lower *cx, tt_node *x, const tt_type *type) {
  int dims[TT_MAX_RANK], count = 0, lead = x->type.rank - type->rank;
  for (int d = 0; d < x->type.rank; d++) {
    bool spread = d < lead || (type->dims[d - lead] == 1 && x->type.dims[d] != 1);
    if (spread) dims[count++] = d;
  }
  return tt_hlo_reshape(cx->h, tt_sum(cx, x, dims, count), type->rank, type->dims);
}

/* The probabilities again, from what their rows summed up to. */
static tt_node *probabilities(tt_lower *cx, const tt_attention *a, tt_node *lse) {
  tt_hlo *h = cx->h;
  tt_node *x = logits(cx, a);
  if (!lse) lse = row_sums(cx, a, x).lse;
  tt_node *empty = tt_hlo_compare(h, TT_EQ, lse, tt_hlo_lowest(h, a->dtype));
  lse = tt_where_or_zero(cx, tt_hlo_not(h, empty), lse);
  return tt_hlo_exponential(h, tt_hlo_subtract(h, x, across(cx, lse, a, &x->type)));
}

void tt_attend_backward(tt_lower *cx, const tt_attention *a, const tt_attention_saved *saved,
                        tt_attention_grads *grads) {
  tt_hlo *h = cx->h;
  tt_dtype half = a->q->type.dtype;
  tt_node *grad = saved->grad, *p = probabilities(cx, a, saved->lse);
  tt_node *factor = dropout_factor(cx, a, &p->type);
  tt_node *kept = factor ? tt_hlo_multiply(h, p, factor) : p;
  if (grads->wanted[TT_GRAD_V])
    grads->of[TT_GRAD_V] = of_keys(cx, a, tt_cast(cx, kept, half), grad);
  tt_node *dp = of_queries(cx, a, grad, a->v, true);
  if (factor) dp = tt_hlo_multiply(h, dp, factor);
  tt_node *dot = tt_hlo_multiply(h, tt_cast(cx, grad, a->dtype), tt_cast(cx, saved->out, a->dtype));
  dot = tt_sum(cx, dot, &a->last, 1);
  tt_node *ds = tt_hlo_subtract(h, dp, across(cx, dot, a, &dp->type));
  ds = tt_hlo_multiply(h, p, ds);
  if (grads->wanted[TT_GRAD_BIAS]) grads->of[TT_GRAD_BIAS] = unbroadcast(cx, ds, &a->bias->type);
  ds = tt_cast(cx, tt_hlo_multiply(h, ds, a->scale), half);
  if (grads->wanted[TT_GRAD_Q]) grads->of[TT_GRAD_Q] = of_queries(cx, a, ds, a->k, false);
  if (grads->wanted[TT_GRAD_K]) grads->of[TT_GRAD_K] = of_keys(cx, a, ds, a->q);
}
