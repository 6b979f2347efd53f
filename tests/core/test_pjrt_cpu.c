/* The pjrt room against XLA's CPU plugin; skipped when TT_CPU_PLUGIN does not name one. */
#include "pjrt/pjrt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "checks.h"

static tt_plugin *plugin;
static tt_client *client;
static tt_pjrt_device *device;

static const char ADD[] =
    "module { func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<2x3xf32>)"
    " -> (tensor<2x3xf32>) {"
    " %0 = \"stablehlo.add\"(%arg0, %arg1)"
    " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>"
    " \"func.return\"(%0) : (tensor<2x3xf32>) -> () } }";
/* The same, overwriting its first argument. */
static const char ADD_TO[] =
    "module { func.func public @main(%arg0: tensor<2x3xf32> {tf.aliasing_output = 0 : i32},"
    " %arg1: tensor<2x3xf32>) -> (tensor<2x3xf32>) {"
    " %0 = \"stablehlo.add\"(%arg0, %arg1)"
    " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>"
    " \"func.return\"(%0) : (tensor<2x3xf32>) -> () } }";
static const char BAD[] = "module { func.func public @main() -> (tensor<f32>) {"
                          " %0 = \"stablehlo.nonsense\"() : () -> tensor<f32>"
                          " \"func.return\"(%0) : (tensor<f32>) -> () } }";

static const float ONE[6] = {1, 2, 3, 4, 5, 6}, TWO[6] = {10, 20, 30, 40, 50, 60},
                   SUM[6] = {11, 22, 33, 44, 55, 66};

static int setup(void **state) {
  (void)state;
  tt_client_options options = {.cpu_devices = 3};
  ok(tt_plugin_open(getenv("TT_CPU_PLUGIN"), &plugin));
  ok(tt_client_create(plugin, &options, &client));
  device = tt_client_device(client, 0);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  tt_client_destroy(client);
  return 0;
}

static tt_type matrix(void) {
  int64_t dims[] = {2, 3};
  return tt_type_make(TT_F32, 2, dims);
}

static tt_buffer *upload(tt_pjrt_device *where, const float *values) {
  tt_type type = matrix();
  tt_buffer *buffer = NULL;
  ok(tt_buffer_from_host(where, &type, values, NULL, NULL, &buffer));
  return buffer;
}

static tt_executable *compile(const char *text) {
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  tt_executable *executable = NULL;
  ok(tt_compile(client, text, strlen(text), &options, &executable));
  return executable;
}

static void holds(tt_buffer *buffer, const float *values) {
  tt_type type = matrix();
  float back[6] = {0};
  ok(tt_buffer_to_host(client, buffer, &type, back, sizeof back));
  assert_memory_equal(back, values, sizeof back);
}

static void test_platform(void **state) {
  (void)state;
  int64_t version[3] = {0}, in_use, limit;
  assert_string_equal(tt_client_platform(client), "cpu");
  assert_true(tt_client_host_memory(client));
  assert_true(tt_client_inline(client));
  assert_int_equal(tt_client_device_count(client), 3);
  assert_int_equal(tt_pjrt_device_id(tt_client_device(client, 2)), 2);
  assert_true(strlen(tt_pjrt_device_kind(device)) > 0 && strlen(tt_pjrt_device_string(device)) > 0);
  assert_true(tt_plugin_attribute(plugin, "stablehlo_current_version", version));
  assert_true(version[0] >= 1);
  fails(tt_pjrt_device_memory(device, &in_use, &limit), TT_UNIMPLEMENTED,
        "PJRT_Device_MemoryStats");
}

static void test_add(void **state) {
  (void)state;
  tt_executable *add = compile(ADD);
  assert_int_equal(tt_executable_outputs(add), 1);
  for (int i = 0; i < 3; i++) { /* a portable program runs on every device */
    tt_pjrt_device *where = tt_client_device(client, i);
    tt_buffer *arguments[2] = {upload(where, ONE), upload(where, TWO)}, *sum = NULL;
    tt_event *done = NULL;
    ok(tt_execute(add, where, arguments, 2, NULL, 0, &sum, &done));
    assert_true(tt_event_ready(client, done));
    ok(tt_event_await(client, done));
    tt_event_destroy(client, done);
    holds(sum, SUM);
    int64_t bytes = 0;
    ok(tt_buffer_bytes(client, sum, &bytes));
    assert_int_equal(bytes, 24);
    tt_buffer_destroy(client, sum);
    for (int k = 0; k < 2; k++) tt_buffer_destroy(client, arguments[k]);
  }
  tt_executable_destroy(add);
}

/* Two replicas, in one launch. */
static void test_all_reduce(void **state) {
  (void)state;
  static const char text[] =
      "module { func.func public @main(%arg0: tensor<2x3xf32>) -> (tensor<2x3xf32>) {"
      " %0 = \"stablehlo.all_reduce\"(%arg0) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):"
      " %s = \"stablehlo.add\"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>"
      " \"stablehlo.return\"(%s) : (tensor<f32>) -> () })"
      " {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}"
      " : (tensor<2x3xf32>) -> tensor<2x3xf32>"
      " \"func.return\"(%0) : (tensor<2x3xf32>) -> () } }";
  tt_compile_options options = {.num_replicas = 2, .optimization_level = -1};
  tt_executable *reduce = NULL;
  tt_pjrt_device *devices[2] = {NULL};
  int count = 0;
  ok(tt_compile(client, text, strlen(text), &options, &reduce));
  ok(tt_executable_devices(reduce, devices, 2, &count));
  assert_int_equal(count, 2);
  tt_buffer *first = upload(devices[0], ONE), *second = upload(devices[1], TWO);
  tt_buffer *const *arguments[2] = {&first, &second};
  tt_buffer *sums[2] = {NULL}, **outputs[2] = {&sums[0], &sums[1]};
  ok(tt_execute_all(reduce, 2, arguments, 1, NULL, 0, outputs, NULL));
  holds(sums[0], SUM);
  holds(sums[1], SUM);
  tt_buffer_destroy(client, first);
  tt_buffer_destroy(client, second);
  for (int i = 0; i < 2; i++) tt_buffer_destroy(client, sums[i]);
  tt_executable_destroy(reduce);
}

static void test_donation(void **state) {
  (void)state;
  tt_executable *add = compile(ADD_TO);
  tt_buffer *arguments[2] = {upload(device, ONE), upload(device, TWO)}, *sum = NULL;
  void *before = NULL, *after = NULL;
  int64_t keep[] = {0};
  ok(tt_buffer_pointer(client, arguments[0], &before));
  ok(tt_execute(add, device, arguments, 2, keep, 1, &sum, NULL));
  holds(sum, SUM);
  holds(arguments[0], ONE);
  tt_buffer_destroy(client, sum);
  ok(tt_execute(add, device, arguments, 2, NULL, 0, &sum, NULL));
  holds(sum, SUM);
  ok(tt_buffer_pointer(client, sum, &after));
  assert_ptr_equal(before, after);
  ok(tt_buffer_await(client, sum));
  assert_true(tt_buffer_deleted(client, arguments[0]));
  assert_false(tt_buffer_deleted(client, arguments[1]));
  tt_buffer *none = NULL;
  fails(tt_execute(add, device, arguments, 2, NULL, 0, &none, NULL), TT_INVALID_ARGUMENT,
        "deleted or donated");
  assert_null(none);
  tt_buffer *twice[2] = {sum, sum};
  fails(tt_execute(add, device, twice, 2, NULL, 0, &none, NULL), TT_INVALID_ARGUMENT, "donate");
  for (int k = 0; k < 2; k++) tt_buffer_destroy(client, arguments[k]);
  tt_buffer_destroy(client, sum);
  tt_executable_destroy(add);
}

static void count_release(void *user) { atomic_fetch_add((atomic_int *)user, 1); }

static void until_released(atomic_int *released, int count) {
  for (int i = 0; i < 5000 && atomic_load(released) != count; i++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  assert_int_equal(atomic_load(released), count);
}

/* What was lent is the lender's again when it is released, aligned or not: a buffer is no alias. */
static void test_lending(void **state) {
  (void)state;
  tt_type type = matrix();
  atomic_int released = 0;
  char *data = aligned_alloc(64, 128);
  for (int i = 0; i < 2; i++) {
    void *from = data + 80 * i, *pointer = NULL;
    tt_buffer *buffer = NULL;
    memcpy(from, ONE, sizeof ONE);
    ok(tt_buffer_from_host(device, &type, from, count_release, &released, &buffer));
    until_released(&released, i + 1); /* while the buffer lives */
    ok(tt_buffer_pointer(client, buffer, &pointer));
    assert_ptr_not_equal(pointer, from);
    memcpy(from, TWO, sizeof TWO);
    holds(buffer, ONE);
    tt_buffer_destroy(client, buffer);
    assert_int_equal(atomic_load(&released), i + 1);
  }
  free(data);
}

/* What was lent is never written, even when the program may overwrite its argument. */
static void test_lending_what_is_donated(void **state) {
  (void)state;
  tt_type type = matrix();
  atomic_int released = 0;
  float *data = aligned_alloc(64, 64);
  memcpy(data, ONE, sizeof ONE);
  tt_executable *add = compile(ADD_TO);
  tt_buffer *arguments[2] = {NULL, upload(device, TWO)}, *sum = NULL;
  ok(tt_buffer_from_host(device, &type, data, count_release, &released, &arguments[0]));
  ok(tt_execute(add, device, arguments, 2, NULL, 0, &sum, NULL));
  holds(sum, SUM);
  assert_memory_equal(data, ONE, sizeof ONE);
  for (int k = 0; k < 2; k++) tt_buffer_destroy(client, arguments[k]);
  tt_buffer_destroy(client, sum);
  assert_int_equal(released, 1);
  tt_executable_destroy(add);
  free(data);
}

static void test_small_shapes(void **state) {
  (void)state;
  int64_t dims[] = {0, 4}, value = 7, back = 0;
  tt_type empty = tt_type_make(TT_F32, 2, dims), scalar = tt_type_make(TT_I64, 0, NULL);
  tt_buffer *buffer = NULL;
  ok(tt_buffer_from_host(device, &empty, NULL, NULL, NULL, &buffer));
  ok(tt_buffer_to_host(client, buffer, &empty, NULL, 0));
  tt_buffer_destroy(client, buffer);
  ok(tt_buffer_from_host(device, &scalar, &value, NULL, NULL, &buffer));
  ok(tt_buffer_to_host(client, buffer, &scalar, &back, 8));
  assert_int_equal(back, 7);
  tt_buffer_destroy(client, buffer);
#define X(name, number, mlir, bytes, kind)                                                         \
  {                                                                                                \
    char raw[16] = {1}, got[16] = {0};                                                             \
    tt_type one = tt_type_make(TT_##name, 0, NULL);                                                \
    ok(tt_buffer_from_host(device, &one, raw, NULL, NULL, &buffer));                               \
    ok(tt_buffer_to_host(client, buffer, &one, got, bytes));                                       \
    assert_memory_equal(raw, got, bytes);                                                          \
    tt_buffer_destroy(client, buffer);                                                             \
  }
  TT_DTYPES(X)
#undef X
}

static void test_copy_to_device(void **state) {
  (void)state;
  tt_buffer *first = upload(device, ONE), *second = NULL;
  ok(tt_buffer_copy_to_device(client, first, tt_client_device(client, 1), &second));
  tt_buffer_destroy(client, first);
  holds(second, ONE);
  tt_buffer_destroy(client, second);
}

static void test_serialize(void **state) {
  (void)state;
  tt_executable *add = compile(ADD), *copy = NULL;
  void *data = NULL;
  size_t size = 0;
  tt_program_memory memory;
  ok(tt_executable_memory(add, &memory));
  assert_true(memory.arguments == 48 && memory.outputs == 24);
  ok(tt_executable_serialize(add, &data, &size));
  tt_executable_destroy(add);
  ok(tt_executable_load(client, data, size, &copy));
  tt_free(data);
  tt_pjrt_device *where = tt_client_device(client, 2); /* still portable */
  tt_buffer *arguments[2] = {upload(where, ONE), upload(where, TWO)}, *sum = NULL;
  ok(tt_execute(copy, where, arguments, 2, NULL, 0, &sum, NULL));
  holds(sum, SUM);
  tt_buffer_destroy(client, sum);
  for (int k = 0; k < 2; k++) tt_buffer_destroy(client, arguments[k]);
  tt_executable_destroy(copy);
  tt_status status = tt_executable_load(client, "not a program", 13, &copy);
  assert_non_null(status);
  tt_status_release(status);
}

static void test_compile_errors(void **state) {
  (void)state;
  tt_executable *none = NULL;
  tt_status status = tt_compile(client, BAD, strlen(BAD), NULL, &none);
  assert_non_null(strstr(tt_status_message(status), "-:1:59: error: ")); /* line and column */
  fails(status, TT_UNKNOWN, "unregistered operation 'stablehlo.nonsense'");
  fails(tt_compile(client, "", 0, NULL, &none), TT_INVALID_ARGUMENT, "program is empty");
  const char *names[] = {"xla_no_such_option"}, *values[] = {"1"};
  tt_compile_options options = {.optimization_level = -1,
                                .override_names = names,
                                .override_values = values,
                                .override_count = 1};
  fails(tt_compile(client, ADD, strlen(ADD), &options, &none), TT_INVALID_ARGUMENT,
        "xla_no_such_option");
  tt_topology *topology = NULL;
  fails(tt_topology_create(plugin, "v5e:2x2", &topology), TT_UNIMPLEMENTED, "topology 'v5e:2x2'");
  assert_null(none);
}

static void test_compile_options(void **state) {
  (void)state;
  const char *names[] = {"xla_cpu_enable_fast_min_max", "xla_cpu_max_isa"};
  const char *values[] = {"false", "AVX2"};
  for (int level = -1; level <= 3; level++) {
    tt_compile_options options = {.portable = true,
                                  .optimization_level = level,
                                  .override_names = names,
                                  .override_values = values,
                                  .override_count = 2};
    tt_executable *add = NULL;
    ok(tt_compile(client, ADD, strlen(ADD), &options, &add));
    tt_buffer *arguments[2] = {upload(device, ONE), upload(device, TWO)}, *sum = NULL;
    ok(tt_execute(add, device, arguments, 2, NULL, 0, &sum, NULL));
    holds(sum, SUM);
    tt_buffer_destroy(client, sum);
    for (int k = 0; k < 2; k++) tt_buffer_destroy(client, arguments[k]);
    tt_executable_destroy(add);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_platform),        cmocka_unit_test(test_add),
      cmocka_unit_test(test_all_reduce),      cmocka_unit_test(test_donation),
      cmocka_unit_test(test_lending),         cmocka_unit_test(test_lending_what_is_donated),
      cmocka_unit_test(test_small_shapes),    cmocka_unit_test(test_copy_to_device),
      cmocka_unit_test(test_serialize),       cmocka_unit_test(test_compile_errors),
      cmocka_unit_test(test_compile_options),
  };
  if (!getenv("TT_CPU_PLUGIN")) {
    print_message("skipped: TT_CPU_PLUGIN is not set\n");
    return 0;
  }
  return cmocka_run_group_tests(tests, setup, teardown);
}
