/* The pjrt room against the fake plugin: contracts, failures, and leaks. */
#include "pjrt/compile_options.h"
#include "pjrt/pjrt.h"

#include "fake_plugin/fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "checks.h"

#define FAKE_CONTROLS(X)                                                                           \
  X(void, tt_fake_fail_at, (int64_t))                                                              \
  X(bool, tt_fake_failed, (void))                                                                  \
  X(void, tt_fake_fail_launch, (int64_t))                                                          \
  X(void, tt_fake_async, (bool))                                                                   \
  X(int64_t, tt_fake_live_objects, (void))                                                         \
  X(int64_t, tt_fake_calls, (void))

static struct {
#define X(type, name, arguments) type(*name) arguments;
  FAKE_CONTROLS(X)
#undef X
} fake;

static const char *fake_path;
static tt_plugin *plugin;
static tt_client *client;

static const char ADD[] = "module {\n"
                          "func.func public @main(%0: tensor<2x3xf32>, %1: tensor<2x3xf32> "
                          "{tf.aliasing_output = 0 : i32, note = \"}\"}) -> "
                          "(tensor<2x3xf32> {r = \"x\"}, tensor<complex<f32>>) {\n";

static int setup(void **state) {
  (void)state;
  fake_path = getenv("TT_FAKE_PLUGIN");
  void *library = fake_path ? dlopen(fake_path, RTLD_NOW) : NULL;
  if (!library) return -1;
#define X(type, name, arguments) *(void **)&fake.name = dlsym(library, #name);
  FAKE_CONTROLS(X)
#undef X
  setenv("TT_FAKE_DEVICES", "2", 1);
  tt_status status = tt_plugin_open(fake_path, &plugin);
  if (!status) status = tt_client_create(plugin, NULL, &client);
  return status ? -1 : 0;
}

static int teardown(void **state) {
  (void)state;
  tt_client_destroy(client);
  return fake.tt_fake_live_objects() == 0 ? 0 : -1;
}

static int reset(void **state) {
  (void)state;
  fake.tt_fake_fail_at(0);
  fake.tt_fake_fail_launch(0);
  fake.tt_fake_async(false);
  tt_alloc_fail_at(0, false);
  return 0;
}

static atomic_int released;
static void count_release(void *user) { atomic_fetch_add((atomic_int *)user, 1); }

static void nap(void) {
  struct timespec time = {0, 1000000};
  (void)nanosleep(&time, NULL);
}

static void no_leak(void) { assert_int_equal(fake.tt_fake_live_objects(), 0); }

static void all_released(int expected) { /* asynchronously, so perhaps a little later */
  for (int i = 0; i < 5000 && atomic_load(&released) < expected; i++) nap();
  assert_int_equal(atomic_load(&released), expected);
}

static tt_type matrix(void) {
  int64_t dims[] = {2, 3};
  return tt_type_make(TT_F32, 2, dims);
}

/* -- Opening -- */

static void test_open_errors(void **state) {
  (void)state;
  static const struct {
    const char *path, *fault;
    tt_code code;
    const char *words;
  } cases[] = {
      {NULL, "", TT_INVALID_ARGUMENT, "set TORCH_TPU_PLUGIN"},
      {"", "", TT_INVALID_ARGUMENT, "is empty"},
      {"/nowhere/plugin.so", "", TT_NOT_FOUND, "No such file"},
      {"no_such_library.so", "", TT_NOT_FOUND, "no_such_library.so"},
      {"/proc/self/status", "", TT_FAILED_PRECONDITION, "cannot load"},
      {"libm.so.6", "", TT_FAILED_PRECONDITION, "is not a PJRT plugin"},
      {"fake", "null", TT_FAILED_PRECONDITION, "no function table"},
      {"fake", "tiny", TT_FAILED_PRECONDITION, "broken function table (8 bytes)"},
      {"fake", "short", TT_FAILED_PRECONDITION, "lacks PJRT_LoadedExecutable_Execute"},
      {"fake", "slot", TT_FAILED_PRECONDITION, "lacks PJRT_Buffer_ReadyEvent"},
      {"fake", "major", TT_FAILED_PRECONDITION, "API version 1.114"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    bool is_fake = cases[i].path && !strcmp(cases[i].path, "fake");
    tt_plugin *opened = NULL;
    setenv("TT_FAKE_BREAK", cases[i].fault, 1);
    tt_status status = tt_plugin_open(is_fake ? fake_path : cases[i].path, &opened);
    unsetenv("TT_FAKE_BREAK");
    fails(status, cases[i].code, cases[i].words);
    assert_null(opened);
  }
}

static void test_plugin(void **state) {
  (void)state;
  tt_plugin *again = NULL;
  ok(tt_plugin_open(fake_path, &again));
  assert_ptr_equal(again, plugin);
  assert_string_equal(tt_plugin_path(plugin), fake_path);
  int major = -1, minor = -1;
  tt_plugin_version(plugin, &major, &minor);
  assert_int_equal(major, 0);
  assert_int_equal(minor, 114);
  int64_t values[3] = {9, 9, 9};
  assert_true(tt_plugin_attribute(plugin, "stablehlo_current_version", values));
  assert_true(values[0] == 1 && values[1] == 20 && values[2] == 0);
  assert_true(tt_plugin_attribute(plugin, "xla_version", values));
  assert_true(values[0] == 2 && values[1] == 0 && values[2] == 0);
  assert_false(tt_plugin_attribute(plugin, "words", values));
  assert_false(tt_plugin_attribute(plugin, "xla", values));
}

/* -- Client and devices -- */

static void test_client(void **state) {
  (void)state;
  assert_string_equal(tt_client_platform(client), "fake");
  assert_string_equal(tt_client_platform_version(client), "fake 1.0");
  assert_false(tt_client_host_memory(client));
  assert_false(tt_client_inline(client));
  assert_int_equal(tt_client_device_count(client), 2);
  assert_null(tt_client_device(client, -1));
  assert_null(tt_client_device(client, 2));
  tt_pjrt_device *device = tt_client_device(client, 1);
  assert_string_equal(tt_pjrt_device_kind(device), "fake chip");
  assert_string_equal(tt_pjrt_device_string(device), "FakeDevice(1)");
  assert_int_equal(tt_pjrt_device_id(device), 101);
  int64_t in_use = -1, limit = -1;
  ok(tt_pjrt_device_memory(device, &in_use, &limit));
  assert_true(in_use == 0 && limit == (int64_t)1 << 30);
}

static void test_client_errors(void **state) {
  (void)state;
  tt_client *none = NULL;
  fails(tt_client_create(plugin, &(tt_client_options){.cpu_devices = -1}, &none),
        TT_INVALID_ARGUMENT, "TORCH_TPU_CPU_DEVICES must be 1 to 1024");
  setenv("TT_FAKE_DEVICES", "0", 1);
  tt_status status = tt_client_create(plugin, NULL, &none);
  setenv("TT_FAKE_DEVICES", "2", 1);
  fails(status, TT_UNAVAILABLE, "no device");
  assert_null(none);
}

/* A CPU plugin that knows one of the two options. */
static void test_client_options(void **state) {
  (void)state;
  int failures = 0;
  tt_client_options options = {.cpu_devices = 5};
  setenv("TT_FAKE_PLATFORM", "cpu", 1);
  for (int64_t nth = 0;; nth++) {
    tt_client *own = NULL;
    fake.tt_fake_fail_at(nth);
    tt_status status = tt_client_create(plugin, &options, &own);
    bool happened = fake.tt_fake_failed();
    fake.tt_fake_fail_at(0);
    failures += status != NULL;
    if (!status) {
      assert_int_equal(tt_client_device_count(own), 5);
      assert_true(tt_client_host_memory(own));
      assert_false(tt_client_inline(own)); /* it may run asynchronously */
      tt_client_destroy(own);
    }
    tt_status_release(status);
    no_leak();
    if (!happened) break;
  }
  unsetenv("TT_FAKE_PLATFORM");
  assert_true(failures > 20);
}

/* -- Buffers -- */

static void round_trip(bool lend) {
  tt_type type = matrix();
  float values[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
  tt_buffer *buffer = NULL;
  atomic_store(&released, 0);
  ok(tt_buffer_from_host(tt_client_device(client, 0), &type, values, lend ? count_release : NULL,
                         &released, &buffer));
  ok(tt_buffer_await(client, buffer));
  ok(tt_buffer_to_host(client, buffer, &type, back, sizeof back));
  assert_memory_equal(values, back, sizeof back);
  int64_t bytes = 0;
  ok(tt_buffer_bytes(client, buffer, &bytes));
  assert_int_equal(bytes, sizeof values);
  tt_buffer_destroy(client, buffer);
  no_leak();
  all_released(lend ? 1 : 0);
}

static void test_round_trip(void **state) {
  (void)state;
  for (int async = 0; async < 2; async++) {
    fake.tt_fake_async(async);
    round_trip(false);
    round_trip(true);
  }
}

static void test_small_shapes(void **state) {
  (void)state;
  tt_pjrt_device *device = tt_client_device(client, 0);
  tt_type scalar = tt_type_make(TT_I64, 0, NULL);
  int64_t value = 42, back = 0;
  tt_buffer *buffer = NULL;
  ok(tt_buffer_from_host(device, &scalar, &value, NULL, NULL, &buffer));
  ok(tt_buffer_to_host(client, buffer, &scalar, &back, 8));
  assert_int_equal(back, 42);
  tt_buffer_destroy(client, buffer);

  int64_t dims[] = {0, 5};
  tt_type empty = tt_type_make(TT_F32, 2, dims);
  ok(tt_buffer_from_host(device, &empty, NULL, NULL, NULL, &buffer));
  ok(tt_buffer_to_host(client, buffer, &empty, NULL, 0));
  tt_buffer_destroy(client, buffer);
  tt_buffer_destroy(client, NULL);
  tt_event_destroy(client, NULL);
  no_leak();
}

static void test_buffer_errors(void **state) {
  (void)state;
  tt_pjrt_device *device = tt_client_device(client, 0);
  tt_type type = matrix(), bad = type;
  float values[6] = {0};
  tt_buffer *buffer = NULL;
  void *pointer = NULL;
  bad.dims[0] = -1;
  atomic_store(&released, 0);
  fails(tt_buffer_from_host(device, &bad, values, count_release, &released, &buffer),
        TT_INVALID_ARGUMENT, "malformed");
  fails(tt_buffer_from_host(device, &type, NULL, count_release, &released, &buffer),
        TT_INVALID_ARGUMENT, "no data for 24 bytes");
  assert_int_equal(atomic_load(&released), 0);
  bad.dims[0] = (int64_t)1 << 40;
  fails(tt_buffer_from_host(device, &bad, values, NULL, NULL, &buffer), TT_RESOURCE_EXHAUSTED,
        "Out of memory");
  assert_null(buffer);
  ok(tt_buffer_from_host(device, &type, values, NULL, NULL, &buffer));
  fails(tt_buffer_to_host(client, buffer, &type, values, 23), TT_INVALID_ARGUMENT,
        "has 23 bytes, the tensor has 24");
  fails(tt_buffer_pointer(client, buffer, &pointer), TT_FAILED_PRECONDITION, "no host address");
  tt_buffer_destroy(client, buffer);
  no_leak();
}

static void test_memory_for_a_value(void **state) {
  (void)state;
  tt_pjrt_device *device = tt_client_device(client, 0);
  tt_type type = matrix();
  tt_buffer *buffer = NULL;
  int64_t bytes = 0;
  ok(tt_buffer_create(device, &type, &buffer));
  ok(tt_buffer_await(client, buffer));
  ok(tt_buffer_bytes(client, buffer, &bytes));
  assert_int_equal(bytes, 24);
  tt_buffer_destroy(client, buffer);
  type.dims[0] = (int64_t)1 << 40;
  fails(tt_buffer_create(device, &type, &buffer), TT_RESOURCE_EXHAUSTED, "Out of memory");
  assert_null(buffer);
  no_leak();
}

static void test_copy_to_device(void **state) {
  (void)state;
  tt_type type = matrix();
  float values[6] = {1, 2, 3, 4, 5, 6}, back[6] = {0};
  tt_buffer *first = NULL, *second = NULL, *none = NULL;
  ok(tt_buffer_from_host(tt_client_device(client, 0), &type, values, NULL, NULL, &first));
  ok(tt_buffer_copy_to_device(client, first, tt_client_device(client, 1), &second));
  ok(tt_buffer_to_host(client, second, &type, back, sizeof back));
  assert_memory_equal(values, back, sizeof back);
  fails(tt_buffer_copy_to_device(client, first, tt_client_device(client, 0), &none),
        TT_INVALID_ARGUMENT, "already on that device");
  int64_t in_use = 0, limit = 0;
  ok(tt_pjrt_device_memory(tt_client_device(client, 1), &in_use, &limit));
  assert_int_equal(in_use, 24);
  tt_buffer_destroy(client, first);
  tt_buffer_destroy(client, second);
  no_leak();
}

/* -- Executables -- */

static tt_status compile_add(tt_executable **out) {
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  return tt_compile(client, ADD, strlen(ADD), &options, out);
}

static void upload(tt_buffer **a, tt_buffer **b) {
  tt_type type = matrix();
  float values[6] = {1, 2, 3, 4, 5, 6};
  ok(tt_buffer_from_host(tt_client_device(client, 0), &type, values, NULL, NULL, a));
  ok(tt_buffer_from_host(tt_client_device(client, 0), &type, values, NULL, NULL, b));
}

static void destroy_all(tt_buffer **buffers, int count) {
  for (int i = 0; i < count; i++) tt_buffer_destroy(client, buffers[i]);
}

static void test_execute(void **state) {
  (void)state;
  tt_executable *add = NULL;
  ok(compile_add(&add));
  assert_int_equal(tt_executable_outputs(add), 2);
  tt_buffer *arguments[2], *outputs[2] = {NULL};
  tt_event *done = NULL;
  tt_type type = matrix();
  float back[6] = {9};
  upload(&arguments[0], &arguments[1]);
  int64_t keep[] = {1};
  tt_pjrt_device *device = tt_client_device(client, 0);
  ok(tt_execute(add, device, arguments, 2, keep, 1, outputs, NULL));
  ok(tt_buffer_to_host(client, arguments[1], &type, back, sizeof back)); /* kept */
  destroy_all(outputs, 2);
  ok(tt_execute(add, device, arguments, 2, NULL, 0, outputs, &done));
  ok(tt_event_await(client, done));
  assert_true(tt_event_ready(client, done));
  tt_event_destroy(client, done);
  ok(tt_buffer_to_host(client, outputs[0], &type, back, sizeof back));
  assert_true(back[0] == 0);
  fails(tt_buffer_to_host(client, arguments[1], &type, back, sizeof back), TT_INVALID_ARGUMENT,
        "deleted or donated");
  assert_true(tt_buffer_deleted(client, arguments[1]));
  assert_false(tt_buffer_deleted(client, arguments[0]));
  destroy_all(arguments, 2);
  destroy_all(outputs, 2);
  tt_executable_destroy(add);
  tt_executable_destroy(NULL);
  no_leak();
}

static void test_execute_errors(void **state) {
  (void)state;
  tt_executable *add = NULL;
  ok(compile_add(&add));
  tt_buffer *arguments[2], *outputs[2];
  upload(&arguments[0], &arguments[1]);
  tt_pjrt_device *device = tt_client_device(client, 0);
  memset(outputs, 0xff, sizeof outputs);
  fails(tt_execute(add, device, arguments, 1, NULL, 0, outputs, NULL), TT_INVALID_ARGUMENT,
        "1 arguments, expected 2");
  assert_true(!outputs[0] && !outputs[1]);
  tt_buffer *twice[2] = {arguments[1], arguments[1]};
  fails(tt_execute(add, device, twice, 2, NULL, 0, outputs, NULL), TT_INVALID_ARGUMENT,
        "donate the same buffer twice");
  fails(tt_execute(add, tt_client_device(client, 1), arguments, 2, NULL, 0, outputs, NULL),
        TT_INVALID_ARGUMENT, "another device");
  destroy_all(arguments, 2);
  tt_executable_destroy(add);
  no_leak();
}

static void test_async_failure(void **state) {
  (void)state;
  tt_executable *add = NULL;
  tt_buffer *arguments[2], *outputs[2], *later[2];
  tt_event *done = NULL;
  float back[6];
  tt_type type = matrix();
  fake.tt_fake_async(true);
  ok(compile_add(&add));
  upload(&arguments[0], &arguments[1]);
  tt_pjrt_device *device = tt_client_device(client, 0);
  fake.tt_fake_fail_launch(1);
  ok(tt_execute(add, device, arguments, 2, NULL, 0, outputs, &done));
  tt_buffer *next[2] = {arguments[0], outputs[0]};
  ok(tt_execute(add, device, next, 2, NULL, 0, later, NULL));
  fails(tt_event_await(client, done), TT_INTERNAL, "injected asynchronous failure");
  fails(tt_buffer_await(client, later[0]), TT_INTERNAL, "injected asynchronous failure");
  fails(tt_buffer_to_host(client, later[0], &type, back, sizeof back), TT_INTERNAL,
        "injected asynchronous failure");
  tt_event_destroy(client, done);
  destroy_all(arguments, 2);
  destroy_all(outputs, 2);
  destroy_all(later, 2);
  tt_executable_destroy(add);
  no_leak();
}

static void test_serialize(void **state) {
  (void)state;
  tt_executable *add = NULL, *copy = NULL;
  void *data = NULL;
  size_t size = 0;
  tt_program_memory memory;
  ok(compile_add(&add));
  ok(tt_executable_memory(add, &memory));
  assert_true(memory.arguments == 48 && memory.outputs == 32 && memory.aliased == 24);
  double bytes = 0;
  tt_text optimized = TT_TEXT_INIT;
  ok(tt_executable_bytes(add, &bytes));
  assert_true(bytes == 12);
  ok(tt_executable_optimized(add, &optimized));
  assert_non_null(strstr(optimized.data, "main"));
  tt_text_deinit(&optimized);
  ok(tt_executable_serialize(add, &data, &size));
  tt_executable_destroy(add);
  ok(tt_executable_load(client, data, size, &copy));
  tt_free(data);
  assert_int_equal(tt_executable_outputs(copy), 2);
  tt_executable_destroy(copy);
  fails(tt_executable_load(client, "junk", 4, &copy), TT_INVALID_ARGUMENT, "Failed to parse");
  fails(tt_executable_load(client, NULL, 0, &copy), TT_INVALID_ARGUMENT, "empty");
  assert_null(copy);
  no_leak();
}

static void test_compile_errors(void **state) {
  (void)state;
  tt_executable *none = NULL;
  const char *names[] = {"xla_x"}, *values[] = {NULL};
  static const struct {
    tt_compile_options options;
    const char *words;
  } cases[] = {
      {{.num_replicas = -1}, "-1 replicas"},
      {{.num_replicas = 1 << 20, .num_partitions = 2}, "at most"},
      {{.num_replicas = 2, .portable = true}, "a portable program runs on one device"},
      {{.optimization_level = 4}, "optimization level 4"},
      {{.optimization_level = -2}, "optimization level -2"},
      {{.override_count = 2000}, "2000 overrides"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    fails(tt_compile(client, ADD, strlen(ADD), &cases[i].options, &none), TT_INVALID_ARGUMENT,
          cases[i].words);
  tt_compile_options hole = {
      .override_names = names, .override_values = values, .override_count = 1};
  fails(tt_compile(client, ADD, strlen(ADD), &hole, &none), TT_INVALID_ARGUMENT, "override 0");
  fails(tt_compile(client, "", 0, NULL, &none), TT_INVALID_ARGUMENT, "program is empty");
  fails(tt_compile(client, "module {}", 9, NULL, &none), TT_INVALID_ARGUMENT, "no valid @main");
  assert_null(none);
  no_leak();
}

static void test_compile_options(void **state) {
  (void)state;
  tt_text text = TT_TEXT_INIT;
  ok(tt_compile_options_write(NULL, &text));
  static const char least[] =
      "\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01";
  assert_int_equal(text.size, sizeof least - 1);
  assert_memory_equal(text.data, least, text.size);
  tt_text_deinit(&text);
  const char *names[] = {"xla_a", "xla_b"}, *values[] = {"v", "true"};
  tt_compile_options options = {.num_partitions = 2,
                                .optimization_level = 1,
                                .override_names = names,
                                .override_values = values,
                                .override_count = 2};
  ok(tt_compile_options_write(&options, &text));
  static const char more[] =
      "\x1a\x14\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x02\x30\x01\xc0\x01\x13"
      "\x3a\x0c\x0a\x05xla_a\x12\x03\x0a\x01v\x3a\x0b\x0a\x05xla_b\x12\x02\x10\x01";
  assert_int_equal(text.size, sizeof more - 1);
  assert_memory_equal(text.data, more, text.size);
  tt_text_deinit(&text);
}

static void test_options_of_a_text(void **state) {
  (void)state;
  static const char code[] = "// option a bool true\n// option b int -1\n// option c str x y\n"
                             "// 3 a check\n// option d int 1\nmodule {}";
  static const char bytes[] = "\x3a\x07\x0a\x01"
                              "a\x12\x02\x10\x01"
                              "\x3a\x10\x0a\x01"
                              "b\x12\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                              "\x3a\x0a\x0a\x01"
                              "c\x12\x05\x0a\x03x y";
  tt_text text = TT_TEXT_INIT;
  ok(tt_compile_options_read(code, sizeof code - 1, &text));
  assert_int_equal(text.size, sizeof bytes - 1);
  assert_memory_equal(text.data, bytes, text.size);
  static const char *const wrong[] = {
      "// option \n",         "// option a\n",      "// option a bool\n",
      "// option a bool 1\n", "// option a int \n", "// option a int 1x\n",
      "// option a word b\n", "// option  int 1\n", "// option a int 9223372036854775808\n",
      "// option a int 1",
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    fails(tt_compile_options_read(wrong[i], strlen(wrong[i]), &text), TT_INVALID_ARGUMENT,
          "compile options");
  tt_text_deinit(&text);
  tt_text many = TT_TEXT_INIT;
  for (int i = 0; i < 1025; i++) tt_text_printf(&many, "// option a%d int 1\n", i);
  fails(tt_compile_options_read(many.data, many.size, &text), TT_INVALID_ARGUMENT, "at most 1024");
  tt_text_deinit(&many);
  tt_text_deinit(&text);
  tt_executable *none = NULL;
  fails(tt_compile(client, wrong[1], strlen(wrong[1]), NULL, &none), TT_INVALID_ARGUMENT,
        "'a' is no option");
  no_leak();
}

/* -- Topologies -- */

static void test_topology(void **state) {
  (void)state;
  tt_topology *topology = NULL;
  tt_executable *add = NULL;
  tt_program_memory memory;
  tt_buffer *outputs[2];
  ok(tt_topology_create(plugin, "fake:8", &topology));
  assert_int_equal(tt_topology_device_count(topology), 8);
  ok(tt_topology_compile(topology, ADD, strlen(ADD), NULL, &add));
  assert_int_equal(tt_executable_outputs(add), 2);
  ok(tt_executable_memory(add, &memory));
  fails(tt_execute(add, NULL, NULL, 0, NULL, 0, outputs, NULL), TT_FAILED_PRECONDITION,
        "compiled for a topology");
  tt_executable_destroy(add);
  fails(tt_topology_compile(topology, "x", 1, NULL, &add), TT_INVALID_ARGUMENT, "@main");
  tt_topology_destroy(topology);
  tt_topology_destroy(NULL);
  fails(tt_topology_create(plugin, "v5e:2x2", &topology), TT_INVALID_ARGUMENT,
        "topology 'v5e:2x2'");
  assert_null(topology);
  no_leak();
}

/* -- Failures: the whole life of a client, as one function that cleans up after any error -- */

static tt_status run_program(tt_client *own, tt_pjrt_device *device, tt_executable *add,
                             tt_buffer *const *arguments) {
  tt_buffer *outputs[2] = {NULL};
  tt_event *done = NULL;
  tt_type type = matrix();
  float back[6];
  tt_status status = tt_execute(add, device, arguments, 2, NULL, 0, outputs, &done);
  if (!status) status = tt_event_await(own, done);
  if (!status) status = tt_buffer_to_host(own, outputs[0], &type, back, sizeof back);
  if (!status) (void)tt_event_ready(own, done);
  tt_event_destroy(own, done);
  for (int i = 0; i < 2; i++) tt_buffer_destroy(own, outputs[i]);
  return status;
}

static tt_status use_client(tt_client *own, int *expected_releases) {
  tt_type type = matrix();
  float values[6] = {0};
  tt_pjrt_device *device = tt_client_device(own, 0);
  tt_buffer *buffers[3] = {NULL};
  tt_executable *add = NULL, *copy = NULL;
  void *data = NULL;
  size_t size = 0;
  tt_program_memory memory;
  int64_t in_use, limit;
  int count = 0;
  tt_status status =
      tt_buffer_from_host(device, &type, values, count_release, &released, &buffers[0]);
  if (!status) ++*expected_releases;
  if (!status) status = tt_buffer_from_host(device, &type, values, NULL, NULL, &buffers[1]);
  if (!status)
    status = tt_buffer_copy_to_device(own, buffers[0], tt_client_device(own, 1), &buffers[2]);
  if (!status) status = tt_compile(own, ADD, strlen(ADD), NULL, &add);
  if (!status) status = tt_executable_serialize(add, &data, &size);
  if (!status) status = tt_executable_load(own, data, size, &copy);
  if (!status) status = tt_executable_memory(copy, &memory);
  if (!status) status = tt_executable_devices(copy, NULL, 0, &count);
  if (!status) status = tt_pjrt_device_memory(device, &in_use, &limit);
  if (!status) status = run_program(own, device, copy, buffers);
  tt_free(data);
  tt_executable_destroy(add);
  tt_executable_destroy(copy);
  for (int i = 0; i < 3; i++) tt_buffer_destroy(own, buffers[i]);
  return status;
}

static tt_status use_topology(void) {
  tt_topology *topology = NULL;
  tt_executable *add = NULL;
  tt_status status = tt_topology_create(plugin, "fake:4", &topology);
  if (!status) status = tt_topology_compile(topology, ADD, strlen(ADD), NULL, &add);
  tt_executable_destroy(add);
  tt_topology_destroy(topology);
  return status;
}

static tt_status whole_life(int *expected_releases) {
  tt_client *own = NULL;
  tt_client_options options = {.cpu_devices = 2};
  tt_status status = tt_client_create(plugin, &options, &own);
  if (!status) status = use_client(own, expected_releases);
  if (!status) status = use_topology();
  tt_client_destroy(own);
  return status;
}

static void test_every_call_fails_once(void **state) {
  (void)state;
  int failures = 0;
  for (int async = 0; async < 2; async++) {
    fake.tt_fake_async(async);
    for (int64_t nth = 1;; nth++) {
      int expected = 0;
      atomic_store(&released, 0);
      fake.tt_fake_fail_at(nth);
      tt_status status = whole_life(&expected);
      bool happened = fake.tt_fake_failed();
      fake.tt_fake_fail_at(0);
      failures += status != NULL;
      if (tt_status_code(status) == TT_UNKNOWN) /* it was the call that asks for the code */
        fails(status, TT_UNKNOWN, "PJRT_Client_Create: Unexpected option name");
      else if (status) fails(status, TT_INTERNAL, "injected failure in ");
      no_leak();
      all_released(expected);
      if (!happened) break;
    }
  }
  assert_true(failures > 60);
}

static void test_every_allocation_fails_once(void **state) {
  (void)state;
  int failures = 0;
  for (int forever = 0; forever < 2; forever++)
    for (int64_t nth = 1;; nth++) {
      int expected = 0;
      atomic_store(&released, 0);
      tt_alloc_fail_at(nth, forever);
      tt_status status = whole_life(&expected);
      int64_t asked = tt_alloc_count();
      tt_alloc_fail_at(0, false);
      no_leak();
      all_released(expected);
      if (asked < nth) {
        ok(status);
        break;
      }
      fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      failures++;
    }
  assert_true(failures > 20);
}

/* A refused plugin can be tried again; this one has a short table without optional functions. */
static void test_plugin_opens_after_failure(void **state) {
  (void)state;
  tt_plugin *opened = NULL;
  setenv("TT_FAKE_BREAK", "old", 1);
  for (int64_t nth = 1; nth < 3; nth++) {
    fake.tt_fake_fail_at(nth);
    tt_status status = tt_plugin_open(fake_path, &opened);
    fake.tt_fake_fail_at(0);
    if (nth == 1) fails(status, TT_INTERNAL, "does not start: PJRT_Plugin_Initialize");
    else ok(status);
  }
  unsetenv("TT_FAKE_BREAK");
  int64_t values[3];
  assert_false(tt_plugin_attribute(opened, "xla_version", values));
  tt_topology *topology = NULL;
  fails(tt_topology_create(opened, "fake:1", &topology), TT_UNIMPLEMENTED,
        "does not offer PJRT_TopologyDescription_Create");
  tt_client *own = NULL;
  tt_executable *add = NULL;
  tt_program_memory memory;
  int64_t in_use, limit;
  void *data = NULL;
  size_t size = 0;
  ok(tt_client_create(opened, NULL, &own));
  fails(tt_pjrt_device_memory(tt_client_device(own, 0), &in_use, &limit), TT_UNIMPLEMENTED,
        "Device_MemoryStats");
  ok(tt_compile(own, ADD, strlen(ADD), NULL, &add));
  fails(tt_executable_memory(add, &memory), TT_UNIMPLEMENTED, "GetCompiledMemoryStats");
  fails(tt_executable_serialize(add, &data, &size), TT_UNIMPLEMENTED, "Executable_Serialize");
  tt_executable_destroy(add);
  fails(tt_executable_load(own, "x", 1, &add), TT_UNIMPLEMENTED, "DeserializeAndLoad");
  tt_client_destroy(own);
  no_leak();
}

/* -- Threads -- */

static void *use_in_thread(void *user) {
  tt_status *status = user;
  for (int i = 0; i < 20 && !*status; i++) {
    int expected = 0;
    *status = use_client(client, &expected);
  }
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  pthread_t threads[4];
  tt_status statuses[4] = {NULL};
  fake.tt_fake_async(true);
  atomic_store(&released, 0);
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, use_in_thread, &statuses[i]), 0);
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    ok(statuses[i]);
  }
  no_leak();
  all_released(80);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, reset)
  const struct CMUnitTest tests[] = {
      TEST(test_open_errors),
      TEST(test_plugin),
      TEST(test_client),
      TEST(test_client_errors),
      TEST(test_client_options),
      TEST(test_round_trip),
      TEST(test_small_shapes),
      TEST(test_buffer_errors),
      TEST(test_memory_for_a_value),
      TEST(test_copy_to_device),
      TEST(test_execute),
      TEST(test_execute_errors),
      TEST(test_async_failure),
      TEST(test_serialize),
      TEST(test_compile_errors),
      TEST(test_compile_options),
      TEST(test_options_of_a_text),
      TEST(test_topology),
      TEST(test_every_call_fails_once),
      TEST(test_every_allocation_fails_once),
      TEST(test_plugin_opens_after_failure),
      TEST(test_threads),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
