/* Fused optimizer steps: one element of each list after the other. */
#include "ops/foreach/foreach.h"
#include "ops/pointwise/pointwise.h"

#include <math.h>

/* What the steps share; nodes of the dtype that the element computes in. */
typedef struct step {
  tt_lower *cx;
  tt_hlo *h;
  int k, size;
  tt_dtype dtype;
  tt_node *param, *grad, *kept_grad;
  tt_node *skip; /* found_inf; NULL if it was not given */
} step;

static tt_node *mul(step *s, tt_node *a, tt_node *b) { return tt_hlo_multiply(s->h, a, b); }
static tt_node *add(step *s, tt_node *a, tt_node *b) { return tt_hlo_add(s->h, a, b); }
static tt_node *sub(step *s, tt_node *a, tt_node *b) { return tt_hlo_subtract(s->h, a, b); }
static tt_node *number(step *s, int i) { return tt_num(s->cx, i, s->dtype); }
static tt_node *state(step *s, int i) { return tt_cast(s->cx, tt_in_at(s->cx, i, s->k), s->dtype); }

/* Loads element k, its gradient unscaled; found_inf follows the scale, `maximize` is its own. */
static step begin(tt_lower *cx, int k, int maximize, int scale) {
  step s = {.cx = cx, .h = cx->h, .k = k, .size = tt_first_list_size(cx)};
  s.dtype = tt_compute_dtype(tt_in_at(cx, 0, k)->type.dtype);
  s.param = state(&s, 0);
  s.grad = state(&s, 1);
  if (tt_has(cx, scale)) s.grad = tt_hlo_divide(s.h, s.grad, number(&s, scale));
  s.kept_grad = s.grad;
  if (tt_bool(cx, maximize)) s.grad = tt_hlo_negate(s.h, s.grad);
  if (tt_has(cx, scale + 1))
    s.skip = tt_hlo_compare(s.h, TT_EQ, number(&s, scale + 1), tt_like(cx, s.param, 1));
  return s;
}

/* States element k of result list `list`, which updates argument `list`. */
static void out(step *s, int list, tt_node *y) {
  tt_node *old = tt_in_at(s->cx, list, s->k);
  y = tt_cast(s->cx, y, old->type.dtype);
  tt_out_as(s->cx, list * s->size + s->k, s->skip ? tt_hlo_select(s->h, s->skip, old, y) : y);
}

/* 1 - argument i, and log of argument i: on the host in double precision where the number is
 * static, else in the precision it came in. */
static tt_node *rest_of(step *s, int i) {
  const tt_arg *arg = &s->cx->args[i];
  if (arg->kind == TT_ARG_FLOAT) return tt_hlo_const(s->h, s->dtype, 1 - arg->f);
  tt_node *x = tt_in(s->cx, i);
  return tt_cast(s->cx, tt_hlo_subtract(s->h, tt_like(s->cx, x, 1), x), s->dtype);
}

static tt_node *log_of(step *s, int i) {
  const tt_arg *arg = &s->cx->args[i];
  if (arg->kind == TT_ARG_FLOAT) return tt_hlo_const(s->h, s->dtype, log(arg->f));
  return tt_cast(s->cx, tt_hlo_log(s->h, tt_in(s->cx, i)), s->dtype);
}

/* 1 - beta^t without cancellation. */
static tt_node *bias_correction(step *s, int beta, tt_node *t) {
  tt_node *power = mul(s, t, log_of(s, beta));
  return tt_hlo_negate(s->h, tt_hlo_exponential_minus_one(s->h, power));
}

static void decay(step *s, int weight_decay) {
  if (!tt_static_equals(s->cx, weight_decay, 0))
    s->grad = add(s, s->grad, mul(s, s->param, number(s, weight_decay)));
}

static tt_node *element_step(step *s, int steps) { return tt_num_at(s->cx, steps, s->k, s->dtype); }

/* (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1, beta2, weight_decay, eps,
 * amsgrad, maximize, grad_scale, found_inf); param 1: adamw. */
static void adam_element(tt_lower *cx, int k) {
  enum { AVG = 2, SQ, MAX_SQ, STEPS, LR, BETA1, BETA2, DECAY, EPS, AMSGRAD, MAXIMIZE, SCALE };
  step s = begin(cx, k, MAXIMIZE, SCALE);
  tt_node *lr = number(&s, LR), *t = element_step(&s, STEPS);
  if (cx->row->param == 0) decay(&s, DECAY);
  else if (!tt_static_equals(cx, DECAY, 0))
    s.param = sub(&s, s.param, mul(&s, mul(&s, lr, number(&s, DECAY)), s.param));
  tt_node *avg = state(&s, AVG), *sq = state(&s, SQ);
  avg = add(&s, avg, mul(&s, rest_of(&s, BETA1), sub(&s, s.grad, avg)));
  sq =
      add(&s, mul(&s, number(&s, BETA2), sq), mul(&s, rest_of(&s, BETA2), mul(&s, s.grad, s.grad)));
  tt_node *size = sq;
  if (tt_bool(cx, AMSGRAD)) {
    size = tt_hlo_maximum(s.h, state(&s, MAX_SQ), sq);
    out(&s, MAX_SQ, size);
  }
  tt_node *scale = tt_hlo_sqrt(s.h, bias_correction(&s, BETA2, t));
  tt_node *below = add(&s, tt_hlo_divide(s.h, tt_hlo_sqrt(s.h, size), scale), number(&s, EPS));
  tt_node *rate = tt_hlo_divide(s.h, lr, bias_correction(&s, BETA1, t));
  out(&s, 0, sub(&s, s.param, tt_hlo_divide(s.h, mul(&s, rate, avg), below)));
  out(&s, 1, s.kept_grad);
  out(&s, AVG, avg);
  out(&s, SQ, sq);
}

void tt_lower_fused_adam(tt_lower *cx) {
  for (int k = 0; k < tt_first_list_size(cx); k++) adam_element(cx, k);
}

/* (self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize,
 * is_first_step, grad_scale, found_inf) */
static void sgd_element(tt_lower *cx, int k) {
  enum { BUFFER = 2, DECAY, MOMENTUM, LR, DAMPENING, NESTEROV, MAXIMIZE, FIRST, SCALE };
  step s = begin(cx, k, MAXIMIZE, SCALE);
  decay(&s, DECAY);
  if (tt_list_size(cx, BUFFER) > k && !tt_static_equals(cx, MOMENTUM, 0)) {
    tt_node *momentum = number(&s, MOMENTUM), *buffer = s.grad;
    if (!tt_bool(cx, FIRST))
      buffer =
          add(&s, mul(&s, momentum, state(&s, BUFFER)), mul(&s, rest_of(&s, DAMPENING), s.grad));
    s.grad = tt_bool(cx, NESTEROV) ? add(&s, s.grad, mul(&s, momentum, buffer)) : buffer;
    out(&s, BUFFER, buffer);
  }
  out(&s, 0, sub(&s, s.param, mul(&s, number(&s, LR), s.grad)));
  out(&s, 1, s.kept_grad);
}

void tt_lower_fused_sgd(tt_lower *cx) {
  for (int k = 0; k < tt_first_list_size(cx); k++) sgd_element(cx, k);
}

/* (self, grads, state_sums, steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale,
 * found_inf); param 1: the steps are a result list, too. */
static void adagrad_element(tt_lower *cx, int k) {
  enum { SUMS = 2, STEPS, LR, LR_DECAY, DECAY, EPS, MAXIMIZE, SCALE };
  step s = begin(cx, k, MAXIMIZE, SCALE);
  decay(&s, DECAY);
  tt_node *sum = add(&s, state(&s, SUMS), mul(&s, s.grad, s.grad));
  tt_node *past = sub(&s, element_step(&s, STEPS), tt_like(cx, s.param, 1));
  tt_node *slowed = add(&s, mul(&s, past, number(&s, LR_DECAY)), tt_like(cx, s.param, 1));
  tt_node *rate = tt_hlo_divide(s.h, number(&s, LR), slowed);
  tt_node *below = add(&s, tt_hlo_sqrt(s.h, sum), number(&s, EPS));
  out(&s, 0, sub(&s, s.param, tt_hlo_divide(s.h, mul(&s, rate, s.grad), below)));
  out(&s, 1, s.kept_grad);
  out(&s, SUMS, sum);
  if (cx->row->param) tt_out(cx, STEPS * s.size + k, tt_in_at(cx, STEPS, k));
}

void tt_lower_fused_adagrad(tt_lower *cx) {
  for (int k = 0; k < tt_first_list_size(cx); k++) adagrad_element(cx, k);
}

/* (self, found_inf, inv_scale): unscaled gradients, and 1 if any is not finite. */
void tt_lower_amp_unscale(tt_lower *cx) {
  tt_hlo *h = cx->h;
  int size = tt_first_list_size(cx);
  tt_node *found = tt_in(cx, 1);
  tt_type found_type = found->type;
  found = tt_hlo_reshape(h, found, 0, NULL);
  for (int k = 0; k < size; k++) {
    tt_node *x = tt_in_at(cx, 0, k);
    tt_dtype dtype = tt_compute_dtype(x->type.dtype);
    tt_node *bad = tt_hlo_reduce_all(h, TT_OR, tt_hlo_not(h, tt_hlo_is_finite(h, x)));
    found = tt_hlo_maximum(h, found, tt_cast(cx, bad, found->type.dtype));
    tt_node *scale = tt_num(cx, 2, dtype), *wide = tt_cast(cx, x, dtype);
    tt_node *same = tt_hlo_compare(h, TT_EQ, scale, tt_like(cx, scale, 1));
    tt_node *y = tt_hlo_select(h, same, wide, tt_hlo_multiply(h, wide, scale));
    tt_out_in(cx, k, y, x->type.dtype);
  }
  tt_out_as(cx, size, tt_hlo_reshape(h, found, found_type.rank, found_type.dims));
}

/* (scale, growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval) */
void tt_lower_amp_update(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *scale = tt_in(cx, 0), *tracker = tt_in(cx, 1), *bad = tt_in(cx, 2);
  tt_node *grown = tt_hlo_multiply(h, scale, tt_num(cx, 3, scale->type.dtype));
  tt_node *shrunk = tt_hlo_multiply(h, scale, tt_num(cx, 4, scale->type.dtype));
  tt_node *next = tt_hlo_add(h, tracker, tt_like(cx, tracker, 1));
  tt_node *due = tt_hlo_compare(h, TT_EQ, next, tt_num(cx, 5, next->type.dtype));
  tt_node *zero = tt_hlo_zeros(h, &tracker->type);
  bad = tt_hlo_reshape(h, tt_hlo_compare(h, TT_NE, bad, tt_like(cx, bad, 0)), 0, NULL);
  tt_node *can_grow = tt_hlo_and(h, tt_hlo_reshape(h, due, scale->type.rank, scale->type.dims),
                                 tt_hlo_is_finite(h, grown));
  tt_node *kept = tt_hlo_select(h, can_grow, grown, scale);
  tt_out_as(cx, 0, tt_hlo_select(h, bad, shrunk, kept));
  tt_out_as(cx, 1, tt_hlo_select(h, bad, zero, tt_hlo_select(h, due, zero, next)));
}
