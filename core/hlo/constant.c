#include "hlo/internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Floating formats by their special values' bit patterns; 0 marks what a format lacks. */
typedef struct tt_float_info {
  tt_dtype dtype;
  unsigned long long inf, nan, sign;
  double largest; /* finite */
} tt_float_info;

static const tt_float_info floats[] = {
    {TT_F16, 0x7C00, 0x7E00, 0x8000, 65504.0},
    {TT_BF16, 0x7F80, 0x7FC0, 0x8000, 0x1.FEp127},
    {TT_F32, 0x7F800000, 0x7FC00000, 0x80000000, FLT_MAX},
    {TT_F64, 0x7FF0000000000000, 0x7FF8000000000000, 0x8000000000000000, DBL_MAX},
    {TT_F8E5M2, 0x7C, 0x7E, 0x80, 57344.0},
    {TT_F8E4M3FN, 0, 0x7F, 0x80, 448.0},
    {TT_F8E5M2FNUZ, 0, 0x80, 0, 57344.0},
    {TT_F8E4M3FNUZ, 0, 0x80, 0, 240.0},
};

static const tt_float_info *float_info(tt_dtype dtype) {
  for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
    if (floats[i].dtype == dtype) return &floats[i];
  return &floats[2];
}

#define TT_LITERAL 96 /* bytes that hold any literal, also a complex one */

/* A float literal: decimal with a point, or the bit pattern of what has no decimal form. */
static void float_literal(char *out, tt_dtype dtype, double value) {
  const tt_float_info *info = float_info(dtype);
  if (dtype == TT_F32) value = (double)(float)value;
  if (!isfinite(value)) {
    unsigned long long bits = isnan(value) || !info->inf ? info->nan : info->inf;
    if (!isnan(value) && signbit(value)) bits |= info->sign;
    int digits = (int)tt_dtype_bytes(dtype) * 2;
    (void)snprintf(out, TT_LITERAL / 2, "0x%0*llX", digits, bits);
    return;
  }
  (void)snprintf(out, TT_LITERAL / 2 - 2, "%.*g", dtype == TT_F32 ? 9 : 17, value);
  char *end = out;
  bool point = false;
  for (; *end && *end != 'e'; end++)
    if (*end != '-' && (*end < '0' || *end > '9')) {
      *end = '.'; /* whatever the locale has */
      point = true;
    }
  if (point) return;
  memmove(end + 2, end, strlen(end) + 1);
  memcpy(end, ".0", 2);
}

static void int_literal(char *out, tt_dtype dtype, int64_t value) {
  int bits = (int)tt_dtype_bytes(dtype) * 8;
  uint64_t wrapped = (uint64_t)value;
  if (bits < 64) wrapped &= (UINT64_C(1) << bits) - 1;
  if (tt_dtype_kind(dtype) == TT_KIND_SIGNED) {
    if (bits < 64 && wrapped >> (bits - 1)) wrapped |= ~UINT64_C(0) << bits;
    (void)snprintf(out, TT_LITERAL, "%lld", (long long)(int64_t)wrapped);
  } else {
    (void)snprintf(out, TT_LITERAL, "%llu", (unsigned long long)wrapped);
  }
}

/* Truncates; what has no int64 (or, for U64, uint64) saturates, and NaN gives 0. */
static int64_t to_int(tt_dtype dtype, double value) {
  if (isnan(value)) return 0;
  if (dtype == TT_U64 && value >= 0x1p63)
    return (int64_t)(value >= 0x1p64 ? UINT64_MAX : (uint64_t)value);
  if (value >= 0x1p63) return INT64_MAX;
  return value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

static void complex_literal(char *out, tt_dtype dtype, double re, double im) {
  char a[TT_LITERAL], b[TT_LITERAL];
  tt_dtype part = tt_dtype_real(dtype);
  float_literal(a, part, re);
  float_literal(b, part, im);
  (void)snprintf(out, TT_LITERAL, "(%.45s, %.45s)", a, b);
}

static void f64_literal(char *out, tt_dtype dtype, double value) {
  if (dtype == TT_BOOL) (void)snprintf(out, TT_LITERAL, "%s", value != 0 ? "true" : "false");
  else if (tt_is_integer(dtype)) int_literal(out, dtype, to_int(dtype, value));
  else if (tt_is_complex(dtype)) complex_literal(out, dtype, value, 0);
  else float_literal(out, dtype, value);
}

static void i64_literal(char *out, tt_dtype dtype, int64_t value) {
  if (tt_is_integer(dtype)) int_literal(out, dtype, value);
  else f64_literal(out, dtype, dtype == TT_BOOL ? value != 0 : (double)value);
}

static bool rule_constant(const tt_instr *in, tt_type *out, tt_why *why) {
  (void)out;
  const tt_attr *value = tt_attr_find(in, "value");
  return value && value->text ? true : tt_hlo_bad(why, "value is missing");
}

static bool rule_iota(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_attr *dim = tt_attr_find(in, "iota_dimension");
  if (!dim || dim->value < 0 || dim->value >= out->rank)
    return tt_hlo_bad(why, "iota_dimension %lld is not a dimension of %s",
                      dim ? (long long)dim->value : -1LL, tt_hlo_show(why, out));
  if (out->dtype == TT_BOOL) return tt_hlo_bad(why, "bool is not a numeric dtype");
  return true;
}

/* `text` is what goes between dense< and >. */
static tt_node *dense(tt_hlo *h, const tt_type *type, const char *text) {
  if (h->error) return tt_hlo_poison(h);
  bool empty = tt_type_numel(type) == 0;
  tt_text full = TT_TEXT_INIT;
  tt_text_add(&full, "dense<", 6);
  if (!empty) tt_text_add(&full, text, strlen(text));
  tt_text_add(&full, "> : ", 4);
  tt_type_print(type, &full);
  tt_node *node = tt_hlo_poison(h);
  if (full.failed) {
    tt_hlo_fail_memory(h);
  } else {
    tt_attr attrs[] = {tt_attr_text("value", full.data)};
    attrs[0].value = !empty && text[0] != '['; /* a splat */
    node = tt_hlo_emit1(
        h,
        &(tt_instr){
            .op = TT_OPCODE_constant, .rule = rule_constant, .attrs = attrs, .attr_count = 1},
        *type);
  }
  tt_text_deinit(&full);
  return node;
}

tt_node *tt_hlo_splat_as(tt_hlo *h, const tt_node *x, const tt_type *type) {
  char literal[TT_LITERAL];
  if (!x->instr || x->instr->op != TT_OPCODE_constant || !x->instr->attrs[0].value) return NULL;
  const char *text = x->instr->attrs[0].text + strlen("dense<");
  size_t size = strcspn(text, ">");
  if (size >= sizeof literal) return NULL;
  memcpy(literal, text, size);
  literal[size] = '\0';
  return dense(h, type, literal);
}

bool tt_hlo_is_zeros(const tt_node *x) {
  if (!x->instr || x->instr->op != TT_OPCODE_constant || !x->instr->attrs[0].value) return false;
  const char *text = x->instr->attrs[0].text + strlen("dense<");
  static const char *const zeros[] = {"0>", "0.0>", "false>", "(0.0, 0.0)>"};
  for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++)
    if (strncmp(text, zeros[i], strlen(zeros[i])) == 0) return true;
  return false;
}

tt_node *tt_hlo_const(tt_hlo *h, tt_dtype dtype, double value) {
  return tt_hlo_full(h, &(tt_type){.dtype = dtype}, value);
}

tt_node *tt_hlo_const_i(tt_hlo *h, tt_dtype dtype, int64_t value) {
  char text[TT_LITERAL];
  i64_literal(text, dtype, value);
  return dense(h, &(tt_type){.dtype = dtype}, text);
}

tt_node *tt_hlo_const_c(tt_hlo *h, tt_dtype dtype, double re, double im) {
  char text[TT_LITERAL];
  if (!tt_is_complex(dtype))
    return tt_hlo_fail(h, TT_INTERNAL, "a complex constant of dtype %s", tt_dtype_name(dtype));
  complex_literal(text, dtype, re, im);
  return dense(h, &(tt_type){.dtype = dtype}, text);
}

/* The rank-1 constant of whichever array is given. */
static tt_node *list(tt_hlo *h, tt_dtype dtype, const int64_t *ints, const double *doubles,
                     int64_t count) {
  if (h->error) return tt_hlo_poison(h);
  if (count < 0 || count > TT_HLO_MAX_CONSTANT)
    return tt_hlo_fail(h, TT_RESOURCE_EXHAUSTED, "a constant of %lld elements; the limit is %d",
                       (long long)count, TT_HLO_MAX_CONSTANT);
  tt_text text = TT_TEXT_INIT;
  tt_text_add(&text, "[", 1);
  for (int64_t i = 0; i < count; i++) {
    char literal[TT_LITERAL];
    if (ints) i64_literal(literal, dtype, ints[i]);
    else f64_literal(literal, dtype, doubles[i]);
    if (i) tt_text_add(&text, ", ", 2);
    tt_text_add(&text, literal, strlen(literal));
  }
  tt_text_add(&text, "]", 1);
  if (text.failed) tt_hlo_fail_memory(h);
  tt_type type = {.dtype = dtype, .rank = 1, .dims = {count}};
  tt_node *node = dense(h, &type, text.failed ? "" : text.data);
  tt_text_deinit(&text);
  return node;
}

tt_node *tt_hlo_const_i64s(tt_hlo *h, tt_dtype dtype, const int64_t *values, int64_t count) {
  return list(h, dtype, values ? values : &(int64_t){0}, NULL, values ? count : 0);
}

tt_node *tt_hlo_const_f64s(tt_hlo *h, tt_dtype dtype, const double *values, int64_t count) {
  return list(h, dtype, NULL, values, values ? count : 0);
}

tt_node *tt_hlo_full(tt_hlo *h, const tt_type *type, double value) {
  char text[TT_LITERAL];
  f64_literal(text, type->dtype, value);
  return dense(h, type, text);
}

tt_node *tt_hlo_zeros(tt_hlo *h, const tt_type *type) { return tt_hlo_full(h, type, 0); }

tt_node *tt_hlo_iota(tt_hlo *h, const tt_type *type, int dim) {
  if (h->error) return tt_hlo_poison(h);
  tt_attr attrs[] = {tt_attr_i64("iota_dimension", dim)};
  return tt_hlo_emit1(
      h, &(tt_instr){.op = TT_OPCODE_iota, .rule = rule_iota, .attrs = attrs, .attr_count = 1},
      *type);
}

tt_node *tt_hlo_lowest(tt_hlo *h, tt_dtype dtype) {
  int bits = (int)tt_dtype_bytes(dtype) * 8;
  if (tt_is_float(dtype)) {
    const tt_float_info *info = float_info(dtype);
    return tt_hlo_const(h, dtype, info->inf ? -INFINITY : -info->largest);
  }
  if (tt_dtype_kind(dtype) == TT_KIND_SIGNED)
    return tt_hlo_const_i(h, dtype, (int64_t)(~UINT64_C(0) << (bits - 1)));
  if (tt_is_complex(dtype)) return tt_hlo_fail(h, TT_INTERNAL, "complex numbers have no order");
  return tt_hlo_const_i(h, dtype, 0);
}

tt_node *tt_hlo_highest(tt_hlo *h, tt_dtype dtype) {
  int bits = (int)tt_dtype_bytes(dtype) * 8;
  if (tt_is_float(dtype)) {
    const tt_float_info *info = float_info(dtype);
    return tt_hlo_const(h, dtype, info->inf ? INFINITY : info->largest);
  }
  if (tt_dtype_kind(dtype) == TT_KIND_SIGNED)
    return tt_hlo_const_i(h, dtype, (int64_t)((UINT64_C(1) << (bits - 1)) - 1));
  if (tt_is_complex(dtype)) return tt_hlo_fail(h, TT_INTERNAL, "complex numbers have no order");
  return tt_hlo_const_i(h, dtype, -1);
}
