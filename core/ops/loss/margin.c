/* Losses that ask for a margin between classes: x is [samples, classes]. */
#include "ops/nn.h"

static tt_node *as_matrix(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  int64_t classes = x->type.rank ? x->type.dims[0] : 1;
  if (x->type.rank < 2) x = tt_hlo_reshape(cx->h, x, 2, (int64_t[]){1, classes});
  return tt_cast(cx, x, dtype);
}

typedef struct margins {
  tt_node *x, *target, *is_target; /* [n, c], [n], bool [n, c] */
  tt_node *gap;                    /* max(0, margin - x[target] + x), [n, c], 0 at the target */
  tt_node *weight;                 /* [n], or NULL */
} margins;

static const int CLASSES[] = {1};

/* What is over the margin; NaN is not. */
static tt_node *over(tt_lower *cx, tt_node *gap) {
  return tt_where_or_zero(cx, tt_hlo_compare(cx->h, TT_GT, gap, tt_like(cx, gap, 0)), gap);
}

/* self, target, .., margin, weight? */
static margins margins_of(tt_lower *cx, int first, int margin, int weight) {
  tt_hlo *h = cx->h;
  margins m = {0};
  tt_node *input = tt_in(cx, first), *target = tt_in(cx, first + 1);
  m.x = as_matrix(cx, input, tt_compute_dtype(input->type.dtype));
  const tt_type *type = &m.x->type;
  tt_check_index(cx, target, type->dims[1], false, TT_INVALID_ARGUMENT, "target");
  m.target = tt_hlo_reshape(h, tt_cast(cx, target, TT_I32), 1, type->dims);
  tt_type ids = {.dtype = TT_I32, .rank = 2, .dims = {type->dims[0], type->dims[1]}};
  tt_node *spread = tt_along(cx, m.target, 0, &ids);
  m.is_target = tt_hlo_compare(h, TT_EQ, tt_hlo_iota(h, &ids, 1), spread);
  tt_node *own = tt_sum(cx, tt_where_or_zero(cx, m.is_target, m.x), CLASSES, 1);
  tt_node *edge = tt_hlo_subtract(h, tt_num(cx, margin, type->dtype), own);
  m.gap = tt_hlo_add(h, m.x, tt_along(cx, edge, 0, type));
  m.gap = tt_where_or_zero(cx, tt_hlo_not(h, m.is_target), over(cx, m.gap));
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
  tt_out_loss(cx, by_sample(cx, loss, input), tt_int(cx, 5), input->type.dtype);
}

/* A gradient by sample, times grad_output, in self's shape. */
static void out_class_grad(tt_lower *cx, tt_node *slope, tt_node *input, int64_t reduction) {
  tt_node *g = tt_cast(cx, tt_in(cx, 0), slope->type.dtype);
  double n = (double)slope->type.dims[1] *
             (reduction == TT_REDUCTION_MEAN ? (double)slope->type.dims[0] : 1);
  g = tt_quotient(cx, g, tt_like(cx, g, n));
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
  return tt_where_or_zero(cx, pairs, over(cx, gap));
}

/* self, target, reduction -> loss, is_target */
void tt_lower_multilabel_margin_loss(tt_lower *cx) {
  static const int pairs[] = {1, 2};
  tt_node *input = tt_in(cx, 0), *valid;
  tt_node *x = as_matrix(cx, input, tt_compute_dtype(input->type.dtype));
  tt_node *above =
      tt_hlo_add(cx->h, tt_in(cx, 1), tt_like(cx, tt_in(cx, 1), 1)); /* -1 ends a list */
  tt_check_index(cx, above, x->type.dims[1] + 1, false, TT_INVALID_ARGUMENT, "target + 1");
  tt_node *target = as_matrix(cx, tt_in(cx, 1), TT_I32);
  tt_node *is_target = listed(cx, target, &valid);
  tt_node *loss = tt_sum(cx, pair_gaps(cx, x, target, valid, is_target), pairs, 2);
  loss = tt_quotient(cx, loss, tt_like(cx, loss, (double)x->type.dims[1]));
  tt_out_loss(cx, by_sample(cx, loss, input), tt_int(cx, 2), input->type.dtype);
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
  tt_node *at =
      tt_hlo_compare(h, TT_EQ, tt_hlo_broadcast(h, target, (const int[]){0, 1}, 3, ids.dims),
                     tt_hlo_iota(h, &ids, 2));
  tt_node *own = tt_hlo_broadcast(h, by_position, (const int[]){0, 1}, 3, cube.dims);
  own = tt_sum(cx, tt_where_or_zero(cx, at, own), CLASSES, 1);
  out_class_grad(cx, tt_hlo_subtract(h, by_class, own), input, tt_int(cx, 3));
}
