/* The rarer functions of two operands. */
#include "ops/pointwise/pointwise.h"

static bool real_only(tt_lower *cx) {
  if (!tt_is_complex(cx->result_type)) return true;
  tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "%s: complex operands are not supported", cx->row->name);
  return false;
}

void tt_lower_atan2(tt_lower *cx) {
  tt_node *a, *b;
  tt_dtype dtype = tt_float_operands(cx, &a, &b);
  tt_out_in(cx, 0, tt_atan2(cx, a, b), dtype);
}

void tt_lower_atan(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype));
  tt_node *y =
      tt_is_complex(dtype) ? tt_hlo_atan(h, x) : tt_atan2(cx, x, tt_hlo_full(h, &x->type, 1));
  tt_out_in(cx, 0, y, dtype);
}

/* Scaled by the larger side, so that squares neither overflow nor vanish. */
void tt_lower_hypot(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *a, *b;
  tt_dtype dtype = tt_float_operands(cx, &a, &b);
  a = tt_hlo_abs(h, a);
  b = tt_hlo_abs(h, b);
  tt_node *high = tt_hlo_maximum(h, a, b), *low = tt_hlo_minimum(h, a, b);
  tt_node *ratio = tt_hlo_divide(h, low, high);
  tt_node *y =
      tt_hlo_multiply(h, high, tt_hlo_sqrt(h, tt_plus(cx, tt_hlo_multiply(h, ratio, ratio), 1)));
  y = tt_hlo_select(h, tt_is(cx, high, TT_EQ, 0), high, y);
  double inf = (double)INFINITY;
  tt_node *endless = tt_hlo_or(h, tt_is(cx, a, TT_EQ, inf), tt_is(cx, b, TT_EQ, inf));
  tt_out_in(cx, 0, tt_hlo_select(h, endless, tt_splat(cx, y, inf), y), dtype);
}

void tt_lower_copysign(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *a, *b;
  tt_dtype dtype = tt_float_operands(cx, &a, &b);
  a = tt_hlo_abs(h, a);
  tt_out_in(cx, 0, tt_hlo_select(h, tt_sign_bit(cx, b), tt_hlo_negate(h, a), a), dtype);
}

void tt_lower_nextafter(tt_lower *cx) {
  tt_node *ab[2];
  tt_operands(cx, &ab[0], &ab[1], cx->result_type);
  tt_out_as(cx, 0, tt_hlo_next_after(cx->h, ab[0], ab[1]));
}

void tt_lower_heaviside(tt_lower *cx) {
  tt_node *x, *values;
  tt_operands(cx, &x, &values, cx->result_type);
  tt_node *step = tt_cast(cx, tt_is(cx, x, TT_GT, 0), cx->result_type);
  tt_out_as(cx, 0, tt_hlo_select(cx->h, tt_is(cx, x, TT_EQ, 0), values, step));
}

static void gcd_more(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *zero = tt_hlo_const_i(h, args[1]->type.dtype, 0);
  results[0] = tt_hlo_reduce_all(h, TT_OR, tt_hlo_compare(h, TT_NE, args[1], zero));
}

static void gcd_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *a = args[0], *b = args[1];
  tt_node *done = tt_hlo_compare(h, TT_EQ, b, tt_hlo_const_i(h, b->type.dtype, 0));
  tt_node *one =
      tt_hlo_broadcast_to(h, tt_hlo_const_i(h, b->type.dtype, 1), b->type.rank, b->type.dims);
  tt_node *rest = tt_hlo_remainder(h, a, tt_hlo_select(h, done, one, b));
  results[0] = tt_hlo_select(h, done, a, b);
  results[1] = tt_hlo_select(h, done, b, rest);
}

/* Euclid's algorithm; param 1: lcm. */
void tt_lower_gcd(tt_lower *cx) {
  tt_hlo *h = cx->h;
  bool is_signed = tt_dtype_kind(cx->result_type) == TT_KIND_SIGNED;
  tt_node *ab[2], *found[2];
  tt_operands(cx, &ab[0], &ab[1], cx->result_type);
  tt_hlo_while(h, 2, ab, gcd_more, gcd_step, NULL, found);
  tt_node *y = is_signed ? tt_hlo_abs(h, found[0]) : found[0];
  if (cx->row->param) {
    tt_node *none = tt_is(cx, y, TT_EQ, 0);
    tt_node *share = tt_hlo_divide(h, ab[0], tt_hlo_select(h, none, tt_splat(cx, y, 1), y));
    tt_node *product = tt_hlo_multiply(h, share, ab[1]);
    y = tt_hlo_select(h, none, y, is_signed ? tt_hlo_abs(h, product) : product);
  }
  tt_out_as(cx, 0, y);
}

/* log(b^x + b^y) for b = e, or 2 when param is 2. */
void tt_lower_logaddexp(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *a, *b;
  if (!real_only(cx)) return;
  tt_dtype dtype = tt_float_operands(cx, &a, &b);
  double log_base = cx->row->param == 2 ? 0.69314718055994530942 : 1;
  tt_node *high = tt_hlo_maximum(h, a, b);
  tt_node *gap = tt_hlo_negate(h, tt_hlo_abs(h, tt_hlo_subtract(h, a, b)));
  tt_node *rest = tt_hlo_log_plus_one(h, tt_hlo_exponential(h, tt_times(cx, gap, log_base)));
  tt_node *y = tt_hlo_add(h, high, tt_times(cx, rest, 1 / log_base));
  tt_node *same = tt_hlo_and(h, tt_hlo_compare(h, TT_EQ, a, b),
                             tt_is(cx, tt_hlo_abs(h, a), TT_EQ, (double)INFINITY));
  tt_out_in(cx, 0, tt_hlo_select(h, same, a, y), dtype);
}

/* x * log(y), 0 where x is 0 and y is not NaN; param 1: log1p. */
void tt_lower_xlogy(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x, *y;
  tt_dtype dtype = tt_float_operands(cx, &x, &y);
  tt_node *log = cx->row->param ? tt_hlo_log_plus_one(h, y) : tt_hlo_log(h, y);
  tt_node *product = tt_hlo_multiply(h, x, log);
  product = tt_hlo_select(h, tt_is(cx, x, TT_EQ, 0), tt_splat(cx, x, 0), product);
  tt_out_in(cx, 0, tt_hlo_select(h, tt_is_nan(cx, y), y, product), dtype);
}

/* param 0: complex(re, im); 1: polar(abs, angle). */
void tt_lower_complex(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *a, *b;
  if (tt_in(cx, 0)->type.dtype != tt_in(cx, 1)->type.dtype) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "%s: expected two tensors of one dtype, got %s and %s",
                cx->row->name, tt_dtype_name(tt_in(cx, 0)->type.dtype),
                tt_dtype_name(tt_in(cx, 1)->type.dtype));
    return;
  }
  if (tt_in(cx, 0)->type.dtype == TT_BF16) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "%s: no complex number has parts in bf16", cx->row->name);
    return;
  }
  tt_operands(cx, &a, &b, tt_compute_dtype(tt_in(cx, 0)->type.dtype));
  if (cx->row->param) {
    tt_node *angle = b;
    b = tt_hlo_multiply(h, a, tt_hlo_sine(h, angle));
    a = tt_hlo_multiply(h, a, tt_hlo_cosine(h, angle));
  }
  tt_out_as(cx, 0, tt_hlo_complex(h, a, b));
}

/* x times 2 to a whole power, in three steps that neither overflow nor vanish before the end. */
static tt_node *scaled(tt_lower *cx, tt_node *x, tt_node *e) {
  tt_hlo *h = cx->h;
  bool wide = x->type.dtype == TT_F64;
  double most = 3 * (wide ? 1022 : 126);
  e = tt_hlo_minimum(h, tt_hlo_maximum(h, e, tt_splat(cx, e, -most)), tt_splat(cx, e, most));
  tt_node *third = tt_hlo_floor(h, tt_times(cx, e, 1.0 / 3));
  tt_node *rest = tt_hlo_subtract(h, e, tt_hlo_add(h, third, third));
  tt_node *power = tt_hlo_power(h, tt_splat(cx, x, 2), third);
  x = tt_hlo_multiply(h, tt_hlo_multiply(h, x, power), power);
  return tt_hlo_multiply(h, x, tt_hlo_power(h, tt_splat(cx, x, 2), rest));
}

/* The dtype of an operand, be it a tensor or a number. */
static tt_dtype dtype_of(tt_lower *cx, int i) {
  const tt_arg *arg = &cx->args[i];
  return arg->kind == TT_ARG_TENSOR ? tt_in(cx, i)->type.dtype : tt_dtype_computed(arg->dtype);
}

/* A product of x and a power of two, which is rounded to the exponent's dtype unless x is complex;
 * but floating numbers are scaled by whole powers, large as they may be. */
void tt_lower_ldexp(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx), wide = tt_compute_dtype(dtype),
           power = dtype_of(cx, 1);
  bool whole = tt_is_integer(power) || power == TT_BOOL;
  bool scales = whole && tt_is_float(dtype_of(cx, 0));
  if (whole) power = dtype;
  if (tt_is_complex(dtype_of(cx, 0))) power = tt_compute_dtype(power);
  tt_node *x = tt_in_as(cx, 0, wide), *e = tt_in_as(cx, 1, tt_compute_dtype(power));
  if (!scales) e = tt_rounded(cx, tt_hlo_power(h, tt_splat(cx, e, 2), e), power);
  tt_broadcast_pair(cx, &x, &e, wide);
  tt_out_in(cx, 0, scales ? scaled(cx, x, e) : tt_hlo_multiply(h, x, e), dtype);
}
