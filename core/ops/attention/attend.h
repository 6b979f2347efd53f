/* Scaled dot-product attention of all of a query's rows at once. Leading dims are batch dims, the
 * last of them the heads; then come rows (positions) and features. Of grouped queries, several
 * heads in a row have one head of the keys and values. Logits and probabilities are kept in f32
 * (f64 for f64 inputs). */
#ifndef TT_ATTEND_H
#define TT_ATTEND_H

#include "ops/nn.h"

typedef struct tt_attention {
  tt_node *q, *k, *v, *bias; /* bias NULL if there is none */
  tt_node *first;            /* which of all rows q's first one is, i32; NULL: the first */
  int key;                   /* k's argument */
  int rank, last;
  int64_t group;  /* heads of the query to one of the key */
  tt_dtype dtype; /* of logits */
  tt_node *scale;
  double dropout;
  bool causal;
} tt_attention;

/* The bias's dim of rows (from_last: 2) or of keys (1), or -1: it is the same for all of them. */
static inline int tt_attention_bias_dim(const tt_attention *a, int from_last) {
  int dim = a->bias ? a->bias->type.rank - from_last : -1;
  return dim >= 0 && a->bias->type.dims[dim] > 1 ? dim : -1;
}

typedef struct tt_attended {
  tt_node *y;   /* of q's dtype */
  tt_node *lse; /* log of the sum of a row's exponentials */
} tt_attended;
tt_attended tt_attend(tt_lower *cx, const tt_attention *a);

/* What attention returned, and the gradient of its y. */
typedef struct tt_attention_saved {
  tt_node *grad, *out;
  tt_node *lse; /* NULL: is computed again */
} tt_attention_saved;
/* Of logits' dtype; `wanted` on entry, NULL where they are not. */
enum { TT_GRAD_Q, TT_GRAD_K, TT_GRAD_V, TT_GRAD_BIAS, TT_ATTENTION_GRADS };
typedef struct tt_attention_grads {
  bool wanted[TT_ATTENTION_GRADS];
  tt_node *of[TT_ATTENTION_GRADS];
} tt_attention_grads;
void tt_attend_backward(tt_lower *cx, const tt_attention *a, const tt_attention_saved *saved,
                        tt_attention_grads *grads);

#endif
