/* Activation functions and their gradients. Schemas put the gradient first, then the input. */
#include "ops/pointwise/pointwise.h"

/* The operand, and what to do when it is done. */
typedef struct unary {
  tt_hlo *h;
  tt_node *x;
  tt_dtype dtype;
} unary;

static unary begin(tt_lower *cx, int i) {
  tt_dtype dtype = cx->result_type;
  return (unary){cx->h, tt_in_as(cx, i, tt_compute_dtype(dtype)), dtype};
}

/* The gradient (argument 0) in the dtype and shape of x. */
static tt_node *gradient(tt_lower *cx, unary *u) {
  tt_node *g = tt_in_as(cx, 0, u->x->type.dtype);
  tt_broadcast_pair(cx, &g, &u->x, u->x->type.dtype);
  return g;
}

static tt_node *zeros_like(tt_lower *cx, tt_node *x) { return tt_hlo_zeros(cx->h, &x->type); }

static tt_node *one_minus(tt_lower *cx, tt_node *x) {
  return tt_hlo_subtract(cx->h, tt_like(cx, x, 1), x);
}

static tt_node *clamp(tt_lower *cx, tt_node *x, double low, double high) {
  return tt_hlo_minimum(cx->h, tt_hlo_maximum(cx->h, x, tt_like(cx, x, low)), tt_like(cx, x, high));
}

void tt_lower_relu(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0), *below = tt_hlo_compare(h, TT_LT, x, tt_like(cx, x, 0));
  tt_out_as(cx, 0, tt_hlo_select(h, below, tt_hlo_zeros(h, &x->type), x)); /* -0 stays */
}

/* 0.5 * (1 + erf(x / sqrt 2)), or the tanh approximation; *inner is what its derivative needs. */
static tt_node *gelu_share(tt_lower *cx, tt_node *x, bool approximate, tt_node **inner) {
  tt_hlo *h = cx->h;
  tt_node *t;
  if (approximate) {
    tt_node *cube = tt_hlo_multiply(h, tt_hlo_multiply(h, x, x), x);
    t = tt_hlo_tanh(
        h, tt_times(cx, tt_hlo_add(h, x, tt_times(cx, cube, 0.044715)), 0.79788456080286535588));
  } else {
    t = tt_hlo_erf(cx->h, tt_times(cx, x, 0.70710678118654752440));
  }
  *inner = t;
  return tt_times(cx, tt_plus(cx, t, 1), 0.5);
}

void tt_lower_gelu(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *inner, *share = gelu_share(cx, u.x, tt_str(cx, 1)[0] == 't', &inner);
  tt_out_in(cx, 0, tt_hlo_multiply(u.h, u.x, share), u.dtype);
}

void tt_lower_gelu_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_hlo *h = u.h;
  bool approximate = tt_str(cx, 2)[0] == 't';
  tt_node *g = gradient(cx, &u), *x = u.x, *inner, *slope;
  tt_node *share = gelu_share(cx, x, approximate, &inner), *square = tt_hlo_multiply(h, x, x);
  if (approximate) {
    tt_node *rise =
        tt_times(cx, tt_plus(cx, tt_times(cx, square, 3 * 0.044715), 1), 0.79788456080286535588);
    tt_node *flat = one_minus(cx, tt_hlo_multiply(h, inner, inner));
    slope = tt_times(cx, tt_hlo_multiply(h, flat, rise), 0.5);
  } else {
    slope = tt_times(cx, tt_hlo_exponential(h, tt_times(cx, square, -0.5)), 0.39894228040143267794);
  }
  tt_node *total = tt_hlo_add(h, share, tt_hlo_multiply(h, x, slope));
  tt_out_in(cx, 0, tt_hlo_multiply(h, g, total), u.dtype);
}

void tt_lower_silu(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *z = tt_hlo_exponential(u.h, tt_hlo_negate(u.h, u.x));
  tt_out_in(cx, 0, tt_hlo_divide(u.h, u.x, tt_plus(cx, z, 1)), u.dtype);
}

/* grad * s * (1 + x * (1 - s)), s being the sigmoid. */
void tt_lower_silu_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_hlo *h = u.h;
  tt_node *g = gradient(cx, &u), *s = tt_plus(cx, tt_hlo_exponential(h, tt_hlo_negate(h, u.x)), 1);
  s = tt_hlo_divide(h, tt_like(cx, s, 1), s);
  tt_node *slope = tt_plus(cx, tt_hlo_multiply(h, u.x, one_minus(cx, s)), 1);
  tt_out_in(cx, 0, tt_hlo_multiply(h, tt_hlo_multiply(h, g, s), slope), u.dtype);
}

/* grad * (1 - y^2), of the result y. */
void tt_lower_tanh_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u), *slope = one_minus(cx, tt_hlo_multiply(u.h, u.x, u.x));
  tt_out_in(cx, 0, tt_hlo_multiply(u.h, g, tt_conjugate(cx, slope)), u.dtype);
}

/* grad * (1 - y) * y, of the result y. */
void tt_lower_sigmoid_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u), *y = tt_conjugate(cx, u.x);
  tt_out_in(cx, 0, tt_hlo_multiply(u.h, tt_hlo_multiply(u.h, g, one_minus(cx, y)), y), u.dtype);
}

void tt_lower_hardtanh(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_dtype dtype = x->type.dtype;
  tt_node *low = tt_num(cx, 1, dtype), *high = tt_num(cx, 2, dtype);
  low = tt_hlo_broadcast_to(cx->h, low, x->type.rank, x->type.dims);
  high = tt_hlo_broadcast_to(cx->h, high, x->type.rank, x->type.dims);
  tt_node *y = tt_hlo_select(cx->h, tt_hlo_compare(cx->h, TT_LT, x, low), low, x);
  tt_out_as(cx, 0, tt_hlo_select(cx->h, tt_hlo_compare(cx->h, TT_GT, y, high), high, y));
}

/* The gradient where `passes`, else zero. */
static void out_where(tt_lower *cx, tt_node *passes, tt_node *g, tt_dtype dtype) {
  tt_out_in(cx, 0, tt_hlo_select(cx->h, passes, g, zeros_like(cx, g)), dtype);
}

void tt_lower_hardtanh_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u);
  tt_node *low = tt_num(cx, 2, u.x->type.dtype), *high = tt_num(cx, 3, u.x->type.dtype);
  tt_node *above = tt_hlo_compare(u.h, TT_GT, u.x, low);
  out_where(cx, tt_hlo_and(u.h, above, tt_hlo_compare(u.h, TT_LT, u.x, high)), g, u.dtype);
}

void tt_lower_hardsigmoid(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *y = tt_quotient(cx, clamp(cx, tt_plus(cx, u.x, 3), 0, 6), tt_like(cx, u.x, 6));
  tt_out_in(cx, 0, y, u.dtype);
}

void tt_lower_hardsigmoid_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u);
  tt_node *inside = tt_hlo_compare(u.h, TT_LT, tt_hlo_abs(u.h, u.x), tt_like(cx, u.x, 3));
  out_where(cx, inside, tt_times(cx, g, 1.0 / 6.0), u.dtype);
}

void tt_lower_hardswish(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *y = tt_hlo_multiply(u.h, u.x, clamp(cx, tt_plus(cx, u.x, 3), 0, 6));
  tt_out_in(cx, 0, tt_quotient(cx, y, tt_like(cx, y, 6)), u.dtype);
}

void tt_lower_hardswish_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_hlo *h = u.h;
  tt_node *g = gradient(cx, &u), *three = tt_like(cx, u.x, 3);
  tt_node *slope = tt_plus(cx, tt_quotient(cx, u.x, three), 0.5);
  tt_node *y =
      tt_hlo_select(h, tt_hlo_compare(h, TT_GE, u.x, three), g, tt_hlo_multiply(h, g, slope));
  tt_node *off = tt_hlo_compare(h, TT_LE, u.x, tt_like(cx, u.x, -3));
  tt_out_in(cx, 0, tt_hlo_select(h, off, zeros_like(cx, y), y), u.dtype);
}

/* How |x| compares to lambda, argument i. */
static tt_node *size_is(tt_lower *cx, tt_node *x, tt_cmp cmp, int i) {
  return tt_hlo_compare(cx->h, cmp, tt_hlo_abs(cx->h, x), tt_num(cx, i, x->type.dtype));
}

void tt_lower_hardshrink(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *inside = size_is(cx, u.x, TT_LE, 1);
  tt_out_in(cx, 0, tt_hlo_select(u.h, inside, zeros_like(cx, u.x), u.x), u.dtype);
}

void tt_lower_softshrink(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_hlo *h = u.h;
  tt_node *x = u.x, *lambda = tt_num(cx, 1, x->type.dtype), *zero = tt_like(cx, x, 0);
  tt_node *shifted = tt_hlo_select(h, tt_hlo_compare(h, TT_GT, x, zero),
                                   tt_hlo_subtract(h, x, lambda), tt_hlo_add(h, x, lambda));
  tt_node *outside = tt_hlo_compare(h, TT_GT, tt_hlo_abs(h, x), lambda);
  tt_node *inside = tt_hlo_select(h, tt_is_nan(cx, x), x, zeros_like(cx, x));
  tt_out_in(cx, 0, tt_hlo_select(h, outside, shifted, inside), u.dtype);
}

/* hardshrink and softshrink alike. */
void tt_lower_shrink_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u);
  out_where(cx, size_is(cx, u.x, TT_GT, 2), g, u.dtype);
}

void tt_lower_elu(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_hlo *h = u.h;
  tt_dtype dtype = u.x->type.dtype;
  tt_node *alpha = tt_num(cx, 1, dtype), *scale = tt_num(cx, 2, dtype);
  tt_node *bent = tt_hlo_exponential_minus_one(h, tt_hlo_multiply(h, u.x, tt_num(cx, 3, dtype)));
  tt_node *low = tt_hlo_multiply(h, bent, tt_hlo_multiply(h, alpha, scale));
  tt_node *is_low = tt_hlo_compare(h, TT_LE, u.x, tt_like(cx, u.x, 0));
  tt_out_in(cx, 0, tt_hlo_select(h, is_low, low, tt_hlo_multiply(h, u.x, scale)), u.dtype);
}

/* (grad, alpha, scale, input_scale, is_result, self_or_result) */
void tt_lower_elu_backward(tt_lower *cx) {
  unary u = begin(cx, 5);
  tt_hlo *h = u.h;
  tt_node *g = gradient(cx, &u), *x = u.x;
  tt_dtype dtype = x->type.dtype;
  tt_node *scale = tt_num(cx, 2, dtype), *inner = tt_num(cx, 3, dtype);
  tt_node *height = tt_hlo_multiply(h, tt_num(cx, 1, dtype), scale);
  tt_node *bent =
      tt_bool(cx, 4)
          ? tt_hlo_add(h, x, height)
          : tt_hlo_multiply(h, tt_hlo_exponential(h, tt_hlo_multiply(h, x, inner)), height);
  tt_node *low = tt_hlo_multiply(h, tt_hlo_multiply(h, g, bent), inner);
  tt_node *is_low = tt_hlo_compare(h, TT_LE, x, tt_like(cx, x, 0));
  tt_out_in(cx, 0, tt_hlo_select(h, is_low, low, tt_hlo_multiply(h, g, scale)), u.dtype);
}

void tt_lower_leaky_relu(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *low = tt_hlo_multiply(u.h, u.x, tt_num(cx, 1, u.x->type.dtype));
  tt_node *is_high = tt_hlo_compare(u.h, TT_GT, u.x, tt_like(cx, u.x, 0));
  tt_out_in(cx, 0, tt_hlo_select(u.h, is_high, u.x, low), u.dtype);
}

void tt_lower_leaky_relu_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u);
  tt_node *low = tt_hlo_multiply(u.h, g, tt_num(cx, 2, u.x->type.dtype));
  tt_node *is_high = tt_hlo_compare(u.h, TT_GT, u.x, tt_like(cx, u.x, 0));
  tt_out_in(cx, 0, tt_hlo_select(u.h, is_high, g, low), u.dtype);
}

void tt_lower_threshold(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_node *off = tt_hlo_compare(cx->h, TT_LE, x, tt_num(cx, 1, x->type.dtype));
  tt_node *value = tt_num(cx, 2, x->type.dtype);
  value = tt_hlo_broadcast_to(cx->h, value, x->type.rank, x->type.dims);
  tt_out_as(cx, 0, tt_hlo_select(cx->h, off, value, x));
}

void tt_lower_threshold_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u);
  tt_node *off = tt_hlo_compare(u.h, TT_LE, u.x, tt_num(cx, 2, u.x->type.dtype));
  tt_out_in(cx, 0, tt_hlo_select(u.h, off, zeros_like(cx, g), g), u.dtype);
}

/* Whether x * beta exceeds the threshold; argument i is beta, i + 1 the threshold. */
static tt_node *is_linear(tt_lower *cx, tt_node *scaled, int i) {
  return tt_hlo_compare(cx->h, TT_GT, scaled, tt_num(cx, i + 1, scaled->type.dtype));
}

void tt_lower_softplus(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *beta = tt_num(cx, 1, u.x->type.dtype), *scaled = tt_hlo_multiply(u.h, u.x, beta);
  tt_node *y = tt_hlo_divide(u.h, tt_hlo_log_plus_one(u.h, tt_hlo_exponential(u.h, scaled)), beta);
  tt_out_in(cx, 0, tt_hlo_select(u.h, is_linear(cx, scaled, 1), u.x, y), u.dtype);
}

void tt_lower_softplus_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u);
  tt_node *scaled = tt_hlo_multiply(u.h, u.x, tt_num(cx, 2, u.x->type.dtype));
  tt_node *y = tt_hlo_multiply(u.h, g, tt_hlo_logistic(u.h, scaled));
  tt_out_in(cx, 0, tt_hlo_select(u.h, is_linear(cx, scaled, 2), g, y), u.dtype);
}

/* min(x, 0) - log(1 + exp(-|x|)), and exp(-|x|) where the backward wants it. */
void tt_lower_log_sigmoid(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *z = tt_hlo_exponential(u.h, tt_hlo_negate(u.h, tt_hlo_abs(u.h, u.x)));
  tt_node *low = tt_hlo_minimum(u.h, u.x, tt_like(cx, u.x, 0));
  tt_out_in(cx, 0, tt_hlo_subtract(u.h, low, tt_hlo_log_plus_one(u.h, z)), u.dtype);
  if (cx->meta_types && cx->meta_count > 1 && tt_type_numel(&cx->meta_types[1]) == 0)
    tt_out(cx, 1, tt_hlo_zeros(u.h, &cx->meta_types[1]));
  else tt_out_in(cx, 1, z, u.dtype);
}

void tt_lower_log_sigmoid_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_node *g = gradient(cx, &u);
  tt_node *slope = tt_hlo_logistic(u.h, tt_hlo_negate(u.h, u.x));
  tt_out_in(cx, 0, tt_hlo_multiply(u.h, g, slope), u.dtype);
}

void tt_lower_mish(tt_lower *cx) {
  unary u = begin(cx, 0);
  tt_node *softplus = tt_hlo_log_plus_one(u.h, tt_hlo_exponential(u.h, u.x));
  tt_out_in(cx, 0, tt_hlo_multiply(u.h, u.x, tt_hlo_tanh(u.h, softplus)), u.dtype);
}

void tt_lower_prelu(tt_lower *cx) {
  tt_node *x, *weight;
  tt_operands(cx, &x, &weight, tt_compute_dtype(cx->result_type));
  tt_node *is_high = tt_hlo_compare(cx->h, TT_GT, x, tt_like(cx, x, 0));
  tt_node *y = tt_hlo_select(cx->h, is_high, x, tt_hlo_multiply(cx->h, weight, x));
  tt_out_in(cx, 0, y, cx->result_type);
}

void tt_lower_prelu_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_compute_dtype(cx->result_type);
  tt_node *xs[3] = {tt_in_as(cx, 0, dtype), tt_in_as(cx, 1, dtype), tt_in_as(cx, 2, dtype)};
  tt_broadcast_all(cx, xs, 3);
  tt_node *g = xs[0], *x = xs[1], *is_high = tt_hlo_compare(h, TT_GT, x, tt_like(cx, x, 0));
  tt_node *to_x = tt_hlo_select(h, is_high, g, tt_hlo_multiply(h, xs[2], g));
  tt_node *to_weight = tt_hlo_select(h, is_high, zeros_like(cx, g), tt_hlo_multiply(h, x, g));
  tt_out_in(cx, 0, to_x, cx->result_type);
  tt_out_in(cx, 1, to_weight, cx->result_type);
}

/* log(x / (1 - x)), of x clamped to eps..1-eps if eps was given and not negative. */
void tt_lower_logit(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype));
  if (tt_has(cx, 1)) {
    tt_node *eps = tt_num(cx, 1, x->type.dtype);
    x = tt_hlo_minimum(h, tt_hlo_maximum(h, x, eps), one_minus(cx, eps));
  }
  tt_out_in(cx, 0, tt_hlo_log(h, tt_hlo_divide(h, x, one_minus(cx, x))), dtype);
}

void tt_lower_logit_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_hlo *h = u.h;
  tt_node *g = gradient(cx, &u), *x = u.x, *eps, *outside;
  bool clamped = tt_has(cx, 2);
  eps = clamped ? tt_num(cx, 2, x->type.dtype) : tt_like(cx, x, 0);
  outside = tt_hlo_or(h, tt_hlo_compare(h, TT_LT, x, eps),
                      tt_hlo_compare(h, TT_GT, x, one_minus(cx, eps)));
  tt_node *y = tt_hlo_divide(h, g, tt_hlo_multiply(h, x, one_minus(cx, x)));
  tt_node *off = tt_hlo_full(h, &y->type, clamped ? 0 : (double)NAN);
  tt_out_in(cx, 0, tt_hlo_select(h, outside, off, y), u.dtype);
}

/* (grad, self, noise, lower, upper, training, self_is_result) */
void tt_lower_rrelu_backward(tt_lower *cx) {
  unary u = begin(cx, 1);
  tt_hlo *h = u.h;
  tt_node *g = gradient(cx, &u);
  tt_dtype dtype = u.x->type.dtype;
  tt_node *low = tt_num(cx, 3, dtype), *high = tt_num(cx, 4, dtype);
  tt_node *slope = tt_times(cx, tt_hlo_add(h, low, high), 0.5), *y;
  if (tt_bool(cx, 5)) {
    y = tt_hlo_multiply(h, g, tt_in_as(cx, 2, dtype));
  } else {
    tt_node *is_high = tt_hlo_compare(h, TT_GT, u.x, tt_like(cx, u.x, 0));
    y = tt_hlo_select(h, is_high, g, tt_hlo_multiply(h, g, slope));
  }
  tt_out_in(cx, 0, y, u.dtype);
}
