#include "ops/attention/blocks.h"

/* Logits of fewer bytes are taken at once; a block has as many rows as fit, between these. */
enum { FEW_BYTES = 32 << 20, BLOCK_BYTES = 8 << 20, FEWEST_ROWS = 64, MOST_ROWS = 1024 };

int64_t tt_attention_block(const tt_attention *a) {
  int64_t rows = a->q->type.dims[a->last - 1];
  double row = (double)tt_dtype_bytes(a->dtype) * (double)a->k->type.dims[a->last - 1];
  for (int d = 0; d < a->last - 1; d++) row *= (double)a->q->type.dims[d];
  if (a->dropout > 0 || row * (double)rows <= FEW_BYTES) return 0;
  double fit = BLOCK_BYTES / row;
  int64_t block = fit < FEWEST_ROWS ? FEWEST_ROWS : fit > MOST_ROWS ? MOST_ROWS : (int64_t)fit;
  block -= block % FEWEST_ROWS;
  for (int64_t less = block; less > block / 2; less -= FEWEST_ROWS)
    if (rows % less == 0) return less; /* no rows are added behind the last ones */
  return block < rows ? block : 0;
}

typedef struct blocks {
  tt_lower *cx;
  tt_attention all;         /* with rows of zeros behind the last, to whole blocks */
  tt_attention_saved saved; /* likewise; of backward */
  tt_attention_grads grads; /* which are wanted */
  int64_t rows, count;      /* of a block; of blocks */
} blocks;

/* -- Rows -- */

static int rows_of_bias(const tt_attention *a) { return tt_attention_bias_dim(a, 2); }

static tt_node *add_rows(const blocks *b, tt_node *x, int dim, int64_t rows) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  if (!x || dim < 0 || x->type.dims[dim] == rows) return x;
  high[dim] = rows - x->type.dims[dim];
  return tt_hlo_pad(b->cx->h, x, tt_like(b->cx, x, 0), low, high, NULL);
}

static void starts_of(const blocks *b, const tt_node *x, int dim, tt_node *first,
                      tt_node **starts) {
  for (int d = 0; d < x->type.rank; d++)
    starts[d] = d == dim ? first : tt_hlo_const_i(b->cx->h, TT_I32, 0);
}

static tt_node *take_rows(const blocks *b, tt_node *x, int dim, tt_node *first) {
  tt_node *starts[TT_MAX_RANK];
  if (!x || dim < 0) return x;
  tt_type part = x->type;
  part.dims[dim] = b->rows;
  starts_of(b, x, dim, first, starts);
  return tt_hlo_dynamic_slice(b->cx->h, x, starts, part.dims);
}

static tt_node *put_rows(const blocks *b, tt_node *x, tt_node *rows, int dim, tt_node *first) {
  tt_node *starts[TT_MAX_RANK];
  starts_of(b, x, dim, first, starts);
  return tt_hlo_dynamic_update_slice(b->cx->h, x, rows, starts);
}

static blocks blocks_of(tt_lower *cx, const tt_attention *a, int64_t rows) {
  blocks b = {.cx = cx, .all = *a, .rows = rows};
  b.count = (a->q->type.dims[a->last - 1] + rows - 1) / rows;
  b.all.q = add_rows(&b, a->q, a->last - 1, b.count * rows);
  b.all.bias = add_rows(&b, a->bias, rows_of_bias(a), b.count * rows);
  return b;
}

static tt_node *first_of(const blocks *b, tt_node *at) {
  return tt_hlo_multiply(b->cx->h, at, tt_hlo_const_i(b->cx->h, TT_I32, b->rows));
}

/* The rows of block number `at`. */
static tt_attention block_at(const blocks *b, tt_node *at) {
  tt_attention part = b->all;
  tt_node *first = first_of(b, at);
  part.q = take_rows(b, part.q, part.last - 1, first);
  part.bias = take_rows(b, part.bias, rows_of_bias(&b->all), first);
  part.first = part.first ? tt_hlo_add(b->cx->h, part.first, first) : first;
  return part;
}

/* -- Forward -- */

static void attend_block(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)h;
  const blocks *b = user;
  tt_attention part = block_at(b, args[0]);
  tt_attended done = tt_attend(b->cx, &part);
  tt_node *first = first_of(b, args[0]);
  results[1] = put_rows(b, args[1], done.y, part.last - 1, first);
  results[2] = put_rows(b, args[2], done.lse, part.last - 1, first);
}

tt_attended tt_attend_blocks(tt_lower *cx, const tt_attention *a, int64_t block) {
  tt_hlo *h = cx->h;
  blocks b = blocks_of(cx, a, block);
  int dim = a->last - 1;
  tt_type y = b.all.q->type, lse = y;
  y.dims[a->last] = a->v->type.dims[a->last];
  lse.rank--;
  lse.dtype = a->dtype;
  tt_node *state[3] = {tt_hlo_const_i(h, TT_I32, 0), tt_hlo_zeros(h, &y), tt_hlo_zeros(h, &lse)};
  tt_node *end[3];
  tt_hlo_count_up(h, b.count, 3, state, attend_block, &b, end);
  int64_t rows = a->q->type.dims[dim];
  return (tt_attended){tt_hlo_slice_dim(h, end[1], dim, 0, rows, 1),
                       tt_hlo_slice_dim(h, end[2], dim, 0, rows, 1)};
}

/* -- Backward: gradients of keys and values are sums over the blocks -- */

/* The dim of the rows that a block alone has gradients for; -1: the gradients are summed up. */
static int rows_of_grad(const blocks *b, int which) {
  if (which == TT_GRAD_Q) return b->all.last - 1;
  return which == TT_GRAD_BIAS ? rows_of_bias(&b->all) : -1;
}

static void backward_block(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)h;
  const blocks *b = user;
  tt_attention part = block_at(b, args[0]);
  int dim = part.last - 1, n = 1;
  tt_node *first = first_of(b, args[0]);
  tt_attention_saved saved = {take_rows(b, b->saved.grad, dim, first),
                              take_rows(b, b->saved.out, dim, first),
                              take_rows(b, b->saved.lse, dim, first)};
  tt_attention_grads grads = b->grads;
  tt_attend_backward(b->cx, &part, &saved, &grads);
  for (int i = 0; i < TT_ATTENTION_GRADS; i++) {
    int rows = rows_of_grad(b, i);
    if (!grads.wanted[i]) continue;
    results[n] = rows < 0 ? tt_hlo_add(h, args[n], grads.of[i])
                          : put_rows(b, args[n], grads.of[i], rows, first);
    n++;
  }
}

static tt_node *zeros_as(const blocks *b, const tt_node *x) {
  tt_type type = x->type;
  type.dtype = b->all.dtype;
  return tt_hlo_zeros(b->cx->h, &type);
}

void tt_attend_blocks_backward(tt_lower *cx, const tt_attention *a, const tt_attention_saved *saved,
                               int64_t block, tt_attention_grads *grads) {
  tt_hlo *h = cx->h;
  blocks b = blocks_of(cx, a, block);
  const int dim = a->last - 1;
  const int64_t all = block * b.count;
  b.grads = *grads;
  b.saved =
      (tt_attention_saved){add_rows(&b, saved->grad, dim, all), add_rows(&b, saved->out, dim, all),
                           add_rows(&b, saved->lse, dim, all)};
  const tt_node *of[TT_ATTENTION_GRADS] = {b.all.q, b.all.k, b.all.v, b.all.bias};
  tt_node *state[1 + TT_ATTENTION_GRADS] = {tt_hlo_const_i(h, TT_I32, 0)};
  tt_node *end[1 + TT_ATTENTION_GRADS];
  int n = 1;
  for (int i = 0; i < TT_ATTENTION_GRADS; i++)
    if (of[i] && grads->wanted[i]) state[n++] = zeros_as(&b, of[i]);
  tt_hlo_count_up(h, b.count, n, state, backward_block, &b, end);
  n = 1;
  for (int i = 0; i < TT_ATTENTION_GRADS; i++) {
    int rows = rows_of_grad(&b, i);
    if (!grads->wanted[i]) continue;
    grads->of[i] = end[n++];
    if (rows < 0) continue;
    grads->of[i] = tt_hlo_slice_dim(h, grads->of[i], rows, 0, a->q->type.dims[dim], 1);
  }
}
