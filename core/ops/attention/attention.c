/* Scaled dot-product attention and its gradients. Leading dims are batch dims, the last of them the
 * heads; then come positions and features. Of grouped queries, several heads in a row have one head
 * of the keys and values. Logits and probabilities are kept in f32 (f64 for f64 inputs). */
#include "ops/nn.h"
#include "ops/random/philox.h"

#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct attention {
  tt_node *q, *k, *v, *bias; /* bias NULL if there is none */
  int rank, last;
  int64_t group;  /* heads of the query to one of the key */
  tt_dtype dtype; /* of logits */
  tt_node *scale;
  double dropout;
  bool causal;
} attention;

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
static tt_node *of_queries(tt_lower *cx, const attention *a, tt_node *x, tt_node *y,
                           bool transposed_y) {
  x = matmul(cx, regroup(cx, x, a->group, true), y, false, transposed_y, a->dtype);
  return regroup(cx, x, a->group, false);
}

/* A row for each position of the key: x [.., l, s], transposed, times y [.., l, j]. */
static tt_node *of_keys(tt_lower *cx, const attention *a, tt_node *x, tt_node *y) {
  x = regroup(cx, x, a->group, true);
  return matmul(cx, x, regroup(cx, y, a->group, true), true, false, a->dtype);
}

/* Heads of the query to one of the key, which is argument `key`; 1 after a failure. */
static int64_t group_of(tt_lower *cx, const attention *a, int key) {
  int dim = a->rank - 3;
  if (dim < 0) return 1;
  int64_t heads = a->q->type.dims[dim], shared = a->k->type.dims[dim];
  if (heads == shared) return 1;
  if (tt_padded_along(cx, key - 1, dim) || tt_padded_along(cx, key, dim)) {
    tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "grouped queries need a known number of heads");
    return 1;
  }
  if (shared > 0 && heads % shared == 0) return heads / shared;
  tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
              "scaled_dot_product_attention: the query's %lld heads are no multiple of the key's "
              "%lld",
              (long long)heads, (long long)shared);
  return 1;
}

/* query, key, value, attn_bias? at `first`; dropout_p, is_causal, scale? at their positions */
static attention attention_of(tt_lower *cx, int first, int dropout, int causal, int scale) {
  attention a = {.q = tt_in(cx, first), .k = tt_in(cx, first + 1), .v = tt_in(cx, first + 2)};
  a.rank = a.q->type.rank;
  a.last = a.rank - 1;
  if (a.rank < 2 || a.k->type.rank != a.rank || a.v->type.rank != a.rank) {
    tt_hlo_fail(
        cx->h, TT_INVALID_ARGUMENT,
        "scaled_dot_product_attention: query, key and value need the same rank, at least 2");
    return a;
  }
  a.group = group_of(cx, &a, first + 1);
  a.bias = tt_has(cx, first + 3) ? tt_in(cx, first + 3) : NULL;
  a.dtype = tt_compute_dtype(a.q->type.dtype);
  double size = (double)a.q->type.dims[a.last];
  a.scale = tt_has(cx, scale) ? tt_num(cx, scale, a.dtype)
                              : tt_hlo_const(cx->h, a.dtype, 1 / sqrt(size > 0 ? size : 1));
  a.dropout = tt_float(cx, dropout);
  a.causal = tt_bool(cx, causal);
  return a;
}

/* q k^T * scale + bias, -inf where masked: [.., l, s]; k is argument `key` */
static tt_node *logits(tt_lower *cx, const attention *a, int key) {
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
    tt_node *past =
        tt_hlo_compare(h, TT_GE, tt_hlo_iota(h, &ids, a->last - 1), tt_hlo_iota(h, &ids, a->last));
    x = tt_hlo_select(h, past, x, lowest);
  }
  return tt_pad_along(cx, key, a->last - 1, x, a->last, TT_MAX);
}

static tt_node *across(tt_lower *cx, tt_node *row, const attention *a, const tt_type *type) {
  return tt_unreduce(cx, row, &a->last, 1, type);
}

/* What dropout multiplies each probability by: 0, or 1 / (1 - p). NULL without dropout. */
static tt_node *dropout_factor(tt_lower *cx, const attention *a, const tt_type *type) {
  if (a->dropout <= 0) return NULL;
  tt_hlo *h = cx->h;
  if (a->dropout >= 1) return tt_hlo_zeros(h, type);
  double keep = 1 - a->dropout;
  tt_node *kept = tt_dropout_mask(cx, type, tt_hlo_const(h, TT_F32, keep));
  tt_node *factor = tt_hlo_const(h, type->dtype, 1 / keep);
  return tt_where_or_zero(cx, kept, tt_hlo_broadcast_to(h, factor, type->rank, type->dims));
}

typedef struct row_sum {
  tt_node *e;       /* exp(x - max) */
  tt_node *divisor; /* the sum of e along a row, 1 where that is 0 */
  tt_node *lse;     /* log of the sum of exp(x) */
} row_sum;

/* A row that is masked everywhere has exponentials 0, and so its output will be 0. */
static row_sum row_sums(tt_lower *cx, const attention *a, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_node *max = tt_hlo_reduce(h, TT_MAX, x, &a->last, 1);
  tt_node *empty = tt_hlo_compare(h, TT_EQ, max, tt_hlo_lowest(h, a->dtype));
  tt_node *shift = tt_hlo_select(h, empty, tt_hlo_zeros(h, &max->type), max);
  tt_node *e = tt_hlo_exponential(h, tt_hlo_subtract(h, x, across(cx, shift, a, &x->type)));
  tt_node *sum = tt_hlo_reduce(h, TT_SUM, e, &a->last, 1);
  tt_node *divisor = tt_hlo_select(h, empty, tt_hlo_full(h, &sum->type, 1), sum);
  return (row_sum){e, divisor, tt_hlo_add(h, shift, tt_hlo_log(h, sum))};
}

/* It draws for each probability, as softmax, dropout and a product do, from the same place.
 * query, key, value, attn_bias?, dropout_p, is_causal, return_debug_mask, scale?
 * -> output, logsumexp, none, none, max_q, max_k, seed, offset, none */
void tt_lower_attention(tt_lower *cx) {
  tt_hlo *h = cx->h;
  attention a = attention_of(cx, 0, 4, 5, 7);
  if (tt_hlo_failed(h)) return;
  if (a.dropout > 0 && tt_padded(cx, 1)) {
    tt_hlo_fail(h, TT_UNIMPLEMENTED,
                "scaled_dot_product_attention: dropout draws for a known size");
    return;
  }
  tt_node *x = logits(cx, &a, 1);
  row_sum r = row_sums(cx, &a, x);
  tt_node *factor = dropout_factor(cx, &a, &x->type);
  cx->drawn = factor ? tt_type_numel(&x->type) : 0;
  tt_node *p = tt_hlo_divide(h, r.e, across(cx, r.divisor, &a, &x->type));
  if (factor) p = tt_hlo_multiply(h, p, factor);
  tt_node *y = of_queries(cx, &a, tt_cast(cx, p, a.v->type.dtype), a.v, false);
  tt_node *zero = tt_hlo_const_i(h, TT_I64, 0);
  tt_out_as(cx, 0, tt_cast(cx, y, a.q->type.dtype));
  tt_out_as(cx, 1, r.lse);
  tt_out_as(cx, 6, a.dropout > 0 ? cx->seed : zero);
  tt_out_as(cx, 7, a.dropout > 0 ? cx->offset : zero);
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

static void out_if(tt_lower *cx, int k, tt_node *x, tt_node *like) {
  if (tt_flag(cx, 5, k)) tt_out_as(cx, k, tt_cast(cx, x, like->type.dtype));
}

/* grad_out?, query, key, value, attn_bias, grad_input_mask[4], out, logsumexp, cum_seq_q,
 * cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, scale? Without a
 * gradient of the output there are none of the inputs. */
void tt_lower_attention_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  if (!tt_has(cx, 0)) return;
  attention a = attention_of(cx, 1, 12, 13, 16);
  if (tt_hlo_failed(h)) return;
  tt_dtype half = a.q->type.dtype;
  tt_node *grad = tt_in(cx, 0), *out = tt_cast(cx, tt_in(cx, 6), a.dtype);
  tt_node *x = logits(cx, &a, 2), *lse = tt_in(cx, 7);
  bool fits = lse->type.dtype == a.dtype && lse->type.rank == a.rank - 1;
  if (!fits) lse = row_sums(cx, &a, x).lse; /* saved with less precision, or for four dims */
  tt_node *empty = tt_hlo_compare(h, TT_EQ, lse, tt_hlo_lowest(h, a.dtype));
  lse = tt_where_or_zero(cx, tt_hlo_not(h, empty), lse);
  tt_node *p = tt_hlo_exponential(h, tt_hlo_subtract(h, x, across(cx, lse, &a, &x->type)));
  if (a.dropout > 0) {
    cx->seed = tt_in(cx, 14);
    cx->offset = tt_in(cx, 15);
  }
  tt_node *factor = dropout_factor(cx, &a, &p->type);
  tt_node *kept = factor ? tt_hlo_multiply(h, p, factor) : p;
  out_if(cx, 2, of_keys(cx, &a, tt_cast(cx, kept, half), grad), a.v);
  tt_node *dp = of_queries(cx, &a, grad, a.v, true);
  if (factor) dp = tt_hlo_multiply(h, dp, factor);
  tt_node *dot = tt_hlo_multiply(h, tt_cast(cx, grad, a.dtype), out);
  dot = tt_sum(cx, dot, &a.last, 1);
  tt_node *ds = tt_hlo_subtract(h, dp, across(cx, dot, &a, &dp->type));
  ds = tt_hlo_multiply(h, p, ds);
  if (a.bias && tt_flag(cx, 5, 3)) {
    tt_out_as(cx, 3, tt_cast(cx, unbroadcast(cx, ds, &a.bias->type), a.bias->type.dtype));
  }
  ds = tt_cast(cx, tt_hlo_multiply(h, ds, a.scale), half);
  out_if(cx, 0, of_queries(cx, &a, ds, a.k, false), a.q);
  out_if(cx, 1, of_keys(cx, &a, ds, a.q), a.k);
}
