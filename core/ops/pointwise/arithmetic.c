/* Arithmetic, comparisons, logic, and selection. */
#include "ops/pointwise/pointwise.h"

/* Both operands of products and quotients, to which PyTorch gives numbers as they are. */
static void factors(tt_lower *cx, tt_node **a, tt_node **b, tt_dtype dtype) {
  *a = tt_in_as(cx, 0, dtype);
  *b = tt_in_as(cx, 1, dtype);
  tt_broadcast_pair(cx, a, b, dtype);
}

/* param: TT_HLO_add, TT_HLO_subtract, or -TT_HLO_subtract for rsub. Argument 2 is alpha. */
void tt_lower_add(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype result = cx->result_type, dtype = tt_compute_dtype(result);
  tt_node *a, *b;
  tt_operands(cx, &a, &b, dtype);
  bool reversed = cx->row->param == -TT_HLO_subtract;
  if (tt_has(cx, 2) && !tt_static_equals(cx, 2, 1)) {
    tt_node **scaled = reversed ? &a : &b;
    *scaled = tt_hlo_multiply(h, *scaled, tt_number(cx, 2, dtype));
  }
  tt_node *y = reversed                       ? tt_hlo_subtract(h, b, a)
               : cx->row->param == TT_HLO_add ? tt_hlo_add(h, a, b)
                                              : tt_hlo_subtract(h, a, b);
  tt_out_in(cx, 0, y, result);
}

/* The arithmetic binary operators whose result has the common dtype; param: the tt_hlo_op. */
void tt_lower_binary(tt_lower *cx) {
  tt_node *a, *b;
  bool product = cx->row->param == TT_HLO_multiply;
  (product ? factors : tt_operands)(cx, &a, &b, tt_compute_dtype(cx->result_type));
  tt_out_in(cx, 0, tt_hlo_binary(cx->h, (tt_hlo_op)cx->row->param, a, b), cx->result_type);
}

/* Adds `step` to `y` where the remainder is not zero and its sign is not b's. */
static tt_node *where_signs_differ(tt_lower *cx, tt_node *rem, tt_node *b, tt_node *y,
                                   tt_node *stepped) {
  tt_hlo *h = cx->h;
  tt_node *zero = tt_like(cx, b, 0);
  tt_node *differ = tt_hlo_compare(h, TT_NE, tt_hlo_compare(h, TT_LT, rem, zero),
                                   tt_hlo_compare(h, TT_LT, b, zero));
  tt_node *some = tt_hlo_compare(h, TT_NE, rem, zero);
  return tt_hlo_select(h, tt_hlo_and(h, differ, some), stepped, y);
}

static tt_node *floor_divide_float(tt_lower *cx, tt_node *a, tt_node *b) {
  tt_hlo *h = cx->h;
  tt_node *zero = tt_like(cx, a, 0), *ratio = tt_quotient(cx, a, b);
  tt_node *rem = tt_hlo_remainder(h, a, b);
  tt_node *q = tt_quotient(cx, tt_hlo_subtract(h, a, rem), b);
  q = where_signs_differ(cx, rem, b, q, tt_hlo_subtract(h, q, tt_like(cx, q, 1)));
  tt_node *low = tt_hlo_floor(h, q);
  tt_node *above = tt_hlo_compare(h, TT_GT, tt_hlo_subtract(h, q, low), tt_like(cx, q, 0.5));
  tt_node *y = tt_hlo_select(h, above, tt_hlo_add(h, low, tt_like(cx, low, 1)), low);
  tt_node *nothing = tt_hlo_multiply(h, zero, tt_hlo_sign(h, ratio));
  y = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, q, zero), nothing, y);
  return tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, b, zero), ratio, y);
}

static tt_node *floor_divide(tt_lower *cx, tt_node *a, tt_node *b) {
  tt_hlo *h = cx->h;
  if (tt_is_float(a->type.dtype)) return floor_divide_float(cx, a, b);
  tt_node *q = tt_hlo_divide(h, a, b);
  if (tt_dtype_kind(a->type.dtype) != TT_KIND_SIGNED) return q;
  tt_node *rem = tt_hlo_remainder(h, a, b);
  return where_signs_differ(cx, rem, b, q, tt_hlo_subtract(h, q, tt_like(cx, q, 1)));
}

static void check_divisor(tt_lower *cx, tt_node *b) {
  if (cx->checks && !tt_is_float(b->type.dtype))
    tt_check(cx, tt_hlo_compare(cx->h, TT_EQ, b, tt_like(cx, b, 0)), TT_INVALID_ARGUMENT,
             "%s: ZeroDivisionError: the divisor has a zero", cx->row->name);
}

/* param 1: floor_divide; 0: argument 2 names the rounding mode, if any. */
void tt_lower_div(tt_lower *cx) {
  const char *mode = cx->row->param == 1 ? "floor" : tt_str(cx, 2);
  tt_dtype dtype = *mode ? cx->result_type : tt_float_result_dtype(cx);
  tt_node *a, *b, *y;
  factors(cx, &a, &b, tt_compute_dtype(dtype));
  if (*mode) check_divisor(cx, b);
  if (*mode == 'f') {
    y = floor_divide(cx, a, b);
  } else {
    y = tt_quotient(cx, a, b);
    /* Of two tensors PyTorch rounds the quotient to their dtype first. */
    bool number = tt_in(cx, 1)->type.rank == 0;
    if (*mode == 't' && tt_is_float(dtype)) y = tt_trunc(cx, number ? y : tt_cast(cx, y, dtype));
  }
  tt_out_in(cx, 0, y, dtype);
}

void tt_lower_remainder(tt_lower *cx) {
  tt_node *a, *b;
  tt_operands(cx, &a, &b, tt_compute_dtype(cx->result_type));
  check_divisor(cx, b);
  tt_node *y = tt_hlo_remainder(cx->h, a, b);
  if (tt_dtype_kind(y->type.dtype) != TT_KIND_UNSIGNED)
    y = where_signs_differ(cx, y, b, y, tt_hlo_add(cx->h, y, b));
  tt_out_in(cx, 0, y, cx->result_type);
}

void tt_lower_fmod(tt_lower *cx) {
  tt_node *a, *b;
  tt_operands(cx, &a, &b, tt_compute_dtype(cx->result_type));
  check_divisor(cx, b);
  tt_out_in(cx, 0, tt_hlo_remainder(cx->h, a, b), cx->result_type);
}

/* The powers PyTorch computes without pow(); NULL when `exponent` is none of them. */
static tt_node *simple_power(tt_lower *cx, tt_node *x, double exponent) {
  tt_hlo *h = cx->h;
  bool whole = !tt_is_float(x->type.dtype) && !tt_is_complex(x->type.dtype);
  if (exponent == 0) return tt_hlo_broadcast_to(h, tt_like(cx, x, 1), x->type.rank, x->type.dims);
  if (exponent == 1) return x;
  if (exponent == 2) return tt_hlo_multiply(h, x, x);
  if (exponent == 3) return tt_hlo_multiply(h, tt_hlo_multiply(h, x, x), x);
  if (whole) return NULL;
  if (exponent == 0.5) return tt_hlo_sqrt(h, x);
  if (exponent == -0.5) return tt_hlo_rsqrt(h, x);
  if (exponent == -1) return tt_hlo_divide(h, tt_like(cx, x, 1), x);
  if (exponent == -2) return tt_hlo_divide(h, tt_like(cx, x, 1), tt_hlo_multiply(h, x, x));
  return NULL;
}

/* Of complex numbers, where powers of 0 are what exp(b log 0) comes to on the CPU. */
static tt_node *complex_power(tt_lower *cx, tt_node *a, tt_node *b) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = a->type.dtype;
  tt_node *re = tt_hlo_real(h, b), *none = tt_like(cx, re, 0);
  tt_node *fine = tt_hlo_const_c(h, dtype, 0, 0);
  tt_node *pole = tt_hlo_const_c(h, dtype, INFINITY, NAN),
          *lost = tt_hlo_const_c(h, dtype, NAN, NAN);
  tt_node *other = tt_hlo_select(h, tt_hlo_compare(h, TT_LT, re, none),
                                 tt_hlo_broadcast_to(h, pole, b->type.rank, b->type.dims),
                                 tt_hlo_broadcast_to(h, lost, b->type.rank, b->type.dims));
  other = tt_hlo_select(h, tt_hlo_compare(h, TT_GT, re, none),
                        tt_hlo_broadcast_to(h, fine, b->type.rank, b->type.dims), other);
  tt_node *zero = tt_hlo_compare(h, TT_EQ, a, tt_hlo_const_c(h, dtype, 0, 0));
  return tt_hlo_select(h, zero, other, tt_hlo_power(h, a, b));
}

enum { XLA_BITS = 6 }; /* of a whole exponent that XLA's power looks at */

/* Of whole numbers, modulo what the dtype holds: a^b = a^(b % 64) * (a^64)^(b / 64), and so on. */
static tt_node *whole_power(tt_lower *cx, tt_node *a, tt_node *b) {
  tt_hlo *h = cx->h;
  tt_node *most = tt_hlo_full(h, &b->type, (1 << XLA_BITS) - 1);
  tt_node *step = tt_hlo_full(h, &b->type, XLA_BITS);
  tt_node *eight = tt_hlo_full(h, &b->type, 1 << (XLA_BITS / 2));
  tt_node *base = a, *rest = b, *y = tt_hlo_power(h, a, tt_hlo_and(h, b, most));
  int bits = 8 * (int)tt_dtype_bytes(b->type.dtype);
  for (int done = XLA_BITS; done < bits; done += XLA_BITS) {
    base = tt_hlo_power(h, tt_hlo_power(h, base, eight), eight); /* XLA minds 60 products */
    rest = tt_hlo_binary(h, TT_HLO_shift_right_logical, rest, step);
    y = tt_hlo_multiply(h, y, tt_hlo_power(h, base, tt_hlo_and(h, rest, most)));
  }
  if (tt_dtype_kind(b->type.dtype) == TT_KIND_UNSIGNED) return y;
  tt_node *negative = tt_hlo_compare(h, TT_LT, b, tt_like(cx, b, 0));
  return tt_hlo_select(h, negative, tt_hlo_power(h, a, b), y);
}

void tt_lower_pow(tt_lower *cx) {
  tt_dtype dtype = tt_compute_dtype(cx->result_type);
  const tt_arg *exponent = &cx->args[1];
  tt_node *y = NULL;
  if (cx->result_type == TT_BOOL && exponent->kind == TT_ARG_INT) {
    tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "%s: of booleans, which Meta takes for integers",
                cx->row->name);
    return;
  }
  if (exponent->kind == TT_ARG_INT && exponent->i < 0 && tt_is_integer(dtype)) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "%s: integers have no negative integer powers",
                cx->row->name);
    return;
  }
  if (exponent->kind == TT_ARG_INT || exponent->kind == TT_ARG_FLOAT)
    y = simple_power(cx, tt_in_as(cx, 0, dtype), tt_float(cx, 1));
  if (exponent->kind == TT_ARG_COMPLEX && exponent->floats[1] == 0)
    y = simple_power(cx, tt_in_as(cx, 0, dtype), exponent->floats[0]);
  if (!y) {
    tt_node *a, *b;
    tt_operands(cx, &a, &b, dtype);
    bool small = exponent->kind == TT_ARG_INT && exponent->i < 1 << XLA_BITS;
    bool whole = tt_is_integer(dtype) && !small;
    y = dtype == TT_BOOL       ? tt_hlo_or(cx->h, a, tt_hlo_not(cx->h, b))
        : tt_is_complex(dtype) ? complex_power(cx, a, b)
        : whole                ? whole_power(cx, a, b)
                               : tt_hlo_power(cx->h, a, b);
  }
  tt_out_in(cx, 0, y, cx->result_type);
}

/* param: a tt_cmp. */
void tt_lower_compare(tt_lower *cx) {
  tt_node *a, *b;
  tt_operands(cx, &a, &b, cx->result_type);
  tt_out_as(cx, 0, tt_hlo_compare(cx->h, (tt_cmp)cx->row->param, a, b));
}

/* param: TT_HLO_and, or, xor; operands become bool. */
void tt_lower_logical(tt_lower *cx) {
  tt_node *a, *b;
  tt_operands(cx, &a, &b, TT_BOOL);
  tt_out_as(cx, 0, tt_hlo_binary(cx->h, (tt_hlo_op)cx->row->param, a, b));
}

/* param 0: left, 1: right. Shifts by less than 0 or by the width or more behave as by the width. */
void tt_lower_shift(tt_lower *cx) {
  tt_node *a, *b;
  tt_operands(cx, &a, &b, cx->result_type);
  bool is_signed = tt_dtype_kind(cx->result_type) == TT_KIND_SIGNED;
  tt_hlo_op right = is_signed ? TT_HLO_shift_right_arithmetic : TT_HLO_shift_right_logical;
  tt_out_as(cx, 0, tt_hlo_binary(cx->h, cx->row->param ? right : TT_HLO_shift_left, a, b));
}

void tt_lower_where(tt_lower *cx) {
  tt_dtype dtype = tt_meta_dtype(cx, 0, cx->result_type);
  tt_node *xs[3] = {tt_in_as(cx, 0, TT_BOOL), tt_in_as(cx, 1, dtype), tt_in_as(cx, 2, dtype)};
  tt_broadcast_all(cx, xs, 3);
  tt_out_as(cx, 0, tt_hlo_select(cx->h, xs[0], xs[1], xs[2]));
}

void tt_lower_masked_fill(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *value = tt_in_as(cx, 2, x->type.dtype);
  tt_node *xs[3] = {tt_in_as(cx, 1, TT_BOOL), tt_hlo_reshape(cx->h, value, 0, NULL), x};
  tt_broadcast_all(cx, xs, 3);
  tt_out_as(cx, 0, tt_hlo_select(cx->h, xs[0], xs[1], xs[2]));
}

static tt_node *bounded(tt_lower *cx, tt_node *x, int i, tt_hlo_op op) {
  if (!tt_has(cx, i)) return x;
  tt_node *bound = tt_in_as(cx, i, x->type.dtype);
  tt_broadcast_pair(cx, &x, &bound, x->type.dtype);
  return tt_hlo_binary(cx->h, op, x, bound);
}

void tt_lower_clamp(tt_lower *cx) {
  tt_node *x = tt_in_as(cx, 0, cx->result_type);
  x = bounded(cx, x, 1, TT_HLO_maximum);
  tt_out_as(cx, 0, bounded(cx, x, 2, TT_HLO_minimum));
}

/* maximum, minimum, clamp_min, clamp_max; param: the tt_hlo_op. NaN wins. */
void tt_lower_extremum(tt_lower *cx) {
  tt_node *a, *b;
  tt_operands(cx, &a, &b, cx->result_type);
  tt_out_as(cx, 0, tt_hlo_binary(cx->h, (tt_hlo_op)cx->row->param, a, b));
}

/* fmax, fmin: NaN loses. */
void tt_lower_fextremum(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *a, *b;
  tt_operands(cx, &a, &b, cx->result_type);
  tt_node *y = tt_hlo_binary(h, (tt_hlo_op)cx->row->param, a, b);
  if (tt_is_float(cx->result_type)) {
    y = tt_hlo_select(h, tt_is_nan(cx, b), a, y);
    y = tt_hlo_select(h, tt_is_nan(cx, a), b, y);
  }
  tt_out_as(cx, 0, y);
}

/* What a weight decides, made once for all elements of a list if the weight is a number. */
static tt_node *decided(tt_lower *cx, tt_node *x) { return x->type.rank == 0 ? tt_once(cx, x) : x; }

/* self + weight * (end - self), or end - (end - self) * (1 - weight): from the nearer end. What the
 * weight decides is computed in its own sizes: one of an optimizer's has none. */
void tt_lower_lerp(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_compute_dtype(cx->result_type);
  tt_node *w = tt_in_as(cx, 2, dtype), *size = tt_hlo_abs(h, w);
  tt_node *near = tt_hlo_compare(h, TT_LT, size, tt_like(cx, size, 0.5));
  tt_node *from_b = tt_hlo_negate(h, tt_hlo_subtract(h, tt_like(cx, w, 1), w));
  tt_node *part = tt_hlo_select(h, near, w, from_b);
  tt_node *xs[] = {tt_in_as(cx, 0, dtype), tt_in_as(cx, 1, dtype), decided(cx, part),
                   decided(cx, near)};
  tt_broadcast_all(cx, xs, 4);
  tt_node *span = tt_hlo_subtract(h, xs[1], xs[0]);
  tt_node *end = tt_hlo_select(h, xs[3], xs[0], xs[1]);
  tt_out_in(cx, 0, tt_hlo_add(h, end, tt_hlo_multiply(h, xs[2], span)), cx->result_type);
}

/* Among integers the factor is one, too, though it may be given as a fraction. */
static tt_dtype type_with_factor(tt_lower *cx) {
  tt_dtype first = tt_in(cx, 0)->type.dtype;
  bool same = true;
  for (int i = 0; i < 3; i++) {
    tt_dtype dtype = tt_in(cx, i)->type.dtype;
    if (!tt_is_integer(dtype)) return cx->result_type;
    same &= dtype == first;
  }
  return same ? first : TT_I64;
}

/* self + value * a * b or self + value * a / b; param: TT_HLO_multiply or TT_HLO_divide. */
void tt_lower_addcmul(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype result = type_with_factor(cx), dtype = tt_compute_dtype(result);
  tt_node *x = tt_in_as(cx, 0, dtype), *a = tt_in_as(cx, 1, dtype), *b = tt_in_as(cx, 2, dtype);
  tt_broadcast_pair(cx, &a, &b, dtype);
  if (tt_has(cx, 3) && !tt_static_equals(cx, 3, 1)) a = tt_hlo_multiply(h, tt_num(cx, 3, dtype), a);
  tt_node *y = tt_hlo_binary(h, (tt_hlo_op)cx->row->param, a, b);
  tt_broadcast_pair(cx, &x, &y, dtype);
  tt_out_in(cx, 0, tt_hlo_add(h, x, y), result);
}
