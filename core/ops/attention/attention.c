/* Scaled dot-product attention and its gradients. */
#include "ops/attention/attention.h"
#include "ops/random/philox.h"

#include <assert.h>
#include <math.h>
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

/* Heads of the query to one of the key; 1 after a failure. */
static int64_t group_of(tt_lower *cx, const tt_attention *a) {
  int dim = a->rank - 3, key = a->key;
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
static tt_attention attention_of(tt_lower *cx, int first, int dropout, int causal, int scale) {
  tt_attention a = {.q = tt_in(cx, first),
                    .k = tt_in(cx, first + 1),
                    .v = tt_in(cx, first + 2),
                    .key = first + 1};
  a.rank = a.q->type.rank;
  a.last = a.rank - 1;
  if (a.rank < 2 || a.k->type.rank != a.rank || a.v->type.rank != a.rank) {
    tt_hlo_fail(
        cx->h, TT_INVALID_ARGUMENT,
        "scaled_dot_product_attention: query, key and value need the same rank, at least 2");
    return a;
  }
  a.group = group_of(cx, &a);
  a.bias = tt_has(cx, first + 3) ? tt_in(cx, first + 3) : NULL;
  a.dtype = tt_compute_dtype(a.q->type.dtype);
  double size = (double)a.q->type.dims[a.last];
  a.scale = tt_has(cx, scale) ? tt_num(cx, scale, a.dtype)
                              : tt_hlo_const(cx->h, a.dtype, 1 / sqrt(size > 0 ? size : 1));
  a.dropout = tt_float(cx, dropout);
  a.causal = tt_bool(cx, causal);
  return a;
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

/* What dropout multiplies each probability by: 0, or 1 / (1 - p). NULL without dropout. */
static tt_node *dropout_factor(tt_lower *cx, const tt_attention *a, const tt_type *type) {
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

/* query, key, value, attn_bias?, dropout_p, is_causal, return_debug_mask, scale?
 * -> output, logsumexp, none, none, max_q, max_k, seed, offset, none */
void tt_lower_attention(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_attention a = attention_of(cx, 0, 4, 5, 7);
  if (tt_hlo_failed(h)) return;
  if (a.dropout > 0 && tt_padded(cx, 1)) {
    tt_hlo_fail(h, TT_UNIMPLEMENTED,
                "scaled_dot_product_attention: dropout draws for a known size");
    return;
  }
  cx->drawn = 0;
  int64_t block = tt_attention_block(&a);
  tt_attended done = block ? tt_attend_blocks(cx, &a, block) : tt_attend(cx, &a);
  tt_node *zero = tt_hlo_const_i(h, TT_I64, 0);
  tt_out_as(cx, 0, done.y);
  tt_out_as(cx, 1, done.lse);
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

/* grad_out?, query, key, value, attn_bias, grad_input_mask[4], out, logsumexp, cum_seq_q,
 * cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, scale? Without a
 * gradient of the output there are none of the inputs. */
void tt_lower_attention_backward(tt_lower *cx) {
  if (!tt_has(cx, 0)) return;
  tt_attention a = attention_of(cx, 1, 12, 13, 16);
  if (tt_hlo_failed(cx->h)) return;
  tt_attention_saved saved = {tt_in(cx, 0), tt_in(cx, 6), tt_in(cx, 7)};
  const tt_type *lse = &saved.lse->type; /* may be saved with less precision, or for four dims */
  if (lse->dtype != a.dtype || lse->rank != a.rank - 1) saved.lse = NULL;
  if (a.dropout > 0) {
    cx->seed = tt_in(cx, 14);
    cx->offset = tt_in(cx, 15);
  }
  tt_attention_grads grads = {0};
  tt_node *inputs[TT_ATTENTION_GRADS] = {a.q, a.k, a.v, a.bias};
  for (int i = 0; i < TT_ATTENTION_GRADS; i++) grads.wanted[i] = inputs[i] && tt_flag(cx, 5, i);
  int64_t block = tt_attention_block(&a);
  if (block) tt_attend_blocks_backward(cx, &a, &saved, block, &grads);
  else tt_attend_backward(cx, &a, &saved, &grads);
  for (int i = 0; i < TT_ATTENTION_GRADS; i++)
    if (grads.wanted[i]) tt_out_as(cx, i, tt_cast(cx, grads.of[i], inputs[i]->type.dtype));
}
