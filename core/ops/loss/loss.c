/* Losses that compare two tensors element by element, and their gradients. */
#include "ops/nn.h"
#include "ops/pointwise/pointwise.h"

void tt_out_loss(tt_lower *cx, tt_node *loss, int64_t reduction, tt_dtype dtype) {
  int dims[TT_MAX_RANK];
  for (int d = 0; d < loss->type.rank; d++) dims[d] = d;
  if (reduction == TT_REDUCTION_MEAN) loss = tt_mean(cx, loss, dims, loss->type.rank);
  if (reduction == TT_REDUCTION_SUM) loss = tt_sum(cx, loss, dims, loss->type.rank);
  tt_out_as(cx, 0, tt_cast(cx, loss, dtype));
}

/* Which of arguments `first` and the next, which are broadcast to this rank, has padding along its
 * dim `at`, and along which of its own; -1: none. */
static int padded_arg(tt_lower *cx, int first, int rank, int at, int *dim) {
  for (int i = first; i < first + 2; i++) {
    *dim = at - (rank - tt_in(cx, i)->type.rank);
    if (*dim >= 0 && tt_padded_along(cx, i, *dim)) return i;
  }
  return -1;
}

/* How many of them there are, as rank 0. */
static tt_node *count_of(tt_lower *cx, int first, const tt_type *type, tt_dtype dtype) {
  tt_node *count = NULL;
  int64_t known = tt_type_numel(type);
  for (int d = 0, dim; d < type->rank; d++) {
    int i = padded_arg(cx, first, type->rank, d, &dim);
    if (i < 0) continue;
    tt_node *some = tt_count(cx, i, &dim, 1, dtype);
    count = count ? tt_hlo_multiply(cx->h, count, some) : some;
    known /= type->dims[d];
  }
  tt_node *rest = tt_hlo_const(cx->h, dtype, (double)known);
  return count ? tt_hlo_multiply(cx->h, count, rest) : rest;
}

/* Of each element of arguments 0 and 1. */
static void out_loss(tt_lower *cx, tt_node *loss, int64_t reduction, tt_dtype dtype) {
  if (reduction == TT_REDUCTION_NONE || !cx->length_count)
    return tt_out_loss(cx, loss, reduction, dtype);
  tt_type all = loss->type;
  for (int d = 0, dim; d < all.rank; d++) {
    int i = padded_arg(cx, 0, all.rank, d, &dim);
    if (i >= 0) loss = tt_pad_along(cx, i, dim, loss, d, TT_SUM);
  }
  int64_t numel = tt_type_numel(&all);
  loss = tt_sum(cx, tt_hlo_reshape(cx->h, loss, 1, &numel), (int[]){0}, 1);
  if (reduction == TT_REDUCTION_MEAN)
    loss = tt_quotient(cx, loss, count_of(cx, 0, &all, all.dtype));
  tt_out_as(cx, 0, tt_cast(cx, loss, dtype));
}

/* The operands of an element-wise loss, broadcast, in the dtype that PyTorch computes in. */
typedef struct operands {
  tt_node *x, *y;
  tt_dtype result;
} operands;

static operands operands_of(tt_lower *cx, int first) {
  operands o = {tt_in(cx, first), tt_in(cx, first + 1), cx->result_type};
  if (!tt_is_float(o.result) && !tt_is_complex(o.result)) o.result = o.x->type.dtype;
  tt_broadcast_pair(cx, &o.x, &o.y, tt_compute_dtype(o.result));
  return o;
}

/* The gradient that reaches each element: grad_output, spread, and divided by n for a mean. */
static tt_node *element_grad(tt_lower *cx, tt_node *like, int64_t reduction) {
  tt_node *g = tt_cast(cx, tt_in(cx, 0), like->type.dtype);
  if (reduction == TT_REDUCTION_MEAN)
    g = tt_quotient(cx, g, count_of(cx, 1, &like->type, g->type.dtype));
  return tt_hlo_broadcast_to(cx->h, g, like->type.rank, like->type.dims);
}

static void out_grad(tt_lower *cx, tt_node *slope, int64_t reduction, tt_dtype dtype) {
  tt_node *g = tt_hlo_multiply(cx->h, slope, element_grad(cx, slope, reduction));
  tt_out_as(cx, 0, tt_cast(cx, g, dtype));
}

/* self, target, reduction */
void tt_lower_mse_loss(tt_lower *cx) {
  operands o = operands_of(cx, 0);
  tt_node *loss = tt_square(cx, tt_hlo_subtract(cx->h, o.x, o.y));
  out_loss(cx, loss, tt_int(cx, 2), o.result);
}

/* grad_output, self, target, reduction */
void tt_lower_mse_loss_backward(tt_lower *cx) {
  operands o = operands_of(cx, 1);
  tt_node *slope = tt_times(cx, tt_hlo_subtract(cx->h, o.x, o.y), 2);
  out_grad(cx, slope, tt_int(cx, 3), o.result);
}

/* Quadratic near 0, linear from `edge` on. param 0: smooth_l1 (its `beta` also divides the
 * quadratic part, and the linear part has slope 1), 1: huber (slope `delta`).
 * self, target, reduction, edge */
void tt_lower_huber_loss(tt_lower *cx) {
  tt_hlo *h = cx->h;
  bool huber = cx->row->param == 1;
  operands o = operands_of(cx, 0);
  tt_node *z = tt_hlo_abs(h, tt_hlo_subtract(h, o.x, o.y));
  tt_node *edge = tt_num(cx, 3, z->type.dtype);
  tt_node *half = tt_times(cx, tt_square(cx, z), 0.5);
  tt_node *line = tt_hlo_subtract(h, z, tt_times(cx, edge, 0.5));
  tt_node *loss;
  if (huber) {
    line = tt_hlo_multiply(h, line, edge);
    loss = tt_hlo_select(h, tt_hlo_compare(h, TT_LE, z, edge), half, line);
  } else {
    half = tt_hlo_divide(h, half, edge);
    loss = tt_hlo_select(h, tt_hlo_compare(h, TT_LT, z, edge), half, line);
  }
  out_loss(cx, loss, tt_int(cx, 2), o.result);
}

/* grad_output, self, target, reduction, edge */
void tt_lower_huber_loss_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  bool huber = cx->row->param == 1;
  operands o = operands_of(cx, 1);
  tt_node *z = tt_hlo_subtract(h, o.x, o.y);
  tt_node *edge = tt_num(cx, 4, z->type.dtype), *one = tt_like(cx, z, 1);
  tt_node *inner = huber ? z : tt_hlo_divide(h, z, edge);
  tt_node *outer = tt_hlo_broadcast_to(h, huber ? edge : one, z->type.rank, z->type.dims);
  tt_node *slope = tt_hlo_select(h, tt_hlo_compare(h, TT_GE, z, edge), outer, inner);
  tt_node *below = tt_hlo_compare(h, TT_LE, z, tt_hlo_negate(h, edge));
  slope = tt_hlo_select(h, below, tt_hlo_negate(h, outer), slope);
  out_grad(cx, slope, tt_int(cx, 3), o.result);
}

/* Multiplies by optional argument i, broadcast. */
static tt_node *weighted(tt_lower *cx, tt_node *x, int i) {
  if (!tt_has(cx, i)) return x;
  tt_node *w = tt_in(cx, i);
  tt_broadcast_pair(cx, &x, &w, x->type.dtype);
  return tt_hlo_multiply(cx->h, x, w);
}

static tt_node *one_minus(tt_lower *cx, tt_node *x) {
  return tt_hlo_subtract(cx->h, tt_hlo_full(cx->h, &x->type, 1), x);
}

/* self, target, weight?, reduction */
void tt_lower_binary_cross_entropy(tt_lower *cx) {
  tt_hlo *h = cx->h;
  operands o = operands_of(cx, 0);
  tt_node *floor = tt_like(cx, o.x, -100);
  tt_node *inside = tt_hlo_and(h, tt_hlo_compare(h, TT_GE, o.x, tt_like(cx, o.x, 0)),
                               tt_hlo_compare(h, TT_LE, o.x, tt_like(cx, o.x, 1)));
  tt_check(cx, tt_hlo_not(h, inside), TT_INVALID_ARGUMENT,
           "all elements of input should be between 0 and 1");
  tt_node *hit = tt_hlo_maximum(h, tt_hlo_log(h, o.x), floor);
  tt_node *miss = tt_hlo_maximum(h, tt_hlo_log_plus_one(h, tt_hlo_negate(h, o.x)), floor);
  tt_node *loss = tt_hlo_subtract(h, tt_hlo_multiply(h, tt_plus(cx, o.y, -1), miss),
                                  tt_hlo_multiply(h, o.y, hit));
  out_loss(cx, weighted(cx, loss, 2), tt_int(cx, 3), o.result);
}

/* grad_output, self, target, weight?, reduction */
void tt_lower_binary_cross_entropy_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  operands o = operands_of(cx, 1);
  tt_node *spread = tt_hlo_multiply(h, one_minus(cx, o.x), o.x);
  spread = tt_hlo_maximum(h, spread, tt_like(cx, spread, 1e-12));
  tt_node *slope = tt_hlo_divide(h, tt_hlo_subtract(h, o.x, o.y), spread);
  out_grad(cx, weighted(cx, slope, 3), tt_int(cx, 4), o.result);
}

/* log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)) */
static tt_node *log_sigmoid(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_node *e = tt_hlo_exponential(h, tt_hlo_negate(h, tt_hlo_abs(h, x)));
  return tt_hlo_subtract(h, tt_hlo_minimum(h, x, tt_like(cx, x, 0)), tt_hlo_log_plus_one(h, e));
}

/* self, target, weight?, pos_weight?, reduction; each step in the operands' dtype. */
void tt_lower_binary_cross_entropy_with_logits(tt_lower *cx) {
  tt_hlo *h = cx->h;
  operands o = operands_of(cx, 0);
#define STEP(x) tt_rounded(cx, x, o.result)
  tt_node *log_p = STEP(log_sigmoid(cx, o.x));
  if (tt_has(cx, 3)) {
    tt_node *weight = tt_plus(cx, tt_cast(cx, tt_in(cx, 3), o.x->type.dtype), -1), *y = o.y;
    tt_broadcast_pair(cx, &weight, &y, o.x->type.dtype);
    weight = STEP(tt_plus(cx, STEP(tt_hlo_multiply(h, STEP(weight), y)), 1));
    log_p = STEP(tt_hlo_multiply(h, log_p, weight));
  }
  tt_node *loss = STEP(tt_hlo_multiply(h, STEP(one_minus(cx, o.y)), o.x));
  loss = STEP(tt_hlo_subtract(h, loss, log_p));
#undef STEP
  out_loss(cx, weighted(cx, loss, 2), tt_int(cx, 4), o.result);
}

/* self, target, reduction */
void tt_lower_soft_margin_loss(tt_lower *cx) {
  operands o = operands_of(cx, 0);
  tt_node *z = tt_hlo_multiply(cx->h, tt_hlo_negate(cx->h, o.x), o.y);
  tt_node *loss = tt_hlo_log_plus_one(cx->h, tt_hlo_exponential(cx->h, z));
  out_loss(cx, loss, tt_int(cx, 2), o.result);
}

/* grad_output, self, target, reduction */
void tt_lower_soft_margin_loss_backward(tt_lower *cx) {
  operands o = operands_of(cx, 1);
  tt_node *y = tt_hlo_negate(cx->h, o.y);
  tt_node *slope =
      tt_hlo_multiply(cx->h, y, tt_hlo_logistic(cx->h, tt_hlo_multiply(cx->h, y, o.x)));
  out_grad(cx, slope, tt_int(cx, 3), o.result);
}
