/* Every kind of instruction: accepted by the real CPU plugin, and right in numbers. */
#include "hlo_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static const tt_dtype all_dtypes[] = {
#define X(name, number, mlir, bytes, kind) TT_##name,
    TT_DTYPES(X)
#undef X
};
enum { ALL_DTYPES = sizeof all_dtypes / sizeof *all_dtypes };

/* -- Element-wise -- */

/* Whether an op of `classes` letters (bsufc) takes the dtype. */
static bool takes(const char *classes, tt_dtype dtype) {
  static const char letters[] = {'b', 's', 'u', 'f', 'c'};
  for (; *classes; classes++)
    if (*classes == letters[tt_dtype_kind(dtype)]) return true;
  return false;
}

static const struct {
  tt_hlo_op op;
  const char *classes;
  double x, y, expected; /* in F32, or I32 where floats are not taken */
} elementwise[] = {
    {TT_HLO_abs, "sufc", -2.5, 0, 2.5},
    {TT_HLO_cbrt, "f", 27, 0, 3},
    {TT_HLO_ceil, "f", 1.25, 0, 2},
    {TT_HLO_cosine, "fc", 0.5, 0, 0.877582562},
    {TT_HLO_count_leading_zeros, "su", 16, 0, 27},
    {TT_HLO_exponential, "fc", 1, 0, 2.718281828},
    {TT_HLO_exponential_minus_one, "fc", 1e-3, 0, 1.00050017e-3},
    {TT_HLO_floor, "f", -1.25, 0, -2},
    {TT_HLO_log, "fc", 10, 0, 2.302585093},
    {TT_HLO_log_plus_one, "fc", 1e-3, 0, 9.99500333e-4},
    {TT_HLO_logistic, "fc", 0, 0, 0.5},
    {TT_HLO_negate, "sufc", 3, 0, -3},
    {TT_HLO_not, "bsu", 5, 0, -6},
    {TT_HLO_popcnt, "su", 255, 0, 8},
    {TT_HLO_round_nearest_afz, "f", 2.5, 0, 3},
    {TT_HLO_round_nearest_even, "f", 2.5, 0, 2},
    {TT_HLO_rsqrt, "fc", 4, 0, 0.5},
    {TT_HLO_sign, "sufc", -7, 0, -1},
    {TT_HLO_sine, "fc", 0.5, 0, 0.479425539},
    {TT_HLO_sqrt, "fc", 9, 0, 3},
    {TT_HLO_tan, "fc", 0.5, 0, 0.54630249},
    {TT_HLO_tanh, "fc", 0.5, 0, 0.462117157},
    {TT_HLO_add, "bsufc", 2, 3, 5},
    {TT_HLO_and, "bsu", 6, 3, 2},
    {TT_HLO_atan2, "f", 1, 1, 0.785398163},
    {TT_HLO_divide, "sufc", 7, 2, 3.5},
    {TT_HLO_maximum, "bsuf", 2, 3, 3},
    {TT_HLO_minimum, "bsuf", 2, 3, 2},
    {TT_HLO_multiply, "bsufc", 2, 3, 6},
    {TT_HLO_or, "bsu", 6, 3, 7},
    {TT_HLO_power, "sufc", 2, 3, 8},
    {TT_HLO_remainder, "suf", -7, 3, -1},
    {TT_HLO_shift_left, "su", 3, 2, 12},
    {TT_HLO_shift_right_arithmetic, "su", -8, 1, -4},
    {TT_HLO_shift_right_logical, "su", -8, 1, 2147483644},
    {TT_HLO_subtract, "sufc", 2, 3, -1},
    {TT_HLO_xor, "bsu", 6, 3, 5},
    {TT_HLO_acos, "fc", 0.3, 0, 1.26610367},
    {TT_HLO_acosh, "fc", 2.5, 0, 1.56679924},
    {TT_HLO_asin, "fc", 0.3, 0, 0.304692654},
    {TT_HLO_asinh, "fc", 0.7, 0, 0.652666566},
    {TT_HLO_atan, "fc", -2, 0, -1.10714872},
    {TT_HLO_atanh, "fc", 0.4, 0, 0.42364893},
    {TT_HLO_bessel_i1e, "f", 1.5, 0, 0.219039387},
    {TT_HLO_cosh, "fc", 0.5, 0, 1.12762597},
    {TT_HLO_digamma, "f", 2.5, 0, 0.703156641},
    {TT_HLO_erf, "f", 0.5, 0, 0.520499878},
    {TT_HLO_erf_inv, "f", 0.5, 0, 0.476936276},
    {TT_HLO_erfc, "f", 0.5, 0, 0.479500122},
    {TT_HLO_lgamma, "f", 4.5, 0, 2.45373657},
    {TT_HLO_sinh, "fc", 0.5, 0, 0.521095305},
    {TT_HLO_next_after, "f", 1, 2, 1.00000012},
    {TT_HLO_zeta, "f", 2, 1.5, 0.934802201},
};
enum { ELEMENTWISE = sizeof elementwise / sizeof *elementwise };

static tt_node *apply(tt_hlo *h, int i, tt_node *x, tt_node *y) {
  tt_hlo_op op = elementwise[i].op;
  bool binary = (op >= TT_HLO_add && op <= TT_HLO_xor) || op >= TT_HLO_next_after;
  return binary ? tt_hlo_binary(h, op, x, y) : tt_hlo_unary(h, op, x);
}

static void test_elementwise_values(void **state) {
  (void)state;
  assert_int_equal(ELEMENTWISE, TT_HLO_ELEMENTWISE_COUNT);
  double xs[ELEMENTWISE], ys[ELEMENTWISE];
  for (int i = 0; i < ELEMENTWISE; i++) {
    xs[i] = elementwise[i].x;
    ys[i] = elementwise[i].y;
  }
  for (int k = 0; k < 2; k++) {
    tt_dtype dtype = k ? TT_I32 : TT_F32;
    program p = program_start();
    tt_node *x = program_in(&p, dtype, 1, DIMS(ELEMENTWISE), xs);
    tt_node *y = program_in(&p, dtype, 1, DIMS(ELEMENTWISE), ys), *nodes[ELEMENTWISE];
    double expected[ELEMENTWISE];
    int count = 0;
    for (int i = 0; i < ELEMENTWISE; i++) {
      if (takes(elementwise[i].classes, TT_F32) == (dtype == TT_I32)) continue;
      expected[count] = elementwise[i].expected;
      nodes[count++] = apply(p.h, i, tt_hlo_slice_dim(p.h, x, 0, i, i + 1, 1),
                             tt_hlo_slice_dim(p.h, y, 0, i, i + 1, 1));
    }
    program_expect(&p, tt_hlo_concatenate(p.h, nodes, count, 0), expected);
  }
}

static void test_elementwise_dtypes(void **state) {
  (void)state;
  for (int d = 0; d < ALL_DTYPES; d++) {
    program p = program_start();
    tt_type type = tt_type_make(all_dtypes[d], 1, DIMS(3));
    tt_node *x = tt_hlo_param(p.h, &type), *y = tt_hlo_param(p.h, &type), *nodes[ELEMENTWISE + 8];
    int count = 0;
    for (int i = 0; i < ELEMENTWISE; i++)
      if (takes(elementwise[i].classes, all_dtypes[d])) nodes[count++] = apply(p.h, i, x, y);
    nodes[count++] = tt_hlo_compare(p.h, TT_EQ, x, y);
    nodes[count++] = tt_hlo_select(p.h, tt_hlo_compare(p.h, TT_NE, x, y), x, y);
    if (!tt_is_complex(all_dtypes[d])) {
      nodes[count++] = tt_hlo_clamp(p.h, tt_hlo_lowest(p.h, all_dtypes[d]), x, y);
      nodes[count++] = tt_hlo_compare_total(p.h, TT_LT, x, y);
    }
    if (tt_is_float(all_dtypes[d])) nodes[count++] = tt_hlo_is_finite(p.h, x);
    program_accept(&p, nodes, count);
  }
}

static void test_convert_accepts_all(void **state) {
  (void)state;
  for (int d = 0; d < ALL_DTYPES; d++) {
    program p = program_start();
    tt_type type = tt_type_make(all_dtypes[d], 1, DIMS(3));
    tt_node *x = tt_hlo_param(p.h, &type), *nodes[ALL_DTYPES];
    for (int k = 0; k < ALL_DTYPES; k++) nodes[k] = tt_hlo_convert(p.h, x, all_dtypes[k]);
    program_accept(&p, nodes, ALL_DTYPES);
  }
}

static void test_convert_values(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 1, DIMS(4), VALS(-1.75, 0, 2.99, NAN));
  program_expect(&p, tt_hlo_convert(p.h, x, TT_BOOL), VALS(1, 0, 1, 1));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(3), VALS(-1.75, 0, 2.99));
  program_expect(&p, tt_hlo_convert(p.h, x, TT_I32), VALS(-1, 0, 2));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(2), VALS(1, 2));
  tt_node *z = tt_hlo_complex(p.h, x, tt_hlo_const(p.h, TT_F32, 5));
  program_expect(&p, tt_hlo_convert(p.h, z, TT_F32), VALS(1, 2));
  p = program_start();
  x = program_in(&p, TT_F64, 1, DIMS(2), VALS(1, 2));
  z = tt_hlo_complex(p.h, tt_hlo_const(p.h, TT_F64, 5), x);
  program_expect(&p, tt_hlo_imag(p.h, tt_hlo_convert(p.h, z, TT_C64)), VALS(1, 2));
  p = program_start();
  x = program_in(&p, TT_BF16, 1, DIMS(2), VALS(1.00390625, 3));
  program_expect(&p, x, VALS(1, 3));
}

static void test_nan_through_max(void **state) {
  (void)state;
  for (int at = 0; at < 4; at++) {
    double values[] = {1, 2, 3, 4};
    values[at] = NAN;
    program p = program_start();
    tt_node *x = program_in(&p, TT_F32, 1, DIMS(4), values);
    tt_node *a = tt_hlo_reduce(p.h, TT_MAX, x, INTS(0), 1);
    tt_node *b = tt_hlo_reduce(p.h, TT_MIN, x, INTS(0), 1);
    program_expect(&p,
                   tt_hlo_maximum(p.h, tt_hlo_minimum(p.h, a, tt_hlo_const(p.h, TT_F32, 0)),
                                  tt_hlo_minimum(p.h, tt_hlo_const(p.h, TT_F32, 0), b)),
                   VALS(NAN));
  }
}

static void test_bits(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 1, DIMS(2), VALS(1, -2));
  program_expect(&p, tt_hlo_bitcast(p.h, x, TT_I32), VALS(0x3F800000, -1073741824));
  p = program_start();
  x = program_in(&p, TT_U32, 1, DIMS(1), VALS(0x01020304));
  program_expect(&p, tt_hlo_bitcast(p.h, x, TT_U8), VALS(4, 3, 2, 1));
  p = program_start();
  x = program_in(&p, TT_U8, 2, DIMS(1, 4), VALS(4, 3, 2, 1));
  program_expect(&p, tt_hlo_bitcast(p.h, x, TT_U32), VALS(0x01020304));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(1), VALS(1.00390625));
  program_expect(&p, tt_hlo_reduce_precision(p.h, x, 8, 7), VALS(1));
}

static void test_select_clamp(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 1, DIMS(3), VALS(-1, 0.5, 7));
  tt_node *positive = tt_hlo_compare(p.h, TT_GT, x, tt_hlo_const(p.h, TT_F32, 0));
  x = tt_hlo_select(p.h, positive, x, tt_hlo_const(p.h, TT_F32, -9));
  program_expect(&p,
                 tt_hlo_clamp(p.h, tt_hlo_const(p.h, TT_F32, -3), x, tt_hlo_const(p.h, TT_F32, 2)),
                 VALS(-3, 0.5, 2));
}

/* -- Constants -- */

static void test_constants(void **state) {
  (void)state;
  static const double wanted[] = {0, 1, -1, 0.1, 1e-30, INFINITY, -INFINITY, NAN, 12345678.0};
  enum { N = sizeof wanted / sizeof *wanted };
  program p = program_start();
  double expected[N];
  for (int i = 0; i < N; i++) expected[i] = (double)(float)wanted[i];
  program_expect(&p, tt_hlo_const_f64s(p.h, TT_F32, wanted, N), expected);
  p = program_start();
  program_expect(&p, tt_hlo_const_f64s(p.h, TT_F64, wanted, N), wanted);
  p = program_start();
  program_expect(&p, tt_hlo_const_i64s(p.h, TT_U8, DIMS(-1, 0, 256, 7), 4), VALS(255, 0, 0, 7));
  p = program_start();
  program_expect(&p, tt_hlo_const_i64s(p.h, TT_BOOL, DIMS(-1, 0, 256), 3), VALS(1, 0, 1));
  p = program_start();
  program_expect(&p, tt_hlo_imag(p.h, tt_hlo_const_c(p.h, TT_C64, 1.5, -2)), VALS(-2));
  p = program_start();
  tt_type empty = tt_type_make(TT_F32, 2, DIMS(0, 3));
  tt_node *zero = tt_hlo_zeros(p.h, &empty);
  program_expect(&p, tt_hlo_reduce(p.h, TT_SUM, zero, INTS(0), 1), VALS(0, 0, 0));
  p = program_start();
  tt_type counted = tt_type_make(TT_I32, 2, DIMS(2, 3));
  program_expect(&p, tt_hlo_iota(p.h, &counted, 1), VALS(0, 1, 2, 0, 1, 2));
}

static void test_constants_of_all_dtypes(void **state) {
  (void)state;
  program p = program_start();
  tt_node *nodes[ALL_DTYPES * 6];
  int count = 0;
  for (int d = 0; d < ALL_DTYPES; d++) {
    tt_dtype dtype = all_dtypes[d];
    nodes[count++] = tt_hlo_const(p.h, dtype, 1.5);
    nodes[count++] = tt_hlo_const(p.h, dtype, NAN);
    nodes[count++] = tt_hlo_const(p.h, dtype, -1e300);
    nodes[count++] = tt_hlo_const_i64s(p.h, dtype, DIMS(INT64_MIN, 3), 2);
    nodes[count++] = tt_hlo_const_f64s(p.h, dtype, NULL, 0);
    if (!tt_is_complex(dtype))
      nodes[count++] = tt_hlo_concatenate(
          p.h,
          (tt_node *[]){tt_hlo_reshape(p.h, tt_hlo_lowest(p.h, dtype), 1, DIMS(1)),
                        tt_hlo_reshape(p.h, tt_hlo_highest(p.h, dtype), 1, DIMS(1))},
          2, 0);
  }
  program_accept(&p, nodes, count);
}

static void test_extremes(void **state) {
  (void)state;
  static const struct {
    tt_dtype dtype;
    double low, high;
  } rows[] = {{TT_BOOL, 0, 1},           {TT_I8, -128, 127},
              {TT_U8, 0, 255},           {TT_I64, -0x1p63, 0x1p63},
              {TT_U64, 0, 0x1p64},       {TT_F16, -INFINITY, INFINITY},
              {TT_F8E4M3FN, -448, 448},  {TT_F8E5M2FNUZ, -57344, 57344},
              {TT_F8E4M3FNUZ, -240, 240}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    program p = program_start();
    tt_node *low = tt_hlo_convert(p.h, tt_hlo_lowest(p.h, rows[i].dtype), TT_F64);
    tt_node *high = tt_hlo_convert(p.h, tt_hlo_highest(p.h, rows[i].dtype), TT_F64);
    tt_node *both[] = {tt_hlo_reshape(p.h, low, 1, DIMS(1)), tt_hlo_reshape(p.h, high, 1, DIMS(1))};
    program_expect(&p, tt_hlo_concatenate(p.h, both, 2, 0), VALS(rows[i].low, rows[i].high));
  }
}

/* -- Shape -- */

static void test_shape(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
  program_expect(&p, tt_hlo_transpose(p.h, x, INTS(1, 0)), VALS(1, 4, 2, 5, 3, 6));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(2), VALS(1, 2));
  program_expect(&p, tt_hlo_broadcast(p.h, x, INTS(0), 2, DIMS(2, 3)), VALS(1, 1, 1, 2, 2, 2));
  p = program_start();
  x = program_in(&p, TT_F32, 2, DIMS(2, 1), VALS(1, 2));
  program_expect(&p, tt_hlo_broadcast_to(p.h, x, 3, DIMS(2, 2, 2)), VALS(1, 1, 2, 2, 1, 1, 2, 2));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(5), VALS(1, 2, 3, 4, 5));
  program_expect(&p, tt_hlo_slice_dim(p.h, x, 0, 1, 5, 2), VALS(2, 4));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(2), VALS(1, 2));
  program_expect(&p, tt_hlo_concatenate(p.h, (tt_node *[]){x, tt_hlo_negate(p.h, x)}, 2, 0),
                 VALS(1, 2, -1, -2));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(3), VALS(1, 2, 3));
  program_expect(&p, tt_hlo_pad(p.h, x, tt_hlo_const(p.h, TT_F32, 9), DIMS(-1), DIMS(2), DIMS(1)),
                 VALS(9, 2, 9, 3, 9, 9));
  p = program_start();
  x = program_in(&p, TT_F32, 2, DIMS(2, 2), VALS(1, 2, 3, 4));
  program_expect(&p, tt_hlo_reverse(p.h, x, INTS(1), 1), VALS(2, 1, 4, 3));
}

static void test_unchanged_is_the_same_node(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F64, 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
  assert_ptr_equal(tt_hlo_reshape(p.h, x, 2, DIMS(2, 3)), x);
  assert_ptr_equal(tt_hlo_transpose(p.h, x, INTS(0, 1)), x);
  assert_ptr_equal(tt_hlo_broadcast_to(p.h, x, 2, DIMS(2, 3)), x);
  assert_ptr_equal(tt_hlo_slice(p.h, x, DIMS(0, 0), DIMS(2, 3), NULL), x);
  assert_ptr_equal(tt_hlo_pad(p.h, x, tt_hlo_const(p.h, TT_F64, 0), DIMS(0, 0), DIMS(0, 0), NULL),
                   x);
  assert_ptr_equal(tt_hlo_reverse(p.h, x, NULL, 0), x);
  assert_ptr_equal(tt_hlo_concatenate(p.h, &x, 1, 0), x);
  assert_ptr_equal(tt_hlo_convert(p.h, x, TT_F64), x);
  assert_ptr_equal(tt_hlo_real(p.h, x), x);
  assert_ptr_equal(tt_hlo_add(p.h, x, x), tt_hlo_add(p.h, x, x));
  program_expect(&p, x, VALS(1, 2, 3, 4, 5, 6));
}

static void test_dynamic_slices(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
  tt_node *at = program_in(&p, TT_I32, 0, NULL, VALS(1));
  tt_node *starts[] = {at, at};
  program_expect(&p, tt_hlo_dynamic_slice(p.h, x, starts, DIMS(1, 2)), VALS(5, 6));
  p = program_start();
  x = program_in(&p, TT_F32, 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
  at = program_in(&p, TT_I64, 0, NULL, VALS(1));
  tt_type one = tt_type_make(TT_F32, 2, DIMS(1, 1));
  program_expect(
      &p, tt_hlo_dynamic_update_slice(p.h, x, tt_hlo_full(p.h, &one, 9), (tt_node *[]){at, at}),
      VALS(1, 2, 3, 4, 9, 6));
  p = program_start();
  x = program_in(&p, TT_F32, 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
  tt_type column = tt_type_make(TT_F32, 2, DIMS(2, 1));
  program_expect(&p, tt_hlo_update_slice(p.h, x, tt_hlo_full(p.h, &column, 0), DIMS(0, 2)),
                 VALS(1, 2, 0, 4, 5, 0));
}

/* -- Reductions -- */

static void test_reduce(void **state) {
  (void)state;
  static const struct {
    tt_reducer reducer;
    tt_dtype dtype;
    double expected[2];
  } rows[] = {{TT_SUM, TT_F32, {6, 15}},    {TT_PROD, TT_F64, {6, 120}}, {TT_MAX, TT_BF16, {3, 6}},
              {TT_MIN, TT_U8, {1, 4}},      {TT_AND, TT_I32, {0, 4}},    {TT_OR, TT_I16, {3, 7}},
              {TT_MAX, TT_I64, {3, 6}},     {TT_MIN, TT_F16, {1, 4}},    {TT_MAX, TT_BOOL, {1, 1}},
              {TT_AND, TT_BOOL, {1, 1}},    {TT_SUM, TT_U64, {6, 15}},   {TT_SUM, TT_C64, {6, 15}},
              {TT_MAX, TT_F8E4M3FN, {3, 6}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    program p = program_start();
    tt_node *x = program_in(&p, rows[i].dtype, 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
    program_expect(&p, tt_hlo_reduce(p.h, rows[i].reducer, x, INTS(1), 1), rows[i].expected);
  }
}

/* The larger value and where it is. */
static void arg_max(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *keep = tt_hlo_compare(h, TT_GE, args[0], args[2]);
  results[0] = tt_hlo_select(h, keep, args[0], args[2]);
  results[1] = tt_hlo_select(h, keep, args[1], args[3]);
}

static void test_reduce_n(void **state) {
  (void)state;
  for (int window = 0; window < 2; window++) {
    program p = program_start();
    tt_node *x = program_in(&p, TT_F32, 2, DIMS(2, 3), VALS(1, 8, 3, 4, 5, 6)), *results[2];
    tt_type type = tt_type_make(TT_I32, 2, DIMS(2, 3));
    tt_node *xs[] = {x, tt_hlo_iota(p.h, &type, 1)};
    tt_node *inits[] = {tt_hlo_lowest(p.h, TT_F32), tt_hlo_const_i(p.h, TT_I32, 0)};
    if (window)
      tt_hlo_reduce_window_n(p.h, 2, xs, inits, &(tt_window){.size = DIMS(1, 2)}, arg_max, NULL,
                             results);
    else tt_hlo_reduce_n(p.h, 2, xs, inits, INTS(1), 1, arg_max, NULL, results);
    program_expect(&p, results[1], window ? VALS(1, 1, 1, 2) : VALS(1, 2));
  }
}

static void test_reduce_window(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 1, DIMS(5), VALS(1, 2, 3, 4, 5));
  tt_window window = {.size = DIMS(2), .stride = DIMS(2), .padding = DIMS(1, 0)};
  program_expect(&p, tt_hlo_reduce_window(p.h, TT_MAX, x, &window), VALS(1, 3, 5));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(5), VALS(1, 2, 3, 4, 5));
  window = (tt_window){.size = DIMS(2), .dilation = DIMS(3)};
  program_expect(&p, tt_hlo_reduce_window(p.h, TT_SUM, x, &window), VALS(5, 7));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(3), VALS(1, 2, 3));
  window = (tt_window){.size = DIMS(2), .base_dilation = DIMS(2), .padding = DIMS(1, 1)};
  program_expect(&p, tt_hlo_reduce_window(p.h, TT_SUM, x, &window), VALS(1, 1, 2, 2, 3, 3));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(5), VALS(1, 2, 3, 4, 5));
  window = (tt_window){.size = DIMS(5), .padding = DIMS(4, 0)}; /* a running sum */
  program_expect(&p, tt_hlo_reduce_window(p.h, TT_SUM, x, &window), VALS(1, 3, 6, 10, 15));
}

static void test_select_and_scatter(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 1, DIMS(6), VALS(1, 5, 2, NAN, 4, 4));
  tt_node *source = program_in(&p, TT_F32, 1, DIMS(3), VALS(10, 20, 30));
  tt_window window = {.size = DIMS(2), .stride = DIMS(2)};
  program_expect(&p, tt_hlo_select_and_scatter(p.h, x, source, &window, true),
                 VALS(0, 10, 0, 20, 30, 0));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(4), VALS(1, 5, 7, 6));
  source = program_in(&p, TT_F32, 1, DIMS(2), VALS(10, 20));
  program_expect(&p, tt_hlo_select_and_scatter(p.h, x, source, &window, false), VALS(10, 0, 0, 20));
}

/* -- Linear algebra -- */

static void test_dot(void **state) {
  (void)state;
  static const tt_dtype dtypes[] = {TT_F32, TT_BF16, TT_F16, TT_F64, TT_I32, TT_I8, TT_U8, TT_C64};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
    program p = program_start();
    tt_node *a = program_in(&p, dtypes[i], 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
    tt_node *b = program_in(&p, dtypes[i], 2, DIMS(3, 2), VALS(1, 0, 0, 1, 1, 1));
    program_expect(&p, tt_hlo_dot_general(p.h, a, b, NULL, NULL, 0, INTS(1), INTS(0), 1, dtypes[i]),
                   VALS(4, 5, 10, 11));
  }
  program p = program_start();
  tt_hlo_precision(p.h, TT_PRECISION_HIGHEST);
  tt_node *a = program_in(&p, TT_BF16, 3, DIMS(2, 1, 2), VALS(1, 2, 3, 4));
  tt_node *b = program_in(&p, TT_BF16, 3, DIMS(2, 2, 2), VALS(1, 0, 0, 1, 1, 1, 1, 2));
  program_expect(&p,
                 tt_hlo_dot_general(p.h, a, b, INTS(0), INTS(0), 1, INTS(2), INTS(2), 1, TT_F32),
                 VALS(1, 2, 7, 11));
}

static void test_convolution(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 4, DIMS(1, 1, 3, 3), VALS(1, 2, 3, 4, 5, 6, 7, 8, 9));
  tt_node *k = program_in(&p, TT_F32, 4, DIMS(1, 1, 2, 2), VALS(1, 0, 0, 2));
  tt_conv conv = {.spatial = 2};
  program_expect(&p, tt_hlo_convolution(p.h, x, k, &conv, TT_F32), VALS(11, 14, 20, 23));
  p = program_start();
  x = program_in(&p, TT_F32, 3, DIMS(1, 2, 3), VALS(1, 2, 3, 4, 5, 6));
  k = program_in(&p, TT_F32, 3, DIMS(2, 1, 2), VALS(1, 1, 1, -1));
  conv = (tt_conv){.spatial = 1,
                   .padding = DIMS(1, -1),
                   .stride = DIMS(1),
                   .feature_groups = 2,
                   .reverse = (bool[]){true}};
  program_expect(&p, tt_hlo_convolution(p.h, x, k, &conv, TT_F32), VALS(1, 3, 4, 1));
  p = program_start(); /* [spatial, N, C] by [spatial, I, O], a transposed convolution */
  x = program_in(&p, TT_F32, 3, DIMS(2, 1, 1), VALS(1, 2));
  k = program_in(&p, TT_F32, 3, DIMS(2, 1, 1), VALS(3, 4));
  conv = (tt_conv){.spatial = 1,
                   .lhs_dilation = DIMS(2),
                   .padding = DIMS(1, 1),
                   .input = INTS(1, 2, 0),
                   .kernel = INTS(2, 1, 0),
                   .output = INTS(1, 2, 0)};
  program_expect(&p, tt_hlo_convolution(p.h, x, k, &conv, TT_F32), VALS(4, 3, 8, 6));
  p = program_start();
  x = program_in(&p, TT_F32, 3, DIMS(2, 1, 2), VALS(1, 2, 3, 4));
  k = program_in(&p, TT_F32, 3, DIMS(2, 1, 2), VALS(1, 1, 1, -1));
  conv = (tt_conv){.spatial = 1, .batch_groups = 2};
  program_expect(&p, tt_hlo_convolution(p.h, x, k, &conv, TT_F32), VALS(3, -1));
}

static void test_solvers(void **state) {
  (void)state;
  program p = program_start();
  tt_node *a = program_in(&p, TT_F32, 3, DIMS(1, 2, 2), VALS(4, 2, 2, 5));
  tt_node *l = tt_hlo_cholesky(p.h, a, true);
  tt_node *mask = tt_hlo_const_f64s(p.h, TT_F32, VALS(1, 0, 1, 1), 4);
  program_expect(&p, tt_hlo_multiply(p.h, l, tt_hlo_reshape(p.h, mask, 3, DIMS(1, 2, 2))),
                 VALS(2, 0, 1, 2));
  for (int transpose = 0; transpose < 3; transpose++) {
    p = program_start();
    a = program_in(&p, TT_F64, 2, DIMS(2, 2), VALS(2, 0, 1, 4));
    tt_node *b = program_in(&p, TT_F64, 2, DIMS(2, 1), VALS(2, 9));
    program_expect(&p, tt_hlo_triangular_solve(p.h, a, b, true, true, false, transpose),
                   transpose ? VALS(-0.125, 2.25) : VALS(1, 2));
  }
  p = program_start();
  a = program_in(&p, TT_F32, 2, DIMS(2, 2), VALS(9, 0, 1, 9));
  tt_node *b = program_in(&p, TT_F32, 2, DIMS(1, 2), VALS(5, 3));
  program_expect(&p, tt_hlo_triangular_solve(p.h, a, b, false, true, true, 0), VALS(2, 3));
}

static void test_fft(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 1, DIMS(4), VALS(1, 2, 3, 4));
  tt_node *f = tt_hlo_fft(p.h, x, TT_RFFT, DIMS(4), 1);
  program_expect(&p, tt_hlo_imag(p.h, f), VALS(0, 2, 0));
  p = program_start();
  x = program_in(&p, TT_F64, 2, DIMS(1, 4), VALS(1, 2, 3, 4));
  f = tt_hlo_fft(p.h, x, TT_RFFT, DIMS(1, 4), 2);
  program_expect(&p, tt_hlo_fft(p.h, f, TT_IRFFT, DIMS(1, 4), 2), VALS(1, 2, 3, 4));
  p = program_start();
  x = program_in(&p, TT_C64, 1, DIMS(4), VALS(1, 2, 3, 4));
  f = tt_hlo_fft(p.h, tt_hlo_fft(p.h, x, TT_FFT, DIMS(4), 1), TT_IFFT, DIMS(4), 1);
  program_expect(&p, tt_hlo_real(p.h, f), VALS(1, 2, 3, 4));
}

/* -- Indexing -- */

static void test_take(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
  tt_node *idx = program_in(&p, TT_I64, 2, DIMS(2, 2), VALS(2, 0, 1, 9)); /* 9 is clamped */
  program_expect(&p, tt_hlo_take(p.h, x, idx, 1), VALS(3, 1, 2, 3, 6, 4, 5, 6));
  p = program_start();
  x = program_in(&p, TT_BOOL, 2, DIMS(3, 2), VALS(1, 0, 0, 1, 1, 1));
  idx = program_in(&p, TT_I32, 1, DIMS(2), VALS(2, 0));
  program_expect(&p, tt_hlo_take(p.h, x, idx, 0), VALS(1, 1, 1, 0));
  p = program_start();
  x = program_in(&p, TT_F32, 2, DIMS(3, 2), VALS(1, 2, 3, 4, 5, 6));
  idx = program_in(&p, TT_U8, 0, NULL, VALS(1));
  program_expect(&p, tt_hlo_take(p.h, x, idx, 0), VALS(3, 4));
  p = program_start();
  tt_type none = tt_type_make(TT_I64, 1, DIMS(0));
  x = program_in(&p, TT_F32, 2, DIMS(0, 2), VALS(0));
  program_expect(&p, tt_hlo_take(p.h, x, tt_hlo_zeros(p.h, &none), 0), VALS(0));
}

static void test_take_along(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 2, DIMS(3, 3), VALS(1, 2, 3, 4, 5, 6, 7, 8, 9));
  tt_node *idx = program_in(&p, TT_I64, 2, DIMS(2, 2), VALS(2, 0, 1, 1));
  program_expect(&p, tt_hlo_take_along(p.h, x, idx, 1), VALS(3, 1, 5, 5));
  p = program_start();
  x = program_in(&p, TT_F32, 2, DIMS(3, 3), VALS(1, 2, 3, 4, 5, 6, 7, 8, 9));
  idx = program_in(&p, TT_I32, 2, DIMS(2, 2), VALS(2, 0, 1, 1));
  program_expect(&p, tt_hlo_take_along(p.h, x, idx, 0), VALS(7, 2, 4, 5));
  p = program_start();
  x = program_in(&p, TT_F32, 1, DIMS(3), VALS(1, 2, 3));
  idx = program_in(&p, TT_I32, 1, DIMS(2), VALS(2, 0));
  program_expect(&p, tt_hlo_take_along(p.h, x, idx, 0), VALS(3, 1));
}

static void test_gather(void **state) {
  (void)state;
  program p = program_start(); /* windows 1x2 at (row, column) */
  tt_node *x = program_in(&p, TT_F32, 2, DIMS(3, 3), VALS(1, 2, 3, 4, 5, 6, 7, 8, 9));
  tt_node *idx = program_in(&p, TT_I32, 2, DIMS(2, 2), VALS(0, 1, 2, 0));
  tt_gather numbers = {.offset_dims = INTS(1),
                       .offset_count = 1,
                       .collapsed_dims = INTS(0),
                       .collapsed_count = 1,
                       .start_map = INTS(0, 1),
                       .start_count = 2,
                       .index_vector_dim = 1,
                       .slice_sizes = DIMS(1, 2)};
  program_expect(&p, tt_hlo_gather(p.h, x, idx, &numbers), VALS(2, 3, 7, 8));
}

static void test_scatter(void **state) {
  (void)state;
  static const struct {
    tt_combiner combiner;
    double expected[4];
  } rows[] = {{TT_SET, {1, 7, 3, 5}},
              {TT_ADD, {1, 9, 3, 9}},
              {TT_MUL, {1, 14, 3, 20}},
              {TT_SMAX, {1, 7, 3, 5}},
              {TT_SMIN, {1, 2, 3, 4}}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    program p = program_start();
    tt_node *x = program_in(&p, TT_F32, 1, DIMS(4), VALS(1, 2, 3, 4));
    tt_node *idx = program_in(&p, TT_I32, 1, DIMS(3), VALS(1, 3, 4)); /* 4 is dropped */
    tt_node *updates = program_in(&p, TT_F32, 1, DIMS(3), VALS(7, 5, 99));
    tt_scatter numbers = {.inserted_dims = INTS(0),
                          .inserted_count = 1,
                          .scatter_map = INTS(0),
                          .scatter_count = 1,
                          .index_vector_dim = 1};
    program_expect(&p, tt_hlo_scatter(p.h, x, idx, updates, &numbers, rows[i].combiner),
                   rows[i].expected);
  }
}

static void test_scatter_batched(void **state) {
  (void)state;
  program p = program_start(); /* torch.scatter_add along dim 1 */
  tt_node *x = program_in(&p, TT_F32, 2, DIMS(2, 3), VALS(1, 2, 3, 4, 5, 6));
  tt_node *idx = program_in(&p, TT_I64, 2, DIMS(2, 2), VALS(0, 0, 2, 1));
  tt_node *updates = program_in(&p, TT_F32, 2, DIMS(2, 2), VALS(10, 20, 30, 40));
  tt_scatter numbers = {.inserted_dims = INTS(1),
                        .inserted_count = 1,
                        .operand_batch = INTS(0),
                        .index_batch = INTS(0),
                        .batch_count = 1,
                        .scatter_map = INTS(1),
                        .scatter_count = 1,
                        .index_vector_dim = 2};
  program_expect(&p, tt_hlo_scatter(p.h, x, idx, updates, &numbers, TT_ADD),
                 VALS(31, 2, 3, 4, 45, 36));
  p = program_start(); /* whole rows */
  x = program_in(&p, TT_F32, 2, DIMS(3, 2), VALS(1, 2, 3, 4, 5, 6));
  idx = program_in(&p, TT_I64, 1, DIMS(2), VALS(2, 0));
  updates = program_in(&p, TT_F32, 2, DIMS(2, 2), VALS(10, 20, 30, 40));
  numbers = (tt_scatter){.window_dims = INTS(1),
                         .window_count = 1,
                         .inserted_dims = INTS(0),
                         .inserted_count = 1,
                         .scatter_map = INTS(0),
                         .scatter_count = 1,
                         .index_vector_dim = 1,
                         .unique = true};
  program_expect(&p, tt_hlo_scatter(p.h, x, idx, updates, &numbers, TT_SET),
                 VALS(30, 40, 3, 4, 10, 20));
}

/* -- Sort and control -- */

static void ascending(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_compare_total(h, TT_LT, args[0], args[1]);
}

static void test_sort(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 2, DIMS(2, 3), VALS(3, NAN, 2, 5, 4, 4)), *results[2];
  tt_type type = tt_type_make(TT_I32, 2, DIMS(2, 3));
  tt_node *xs[] = {x, tt_hlo_iota(p.h, &type, 1)};
  tt_hlo_sort(p.h, 2, xs, 1, true, ascending, NULL, results);
  program_expect(&p, results[1], VALS(2, 0, 1, 1, 2, 0));
}

typedef struct loop {
  tt_node *limit, *step;
} loop;

static void below(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  results[0] = tt_hlo_compare(h, TT_LT, args[0], ((loop *)user)->limit);
}

static void grow(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  results[0] = tt_hlo_add(h, args[0], tt_hlo_const(h, TT_I32, 1));
  results[1] = tt_hlo_multiply(h, args[1], ((loop *)user)->step);
}

static void test_while(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 1, DIMS(2), VALS(1, 3)), *results[2];
  loop values = {tt_hlo_const(p.h, TT_I32, 3),
                 tt_hlo_broadcast_to(p.h, tt_hlo_const(p.h, TT_F32, 2), 1, DIMS(2))};
  tt_node *inits[] = {tt_hlo_const(p.h, TT_I32, 0), x};
  tt_hlo_while(p.h, 2, inits, below, grow, &values, results);
  program_expect(&p, results[1], VALS(8, 24));
  p = program_start(); /* captured values that are not constants */
  x = program_in(&p, TT_F32, 1, DIMS(2), VALS(1, 3));
  values = (loop){program_in(&p, TT_I32, 0, NULL, VALS(2)), tt_hlo_negate(p.h, x)};
  inits[0] = tt_hlo_const(p.h, TT_I32, 0);
  inits[1] = x;
  tt_hlo_while(p.h, 2, inits, below, grow, &values, results);
  program_expect(&p, results[1], VALS(1, 27));
}

/* A reduction inside a loop: regions in regions. */
static void halve(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_multiply(h, args[0], tt_hlo_const(h, TT_F32, 0.5));
}

static void sum_above(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_compare(h, TT_GT, tt_hlo_reduce(h, TT_SUM, args[0], INTS(0), 1),
                              tt_hlo_const(h, TT_F32, 1));
}

static void test_nested_regions(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F32, 1, DIMS(2), VALS(2, 4)), *result;
  tt_hlo_while(p.h, 1, &x, sum_above, halve, NULL, &result);
  program_expect(&p, result, VALS(0.25, 0.5));
}

static void doubled(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)args;
  results[0] = tt_hlo_add(h, user, user);
}

static void summed(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)args;
  tt_node *sum = tt_hlo_reduce(h, TT_SUM, user, INTS(0), 1);
  results[0] = tt_hlo_broadcast_to(h, sum, 1, DIMS(2));
}

static void test_if(void **state) {
  (void)state;
  tt_type type = tt_type_make(TT_F32, 1, DIMS(2));
  for (int flag = 0; flag < 2; flag++) {
    program p = program_start();
    tt_node *x = program_in(&p, TT_F32, 1, DIMS(2), VALS(2, 4)), *result;
    tt_node *chosen = program_in(&p, TT_BOOL, 0, NULL, VALS(flag));
    tt_hlo_if(p.h, chosen, 1, &type, doubled, summed, x, &result);
    program_expect(&p, tt_hlo_negate(p.h, result), flag ? VALS(-4, -8) : VALS(-6, -6));
  }
}

static void test_donation_runs(void **state) {
  (void)state;
  program p = program_start();
  tt_node *x = program_in(&p, TT_F64, 1, DIMS(2), VALS(1, 2));
  tt_hlo_donate(p.h, 0, 0);
  program_expect(&p, tt_hlo_add(p.h, x, x), VALS(2, 4));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_elementwise_values),
      cmocka_unit_test(test_elementwise_dtypes),
      cmocka_unit_test(test_convert_accepts_all),
      cmocka_unit_test(test_convert_values),
      cmocka_unit_test(test_nan_through_max),
      cmocka_unit_test(test_bits),
      cmocka_unit_test(test_select_clamp),
      cmocka_unit_test(test_constants),
      cmocka_unit_test(test_constants_of_all_dtypes),
      cmocka_unit_test(test_extremes),
      cmocka_unit_test(test_shape),
      cmocka_unit_test(test_unchanged_is_the_same_node),
      cmocka_unit_test(test_dynamic_slices),
      cmocka_unit_test(test_reduce),
      cmocka_unit_test(test_reduce_n),
      cmocka_unit_test(test_reduce_window),
      cmocka_unit_test(test_select_and_scatter),
      cmocka_unit_test(test_dot),
      cmocka_unit_test(test_convolution),
      cmocka_unit_test(test_solvers),
      cmocka_unit_test(test_fft),
      cmocka_unit_test(test_take),
      cmocka_unit_test(test_take_along),
      cmocka_unit_test(test_gather),
      cmocka_unit_test(test_scatter),
      cmocka_unit_test(test_scatter_batched),
      cmocka_unit_test(test_sort),
      cmocka_unit_test(test_while),
      cmocka_unit_test(test_nested_regions),
      cmocka_unit_test(test_if),
      cmocka_unit_test(test_donation_runs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
