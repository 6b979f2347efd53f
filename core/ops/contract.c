/* Products of matrices, laid out as XLA's CPU compiler multiplies them fastest. */
#include "ops/nn.h"

/* YNNPACK takes a product of bf16 whose left operand has the contracted dim last and whose right
 * one has it before that. Eigen takes the rest, in up to 4 times as long. Below these sizes a copy
 * costs more. In f32 Eigen needs up to 1.8 times as long, too, but training steps gained nothing.
 */
enum { LEAST_COLUMNS = 32, LEAST_PRODUCTS = 1 << 22 };

/* Of the last two, which are a matrix. */
static int other_dim(const tt_node *x, int dim) { return 2 * x->type.rank - 3 - dim; }

/* In memory, as far as is known here, the contracted dim is the last one. */
static bool lies_last(const tt_node *x, int contract) {
  bool last = contract == x->type.rank - 1;
  return tt_hlo_transposed_from(x) ? !last : last;
}

/* x with its last two dims exchanged in memory. One barrier keeps what makes x from being done
 * again for the copy, the other the copy from being folded into the product. */
static tt_node *exchanged(tt_lower *cx, tt_node *x, int *contract) {
  tt_node *from = tt_hlo_transposed_from(x);
  if (!from) *contract = other_dim(x, *contract);
  from = tt_swap_last(cx, tt_once(cx, from ? from : x));
  x = tt_once(cx, tt_flatten(cx, from)); /* flat: elsewise it would be copied twice */
  return tt_hlo_reshape(cx->h, x, from->type.rank, from->type.dims);
}

static bool pays(const tt_lower *cx, const tt_node *a, const tt_node *b, int batch,
                 int contract_b) {
  int rank = b->type.rank;
  if (!cx->target->xla_cpu || a->type.dtype != TT_BF16 || b->type.dtype != TT_BF16) return false;
  if (rank < 2 || rank != batch + 2 || a->type.rank != rank) return false; /* or poison */
  int64_t columns = b->type.dims[other_dim(b, contract_b)];
  return columns >= LEAST_COLUMNS && tt_type_numel(&a->type) >= LEAST_PRODUCTS / columns;
}

/* Without its first dim, of one element. */
static tt_node *lone(tt_lower *cx, tt_node *x) {
  return tt_hlo_reshape(cx->h, x, x->type.rank - 1, x->type.dims + 1);
}

tt_node *tt_contract(tt_lower *cx, tt_node *a, tt_node *b, int batch, int contract_a,
                     int contract_b, tt_dtype result) {
  int batches[TT_MAX_RANK];
  if (batch > 0 && a->type.rank > 1 && a->type.dims[0] == 1 && b->type.dims[0] == 1) {
    /* XLA's CPU compiler fails on one batch of bf16 whose left operand is transposed. */
    tt_node *one = tt_contract(cx, lone(cx, a), lone(cx, b), batch - 1, contract_a - 1,
                               contract_b - 1, result);
    return tt_unsqueeze(cx, one, 0);
  }
  for (int d = 0; d < batch; d++) batches[d] = d;
  if (pays(cx, a, b, batch, contract_b)) {
    if (!lies_last(a, contract_a)) a = exchanged(cx, a, &contract_a);
    if (lies_last(b, contract_b)) b = exchanged(cx, b, &contract_b);
  }
  return tt_hlo_dot_general(cx->h, a, b, batches, batches, batch, &contract_a, &contract_b, 1,
                            result);
}
