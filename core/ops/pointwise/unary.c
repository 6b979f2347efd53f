/* Functions of one operand. */
#include "ops/pointwise/pointwise.h"

#include <float.h>

/* exp, log, sqrt, sin, ..: integers become floating; param: the tt_hlo_op. */
void tt_lower_float_unary(tt_lower *cx) {
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype));
  tt_out_in(cx, 0, tt_hlo_unary(cx->h, (tt_hlo_op)cx->row->param, x), dtype);
}

/* CHLO's halves small operands on the way, which may leave nothing of them. */
void tt_lower_asin(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype)), *y = tt_hlo_asin(h, x);
  if (!tt_is_complex(dtype))
    y = tt_hlo_select(h, tt_hlo_compare(h, TT_LT, tt_hlo_abs(h, x), tt_like(cx, x, 1e-9)), x, y);
  tt_out_in(cx, 0, y, dtype);
}

/* log2, log10, exp2; param: the base, negative for the power. */
void tt_lower_based(tt_lower *cx) {
  tt_hlo *h = cx->h;
  int base = cx->row->param;
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype));
  tt_node *y =
      base < 0
          ? tt_hlo_power(
                h, tt_hlo_broadcast_to(h, tt_like(cx, x, -base), x->type.rank, x->type.dims), x)
          : tt_hlo_multiply(h, tt_hlo_log(h, x),
                            tt_like(cx, x, base == 2 ? 1.4426950408889634 : 0.43429448190325182));
  tt_out_in(cx, 0, y, dtype);
}

/* floor, ceil, round: whole numbers stay; param: the tt_hlo_op. */
void tt_lower_rounding(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  if (tt_is_float(x->type.dtype)) x = tt_hlo_unary(cx->h, (tt_hlo_op)cx->row->param, x);
  tt_out_as(cx, 0, x);
}

/* param 1: the fraction that trunc leaves. */
void tt_lower_trunc(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *y = tt_is_float(x->type.dtype) ? tt_trunc(cx, x) : x;
  tt_out_as(cx, 0, cx->row->param ? tt_hlo_subtract(cx->h, x, y) : y);
}

void tt_lower_round_decimals(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *in = tt_in(cx, 0);
  int64_t decimals = tt_int(cx, 1);
  if (!tt_is_float(in->type.dtype)) {
    tt_out_as(cx, 0, in);
    return;
  }
  tt_node *x = tt_cast(cx, in, tt_compute_dtype(in->type.dtype));
  double ten = 1;
  for (int64_t i = 0; i < (decimals < 0 ? -decimals : decimals) && ten < 1e300; i++) ten *= 10;
  /* Not a constant, or XLA multiplies by its inverse, which is rounded. */
  tt_node *power = tt_hlo_select(h, tt_is_nan(cx, x), x, tt_hlo_full(h, &x->type, ten));
  tt_hlo_op before = decimals < 0 ? TT_HLO_divide : TT_HLO_multiply;
  tt_hlo_op after = decimals < 0 ? TT_HLO_multiply : TT_HLO_divide;
  tt_node *y = tt_hlo_round_nearest_even(h, tt_hlo_binary(h, before, x, power));
  tt_out_in(cx, 0, tt_hlo_binary(h, after, y, power), in->type.dtype);
}

void tt_lower_abs(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_kind kind = tt_dtype_kind(x->type.dtype);
  bool same = kind == TT_KIND_BOOL || kind == TT_KIND_UNSIGNED;
  tt_out_as(cx, 0, same ? x : tt_hlo_abs(cx->h, x));
}

void tt_lower_neg(tt_lower *cx) { tt_out_as(cx, 0, tt_hlo_negate(cx->h, tt_in(cx, 0))); }

void tt_lower_sign(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  if (x->type.dtype == TT_BOOL) tt_out_as(cx, 0, x);
  else tt_out_as(cx, 0, tt_is_complex(x->type.dtype) ? tt_hlo_sign(cx->h, x) : tt_sign(cx, x));
}

void tt_lower_signbit(tt_lower *cx) { tt_out_as(cx, 0, tt_sign_bit(cx, tt_in(cx, 0))); }

void tt_lower_isnan(tt_lower *cx) { tt_out_as(cx, 0, tt_is_nan(cx, tt_in(cx, 0))); }

static tt_node *is_infinite(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  if (tt_is_complex(x->type.dtype))
    return tt_hlo_or(h, is_infinite(cx, tt_hlo_real(h, x)), is_infinite(cx, tt_hlo_imag(h, x)));
  return tt_hlo_compare(h, TT_EQ, tt_hlo_abs(h, x), tt_like(cx, x, (double)INFINITY));
}

/* param 0: isinf; 1: isposinf; -1: isneginf. */
void tt_lower_isinf(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *y;
  int sign = cx->row->param;
  if (!tt_is_float(x->type.dtype) && !tt_is_complex(x->type.dtype))
    y = tt_hlo_compare(cx->h, TT_NE, x, x);
  else
    y = sign == 0 ? is_infinite(cx, x)
                  : tt_hlo_compare(cx->h, TT_EQ, x, tt_like(cx, x, sign * (double)INFINITY));
  tt_out_as(cx, 0, y);
}

void tt_lower_reciprocal(tt_lower *cx) {
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype));
  tt_out_in(cx, 0, tt_quotient(cx, tt_splat(cx, x, 1), x), dtype);
}

void tt_lower_not(tt_lower *cx) { tt_out_as(cx, 0, tt_hlo_not(cx->h, tt_in(cx, 0))); }

void tt_lower_logical_not(tt_lower *cx) {
  tt_out_as(cx, 0, tt_hlo_not(cx->h, tt_in_as(cx, 0, TT_BOOL)));
}

static double largest(tt_dtype dtype) {
  switch (dtype) {
  case TT_F64:
    return DBL_MAX;
  case TT_F16:
    return 65504.0;
  case TT_BF16:
    return 3.3895313892515355e38;
  case TT_F8E5M2:
  case TT_F8E5M2FNUZ:
    return 57344.0;
  case TT_F8E4M3FN:
    return 448.0;
  case TT_F8E4M3FNUZ:
    return 240.0;
  default:
    return FLT_MAX;
  }
}

static tt_node *finite_numbers(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = x->type.dtype;
  double most = largest(dtype), inf = (double)INFINITY;
  tt_node *to[3];
  for (int i = 0; i < 3; i++)
    to[i] = tt_has(cx, i + 1) ? tt_num(cx, i + 1, dtype)
                              : tt_hlo_const(h, dtype,
                                             i == 0   ? 0
                                             : i == 1 ? most
                                                      : -most);
  for (int i = 0; i < 3; i++) to[i] = tt_hlo_broadcast_to(h, to[i], x->type.rank, x->type.dims);
  tt_node *y = tt_hlo_select(h, tt_is_nan(cx, x), to[0], x);
  y = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, x, tt_like(cx, x, inf)), to[1], y);
  return tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, x, tt_like(cx, x, -inf)), to[2], y);
}

void tt_lower_nan_to_num(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  if (tt_is_complex(x->type.dtype))
    x = tt_hlo_complex(cx->h, finite_numbers(cx, tt_hlo_real(cx->h, x)),
                       finite_numbers(cx, tt_hlo_imag(cx->h, x)));
  else if (tt_is_float(x->type.dtype)) x = finite_numbers(cx, x);
  tt_out_as(cx, 0, x);
}

/* param 0: degrees to radians; 1: radians to degrees. */
void tt_lower_degrees(tt_lower *cx) {
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype));
  double factor = cx->row->param ? 57.295779513082320877 : 0.017453292519943295769;
  tt_out_in(cx, 0, tt_hlo_multiply(cx->h, x, tt_like(cx, x, factor)), dtype);
}

void tt_lower_sinc(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype));
  tt_node *t = tt_hlo_multiply(h, x, tt_like(cx, x, 3.14159265358979323846));
  tt_node *one = tt_hlo_broadcast_to(h, tt_like(cx, x, 1), x->type.rank, x->type.dims);
  tt_node *y = tt_hlo_divide(h, tt_hlo_sine(h, t), t);
  tt_out_in(cx, 0, tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, x, tt_like(cx, x, 0)), one, y), dtype);
}

void tt_lower_conj(tt_lower *cx) { tt_out_as(cx, 0, tt_conjugate(cx, tt_in(cx, 0))); }

void tt_lower_angle(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_node *x = tt_in_as(cx, 0, tt_compute_dtype(dtype)), *y;
  if (tt_is_complex(dtype)) {
    y = tt_atan2(cx, tt_hlo_imag(h, x), tt_hlo_real(h, x));
  } else {
    tt_node *pi = tt_hlo_full(h, &x->type, 3.14159265358979323846);
    y = tt_hlo_select(h, tt_hlo_compare(h, TT_LT, x, tt_like(cx, x, 0)), pi,
                      tt_hlo_zeros(h, &x->type));
    y = tt_hlo_select(h, tt_is_nan(cx, x), x, y);
  }
  tt_out_in(cx, 0, y, tt_dtype_real(dtype));
}

/* Mantissa in [0.5, 1) and exponent, by the bits alone: arithmetic might flush small numbers. */
void tt_lower_frexp(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *in = tt_in(cx, 0);
  bool wide = in->type.dtype == TT_F64;
  tt_dtype dtype = wide ? TT_F64 : TT_F32, bits = wide ? TT_I64 : TT_I32;
  int digits = wide ? 52 : 23, bias = wide ? 1022 : 126;
  tt_node *x = tt_cast(cx, in, dtype), *word = tt_hlo_bitcast(h, x, bits);
#define NUMBER(value) tt_hlo_const_i(h, bits, value)
  int64_t highest = wide ? INT64_MIN : INT32_MIN;
  tt_node *sign = tt_hlo_and(h, word, NUMBER(highest));
  tt_node *size = tt_hlo_and(h, word, NUMBER(~highest));
  tt_node *biased = tt_hlo_shift_right_logical(h, size, NUMBER(digits));
  tt_node *tiny = tt_hlo_compare(h, TT_EQ, biased, NUMBER(0));
  /* The places by which the first digit of a number without exponent is too far right. */
  tt_node *places = tt_hlo_subtract(h, tt_hlo_count_leading_zeros(h, size), NUMBER(wide ? 11 : 8));
  places = tt_hlo_select(h, tiny, places, tt_hlo_zeros(h, &word->type));
  biased = tt_hlo_add(h, biased, tt_hlo_convert(h, tiny, bits));
  tt_node *exponent = tt_hlo_subtract(h, tt_hlo_subtract(h, biased, NUMBER(bias)), places);
  tt_node *fraction = tt_hlo_shift_left(h, size, places);
  fraction = tt_hlo_and(h, fraction, NUMBER(((int64_t)1 << digits) - 1));
  fraction = tt_hlo_or(h, tt_hlo_or(h, fraction, sign), NUMBER((int64_t)bias << digits));
  tt_node *some = tt_hlo_compare(h, TT_GT, size, NUMBER(0));
  int64_t infinite = (int64_t)(wide ? 2047 : 255) << digits;
  tt_node *plain = tt_hlo_and(h, some, tt_hlo_compare(h, TT_LT, size, NUMBER(infinite)));
#undef NUMBER
  tt_out_in(cx, 0, tt_hlo_select(h, plain, tt_hlo_bitcast(h, fraction, dtype), x), in->type.dtype);
  tt_out_in(cx, 1, tt_hlo_select(h, plain, exponent, tt_hlo_zeros(h, &exponent->type)), TT_I32);
}
