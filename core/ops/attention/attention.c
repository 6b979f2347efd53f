/* Scaled dot-product attention and its gradients: what calls ask for. */
#include "ops/attention/stretches.h"

#include <math.h>

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

/* query, key, value, attn_bias?, dropout_p, is_causal, return_debug_mask, scale?
 * -> output, logsumexp, none, none, max_q, max_k, seed, offset, none */
void tt_lower_attention(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_attention a = attention_of(cx, 0, 4, 5, 7);
  if (tt_hlo_failed(h)) return;
  cx->drawn = 0;
  int64_t block = tt_attention_block(&a);
  tt_attended done = block ? tt_attend_stretches(cx, &a, block) : tt_attend(cx, &a);
  tt_node *zero = tt_hlo_const_i(h, TT_I64, 0);
  tt_out_as(cx, 0, done.y);
  tt_out_as(cx, 1, done.lse);
  tt_out_as(cx, 6, a.dropout > 0 ? cx->seed : zero);
  tt_out_as(cx, 7, a.dropout > 0 ? cx->offset : zero);
}

/* grad_out?, query, key, value, attn_bias, grad_input_mask[4], out, logsumexp, cum_seq_q,
 * cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, scale? Without a
 * gradient of the output there are none of the inputs. */
void tt_lower_attention_backward(tt_lower *cx) {
  if (!tt_has(cx, 0)) return;
  tt_attention a = attention_of(cx, 1, 12, 13, 16);
  if (tt_hlo_failed(cx->h)) return;
  tt_attention_saved saved = {tt_in_counted(cx, 0), tt_in_counted(cx, 6),
                              tt_pad(cx, 7, tt_in(cx, 7), TT_MAX)};
  a.q = tt_in_counted(cx, 1);
  a.k = tt_in_counted(cx, 2);
  a.v = tt_in_counted(cx, 3);
  if (a.bias) a.bias = tt_in_counted(cx, 4);
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
  if (block) tt_attend_stretches_backward(cx, &a, &saved, block, &grads);
  else tt_attend_backward(cx, &a, &saved, &grads);
  for (int i = 0; i < TT_ATTENTION_GRADS; i++)
    if (grads.wanted[i]) tt_out_as(cx, i, tt_cast(cx, grads.of[i], inputs[i]->type.dtype));
}
