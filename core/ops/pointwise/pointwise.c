#include "ops/pointwise/pointwise.h"

bool tt_static_equals(const tt_lower *cx, int i, double value) {
  if (i < 0 || i >= cx->arg_count) return false;
  const tt_arg *arg = &cx->args[i];
  if (arg->kind == TT_ARG_INT) return (double)arg->i == value;
  return arg->kind == TT_ARG_FLOAT && arg->f == value;
}

tt_node *tt_is_nan(tt_lower *cx, tt_node *x) { return tt_hlo_compare(cx->h, TT_NE, x, x); }

tt_node *tt_trunc(tt_lower *cx, tt_node *x) {
  tt_node *negative = tt_hlo_compare(cx->h, TT_LT, x, tt_like(cx, x, 0));
  return tt_hlo_select(cx->h, negative, tt_hlo_ceil(cx->h, x), tt_hlo_floor(cx->h, x));
}

/* Where a processor computes in f16, LLVM would fuse this step with the next and round once. */
tt_node *tt_settled(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  x = tt_cast(cx, x, dtype);
  return dtype == TT_F16 ? tt_hlo_optimization_barrier(cx->h, x) : x;
}

tt_node *tt_rounded(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  return tt_cast(cx, tt_settled(cx, x, dtype), x->type.dtype);
}

tt_node *tt_number(tt_lower *cx, int i, tt_dtype dtype) {
  bool narrow = tt_is_float(cx->result_type) && dtype == tt_compute_dtype(cx->result_type);
  return tt_cast(cx, tt_num(cx, i, narrow ? cx->result_type : dtype), dtype);
}

void tt_operands(tt_lower *cx, tt_node **a, tt_node **b, tt_dtype dtype) {
  tt_node **both[] = {a, b};
  for (int i = 0; i < 2; i++) {
    bool tensor = cx->args[i].kind == TT_ARG_TENSOR;
    *both[i] = tensor ? tt_in_as(cx, i, dtype) : tt_number(cx, i, dtype);
  }
  tt_broadcast_pair(cx, a, b, dtype);
}

tt_dtype tt_float_operands(tt_lower *cx, tt_node **a, tt_node **b) {
  tt_dtype dtype = tt_float_result_dtype(cx);
  tt_operands(cx, a, b, tt_compute_dtype(dtype));
  return dtype;
}

/* Where LLVM sees that x is 1 it calls atan, whose vector form in XLA's CPU compiler follows
 * another calling convention than its callers and returns what lies in the registers. NaN stays
 * NaN. */
tt_node *tt_atan2(tt_lower *cx, tt_node *y, tt_node *x) {
  tt_hlo *h = cx->h;
  return tt_hlo_atan2(h, y, tt_hlo_select(h, tt_is_nan(cx, y), y, x));
}

tt_node *tt_sign(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = x->type.dtype;
  tt_node *zero = tt_like(cx, x, 0);
  tt_node *up = tt_cast(cx, tt_hlo_compare(h, TT_GT, x, zero), dtype);
  if (dtype == TT_BOOL || tt_dtype_kind(dtype) == TT_KIND_UNSIGNED) return up;
  return tt_hlo_subtract(h, up, tt_cast(cx, tt_hlo_compare(h, TT_LT, x, zero), dtype));
}

tt_node *tt_sign_bit(tt_lower *cx, tt_node *x) {
  static const tt_dtype bits[] = {[1] = TT_I8, [2] = TT_I16, [4] = TT_I32, [8] = TT_I64};
  if (tt_is_float(x->type.dtype)) x = tt_hlo_bitcast(cx->h, x, bits[tt_dtype_bytes(x->type.dtype)]);
  return tt_hlo_compare(cx->h, TT_LT, x, tt_like(cx, x, 0));
}

tt_node *tt_conjugate(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  if (!tt_is_complex(x->type.dtype)) return x;
  return tt_hlo_complex(h, tt_hlo_real(h, x), tt_hlo_negate(h, tt_hlo_imag(h, x)));
}
