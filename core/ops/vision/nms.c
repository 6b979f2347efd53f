/* Non-maximum suppression of boxes in the order of their scores: one is kept unless one that is
 * kept before it overlaps it too much. Boxes are decided in blocks. Within a block, decisions are
 * taken for all at once, from those before, until they stay: the k-th is right after k rounds at
 * most, and few rounds do in practice. A decided block then strikes out of all that follow. */
#include "ops/nn.h"

enum { BLOCK = 128, EDGES = 4 };

typedef struct boxes {
  tt_node *edge[EDGES], *area; /* x1, y1, x2, y2; rank 1 */
} boxes;

typedef struct nms {
  tt_lower *cx;
  boxes all;
  int64_t block;
  tt_node *limit, *blocks; /* of the overlap; how many there are, I32 */
} nms;

typedef struct decision {
  const nms *all;
  tt_node *own, *before; /* whether a box is still there; [block, block]: strikes out if kept */
} decision;

static tt_node *any_row(tt_hlo *h, tt_node *mask, tt_node *kept) {
  tt_type all = mask->type;
  kept = tt_hlo_broadcast(h, kept, (const int[]){0}, 2, all.dims);
  return tt_hlo_reduce(h, TT_OR, tt_hlo_and(h, kept, mask), (const int[]){0}, 1);
}

/* Whether box i of a overlaps box j of b by more than the limit. */
static tt_node *overlaps(const nms *n, const boxes *a, const boxes *b) {
  tt_hlo *h = n->cx->h;
  int64_t dims[2] = {a->area->type.dims[0], b->area->type.dims[0]};
  boxes both[2];
  for (int k = 0; k < 2; k++) {
    const boxes *one = k ? b : a;
    for (int i = 0; i < EDGES; i++)
      both[k].edge[i] = tt_hlo_broadcast(h, one->edge[i], &k, 2, dims);
    both[k].area = tt_hlo_broadcast(h, one->area, &k, 2, dims);
  }
  tt_node *inter = NULL, *zero = tt_hlo_zeros(h, &both[0].area->type);
  for (int i = 0; i < 2; i++) {
    tt_node *from = tt_hlo_maximum(h, both[0].edge[i], both[1].edge[i]);
    tt_node *to = tt_hlo_minimum(h, both[0].edge[2 + i], both[1].edge[2 + i]);
    tt_node *length = tt_hlo_maximum(h, tt_hlo_subtract(h, to, from), zero);
    inter = inter ? tt_hlo_multiply(h, inter, length) : length;
  }
  inter = tt_product_apart(n->cx, inter);
  tt_node *area = tt_hlo_subtract(h, tt_hlo_add(h, both[0].area, both[1].area), inter);
  return tt_hlo_compare(h, TT_GT, tt_hlo_divide(h, inter, area), n->limit);
}

static void undecided(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)h;
  (void)user;
  results[0] = args[1];
}

static void decide(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const decision *d = user;
  tt_node *kept = tt_hlo_and(h, d->own, tt_hlo_not(h, any_row(h, d->before, args[0])));
  results[0] = kept;
  results[1] = tt_hlo_reduce_all(h, TT_OR, tt_hlo_compare(h, TT_NE, kept, args[0]));
}

static void more_blocks(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  results[0] = tt_hlo_compare(h, TT_LT, args[0], ((const nms *)user)->blocks);
}

static void next_block(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const nms *n = user;
  tt_node *start = tt_hlo_multiply(h, args[0], tt_hlo_const_i(h, TT_I32, n->block));
  boxes block = {.area = tt_hlo_dynamic_slice(h, n->all.area, &start, &n->block)};
  for (int i = 0; i < EDGES; i++)
    block.edge[i] = tt_hlo_dynamic_slice(h, n->all.edge[i], &start, &n->block);
  tt_type square = {TT_I32, 2, {n->block, n->block}};
  tt_node *earlier =
      tt_hlo_compare(h, TT_LT, tt_hlo_iota(h, &square, 0), tt_hlo_iota(h, &square, 1));
  decision d = {n, tt_hlo_dynamic_slice(h, args[1], &start, &n->block),
                tt_hlo_and(h, earlier, overlaps(n, &block, &block))};
  tt_node *state[2] = {d.own, tt_hlo_const_i(h, TT_BOOL, 1)}, *end[2];
  tt_hlo_while(h, 2, state, undecided, decide, &d, end);
  tt_type flat = {TT_I32, 1, {args[1]->type.dims[0]}};
  tt_node *after = tt_hlo_add(h, start, tt_hlo_const_i(h, TT_I32, n->block));
  after = tt_hlo_compare(h, TT_GE, tt_hlo_iota(h, &flat, 0), after);
  tt_node *struck = tt_hlo_and(h, after, any_row(h, overlaps(n, &block, &n->all), end[0]));
  tt_node *kept = tt_hlo_and(h, args[1], tt_hlo_not(h, struck));
  results[0] = tt_hlo_add(h, args[0], tt_hlo_const_i(h, TT_I32, 1));
  results[1] = tt_hlo_dynamic_update_slice(h, kept, end[0], &start);
}

/* boxes [n, 4], limit */
void tt_lower_nms_kept(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0);
  tt_type result = {TT_BOOL, 1, {x->type.dims[0]}};
  if (x->type.rank != 2 || x->type.dims[1] != EDGES || !tt_is_float(x->type.dtype)) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "expected boxes of shape [N, 4], of floats");
    return;
  }
  int64_t count = x->type.dims[0], block = count < BLOCK ? count : BLOCK;
  if (!count) {
    tt_out(cx, 0, tt_hlo_zeros(h, &result));
    return;
  }
  int64_t blocks = (count + block - 1) / block, all = blocks * block;
  x = tt_cast(cx, x, tt_compute_dtype(x->type.dtype));
  x = tt_hlo_pad(h, x, tt_like(cx, x, 0), (int64_t[]){0, 0}, (int64_t[]){all - count, 0}, NULL);
  nms n = {.cx = cx,
           .block = block,
           .blocks = tt_hlo_const_i(h, TT_I32, blocks),
           .limit = tt_num(cx, 1, x->type.dtype)};
  tt_node **edge = n.all.edge;
  for (int i = 0; i < EDGES; i++)
    edge[i] = tt_hlo_reshape(h, tt_hlo_slice_dim(h, x, 1, i, i + 1, 1), 1, &all);
  n.all.area = tt_hlo_multiply(h, tt_hlo_subtract(h, edge[2], edge[0]),
                               tt_hlo_subtract(h, edge[3], edge[1]));
  result.dims[0] = all;
  tt_node *state[2] = {tt_hlo_const_i(h, TT_I32, 0), tt_hlo_full(h, &result, 1)}, *end[2];
  tt_hlo_while(h, 2, state, more_blocks, next_block, &n, end);
  tt_out(cx, 0, tt_hlo_slice_dim(h, end[1], 0, 0, count, 1));
}
