#include "ops/attention/stretches.h"

enum { MOST_STRETCHES = 4 }; /* each is a loop to compile */

typedef struct stretches {
  tt_lower *cx;
  const tt_attention *a;
  int64_t block, rows, count; /* rows: of each stretch but the last, which may have fewer */
} stretches;

static stretches stretches_of(tt_lower *cx, const tt_attention *a, int64_t block) {
  int64_t rows = a->q->type.dims[a->last - 1], blocks = (rows + block - 1) / block;
  int64_t each = a->causal ? (blocks + MOST_STRETCHES - 1) / MOST_STRETCHES : blocks;
  stretches s = {cx, a, block, each * block, (blocks + each - 1) / each};
  return s;
}

/* Where stretch number `at` begins, and the next one; and how many keys its rows see. */
static int64_t begin_of(const stretches *s, int64_t at) { return at * s->rows; }
static int64_t end_of(const stretches *s, int64_t at) {
  int64_t rows = s->a->q->type.dims[s->a->last - 1], end = (at + 1) * s->rows;
  return end < rows ? end : rows;
}
static int64_t keys_of(const stretches *s, int64_t at) {
  int64_t keys = s->a->k->type.dims[s->a->last - 1], end = end_of(s, at);
  return s->a->causal && end < keys ? end : keys;
}

static tt_node *of_rows(const stretches *s, int64_t at, tt_node *x, int dim) {
  return x ? tt_hlo_slice_dim(s->cx->h, x, dim, begin_of(s, at), end_of(s, at), 1) : NULL;
}

static tt_node *of_keys(const stretches *s, int64_t at, tt_node *x, int dim) {
  return tt_hlo_slice_dim(s->cx->h, x, dim, 0, keys_of(s, at), 1);
}

static tt_attention stretch(const stretches *s, int64_t at) {
  tt_attention part = *s->a;
  int rows = part.last - 1;
  part.q = of_rows(s, at, part.q, rows);
  part.k = of_keys(s, at, part.k, rows);
  part.v = of_keys(s, at, part.v, rows);
  part.first = tt_hlo_const_i(s->cx->h, TT_I32, begin_of(s, at));
  int bias_rows = tt_attention_bias_dim(s->a, 2), bias_keys = tt_attention_bias_dim(s->a, 1);
  if (bias_rows >= 0) part.bias = of_rows(s, at, part.bias, bias_rows);
  if (bias_keys >= 0) part.bias = of_keys(s, at, part.bias, bias_keys);
  return part;
}

tt_attended tt_attend_stretches(tt_lower *cx, const tt_attention *a, int64_t block) {
  stretches s = stretches_of(cx, a, block);
  tt_node *y[MOST_STRETCHES], *lse[MOST_STRETCHES];
  if (s.count == 1) return tt_attend_blocks(cx, a, block);
  for (int64_t at = 0; at < s.count; at++) {
    tt_attention part = stretch(&s, at);
    tt_attended done = tt_attend_blocks(cx, &part, block);
    y[at] = done.y;
    lse[at] = done.lse;
  }
  return (tt_attended){tt_hlo_concatenate(cx->h, y, (int)s.count, a->last - 1),
                       tt_hlo_concatenate(cx->h, lse, (int)s.count, a->last - 1)};
}

/* The sum, where a stretch's gradient lies from (row, 0) on in one of all rows and keys. */
static tt_node *add_up(const stretches *s, tt_node *sum, tt_node *grad, const tt_type *all,
                       int64_t row) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK];
  int rows = all->rank - 2;
  if (rows >= 0 && all->dims[rows] != grad->type.dims[rows]) low[rows] = row;
  for (int d = 0; d < all->rank; d++) high[d] = all->dims[d] - grad->type.dims[d] - low[d];
  grad = tt_hlo_pad(s->cx->h, grad, tt_like(s->cx, grad, 0), low, high, NULL);
  return sum ? tt_hlo_add(s->cx->h, sum, grad) : grad;
}

void tt_attend_stretches_backward(tt_lower *cx, const tt_attention *a,
                                  const tt_attention_saved *saved, int64_t block,
                                  tt_attention_grads *grads) {
  stretches s = stretches_of(cx, a, block);
  const tt_node *of[TT_ATTENTION_GRADS] = {a->q, a->k, a->v, a->bias};
  const int rows = a->last - 1;
  if (s.count == 1) {
    tt_attend_blocks_backward(cx, a, saved, block, grads);
    return;
  }
  for (int64_t at = 0; at < s.count; at++) {
    tt_attention part = stretch(&s, at);
    tt_attention_saved own = {of_rows(&s, at, saved->grad, rows), of_rows(&s, at, saved->out, rows),
                              of_rows(&s, at, saved->lse, rows)};
    tt_attention_grads some = *grads;
    tt_attend_blocks_backward(cx, &part, &own, block, &some);
    for (int i = 0; i < TT_ATTENTION_GRADS; i++) {
      int64_t row = i == TT_GRAD_Q || i == TT_GRAD_BIAS ? begin_of(&s, at) : 0;
      if (of[i] && grads->wanted[i])
        grads->of[i] = add_up(&s, grads->of[i], some.of[i], &of[i]->type, row);
    }
  }
}
