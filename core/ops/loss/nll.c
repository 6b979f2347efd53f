/* Negative log likelihood. Classes are dim 1, or dim 0 of a rank-1 input. */
#include "ops/nn.h"

typedef struct nll {
  tt_node *input, *target; /* target as I32, 0 where ignored */
  tt_node *counted;        /* bool, target's shape: not ignored */
  tt_node *weight;         /* target's shape, 0 where ignored */
  int dim;                 /* of the classes */
  tt_dtype dtype;          /* computed in */
} nll;

/* self, target, weight?, reduction, ignore_index, from argument `first` on */
static nll nll_of(tt_lower *cx, int first) {
  tt_hlo *h = cx->h;
  nll n = {.input = tt_in(cx, first)};
  n.dim = n.input->type.rank < 2 ? 0 : 1;
  n.dtype = tt_compute_dtype(n.input->type.dtype);
  tt_node *target = tt_cast(cx, tt_in(cx, first + 1), TT_I64);
  tt_node *ignored = tt_hlo_const_i(h, TT_I64, tt_int(cx, first + 4));
  n.counted = tt_pad(cx, first + 1, tt_hlo_compare(h, TT_NE, target, ignored), TT_SUM);
  target = tt_where_or_zero(cx, n.counted, target);
  tt_check_index(cx, target, n.input->type.dims[n.dim], false, TT_OUT_OF_RANGE, "target");
  n.target = tt_cast(cx, target, TT_I32);
  n.weight = tt_cast(cx, n.counted, n.dtype);
  if (tt_has(cx, first + 2)) {
    tt_node *weights = tt_cast(cx, tt_in(cx, first + 2), n.dtype);
    tt_node *own = tt_hlo_take(h, weights, n.target, 0);
    n.weight = tt_where_or_zero(cx, n.counted, own);
  }
  return n;
}

static tt_node *sum_all(tt_lower *cx, tt_node *x) {
  int dims[TT_MAX_RANK];
  for (int d = 0; d < x->type.rank; d++) dims[d] = d;
  return tt_sum(cx, x, dims, x->type.rank);
}

/* self, target, weight?, reduction, ignore_index -> loss, total_weight */
void tt_lower_nll_loss(tt_lower *cx) {
  tt_hlo *h = cx->h;
  nll n = nll_of(cx, 0);
  tt_node *index = tt_unsqueeze(cx, n.target, n.dim);
  tt_node *own = tt_hlo_take_along(h, n.input, index, n.dim);
  own = tt_hlo_reshape(h, own, n.target->type.rank, n.target->type.dims);
  tt_node *loss = tt_hlo_negate(h, tt_hlo_multiply(h, tt_cast(cx, own, n.dtype), n.weight));
  loss = tt_where_or_zero(cx, n.counted, loss);
  int64_t reduction = tt_int(cx, 3);
  tt_node *total = sum_all(cx, n.weight);
  if (reduction == TT_REDUCTION_NONE) {
    if (n.input->type.rank > 1) total = tt_like(cx, total, 0);
  } else {
    loss = sum_all(cx, loss);
    if (reduction == TT_REDUCTION_MEAN) loss = tt_quotient(cx, loss, total);
  }
  tt_out_as(cx, 0, tt_cast(cx, loss, n.input->type.dtype));
  tt_out_as(cx, 1, tt_cast(cx, total, n.input->type.dtype));
}

/* grad_output, self, target, weight?, reduction, ignore_index, total_weight */
void tt_lower_nll_loss_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  nll n = nll_of(cx, 1);
  const tt_type *type = &n.input->type;
  tt_node *g = tt_cast(cx, tt_in(cx, 0), n.dtype);
  if (tt_int(cx, 4) == TT_REDUCTION_MEAN) g = tt_quotient(cx, g, tt_num(cx, 6, n.dtype));
  if (g->type.rank != n.target->type.rank) g = tt_hlo_reshape(h, g, 0, NULL);
  g = tt_where_or_zero(cx, n.counted, tt_hlo_negate(h, tt_hlo_multiply(h, n.weight, g)));
  tt_type ids = *type;
  ids.dtype = TT_I32;
  tt_node *class = tt_hlo_iota(h, &ids, n.dim);
  tt_node *hit = tt_hlo_compare(h, TT_EQ, class, tt_unreduce(cx, n.target, &n.dim, 1, &ids));
  g = tt_cast(cx, tt_unreduce(cx, g, &n.dim, 1, type), type->dtype);
  tt_out_as(cx, 0, tt_where_or_zero(cx, hit, g));
}
