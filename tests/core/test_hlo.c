/* The builder's text, its sticky errors, the verifier, limits, and failing memory. */
#include "hlo/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define INTS(...) ((int[]){__VA_ARGS__})
#define NODES(...) ((tt_node *[]){__VA_ARGS__})

static tt_hlo *h; /* the builder of the running test */

static int start(void **state) {
  (void)state;
  assert_null(tt_hlo_create(&h));
  return 0;
}

static int stop(void **state) {
  (void)state;
  tt_hlo_destroy(h);
  h = NULL;
  return 0;
}

static tt_node *param(tt_dtype dtype, int rank, const int64_t *dims) {
  tt_type type = tt_type_make(dtype, rank, dims);
  return tt_hlo_param(h, &type);
}

static tt_node *vector(int64_t size) { return param(TT_F32, 1, &size); }

static void expect_text(tt_node *const *results, int count, const char *expected) {
  tt_text text = TT_TEXT_INIT;
  assert_null(tt_hlo_finish(h, results, count, &text));
  assert_string_equal(text.data, expected);
  tt_text_deinit(&text);
}

static void expect_status(tt_status status, tt_code code, const char *part) {
  if (tt_status_code(status) != code || !strstr(tt_status_message(status), part))
    print_error("%s: %s\n", tt_code_name(tt_status_code(status)), tt_status_message(status));
  assert_int_equal(tt_status_code(status), code);
  assert_non_null(strstr(tt_status_message(status), part));
  tt_status_release(status);
}

/* The sticky error has this code and contains `part`; a new builder takes over. */
static void expect_failure(tt_node *poison, tt_code code, const char *part) {
  tt_text text = TT_TEXT_INIT;
  assert_true(tt_hlo_failed(h));
  assert_int_equal(poison->type.dtype, TT_F32);
  assert_int_equal(poison->type.rank, 0);
  assert_null(poison->instr);
  expect_status(tt_hlo_finish(h, &poison, 1, &text), code, part);
  assert_null(text.data);
  stop(NULL);
  start(NULL);
}

/* -- Types -- */

static void test_types(void **state) {
  (void)state;
  tt_text text = TT_TEXT_INIT;
  tt_type type = tt_type_make(TT_C64, 2, DIMS(2, 1234567890123));
  int64_t bytes = 0;
  tt_type_print(&type, &text);
  tt_type_print(&(tt_type){.dtype = TT_BOOL}, &text);
  assert_string_equal(text.data, "tensor<2x1234567890123xcomplex<f32>>tensor<i1>");
  tt_text_deinit(&text);
  assert_int_equal(tt_type_numel(&type), 2469135780246);
  assert_true(tt_type_bytes(&type, &bytes));
  assert_int_equal(bytes, 8 * 2469135780246);
  type.dims[0] = INT64_MAX;
  assert_false(tt_type_bytes(&type, &bytes));
  type.dims[0] = -1;
  assert_false(tt_type_bytes(&type, &bytes));
  type = tt_type_make(TT_F32, TT_MAX_RANK + 1, NULL);
  assert_int_equal(type.dtype, TT_INVALID);
  assert_false(tt_type_bytes(&type, &bytes));
}

static void test_types_that_agree(void **state) {
  (void)state;
  tt_type a = tt_type_make(TT_F32, 2, DIMS(2, 3)), b = a, c = tt_type_make(TT_F32, 2, DIMS(2, 4));
  assert_true(tt_type_equal(&a, &b) && tt_type_same_dims(&a, &b));
  b.dims[2] = 7; /* beyond the rank, so no part of the type */
  assert_true(tt_type_equal(&a, &b));
  b.dtype = TT_F64;
  assert_false(tt_type_equal(&a, &b));
  assert_true(tt_type_same_dims(&a, &b));
  assert_false(tt_type_same_dims(&a, &c));
  c.rank = 1;
  assert_false(tt_type_same_dims(&a, &c));
}

static void test_dtypes(void **state) {
  (void)state;
  assert_string_equal(tt_dtype_name(TT_F8E4M3FNUZ), "f8E4M3FNUZ");
  assert_string_equal(tt_dtype_name(TT_INVALID), "invalid");
  assert_string_equal(tt_dtype_name((tt_dtype)18), "invalid");
  assert_string_equal(tt_dtype_name((tt_dtype)-1), "invalid");
  assert_int_equal(tt_dtype_bytes(TT_C128), 16);
  assert_int_equal(tt_dtype_bytes(TT_INVALID), 0);
  assert_false(tt_is_integer(TT_BOOL) || tt_is_integer(TT_INVALID) || tt_is_float(TT_C64));
  assert_true(tt_is_integer(TT_U8) && tt_is_float(TT_BF16) && tt_is_complex(TT_C128));
  assert_int_equal(tt_dtype_real(TT_C128), TT_F64);
  assert_int_equal(tt_dtype_complex(TT_BF16), TT_C64);
  assert_int_equal(tt_dtype_complex(TT_F64), TT_C128);
}

/* -- Text -- */

static void test_text(void **state) {
  (void)state;
  tt_node *x = param(TT_F32, 2, DIMS(2, 3));
  tt_node *y = tt_hlo_add(h, x, tt_hlo_const(h, TT_F32, 0.1));
  tt_node *m = tt_hlo_reduce(h, TT_MAX, y, INTS(1), 1);
  tt_hlo_donate(h, 0, 0);
  expect_text(
      NODES(y, m), 2,
      "module @jit_tt {\n"
      "func.func public @main(%arg0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}) -> "
      "(tensor<2x3xf32>, tensor<2xf32>) {\n"
      "%0 = \"stablehlo.constant\"() {value = dense<0.100000001> : tensor<2x3xf32>} : () -> "
      "tensor<2x3xf32>\n"
      "%1 = \"stablehlo.add\"(%arg0, %0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
      "tensor<2x3xf32>\n"
      "%2 = \"stablehlo.constant\"() {value = dense<0xFF800000> : tensor<f32>} : () -> "
      "tensor<f32>\n"
      "%3 = \"stablehlo.reduce\"(%1, %2) ({\n"
      "^bb0(%4: tensor<f32>, %5: tensor<f32>):\n"
      "%6 = \"stablehlo.maximum\"(%4, %5) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
      "\"stablehlo.return\"(%6) : (tensor<f32>) -> ()\n"
      "}) {dimensions = array<i64: 1>} : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>\n"
      "\"func.return\"(%1, %3) : (tensor<2x3xf32>, tensor<2xf32>) -> ()\n"
      "}\n}\n");
}

static void test_text_without_dead_code(void **state) {
  (void)state;
  tt_node *x = vector(2), *unused = vector(3);
  (void)tt_hlo_exponential(h, unused);
  tt_node *y = tt_hlo_negate(h, x);
  expect_text(NODES(y), 1,
              "module @jit_tt {\n"
              "func.func public @main(%arg0: tensor<2xf32>, %arg1: tensor<3xf32>) -> "
              "(tensor<2xf32>) {\n"
              "%0 = \"stablehlo.negate\"(%arg0) : (tensor<2xf32>) -> tensor<2xf32>\n"
              "\"func.return\"(%0) : (tensor<2xf32>) -> ()\n"
              "}\n}\n");
  assert_int_equal(tt_hlo_size(h), 2);
}

static void test_text_of_calls(void **state) {
  (void)state;
  tt_node *x = vector(2), *pair[2];
  tt_type types[] = {x->type, {.dtype = TT_I32}};
  tt_hlo_custom_call(h, "tt_probe", "k = 7 : i32", 1, &x, 2, types, pair);
  tt_hlo_custom_call(h, "tt_log", NULL, 1, &pair[1], 0, NULL, NULL);
  expect_text(
      NODES(pair[0]), 1,
      "module @jit_tt {\n"
      "func.func public @main(%arg0: tensor<2xf32>) -> (tensor<2xf32>) {\n"
      "%0:2 = \"stablehlo.custom_call\"(%arg0) {call_target_name = \"tt_probe\", api_version = 4 "
      ": i32, backend_config = {k = 7 : i32}, has_side_effect = false} : (tensor<2xf32>) -> "
      "(tensor<2xf32>, tensor<i32>)\n"
      "\"stablehlo.custom_call\"(%0#1) {call_target_name = \"tt_log\", api_version = 4 : i32, "
      "backend_config = {}, has_side_effect = true} : (tensor<i32>) -> ()\n"
      "\"func.return\"(%0#0) : (tensor<2xf32>) -> ()\n"
      "}\n}\n");
}

/* Devices are named by their numbers, and in the text by their places among the program's. */
static void test_text_of_collectives(void **state) {
  (void)state;
  static const int64_t devices[] = {7, 2, 5, 3};
  int count = 0;
  assert_null(tt_hlo_devices(h, &count));
  tt_node *x = vector(2), *y = tt_hlo_all_gather(h, x, &(tt_groups){devices, 4, 2});
  expect_text(NODES(y), 1,
              "module @jit_tt {\n"
              "func.func public @main(%arg0: tensor<2xf32>) -> (tensor<4xf32>) {\n"
              "%0 = \"stablehlo.all_gather\"(%arg0) {replica_groups = dense<[[3, 0], [2, 1]]> : "
              "tensor<2x2xi64>, all_gather_dim = 0 : i64} : (tensor<2xf32>) -> tensor<4xf32>\n"
              "\"func.return\"(%0) : (tensor<4xf32>) -> ()\n"
              "}\n}\n");
  const int64_t *all = tt_hlo_devices(h, &count);
  assert_int_equal(count, 4);
  assert_memory_equal(all, ((int64_t[]){2, 3, 5, 7}), 4 * sizeof *all);
}

static void test_collective_errors(void **state) {
  (void)state;
  static const int64_t pair[] = {0, 1}, others[] = {0, 2}, twice[] = {0, 0};
  tt_groups two = {pair, 2, 2};
  tt_code code = TT_INVALID_ARGUMENT;
  expect_failure(tt_hlo_all_to_all(h, vector(3), &two), code, "2 devices cannot share");
  expect_failure(tt_hlo_reduce_scatter(h, TT_SUM, vector(3), &two), code, "cannot share");
  expect_failure(tt_hlo_all_gather(h, param(TT_F32, 2, DIMS(2, 2)), &two), code, "rank 1");
  expect_failure(tt_hlo_all_reduce(h, TT_SUM, param(TT_BOOL, 1, DIMS(2)), &two), code, "i1");
  expect_failure(tt_hlo_all_gather(h, vector(2), &(tt_groups){twice, 2, 2}), code, "in two groups");
  expect_failure(tt_hlo_all_gather(h, vector(2), &(tt_groups){pair, 2, 3}), code, "groups of 3");
  tt_hlo_all_gather(h, vector(2), &two);
  expect_failure(tt_hlo_all_gather(h, vector(2), &(tt_groups){others, 2, 2}), code,
                 "2 devices and of 2 others");
}

static const char *literal(tt_node *constant) {
  return tt_attr_find(constant->instr, "value")->text;
}

static void test_literals(void **state) {
  (void)state;
  double pair[] = {1, -0.5};
  assert_string_equal(literal(tt_hlo_const(h, TT_F64, 0.1)),
                      "dense<0.10000000000000001> : tensor<f64>");
  assert_string_equal(literal(tt_hlo_const(h, TT_F32, 1e10)), "dense<1.0e+10> : tensor<f32>");
  assert_string_equal(literal(tt_hlo_const(h, TT_F32, -0.0)), "dense<-0.0> : tensor<f32>");
  assert_string_equal(literal(tt_hlo_const(h, TT_F32, 1e300)), "dense<0x7F800000> : tensor<f32>");
  assert_string_equal(literal(tt_hlo_lowest(h, TT_BF16)), "dense<0xFF80> : tensor<bf16>");
  assert_string_equal(literal(tt_hlo_lowest(h, TT_I64)),
                      "dense<-9223372036854775808> : tensor<i64>");
  assert_string_equal(literal(tt_hlo_highest(h, TT_U64)),
                      "dense<18446744073709551615> : tensor<ui64>");
  assert_string_equal(literal(tt_hlo_const_i(h, TT_I8, 300)), "dense<44> : tensor<i8>");
  assert_string_equal(literal(tt_hlo_const(h, TT_BOOL, 0.5)), "dense<true> : tensor<i1>");
  assert_string_equal(literal(tt_hlo_const_c(h, TT_C64, 1, -2)),
                      "dense<(1.0, -2.0)> : tensor<complex<f32>>");
  assert_string_equal(literal(tt_hlo_const_f64s(h, TT_F32, pair, 2)),
                      "dense<[1.0, -0.5]> : tensor<2xf32>");
  assert_string_equal(literal(tt_hlo_const_i64s(h, TT_I64, NULL, 0)), "dense<> : tensor<0xi64>");
  tt_type type = tt_type_make(TT_F32, 2, DIMS(0, 2));
  assert_string_equal(literal(tt_hlo_full(h, &type, 1)), "dense<> : tensor<0x2xf32>");
}

static void test_transposes_are_known(void **state) {
  (void)state;
  tt_node *x = param(TT_F32, 3, DIMS(2, 3, 4));
  assert_ptr_equal(tt_hlo_transposed_from(tt_hlo_transpose(h, x, INTS(0, 2, 1))), x);
  assert_null(tt_hlo_transposed_from(tt_hlo_transpose(h, x, INTS(1, 0, 2))));
  assert_null(tt_hlo_transposed_from(tt_hlo_transpose(h, x, INTS(2, 1, 0))));
  assert_null(tt_hlo_transposed_from(tt_hlo_negate(h, x)));
  assert_null(tt_hlo_transposed_from(x));
}

static void test_equal_expressions_are_one_node(void **state) {
  (void)state;
  tt_node *x = param(TT_F32, 2, DIMS(2, 2));
  assert_ptr_equal(tt_hlo_transpose(h, x, INTS(1, 0)), tt_hlo_transpose(h, x, INTS(1, 0)));
  assert_ptr_equal(tt_hlo_const(h, TT_F32, 2), tt_hlo_const(h, TT_F32, 2));
  assert_ptr_not_equal(tt_hlo_const(h, TT_F32, 0.0), tt_hlo_const(h, TT_F32, -0.0));
  assert_ptr_not_equal(tt_hlo_compare(h, TT_LT, x, x), tt_hlo_compare(h, TT_LE, x, x));
  assert_ptr_not_equal(tt_hlo_optimization_barrier(h, x), tt_hlo_optimization_barrier(h, x));
  tt_node *number = param(TT_F32, 0, NULL);
  assert_ptr_equal(tt_hlo_optimization_barrier(h, number), tt_hlo_optimization_barrier(h, number));
  assert_ptr_not_equal(tt_hlo_slice_dim(h, x, 0, 0, 1, 1), tt_hlo_slice_dim(h, x, 0, 1, 2, 1));
}

/* -- Sticky errors -- */

static void test_first_error_sticks(void **state) {
  (void)state;
  tt_node *x = vector(2), *y = vector(3);
  tt_hlo_where(h, "aten::add.Tensor");
  tt_node *bad = tt_hlo_add(h, x, y);
  tt_hlo_where(h, NULL);
  assert_ptr_equal(tt_hlo_fail(h, TT_VALUE, "later"), bad);
  assert_ptr_equal(tt_hlo_exponential(h, bad), bad);
  assert_ptr_equal(tt_hlo_param(h, &x->type), bad);
  assert_ptr_equal(tt_hlo_const(h, TT_F32, 1), bad);
  assert_ptr_equal(tt_hlo_reduce(h, TT_SUM, x, INTS(0), 1), bad);
  expect_failure(bad, TT_INVALID_ARGUMENT,
                 "aten::add.Tensor: stablehlo.add: operands of different types: tensor<2xf32> and "
                 "tensor<3xf32>");
}

static void test_void_functions_hand_out_poison(void **state) {
  (void)state;
  tt_node *x = vector(2), *results[2] = {NULL, NULL};
  tt_node *bad = tt_hlo_fail(h, TT_UNIMPLEMENTED, "no such thing");
  tt_hlo_sort(h, 2, NODES(x, x), 0, true, NULL, NULL, results);
  assert_ptr_equal(results[0], bad);
  assert_ptr_equal(results[1], bad);
  results[0] = NULL;
  tt_hlo_while(h, 1, &x, NULL, NULL, NULL, results);
  assert_ptr_equal(results[0], bad);
  results[0] = NULL;
  tt_hlo_reduce_n(h, 1, &x, &x, INTS(0), 1, NULL, NULL, results);
  assert_ptr_equal(results[0], bad);
  results[0] = NULL;
  tt_hlo_custom_call(h, "t", NULL, 1, &x, 1, &x->type, results);
  assert_ptr_equal(results[0], bad);
  expect_failure(bad, TT_UNIMPLEMENTED, "no such thing");
}

static void test_wrong_operands(void **state) {
  (void)state;
  tt_node *x = vector(2);
  expect_failure(tt_hlo_add(h, x, NULL), TT_INTERNAL, "operand 1 is missing");
  tt_hlo *other;
  assert_null(tt_hlo_create(&other));
  tt_node *foreign = tt_hlo_const(other, TT_F32, 1);
  expect_failure(tt_hlo_negate(h, foreign), TT_INTERNAL, "belongs to another builder");
  tt_hlo_destroy(other);
}

static void test_dtype_classes(void **state) {
  (void)state;
  expect_failure(tt_hlo_ceil(h, param(TT_I32, 0, NULL)), TT_INVALID_ARGUMENT, "stablehlo.ceil");
  expect_failure(tt_hlo_and(h, vector(2), vector(2)), TT_INVALID_ARGUMENT, "stablehlo.and");
  tt_node *flag = param(TT_BOOL, 1, DIMS(2));
  expect_failure(tt_hlo_reduce(h, TT_SUM, flag, INTS(0), 1), TT_INVALID_ARGUMENT, "sum of i1");
  expect_failure(tt_hlo_reduce(h, TT_OR, vector(2), INTS(0), 1), TT_INVALID_ARGUMENT, "or of f32");
  expect_failure(tt_hlo_identity(h, TT_MAX, TT_C64), TT_INVALID_ARGUMENT, "max of complex");
  expect_failure(tt_hlo_complex(h, param(TT_F16, 0, NULL), param(TT_F16, 0, NULL)),
                 TT_INVALID_ARGUMENT, "expected f32 or f64");
  expect_failure(tt_hlo_bitcast(h, vector(3), TT_F64), TT_INVALID_ARGUMENT, "must be 2");
}

static void test_shape_errors(void **state) {
  (void)state;
  static const int64_t huge[] = {INT64_MAX};
  tt_code code = TT_INVALID_ARGUMENT;
  expect_failure(tt_hlo_reshape(h, vector(4), 1, DIMS(5)), code, "numbers of elements");
  expect_failure(tt_hlo_reshape(h, vector(4), TT_MAX_RANK + 1, NULL), code, "65 dimensions");
  expect_failure(tt_hlo_transpose(h, param(TT_F32, 2, DIMS(2, 2)), INTS(1, 1)), code, "twice");
  expect_failure(tt_hlo_broadcast_to(h, vector(4), 1, DIMS(5)), code, "does not broadcast");
  expect_failure(tt_hlo_broadcast_to(h, vector(4), 0, NULL), code, "smaller rank 0");
  expect_failure(tt_hlo_slice_dim(h, vector(4), 0, 1, 5, 1), code, "1:5:1 is no slice");
  expect_failure(tt_hlo_slice_dim(h, vector(4), 1, 1, 5, 1), code, "no dimension 1");
  expect_failure(tt_hlo_concatenate(h, NULL, 0, 0), code, "0 operands");
  expect_failure(tt_hlo_concatenate(h, NODES(vector(1), vector(1)), 2, 1), code, "dimension 1");
  expect_failure(tt_hlo_pad(h, vector(4), tt_hlo_const(h, TT_F32, 0), huge, huge, NULL), code,
                 "padding");
  expect_failure(tt_hlo_pad(h, vector(4), tt_hlo_const(h, TT_F32, 0), DIMS(-5), DIMS(0), NULL),
                 code, "padding (-5, 0, 0)");
  expect_failure(tt_hlo_reverse(h, vector(4), INTS(-1), 1), code, "dimension -1");
  expect_failure(tt_hlo_broadcast_to(h, vector(1), 2, DIMS(INT64_MAX, 1)), code, "too large");
  expect_failure(param(TT_F32, 1, huge), code, "parameter 0");
  expect_failure(tt_hlo_update_slice(h, vector(4), vector(2), DIMS(3)), code, "start 3");
  expect_failure(tt_hlo_iota(h, &(tt_type){.dtype = TT_F32}, 0), code, "iota_dimension 0");
  expect_failure(tt_hlo_reduce(h, TT_SUM, vector(4), INTS(1), 1), code, "dimension 1");
}

static void test_operator_errors(void **state) {
  (void)state;
  tt_code code = TT_INVALID_ARGUMENT;
  expect_failure(
      tt_hlo_dot_general(h, vector(2), vector(3), NULL, NULL, 0, INTS(0), INTS(0), 1, TT_F32), code,
      "different sizes");
  tt_conv conv = {.spatial = 1};
  tt_node *x = param(TT_F32, 3, DIMS(1, 4, 5));
  expect_failure(tt_hlo_convolution(h, x, param(TT_F32, 3, DIMS(2, 3, 2)), &conv, TT_F32), code,
                 "do not fit 1 feature");
  expect_failure(tt_hlo_convolution(h, vector(1), vector(1), &conv, TT_F32), code, "rank 1");
  expect_failure(tt_hlo_cholesky(h, param(TT_F32, 2, DIMS(2, 3)), true), code, "square");
  expect_failure(tt_hlo_fft(h, vector(4), TT_FFT, DIMS(4), 1), code, "wrong dtype");
  expect_failure(tt_hlo_fft(h, vector(4), TT_RFFT, DIMS(5), 1), code, "length 5");
  expect_failure(tt_hlo_take(h, vector(4), vector(4), 0), code, "operand 1 is tensor<4xf32>");
  expect_failure(tt_hlo_take(h, vector(4), param(TT_I32, 0, NULL), 1), code, "no dimension 1");
  expect_failure(tt_hlo_take(h, vector(0), param(TT_I32, 1, DIMS(1)), 0), TT_OUT_OF_RANGE,
                 "size 0");
  expect_failure(tt_hlo_take_along(h, vector(4), param(TT_I32, 0, NULL), 0), code, "rank 0");
  tt_window window = {.size = DIMS(3), .padding = DIMS(-5, 0)};
  expect_failure(tt_hlo_reduce_window(h, TT_SUM, vector(4), &window), code, "window");
  window = (tt_window){.size = DIMS(2), .stride = DIMS(2)};
  expect_failure(tt_hlo_select_and_scatter(h, vector(4), vector(3), &window, true), code,
                 "the windows over tensor<4xf32> make tensor<2xf32>");
}

static void test_donation_errors(void **state) {
  (void)state;
  tt_node *x = vector(2), *y = vector(3);
  tt_text text = TT_TEXT_INIT;
  tt_hlo_donate(h, 1, 0);
  expect_status(tt_hlo_finish(h, &x, 1, &text), TT_INTERNAL, "their types differ");
  tt_hlo_donate(h, 1, 0);
  expect_status(tt_hlo_finish(h, &y, 1, &text), TT_INTERNAL, "donated twice");
  tt_hlo_donate(h, 2, 0);
  expect_failure(tt_hlo_negate(h, x), TT_INTERNAL, "no such parameter");
}

/* -- Regions -- */

static void body_add(tt_hlo *b, tt_node *const *args, tt_node **results, void *user) {
  results[0] = tt_hlo_add(b, args[0], user ? user : args[1]);
}

static void body_nothing(tt_hlo *b, tt_node *const *args, tt_node **results, void *user) {
  (void)b, (void)args, (void)results, (void)user;
}

static void body_finish(tt_hlo *b, tt_node *const *args, tt_node **results, void *user) {
  tt_text text = TT_TEXT_INIT;
  expect_status(tt_hlo_finish(b, args, 1, &text), TT_INTERNAL, "inside a region");
  results[0] = args[0];
  *(tt_node **)user = args[0];
}

static tt_node *reduce_with(tt_node *x, tt_body body, void *user) {
  tt_node *init = tt_hlo_const(h, TT_F32, 0), *result = NULL;
  tt_hlo_reduce_n(h, 1, &x, &init, INTS(0), 1, body, user, &result);
  return result;
}

static void test_region_scopes(void **state) {
  (void)state;
  tt_node *x = vector(2), *scalar = tt_hlo_const(h, TT_F32, 3);
  assert_false(tt_hlo_failed(h) || reduce_with(x, body_add, scalar)->type.rank);
  tt_node *outer = param(TT_F32, 0, NULL);
  expect_failure(reduce_with(x, body_add, outer), TT_INTERNAL, "outside of the region");
  expect_failure(reduce_with(vector(2), body_nothing, NULL), TT_INTERNAL, "left result 0 unset");
  tt_node *inner = NULL;
  assert_non_null(reduce_with(vector(2), body_finish, &inner));
  tt_text text = TT_TEXT_INIT;
  expect_status(tt_hlo_finish(h, &inner, 1, &text), TT_INTERNAL, "built inside a region");
  expect_failure(tt_hlo_negate(h, inner), TT_INTERNAL, "outside of the region");
}

static void body_nested(tt_hlo *b, tt_node *const *args, tt_node **results, void *user) {
  int *depth = user;
  ++*depth;
  tt_hlo_while(b, 1, args, body_nested, body_nested, user, results);
}

static void body_false(tt_hlo *b, tt_node *const *args, tt_node **results, void *user) {
  (void)args, (void)user;
  results[0] = tt_hlo_const(b, TT_F32, 0);
}

static void test_region_types_and_depth(void **state) {
  (void)state;
  tt_node *x = vector(2), *result;
  int depth = 0;
  tt_hlo_while(h, 1, &x, body_nested, body_nested, &depth, &result);
  assert_int_equal(depth, TT_HLO_MAX_DEPTH);
  expect_failure(result, TT_RESOURCE_EXHAUSTED, "nested");
  x = vector(2);
  tt_hlo_while(h, 1, &x, body_false, body_false, NULL, &result);
  expect_failure(result, TT_INVALID_ARGUMENT, "region 0 yields tensor<f32> as value 0");
  x = vector(2);
  tt_hlo_sort(h, 1, &x, 0, true, body_false, NULL, &result);
  expect_failure(result, TT_INVALID_ARGUMENT, "expected tensor<i1>");
  tt_type type = tt_type_make(TT_F32, 1, DIMS(2));
  tt_node *flag = param(TT_BOOL, 0, NULL);
  tt_hlo_if(h, flag, 1, &type, body_false, body_false, NULL, &result);
  expect_failure(result, TT_INVALID_ARGUMENT, "region 0 yields tensor<f32> as value 0");
  type.rank = 0;
  flag = param(TT_BOOL, 1, DIMS(1));
  tt_hlo_if(h, flag, 1, &type, body_false, body_false, NULL, &result);
  expect_failure(result, TT_INVALID_ARGUMENT, "the predicate is tensor<1xi1>, expected rank 0");
}

/* -- The verifier -- */

typedef void (*breaker)(tt_instr *in);

static void break_result(tt_instr *in) { in->results[0].node.type.dims[0]++; }
static void break_dtype(tt_instr *in) { in->results[0].node.type.dtype = TT_C64; }
static void break_count(tt_instr *in) { in->operand_count = 0; }
static void break_operand(tt_instr *in) { ((tt_node **)(uintptr_t)in->operands)[0] = NULL; }
static void break_order(tt_instr *in) {
  ((tt_node **)(uintptr_t)in->operands)[0] = &in->results[0].node;
}
static void break_op(tt_instr *in) { in->op = TT_OPCODE_COUNT; }
static void break_regions(tt_instr *in) { in->region_count ^= 1; }
static void break_attr_values(tt_instr *in) { ((int64_t *)(uintptr_t)in->attrs[0].values)[0] = -1; }
static void break_attr_count(tt_instr *in) { ((tt_attr *)(uintptr_t)in->attrs)[0].count = 0; }
static void break_no_attrs(tt_instr *in) { in->attr_count = 0; }
static void break_yield(tt_instr *in) { in->regions[0]->yield_count = 0; }
static void break_yield_scope(tt_instr *in) {
  ((tt_node **)(uintptr_t)in->regions[0]->yields)[0] = &in->results[0].node;
}

static tt_node *make_slice(void) { return tt_hlo_slice_dim(h, vector(4), 0, 1, 3, 1); }
static tt_node *make_transpose(void) {
  return tt_hlo_transpose(h, param(TT_F32, 2, DIMS(2, 3)), INTS(1, 0));
}
static tt_node *make_broadcast(void) { return tt_hlo_broadcast_to(h, vector(4), 2, DIMS(2, 4)); }
static tt_node *make_pad(void) {
  return tt_hlo_pad(h, vector(4), tt_hlo_const(h, TT_F32, 0), DIMS(1), DIMS(0), NULL);
}
static tt_node *make_concatenate(void) {
  return tt_hlo_concatenate(h, NODES(vector(4), vector(2)), 2, 0);
}
static tt_node *make_reshape(void) { return tt_hlo_reshape(h, vector(4), 2, DIMS(2, 2)); }
static tt_node *make_add(void) { return tt_hlo_add(h, vector(4), vector(4)); }
static tt_node *make_dot(void) {
  return tt_hlo_dot_general(h, param(TT_F32, 2, DIMS(2, 3)), vector(3), NULL, NULL, 0, INTS(1),
                            INTS(0), 1, TT_F32);
}
static tt_node *make_reduce(void) {
  return tt_hlo_reduce(h, TT_SUM, param(TT_F32, 2, DIMS(2, 3)), INTS(0), 1);
}
static tt_node *make_take(void) { return tt_hlo_take(h, vector(4), param(TT_I32, 1, DIMS(2)), 0); }
static tt_node *make_conv(void) {
  return tt_hlo_convolution(h, param(TT_F32, 3, DIMS(1, 1, 4)), param(TT_F32, 3, DIMS(1, 1, 2)),
                            &(tt_conv){.spatial = 1}, TT_F32);
}

static void test_verifier(void **state) {
  (void)state;
  static const struct {
    tt_node *(*make)(void);
    breaker spoil;
    const char *part;
  } rows[] = {
      {make_add, break_result,
       "(stablehlo.add): result 0 is tensor<5xf32>, expected tensor<4xf32>"},
      {make_add, break_dtype, "result 0 is tensor<4xcomplex<f32>>"},
      {make_add, break_count, "0 operands, expected 2"},
      {make_add, break_operand, "operand 0 is missing"},
      {make_add, break_order, "used before it is computed"},
      {make_add, break_op, "there is no such op"},
      {make_reduce, break_regions, "0 regions, expected 1"},
      {make_reduce, break_result, "result 0 is tensor<4xf32>, expected tensor<3xf32>"},
      {make_reduce, break_attr_values, "names dimension -1"},
      {make_reduce, break_attr_count, "expected tensor<2x3xf32>"},
      {make_reduce, break_yield, "takes 2 and yields 0 values"},
      {make_reduce, break_yield_scope, "region 0 yields tensor<3xf32>"},
      {make_slice, break_attr_values, "-1:3:1 is no slice"},
      {make_slice, break_attr_count, "start_indices has 0 values, expected 1"},
      {make_slice, break_no_attrs, "start_indices is missing"},
      {make_slice, break_result, "expected tensor<2xf32>"},
      {make_transpose, break_attr_values, "permutation names dimension -1"},
      {make_transpose, break_result, "expected tensor<3x2xf32>"},
      {make_broadcast, break_attr_values, "broadcast_dimensions names dimension -1"},
      {make_broadcast, break_no_attrs, "broadcast_dimensions is missing"},
      {make_pad, break_attr_values, "expected tensor<3xf32>"},
      {make_pad, break_result, "expected tensor<5xf32>"},
      {make_concatenate, break_result, "expected tensor<6xf32>"},
      {make_concatenate, break_no_attrs, "no dimension -1"},
      {make_reshape, break_result, "different numbers of elements"},
      {make_dot, break_result, "expected tensor<2xf32>"},
      {make_dot, break_no_attrs, "is missing"},
      {make_take, break_result, "expected tensor<2xf32>"},
      {make_take, break_no_attrs, "incomplete dimension numbers"},
      {make_conv, break_result, "expected tensor<1x1x3xf32>"},
      {make_conv, break_attr_values, "does not fit"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tt_node *node = rows[i].make();
    tt_text text = TT_TEXT_INIT;
    assert_null(tt_hlo_verify(h, "before"));
    rows[i].spoil(node->instr);
    expect_status(tt_hlo_verify(h, "after it was broken"), TT_INTERNAL, rows[i].part);
    expect_status(tt_hlo_finish(h, &node, 1, &text), TT_INTERNAL, "finish: instruction");
    stop(NULL);
    start(NULL);
  }
}

/* -- Limits and memory -- */

static void test_largest(void **state) {
  (void)state;
  tt_node *x = param(TT_F32, 1, DIMS(7));
  tt_node *wide = tt_hlo_broadcast_to(h, x, 2, DIMS(INT64_C(1) << 40, 7));
  assert_int_equal(tt_hlo_largest(h), 0); /* nothing is computed */
  (void)tt_hlo_abs(h, x);
  assert_int_equal(tt_hlo_largest(h), 7);
  (void)tt_hlo_negate(h, wide);
  assert_int_equal(tt_hlo_largest(h), 7 * (INT64_C(1) << 40));
}

static void test_limits(void **state) {
  (void)state;
  assert_int_equal(TT_HLO_MAX_PARAMS, 65536);
  for (int i = 0; i < TT_HLO_MAX_PARAMS; i++) (void)param(TT_F32, 0, NULL);
  expect_failure(param(TT_F32, 0, NULL), TT_RESOURCE_EXHAUSTED, "parameters");
  expect_failure(tt_hlo_const_i64s(h, TT_I64, DIMS(0), INT64_MAX), TT_RESOURCE_EXHAUSTED,
                 "a constant of");
  h->instr_count = TT_HLO_MAX_INSTRS;
  expect_failure(tt_hlo_const(h, TT_I64, 0), TT_RESOURCE_EXHAUSTED, "instructions");
}

static void less(tt_hlo *b, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_compare(b, TT_LT, args[0], args[1]);
}

/* A program that uses every way of growing. */
static tt_status build_some(tt_text *text) {
  tt_hlo *b = NULL;
  TT_TRY(tt_hlo_create(&b));
  tt_type type = tt_type_make(TT_F32, 2, DIMS(2, 3));
  tt_node *nodes[40], *init = tt_hlo_const(b, TT_F32, 0);
  for (int i = 0; i < 20; i++) {
    nodes[i] = tt_hlo_param(b, &type);
    tt_hlo_donate(b, i, i);
  }
  for (int i = 0; i < 20; i++) nodes[i] = tt_hlo_add(b, nodes[i], tt_hlo_const(b, TT_F32, i));
  tt_hlo_sort(b, 1, nodes, 1, true, less, NULL, &nodes[23]);
  tt_hlo_reduce_n(b, 1, nodes, &init, INTS(1), 1, body_add, NULL, &nodes[20]);
  nodes[21] = tt_hlo_take(b, nodes[0], tt_hlo_const_i64s(b, TT_I64, DIMS(0, 1), 2), 1);
  tt_hlo_custom_call(b, "t", "k = 1 : i32", 2, nodes, 1, &type, &nodes[22]);
  tt_status status = tt_hlo_finish(b, nodes, 24, text);
  tt_hlo_destroy(b);
  return status;
}

static void test_out_of_memory(void **state) {
  (void)state;
  for (int forever = 0; forever < 2; forever++) {
    bool done = false;
    for (int64_t nth = 1; !done; nth++) {
      tt_text text = TT_TEXT_INIT;
      assert_in_range(nth, 1, 10000);
      tt_alloc_fail_at(nth, forever);
      tt_status status = build_some(&text);
      done = tt_alloc_count() < nth;
      tt_alloc_fail_at(0, false);
      if (done) assert_null(status);
      else assert_int_equal(tt_status_code(status), TT_RESOURCE_EXHAUSTED);
      tt_status_release(status);
      tt_text_deinit(&text);
    }
  }
}

static void test_same_program_same_text(void **state) {
  (void)state;
  tt_text first = TT_TEXT_INIT, second = TT_TEXT_INIT;
  assert_null(build_some(&first));
  assert_null(build_some(&second));
  assert_string_equal(first.data, second.data);
  tt_text_deinit(&first);
  tt_text_deinit(&second);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_types),
      TEST(test_types_that_agree),
      TEST(test_dtypes),
      TEST(test_text),
      TEST(test_text_without_dead_code),
      TEST(test_text_of_collectives),
      TEST(test_collective_errors),
      TEST(test_text_of_calls),
      TEST(test_literals),
      TEST(test_transposes_are_known),
      TEST(test_equal_expressions_are_one_node),
      TEST(test_first_error_sticks),
      TEST(test_void_functions_hand_out_poison),
      TEST(test_wrong_operands),
      TEST(test_dtype_classes),
      TEST(test_shape_errors),
      TEST(test_operator_errors),
      TEST(test_donation_errors),
      TEST(test_region_scopes),
      TEST(test_region_types_and_depth),
      TEST(test_verifier),
      TEST(test_limits),
      TEST(test_largest),
      TEST(test_out_of_memory),
      TEST(test_same_program_same_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
