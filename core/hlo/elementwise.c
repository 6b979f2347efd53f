#include "hlo/internal.h"

/* -- Rules -- */

static bool rule_unary(const tt_instr *in, tt_type *out, tt_why *why) {
  (void)why;
  *out = *tt_operand_type(in, 0);
  return true;
}

static bool rule_abs(const tt_instr *in, tt_type *out, tt_why *why) {
  (void)why;
  *out = *tt_operand_type(in, 0);
  out->dtype = tt_dtype_real(out->dtype);
  return true;
}

static bool rule_binary(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *a = tt_operand_type(in, 0), *b = tt_operand_type(in, 1);
  if (!tt_type_equal(a, b))
    return tt_hlo_bad(why, "operands of different types: %s and %s", tt_hlo_show(why, a),
                      tt_hlo_show(why, b));
  *out = *a;
  return true;
}

static bool rule_compare(const tt_instr *in, tt_type *out, tt_why *why) {
  if (!rule_binary(in, out, why)) return false;
  out->dtype = TT_BOOL;
  return true;
}

static bool rule_select(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *pred = tt_operand_type(in, 0), *a = tt_operand_type(in, 1),
                *b = tt_operand_type(in, 2);
  if (!tt_type_equal(a, b))
    return tt_hlo_bad(why, "operands of different types: %s and %s", tt_hlo_show(why, a),
                      tt_hlo_show(why, b));
  if (pred->rank && !tt_type_same_dims(pred, a))
    return tt_hlo_bad(why, "the predicate is %s, the values are %s", tt_hlo_show(why, pred),
                      tt_hlo_show(why, a));
  *out = *a;
  return true;
}

static bool rule_clamp(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 1);
  for (int i = 0; i < 3; i += 2) {
    const tt_type *bound = tt_operand_type(in, i);
    if (bound->dtype != x->dtype || (bound->rank && !tt_type_same_dims(bound, x)))
      return tt_hlo_bad(why, "a bound is %s, the values are %s", tt_hlo_show(why, bound),
                        tt_hlo_show(why, x));
  }
  *out = *x;
  return true;
}

static bool rule_is_finite(const tt_instr *in, tt_type *out, tt_why *why) {
  (void)why;
  *out = *tt_operand_type(in, 0);
  out->dtype = TT_BOOL;
  return true;
}

static bool rule_convert(const tt_instr *in, tt_type *out, tt_why *why) {
  (void)why;
  tt_dtype dtype = out->dtype;
  *out = *tt_operand_type(in, 0);
  out->dtype = dtype;
  return true;
}

static bool rule_bitcast_convert(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  tt_dtype dtype = out->dtype;
  int64_t from = tt_dtype_bytes(x->dtype), to = tt_dtype_bytes(dtype);
  if (!tt_is_integer(dtype) && !tt_is_float(dtype))
    return tt_hlo_bad(why, "bits cannot become %s", tt_dtype_name(dtype));
  *out = *x;
  out->dtype = dtype;
  if (from > to) {
    if (x->rank == TT_MAX_RANK) return tt_hlo_bad(why, "no room for one more dimension");
    out->dims[out->rank++] = from / to;
  } else if (from < to) {
    if (!x->rank || x->dims[x->rank - 1] != to / from)
      return tt_hlo_bad(why, "the last dimension of %s must be %lld to become %s",
                        tt_hlo_show(why, x), (long long)(to / from), tt_dtype_name(dtype));
    out->dims[--out->rank] = 0;
  }
  return true;
}

static bool rule_complex(const tt_instr *in, tt_type *out, tt_why *why) {
  if (!rule_binary(in, out, why)) return false;
  if (out->dtype != TT_F32 && out->dtype != TT_F64)
    return tt_hlo_bad(why, "the parts are %s, expected f32 or f64", tt_dtype_name(out->dtype));
  out->dtype = tt_dtype_complex(out->dtype);
  return true;
}

static bool rule_real(const tt_instr *in, tt_type *out, tt_why *why) {
  return rule_abs(in, out, why);
}

static bool rule_imag(const tt_instr *in, tt_type *out, tt_why *why) {
  return rule_abs(in, out, why);
}

static bool rule_reduce_precision(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_attr *exponent = tt_attr_find(in, "exponent_bits");
  const tt_attr *mantissa = tt_attr_find(in, "mantissa_bits");
  if (!exponent || exponent->value < 1 || !mantissa || mantissa->value < 0)
    return tt_hlo_bad(why, "needs at least 1 exponent bit and 0 mantissa bits");
  return rule_unary(in, out, why);
}

static bool rule_optimization_barrier(const tt_instr *in, tt_type *out, tt_why *why) {
  return rule_unary(in, out, why);
}

/* -- Builders -- */

/* Broadcasts a rank-0 operand to the dims of `like`. */
static tt_node *spread(tt_hlo *h, tt_node *x, const tt_node *like) {
  if (x->type.rank || !like->type.rank) return x;
  return tt_hlo_broadcast(h, x, NULL, like->type.rank, like->type.dims);
}

/* Whether XLA needs the op done in a wider format: some of CHLO does not know 8-bit floats. */
static bool too_narrow(tt_hlo_op op, tt_dtype dtype) {
  bool known = op < TT_HLO_acos || op == TT_HLO_next_after;
  return !known && tt_is_float(dtype) && tt_dtype_bytes(dtype) == 1;
}

tt_node *tt_hlo_unary(tt_hlo *h, tt_hlo_op op, tt_node *x) {
  if (!tt_hlo_usable(h, (int)op, &x, 1)) return tt_hlo_poison(h);
  if (tt_dtype_kind(x->type.dtype) == TT_KIND_UNSIGNED) {
    if (op == TT_HLO_abs) return x;
    if (op == TT_HLO_sign) return tt_hlo_minimum(h, x, tt_hlo_const_i(h, x->type.dtype, 1));
  }
  if (too_narrow(op, x->type.dtype))
    return tt_hlo_convert(h, tt_hlo_unary(h, op, tt_hlo_convert(h, x, TT_F32)), x->type.dtype);
  return tt_hlo_emit1(h,
                      &(tt_instr){.op = (int)op,
                                  .rule = op == TT_HLO_abs ? rule_abs : rule_unary,
                                  .operands = (tt_node *[]){x},
                                  .operand_count = 1},
                      x->type);
}

tt_node *tt_hlo_combine(tt_hlo *h, tt_hlo_op op, tt_node *a, tt_node *b) {
  if (!tt_hlo_usable(h, (int)op, (tt_node *[]){a, b}, 2)) return tt_hlo_poison(h);
  if (too_narrow(op, a->type.dtype) && tt_type_equal(&a->type, &b->type))
    return tt_hlo_convert(
        h, tt_hlo_binary(h, op, tt_hlo_convert(h, a, TT_F32), tt_hlo_convert(h, b, TT_F32)),
        a->type.dtype);
  return tt_hlo_emit1(
      h,
      &(tt_instr){
          .op = (int)op, .rule = rule_binary, .operands = (tt_node *[]){a, b}, .operand_count = 2},
      a->type);
}

static tt_node *chosen_extreme(tt_hlo *h, tt_cmp beyond, tt_node *a, tt_node *b) {
  tt_node *nan = tt_hlo_compare(h, TT_NE, a, a);
  return tt_hlo_select(h, tt_hlo_or(h, tt_hlo_compare(h, beyond, a, b), nan), a, b);
}

tt_node *tt_hlo_binary(tt_hlo *h, tt_hlo_op op, tt_node *a, tt_node *b) {
  if (!tt_hlo_usable(h, (int)op, (tt_node *[]){a, b}, 2)) return tt_hlo_poison(h);
  a = spread(h, a, b);
  b = spread(h, b, a);
  bool extreme = op == TT_HLO_maximum || op == TT_HLO_minimum;
  if (extreme && h->chooses && tt_is_float(a->type.dtype) && tt_type_equal(&a->type, &b->type))
    return chosen_extreme(h, op == TT_HLO_maximum ? TT_GT : TT_LT, a, b);
  return tt_hlo_combine(h, op, a, b);
}

static tt_node *compare(tt_hlo *h, tt_cmp direction, tt_node *a, tt_node *b, bool total) {
  static const char *const names[] = {[TT_EQ] = "#stablehlo<comparison_direction EQ>",
                                      [TT_NE] = "#stablehlo<comparison_direction NE>",
                                      [TT_LT] = "#stablehlo<comparison_direction LT>",
                                      [TT_LE] = "#stablehlo<comparison_direction LE>",
                                      [TT_GT] = "#stablehlo<comparison_direction GT>",
                                      [TT_GE] = "#stablehlo<comparison_direction GE>"};
  TT_NEED(h, compare, a, b);
  a = spread(h, a, b);
  b = spread(h, b, a);
  tt_attr attrs[] = {
      tt_attr_text("comparison_direction", names[direction]),
      tt_attr_text("compare_type", "#stablehlo<comparison_type TOTALORDER>"),
  };
  bool ordered = total && tt_is_float(a->type.dtype);
  return tt_hlo_emit1(h, TT_DRAFT(compare, attrs, ordered ? 2 : 1, a, b), a->type);
}

tt_node *tt_hlo_compare(tt_hlo *h, tt_cmp direction, tt_node *a, tt_node *b) {
  return compare(h, direction, a, b, false);
}

tt_node *tt_hlo_compare_total(tt_hlo *h, tt_cmp direction, tt_node *a, tt_node *b) {
  return compare(h, direction, a, b, true);
}

tt_node *tt_hlo_select(tt_hlo *h, tt_node *pred, tt_node *on_true, tt_node *on_false) {
  TT_NEED(h, select, pred, on_true, on_false);
  const tt_node *like = on_true->type.rank ? on_true : on_false->type.rank ? on_false : pred;
  on_true = spread(h, on_true, like);
  on_false = spread(h, on_false, like);
  return tt_hlo_emit1(h, TT_DRAFT(select, NULL, 0, pred, on_true, on_false), on_true->type);
}

tt_node *tt_hlo_clamp(tt_hlo *h, tt_node *low, tt_node *x, tt_node *high) {
  TT_NEED(h, clamp, low, x, high);
  if (h->chooses && tt_is_float(x->type.dtype))
    return tt_hlo_minimum(h, tt_hlo_maximum(h, x, low), high);
  x = spread(h, x, low->type.rank ? low : high);
  return tt_hlo_emit1(h, TT_DRAFT(clamp, NULL, 0, low, x, high), x->type);
}

tt_node *tt_hlo_is_finite(tt_hlo *h, tt_node *x) {
  TT_NEED(h, is_finite, x);
  return tt_hlo_emit1(h, TT_DRAFT(is_finite, NULL, 0, x), x->type);
}

tt_node *tt_hlo_convert(tt_hlo *h, tt_node *x, tt_dtype dtype) {
  TT_NEED(h, convert, x);
  if (x->type.dtype == dtype) return x;
  if (dtype == TT_BOOL) return tt_hlo_compare(h, TT_NE, x, tt_hlo_const(h, x->type.dtype, 0));
  if (tt_is_complex(x->type.dtype) && !tt_is_complex(dtype))
    return tt_hlo_convert(h, tt_hlo_real(h, x), dtype);
  tt_type type = x->type;
  type.dtype = dtype;
  /* XLA takes a product with converted booleans for a choice, where 0 times infinity is 0. */
  if (x->type.dtype == TT_BOOL && !tt_is_integer(dtype))
    return tt_hlo_select(h, x, tt_hlo_full(h, &type, 1), tt_hlo_zeros(h, &type));
  return tt_hlo_emit1(h, TT_DRAFT(convert, NULL, 0, x), type);
}

tt_node *tt_hlo_bitcast(tt_hlo *h, tt_node *x, tt_dtype dtype) {
  TT_NEED(h, bitcast_convert, x);
  if (x->type.dtype == dtype) return x;
  tt_type type = x->type;
  type.dtype = dtype;
  return tt_hlo_emit1(h, TT_DRAFT(bitcast_convert, NULL, 0, x), type);
}

tt_node *tt_hlo_complex(tt_hlo *h, tt_node *re, tt_node *im) {
  TT_NEED(h, complex, re, im);
  re = spread(h, re, im);
  im = spread(h, im, re);
  return tt_hlo_emit1(h, TT_DRAFT(complex, NULL, 0, re, im), re->type);
}

tt_node *tt_hlo_real(tt_hlo *h, tt_node *x) {
  TT_NEED(h, real, x);
  if (!tt_is_complex(x->type.dtype)) return x;
  return tt_hlo_emit1(h, TT_DRAFT(real, NULL, 0, x), x->type);
}

tt_node *tt_hlo_imag(tt_hlo *h, tt_node *x) {
  TT_NEED(h, imag, x);
  if (!tt_is_complex(x->type.dtype)) return tt_hlo_zeros(h, &x->type);
  return tt_hlo_emit1(h, TT_DRAFT(imag, NULL, 0, x), x->type);
}

tt_node *tt_hlo_reduce_precision(tt_hlo *h, tt_node *x, int exponent_bits, int mantissa_bits) {
  TT_NEED(h, reduce_precision, x);
  tt_attr attrs[] = {tt_attr_i32("exponent_bits", exponent_bits),
                     tt_attr_i32("mantissa_bits", mantissa_bits)};
  return tt_hlo_emit1(h, TT_DRAFT(reduce_precision, attrs, 2, x), x->type);
}

tt_node *tt_hlo_optimization_barrier(tt_hlo *h, tt_node *x) {
  TT_NEED(h, optimization_barrier, x);
  return tt_hlo_emit1(h, TT_DRAFT(optimization_barrier, NULL, 0, x), x->type);
}

static bool is_rewritten(const tt_node *x) {
  const tt_instr *in = x->instr;
  while (in && (in->op == TT_OPCODE_reshape || in->op == TT_OPCODE_transpose))
    in = in->operands[0]->instr;
  return in && (in->op == TT_HLO_divide || in->op == TT_HLO_exponential || in->op == TT_HLO_power ||
                in->op == TT_HLO_rsqrt || in->op == TT_HLO_sqrt);
}

tt_node *tt_hlo_seal(tt_hlo *h, tt_node *x) {
  if (!is_rewritten(x) || tt_is_integer(x->type.dtype)) return x;
  if (tt_is_complex(x->type.dtype)) return tt_hlo_optimization_barrier(h, x);
  tt_node *nan = tt_hlo_compare(h, TT_NE, x, x);
  return tt_hlo_select(h, nan, tt_hlo_add(h, x, x), x);
}
