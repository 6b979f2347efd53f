/* Functions of ours that programs call, on XLA's CPU plugin; skipped when TT_CPU_PLUGIN does not
 * name one. */
#include "hlo_run.h"
#include "pjrt/ffi.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checks.h"

static tt_plugin *plugin;
static tt_client *client;

/* Multiplies by `times`, which must be there, and adds `more`, if it is there, to each element. */
static tt_status scale(const tt_ffi_call *call) {
  int64_t times = tt_ffi_int(call, "times"), numel = tt_type_numel(&call->operands[0].type);
  if (!times) return tt_error(TT_OUT_OF_RANGE, "cannot scale by nothing");
  if (call->operand_count != 1 || call->result_count != 1)
    return tt_error(TT_INVALID_ARGUMENT, "one operand, one result");
  const float *x = call->operands[0].data;
  float *y = call->results[0].data;
  const int64_t *more = tt_ffi_ints(call, "more", 3);
  for (int64_t i = 0; i < numel; i++) y[i] = x[i] * (float)times + (more ? (float)more[i] : 0);
  return TT_SUCCESS;
}

static tt_ffi_error *handle_scale(tt_ffi_frame *frame) { return tt_ffi_run(frame, scale); }

static int setup(void **state) {
  (void)state;
  ok(tt_plugin_open(getenv("TT_CPU_PLUGIN"), &plugin));
  ok(tt_client_create(plugin, NULL, &client));
  ok(tt_plugin_register(plugin, "tt_test.scale", "Host", handle_scale));
  return 0;
}

static int teardown(void **state) {
  (void)state;
  tt_client_destroy(client);
  return 0;
}

/* y = scale(x) of a vector. */
static tt_executable *program_of(tt_dtype dtype, const char *config, const char *target) {
  tt_hlo *h = NULL;
  tt_text text = TT_TEXT_INIT;
  ok(tt_hlo_create(&h));
  int64_t dims[] = {3};
  tt_type type = tt_type_make(dtype, 1, dims);
  tt_node *x = tt_hlo_param(h, &type), *y;
  tt_hlo_custom_call(h, target, config, 1, &x, 1, &type, &y);
  ok(tt_hlo_finish(h, &y, 1, &text));
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  tt_executable *executable = NULL;
  tt_status status = tt_compile(client, text.data, text.size, &options, &executable);
  tt_text_deinit(&text);
  tt_hlo_destroy(h);
  tt_status_release(status);
  return executable;
}

/* Consumes the executable. */
static tt_status run(tt_executable *executable, tt_dtype dtype, const void *in, void *out) {
  int64_t dims[] = {3};
  tt_type type = tt_type_make(dtype, 1, dims);
  tt_buffer *x = NULL, *y = NULL;
  ok(tt_buffer_from_host(tt_client_device(client, 0), &type, in, NULL, NULL, &x));
  tt_status status = tt_execute(executable, tt_client_device(client, 0), &x, 1, NULL, 0, &y, NULL);
  if (!status) status = tt_buffer_to_host(client, y, &type, out, 3 * tt_dtype_bytes(dtype));
  tt_buffer_destroy(client, x);
  tt_buffer_destroy(client, y);
  tt_executable_destroy(executable);
  return status;
}

static void test_results(void **state) {
  (void)state;
  float in[3] = {1, -2, 0.5f}, out[3] = {0}, wanted[3] = {3, -6, 1.5f};
  ok(run(program_of(TT_F32, "times = 3 : i64", "tt_test.scale"), TT_F32, in, out));
  assert_memory_equal(out, wanted, sizeof out);
}

static void test_arrays_of_integers(void **state) {
  (void)state;
  float in[3] = {1, 2, 3}, out[3] = {0}, wanted[3] = {11, -18, 9}, as_without[3] = {2, 4, 6};
  const char *config = "times = 2 : i64, more = array<i64: 9, -22, 3>";
  ok(run(program_of(TT_F32, config, "tt_test.scale"), TT_F32, in, out));
  assert_memory_equal(out, wanted, sizeof out);
  static const char *const others[] = {
      "times = 2 : i64, more = array<i64: 1, 2>", /* not as many as asked for */
      "times = 2 : i64, more = array<i32: 1, 2, 3>", "times = 2 : i64, more = 1 : i64"};
  for (int i = 0; i < 3; i++) {
    ok(run(program_of(TT_F32, others[i], "tt_test.scale"), TT_F32, in, out));
    assert_memory_equal(out, as_without, sizeof out);
  }
}

static void test_denormal_numbers_stay(void **state) {
  (void)state;
  float in[3] = {FLT_MIN / 4, 1, 1}, out[3] = {0};
  ok(run(program_of(TT_F32, "times = 2 : i64", "tt_test.scale"), TT_F32, in, out));
  assert_true(out[0] == FLT_MIN / 2);
}

static void fails_with(tt_status status, const char *words) {
  if (!strstr(tt_status_message(status), words)) fail_msg("'%s'", tt_status_message(status));
  tt_status_release(status);
}

static void test_errors_fail_the_program(void **state) {
  (void)state;
  float in[3] = {0}, out[3];
  fails_with(run(program_of(TT_F32, NULL, "tt_test.scale"), TT_F32, in, out), "scale by nothing");
  fails_with(run(program_of(TT_F32, "times = 2 : i32", "tt_test.scale"), TT_F32, in, out),
             "scale by nothing"); /* not an i64 */
}

static void test_unknown_functions_do_not_compile(void **state) {
  (void)state;
  assert_null(program_of(TT_F32, NULL, "tt_test.nobody"));
}

static void test_plugins_without_functions(void **state) {
  (void)state;
  tt_plugin *fake = NULL;
  if (!getenv("TT_FAKE_PLUGIN")) return;
  ok(tt_plugin_open(getenv("TT_FAKE_PLUGIN"), &fake));
  tt_status status = tt_plugin_register(fake, "tt_test.scale", "Host", handle_scale);
  assert_int_equal(tt_status_code(status), TT_UNIMPLEMENTED);
  tt_status_release(status);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_results),
      cmocka_unit_test(test_arrays_of_integers),
      cmocka_unit_test(test_denormal_numbers_stay),
      cmocka_unit_test(test_errors_fail_the_program),
      cmocka_unit_test(test_unknown_functions_do_not_compile),
      cmocka_unit_test(test_plugins_without_functions),
  };
  if (!getenv("TT_CPU_PLUGIN")) {
    print_message("skipped: TT_CPU_PLUGIN is not set\n");
    return 0;
  }
  return cmocka_run_group_tests(tests, setup, teardown);
}
