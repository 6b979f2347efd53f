/* Losses that compare two tensors element by element, and their gradients. */
#include "ops/nn.h"

enum { NONE, MEAN, SUM }; /* PyTorch's `reduction` */

/* Sums or averages the element losses, and states them as result 0 of `dtype`. */
static void out_reduced(tt_lower *cx, tt_node *loss, int64_t reduction, tt_dtype dtype) {
  int dims[TT_MAX_RANK];
  for (int d = 0; d < loss->type.rank; d++) dims[d] = d;
  if (reduction == MEAN) loss = tt_mean(cx, loss, dims, loss->type.rank);
  if (reduction == SUM) loss = tt_sum(cx, loss, dims, loss->type.rank);
  tt_out_as(cx, 0, tt_cast(cx, loss, dtype));
}

/* The operands of an element-wise loss, broadcast, in the dtype that PyTorch computes in. */
typedef struct operands {
  tt_node *x, *y;
  tt_dtype result;
} operands;

static operands operands_of(tt_lower *cx, int first) {
  operands o = {tt_in(cx, first), tt_in(cx, first + 1), cx->common};
  if (!tt_is_float(o.result) && !tt_is_complex(o.result)) o.result = o.x->type.dtype;
  tt_broadcast_pair(cx, &o.x, &o.y, tt_compute_dtype(o.result));
  return o;
}

/* The gradient that reaches each element: grad_output, spread, and divided by n for a mean. */
static tt_node *element_grad(tt_lower *cx, tt_node *like, int64_t reduction) {
  tt_node *g = tt_cast(cx, tt_in(cx, 0), like->type.dtype);
  if (reduction == MEAN) {
    g = tt_hlo_divide(cx->h, g, tt_like(cx, g, (double)tt_type_numel(&like->type)));
  }
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
  out_reduced(cx, loss, tt_int(cx, 2), o.result);
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
  out_reduced(cx, loss, tt_int(cx, 2), o.result);
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
  out_reduced(cx, weighted(cx, loss, 2), tt_int(cx, 3), o.result);
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

/* self, target, weight?, pos_weight?, reduction */
void tt_lower_binary_cross_entropy_with_logits(tt_lower *cx) {
  tt_hlo *h = cx->h;
  operands o = operands_of(cx, 0);
  tt_node *log_p = log_sigmoid(cx, o.x);
  if (tt_has(cx, 3)) {
    tt_node *weight = tt_plus(cx, tt_cast(cx, tt_in(cx, 3), o.x->type.dtype), -1), *y = o.y;
    tt_broadcast_pair(cx, &weight, &y, o.x->type.dtype);
    log_p = tt_hlo_multiply(h, log_p, tt_plus(cx, tt_hlo_multiply(h, weight, y), 1));
  }
  tt_node *loss = tt_hlo_subtract(h, tt_hlo_multiply(h, one_minus(cx, o.y), o.x), log_p);
  out_reduced(cx, weighted(cx, loss, 2), tt_int(cx, 4), o.result);
}

/* self, target, reduction */
void tt_lower_soft_margin_loss(tt_lower *cx) {
  operands o = operands_of(cx, 0);
  tt_node *z = tt_hlo_multiply(cx->h, tt_hlo_negate(cx->h, o.x), o.y);
  tt_node *loss = tt_hlo_log_plus_one(cx->h, tt_hlo_exponential(cx->h, z));
  out_reduced(cx, loss, tt_int(cx, 2), o.result);
}

/* grad_output, self, target, reduction */
void tt_lower_soft_margin_loss_backward(tt_lower *cx) {
  operands o = operands_of(cx, 1);
  tt_node *y = tt_hlo_negate(cx->h, o.y);
  tt_node *slope = tt_hlo_multiply(cx->h, y, tt_hlo_logistic(cx->h, tt_hlo_multiply(cx->h, y, o.x)));
  out_grad(cx, slope, tt_int(cx, 3), o.result);
}

/* -- Margins over classes: x is [samples, classes] -- */

static tt_node *as_matrix(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  return tt_cast(cx, x->type.rank < 2 ? tt_hlo_reshape(cx->h, x, 2, (int64_t[]){1, x->type.rank ? x->type.dims[0] : 1}) : x, dtype);
}

typedef struct margins {
  tt_node *x, *target, *is_target; /* [n, c], [n], bool [n, c] */
  tt_node *gap;                    /* max(0, margin - x[target] + x), [n, c], 0 at the target */
  tt_node *weight;                 /* [n], or NULL */
} margins;

static const int CLASSES[] = {1};

/* self, target, .., margin, weight? */
static margins margins_of(tt_lower *cx, int first, int margin, int weight) {
  tt_hlo *h = cx->h;
  margins m = {0};
  tt_node *input = tt_in(cx, first), *target = tt_in(cx, first + 1);
  m.x = as_matrix(cx, input, tt_compute_dtype(input->type.dtype));
  const tt_type *type = &m.x->type;
  tt_check_index(cx, target, type->dims[1], false, TT_OUT_OF_RANGE, "target");
  m.target = tt_hlo_reshape(h, tt_cast(cx, target, TT_I32), 1, type->dims);
  tt_type ids = {.dtype = TT_I32, .rank = 2, .dims = {type->dims[0], type->dims[1]}};
  tt_node *spread = tt_along(cx, m.target, 0, &ids);
  m.is_target = tt_hlo_compare(h, TT_EQ, tt_hlo_iota(h, &ids, 1), spread);
  tt_node *own = tt_sum(cx, tt_where_or_zero(cx, m.is_target, m.x), CLASSES, 1);
  tt_node *edge = tt_hlo_subtract(h, tt_num(cx, margin, type->dtype), own);
  m.gap = tt_hlo_add(h, m.x, tt_along(cx, edge, 0, type));
  m.gap = tt_hlo_maximum(h, m.gap, tt_like(cx, m.gap, 0));
  m.gap = tt_where_or_zero(cx, tt_hlo_not(h, m.is_target), m.gap);
  if (tt_has(cx, weight)) {
    m.weight = tt_hlo_take(h, tt_cast(cx, tt_in(cx, weight), type->dtype), m.target, 0);
  }
  return m;
}

static tt_node *by_sample(tt_lower *cx, tt_node *loss, tt_node *input) {
  return input->type.rank < 2 ? tt_hlo_reshape(cx->h, loss, 0, NULL) : loss;
}

/* self, target, p (static), margin, weight?, reduction */
void tt_lower_multi_margin_loss(tt_lower *cx) {
  margins m = margins_of(cx, 0, 3, 4);
  tt_node *term = tt_int(cx, 2) == 2 ? tt_square(cx, m.gap) : m.gap;
  tt_node *loss = tt_mean(cx, term, CLASSES, 1);
  if (m.weight) loss = tt_hlo_multiply(cx->h, loss, m.weight);
  tt_node *input = tt_in(cx, 0);
  out_reduced(cx, by_sample(cx, loss, input), tt_int(cx, 5), input->type.dtype);
}

/* A gradient by sample, times grad_output, in self's shape. */
static void out_class_grad(tt_lower *cx, tt_node *slope, tt_node *input, int64_t reduction) {
  tt_node *g = tt_cast(cx, tt_in(cx, 0), slope->type.dtype);
  double n = (double)slope->type.dims[1] * (reduction == MEAN ? (double)slope->type.dims[0] : 1);
  g = tt_hlo_divide(cx->h, g, tt_like(cx, g, n));
  bool each = g->type.rank == 1 && g->type.dims[0] == slope->type.dims[0];
  g = each ? tt_along(cx, g, 0, &slope->type)
           : tt_hlo_broadcast_to(cx->h, tt_hlo_reshape(cx->h, g, 0, NULL), 2, slope->type.dims);
  g = tt_hlo_reshape(cx->h, tt_hlo_multiply(cx->h, slope, g), input->type.rank, input->type.dims);
  tt_out_as(cx, 0, tt_cast(cx, g, input->type.dtype));
}

/* grad_output, self, target, p (static), margin, weight?, reduction */
void tt_lower_multi_margin_loss_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  margins m = margins_of(cx, 1, 4, 5);
  tt_node *slope = tt_times(cx, m.gap, 2);
  if (tt_int(cx, 3) != 2) slope = tt_hlo_sign(h, m.gap);
  tt_node *own = tt_hlo_negate(h, tt_along(cx, tt_sum(cx, slope, CLASSES, 1), 0, &slope->type));
  slope = tt_hlo_select(h, m.is_target, own, slope);
  if (m.weight) slope = tt_hlo_multiply(h, slope, tt_along(cx, m.weight, 0, &slope->type));
  out_class_grad(cx, slope, tt_in(cx, 1), tt_int(cx, 6));
}

/* Which classes are targets: target [n, c] lists them up to the first negative number. */
static tt_node *listed(tt_lower *cx, tt_node *target, tt_node **valid) {
  tt_hlo *h = cx->h;
  tt_type type = target->type, cube = {.dtype = TT_I32, .rank = 3};
  tt_node *stop = tt_cast(cx, tt_hlo_compare(h, TT_LT, target, tt_like(cx, target, 0)), TT_I32);
  int64_t n = type.dims[0], c = type.dims[1];
  tt_window window = {.size = (int64_t[]){1, c > 0 ? c : 1},
                      .padding = (int64_t[]){0, 0, c > 0 ? c - 1 : 0, 0}};
  tt_node *stops = tt_hlo_reduce_window(h, TT_SUM, stop, &window);
  *valid = tt_hlo_compare(h, TT_EQ, stops, tt_like(cx, stops, 0));
  cube.dims[0] = n, cube.dims[1] = cube.dims[2] = c; /* [sample, position, class] */
  tt_node *id = tt_hlo_select(h, *valid, target, tt_hlo_full(h, &type, -1));
  id = tt_hlo_broadcast(h, id, (const int[]){0, 1}, 3, cube.dims);
  tt_node *hit = tt_hlo_compare(h, TT_EQ, id, tt_hlo_iota(h, &cube, 2));
  return tt_hlo_reduce(h, TT_OR, hit, CLASSES, 1);
}

/* For each pair (position p, class c): 1 - (x[target[p]] - x[c]) where p is listed, c is not. */
static tt_node *pair_gaps(tt_lower *cx, tt_node *x, tt_node *target, tt_node *valid,
                          tt_node *is_target) {
  tt_hlo *h = cx->h;
  tt_type cube = {.dtype = x->type.dtype, .rank = 3};
  cube.dims[0] = x->type.dims[0], cube.dims[1] = cube.dims[2] = x->type.dims[1];
  tt_node *safe = tt_where_or_zero(cx, valid, target);
  tt_node *own = tt_hlo_take_along(h, x, safe, 1);
  own = tt_hlo_broadcast(h, own, (const int[]){0, 1}, 3, cube.dims);
  tt_node *other = tt_hlo_broadcast(h, x, (const int[]){0, 2}, 3, cube.dims);
  tt_node *gap = tt_plus(cx, tt_hlo_subtract(h, other, own), 1);
  tt_node *rest = tt_hlo_not(h, is_target);
  tt_node *pairs = tt_hlo_and(h, tt_hlo_broadcast(h, valid, (const int[]){0, 1}, 3, cube.dims),
                              tt_hlo_broadcast(h, rest, (const int[]){0, 2}, 3, cube.dims));
  gap = tt_hlo_maximum(h, gap, tt_like(cx, gap, 0));
  return tt_where_or_zero(cx, pairs, gap);
}

/* self, target, reduction -> loss, is_target */
void tt_lower_multilabel_margin_loss(tt_lower *cx) {
  static const int pairs[] = {1, 2};
  tt_node *input = tt_in(cx, 0), *valid;
  tt_node *x = as_matrix(cx, input, tt_compute_dtype(input->type.dtype));
  tt_check_index(cx, tt_hlo_maximum(cx->h, tt_in(cx, 1), tt_like(cx, tt_in(cx, 1), 0)),
                 x->type.dims[1], false, TT_OUT_OF_RANGE, "target");
  tt_node *target = as_matrix(cx, tt_in(cx, 1), TT_I32);
  tt_node *is_target = listed(cx, target, &valid);
  tt_node *loss = tt_sum(cx, pair_gaps(cx, x, target, valid, is_target), pairs, 2);
  loss = tt_hlo_divide(cx->h, loss, tt_like(cx, loss, (double)x->type.dims[1]));
  out_reduced(cx, by_sample(cx, loss, input), tt_int(cx, 2), input->type.dtype);
  const tt_type *type = &tt_in(cx, 1)->type;
  tt_node *flags = tt_cast(cx, is_target, input->type.dtype);
  tt_out_as(cx, 1, tt_hlo_reshape(cx->h, flags, type->rank, type->dims));
}

/* grad_output, self, target, reduction, is_target */
void tt_lower_multilabel_margin_loss_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *input = tt_in(cx, 1), *valid;
  tt_node *x = as_matrix(cx, input, tt_compute_dtype(input->type.dtype));
  tt_node *target = as_matrix(cx, tt_in(cx, 2), TT_I32);
  tt_node *is_target = listed(cx, target, &valid);
  tt_node *active = tt_hlo_sign(h, pair_gaps(cx, x, target, valid, is_target));
  tt_node *by_class = tt_sum(cx, active, (const int[]){1}, 1);
  tt_node *by_position = tt_sum(cx, active, (const int[]){2}, 1);
  tt_type cube = active->type;
  tt_type ids = {.dtype = TT_I32, .rank = 3, .dims = {cube.dims[0], cube.dims[1], cube.dims[2]}};
  tt_node *at = tt_hlo_compare(h, TT_EQ, tt_hlo_broadcast(h, target, (const int[]){0, 1}, 3, ids.dims),
                               tt_hlo_iota(h, &ids, 2));
  tt_node *own = tt_hlo_broadcast(h, by_position, (const int[]){0, 1}, 3, cube.dims);
  own = tt_sum(cx, tt_where_or_zero(cx, at, own), CLASSES, 1);
  out_class_grad(cx, tt_hlo_subtract(h, by_class, own), input, tt_int(cx, 3));
}
