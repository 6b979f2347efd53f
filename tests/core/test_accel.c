/* The plugin that behaves like an accelerator: a test for each way in which it is unfriendly, that
 * a friendly one would fail. Skipped when TT_CPU_PLUGIN names no plugin that could compute. */
#include "accel_plugin/accel.h"
#include "pjrt/internal.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
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

#define BLOCK 512 /* what a small buffer takes of a device's memory */

#define CONTROLS(X)                                                                                \
  X(bool, tt_accel_fail, (const char *))                                                           \
  X(void, tt_accel_hold, (bool))                                                                   \
  X(int64_t, tt_accel_count, (const char *))                                                       \
  X(int64_t, tt_accel_live_objects, (void))
static struct {
#define X(type, name, arguments) type(*name) arguments;
  CONTROLS(X)
#undef X
} accel;

static tt_plugin *plugin;
static tt_client *client;
static tt_pjrt_device *device;

#define MATRIX "tensor<2x3xf32>"
#define BINARY(op, attributes)                                                                     \
  "module { func.func public @main(%arg0: " MATRIX attributes ", %arg1: " MATRIX ") -> (" MATRIX   \
  ") { %0 = \"stablehlo." op "\"(%arg0, %arg1) : (" MATRIX ", " MATRIX ") -> " MATRIX              \
  " \"func.return\"(%0) : (" MATRIX ") -> () } }"
static const char ADD[] = BINARY("add", "");
static const char MAXIMUM[] = BINARY("maximum", "");
static const char ADD_TO[] = BINARY("add", " {tf.aliasing_output = 0 : i32}");

static const float ONE[6] = {1, 2, 3, 4, 5, 6}, TWO[6] = {10, 20, 30, 40, 50, 60},
                   SUM[6] = {11, 22, 33, 44, 55, 66}, MORE[6] = {12, 24, 36, 48, 60, 72};

/* -- Helpers -- */

static tt_type matrix(void) { return tt_type_make(TT_F32, 2, (int64_t[]){2, 3}); }

static tt_buffer *upload_to(tt_pjrt_device *where, const float *values) {
  tt_type type = matrix();
  tt_buffer *buffer = NULL;
  ok(tt_buffer_from_host(where, &type, values, NULL, NULL, &buffer));
  return buffer;
}

static tt_buffer *upload(const float *values) { return upload_to(device, values); }
static void drop(tt_buffer *buffer) { tt_buffer_destroy(client, buffer); }

static tt_executable *compile(const char *text) {
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  tt_executable *executable = NULL;
  ok(tt_compile(client, text, strlen(text), &options, &executable));
  return executable;
}

static tt_buffer *run(tt_executable *executable, tt_buffer *a, tt_buffer *b) {
  tt_buffer *arguments[] = {a, b}, *result = NULL;
  ok(tt_execute(executable, device, arguments, 2, NULL, 0, &result, NULL));
  return result;
}

static void run_fails(tt_executable *executable, tt_buffer *a, tt_buffer *b, tt_code code,
                      const char *words) {
  tt_buffer *arguments[] = {a, b}, *result = NULL;
  fails(tt_execute(executable, device, arguments, 2, NULL, 0, &result, NULL), code, words);
  assert_null(result);
}

static void holds(tt_buffer *buffer, const float *values) {
  tt_type type = matrix();
  float back[6] = {0};
  ok(tt_buffer_to_host(client, buffer, &type, back, sizeof back));
  assert_memory_equal(back, values, sizeof back);
}

static void has_failed(tt_buffer *buffer, tt_code code, const char *words) {
  tt_type type = matrix();
  float back[6];
  fails(tt_buffer_await(client, buffer), code, words);
  fails(tt_buffer_to_host(client, buffer, &type, back, sizeof back), code, words);
}

static tt_event *ready_event(tt_buffer *buffer) {
  TT_ARGS(Buffer_ReadyEvent, args, .buffer = buffer);
  ok(TT_CALL(client->api, Buffer_ReadyEvent, &args));
  return args.event;
}

static void ready_is(tt_buffer *buffer, bool expected) {
  tt_event *event = ready_event(buffer);
  assert_int_equal(tt_event_ready(client, event), expected);
  tt_event_destroy(client, event);
}

/* Long enough for what must not happen; waited for in vain only when all is well. */
static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); }

static void count_release(void *user) { atomic_fetch_add((atomic_int *)user, 1); }

static int64_t in_use(const tt_pjrt_device *where) {
  int64_t bytes = 0, limit = 0;
  ok(tt_pjrt_device_memory(where, &bytes, &limit));
  return bytes;
}

/* Begins a copy to the host; the caller destroys the event. */
static tt_event *download(tt_buffer *buffer, float *out) {
  int64_t order[] = {1, 0};
  PJRT_Buffer_MemoryLayout layout = {
      .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
      .tiled = {.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                .minor_to_major = order,
                .minor_to_major_size = 2},
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled};
  TT_ARGS(Buffer_ToHostBuffer, args, .src = buffer, .host_layout = &layout, .dst = out,
          .dst_size = 6 * sizeof *out);
  ok(TT_CALL(client->api, Buffer_ToHostBuffer, &args));
  return args.event;
}

/* -- Fixtures -- */

static void open_client(void) {
  ok(tt_client_create(plugin, NULL, &client));
  device = tt_client_device(client, 0);
}

static int64_t live_before; /* of an earlier test that failed, perhaps */

static int setup(void **state) {
  (void)state;
  live_before = accel.tt_accel_live_objects();
  setenv("TT_ACCEL_DEVICES", "2", 1);
  setenv("TT_ACCEL_SEED", "5", 1);
  setenv("TT_ACCEL_MEMORY", "16384", 1);
  unsetenv("TT_ACCEL_FAIL");
  open_client();
  return 0;
}

static int teardown(void **state) {
  (void)state;
  accel.tt_accel_hold(false);
  assert_true(accel.tt_accel_fail(NULL));
  tt_client_destroy(client);
  return accel.tt_accel_live_objects() == live_before ? 0 : -1;
}

/* -- Memory that the host cannot touch -- */

static void refused(tt_buffer *buffer, size_t slot) {
  PJRT_Error *(*call)(void *) = NULL;
  TT_ARGS(Buffer_UnsafePointer, args, .buffer = buffer); /* as long as any of these slots needs */
  memcpy((void *)&call, (const char *)client->api + slot, sizeof call);
  fails(tt_pjrt_status(client->api, call(&args), "slot"), TT_UNIMPLEMENTED, "");
}

static void test_no_host_memory(void **state) {
  (void)state;
  tt_buffer *buffer = upload(ONE);
  void *pointer = NULL;
  assert_string_equal(tt_client_platform(client), "accel");
  assert_false(tt_client_host_memory(client));
  assert_false(tt_client_inline(client));
  fails(tt_buffer_pointer(client, buffer, &pointer), TT_FAILED_PRECONDITION, "no host address");
  refused(buffer, offsetof(PJRT_Api, PJRT_Buffer_UnsafePointer));
  refused(buffer, offsetof(PJRT_Api, PJRT_Buffer_OpaqueDeviceMemoryDataPointer));
  refused(buffer, offsetof(PJRT_Api, PJRT_Buffer_IncreaseExternalReferenceCount));
  PJRT_Error *(*is_on_cpu)(PJRT_Buffer_IsOnCpu_Args *) = NULL;
  memcpy((void *)&is_on_cpu, &client->api->PJRT_Buffer_IsOnCpu, sizeof is_on_cpu);
  TT_ARGS(Buffer_IsOnCpu, on_cpu, .buffer = buffer, .is_on_cpu = true);
  assert_null(is_on_cpu(&on_cpu));
  assert_false(on_cpu.is_on_cpu);
  int64_t bytes = 0;
  ok(tt_buffer_bytes(client, buffer, &bytes));
  assert_int_equal(bytes, BLOCK); /* more than its elements take */
  drop(buffer);
}

/* Without a layout nobody knows in what order a device stores its elements. */
static void test_layout_is_needed(void **state) {
  (void)state;
  tt_buffer *buffer = upload(ONE);
  float back[6];
  TT_ARGS(Buffer_ToHostBuffer, args, .src = buffer, .dst = back, .dst_size = sizeof back);
  fails(TT_CALL(client->api, Buffer_ToHostBuffer, &args), TT_UNIMPLEMENTED, "row-major");
  drop(buffer);
}

static void test_devices(void **state) {
  (void)state;
  int64_t version[3] = {0};
  assert_int_equal(tt_client_device_count(client), 2);
  assert_int_not_equal(tt_pjrt_device_id(device), 0); /* ids are not indices */
  assert_true(strlen(tt_pjrt_device_kind(device)) > 0 && strlen(tt_pjrt_device_string(device)) > 0);
  assert_true(tt_plugin_attribute(plugin, "stablehlo_current_version", version));
  assert_true(version[0] >= 1);
  assert_null(client->api->extension_start);
}

/* -- Data that the host lends -- */

/* With every kind of semantics that lends. */
static void test_lent_data_is_read_later(void **state) {
  (void)state;
  static const int semantics[] = {PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
                                  PJRT_HostBufferSemantics_kImmutableZeroCopy};
  for (size_t i = 0; i < 2; i++) {
    _Alignas(64) float data[16];
    int64_t dims[] = {2, 3};
    memcpy(data, ONE, sizeof ONE);
    accel.tt_accel_hold(true);
    TT_ARGS(Client_BufferFromHostBuffer, args, .client = client->raw, .data = data, .type = TT_F32,
            .dims = dims, .num_dims = 2, .host_buffer_semantics = semantics[i],
            .device = device->raw);
    ok(TT_CALL(client->api, Client_BufferFromHostBuffer, &args));
    nap();
    assert_false(tt_event_ready(client, args.done_with_host_buffer));
    memcpy(data, TWO, sizeof TWO); /* wrong, and found out */
    accel.tt_accel_hold(false);
    ok(tt_event_await(client, args.done_with_host_buffer));
    memcpy(data, SUM, sizeof SUM); /* right: it is not aliased */
    holds(args.buffer, TWO);
    tt_event_destroy(client, args.done_with_host_buffer);
    drop(args.buffer);
  }
}

static void test_release_comes_later(void **state) {
  (void)state;
  tt_type type = matrix();
  atomic_int released = 0;
  tt_buffer *buffer = NULL;
  accel.tt_accel_hold(true);
  ok(tt_buffer_from_host(device, &type, ONE, count_release, &released, &buffer));
  nap();
  assert_int_equal(released, 0);
  ready_is(buffer, false);
  drop(buffer); /* what was begun is ended without it */
  assert_int_equal(released, 0);
  accel.tt_accel_hold(false);
  while (!released) nap();
  assert_int_equal(released, 1);
}

static void test_own_data_is_copied_at_once(void **state) {
  (void)state;
  float data[6];
  memcpy(data, ONE, sizeof ONE);
  accel.tt_accel_hold(true);
  tt_buffer *buffer = upload(data);
  memcpy(data, TWO, sizeof TWO);
  accel.tt_accel_hold(false);
  holds(buffer, ONE);
  drop(buffer);
}

/* -- Time -- */

static void test_executions_end_later(void **state) {
  (void)state;
  tt_executable *add = compile(ADD);
  tt_buffer *a = upload(ONE), *b = upload(TWO), *sum = NULL;
  tt_event *done = NULL;
  ok(tt_buffer_await(client, a));
  ok(tt_buffer_await(client, b));
  accel.tt_accel_hold(true);
  ok(tt_execute(add, device, (tt_buffer *[]){a, b}, 2, NULL, 0, &sum, &done));
  tt_buffer *more = run(add, sum, a); /* of what is not there yet */
  drop(sum);
  tt_executable_destroy(add); /* while it is used */
  nap();
  assert_false(tt_event_ready(client, done));
  ready_is(more, false);
  accel.tt_accel_hold(false);
  ok(tt_event_await(client, done));
  holds(more, MORE);
  ready_is(more, true);
  tt_event_destroy(client, done);
  drop(a);
  drop(b);
  drop(more);
}

static void test_downloads_end_later(void **state) {
  (void)state;
  tt_buffer *buffer = upload(ONE);
  float back[6];
  ok(tt_buffer_await(client, buffer));
  memcpy(back, ONE, sizeof back);
  accel.tt_accel_hold(true);
  tt_event *event = download(buffer, back);
  drop(buffer);
  nap();
  assert_false(tt_event_ready(client, event));
  assert_memory_not_equal(back, ONE, sizeof back); /* also what was right before */
  accel.tt_accel_hold(false);
  ok(tt_event_await(client, event));
  assert_memory_equal(back, ONE, sizeof back);
  tt_event_destroy(client, event);
}

enum { MANY = 24 };
static atomic_int ended;
static int ranks[MANY];

static void note_rank(PJRT_Error *error, void *user) {
  assert_null(error);
  *(int *)user = atomic_fetch_add(&ended, 1);
}

/* Writes to `ranks` as the how-manieth each event came. */
static void rank_events(tt_event **events) {
  ended = 0;
  for (int i = 0; i < MANY; i++) {
    TT_ARGS(Event_OnReady, args, .event = events[i], .callback = note_rank, .user_arg = &ranks[i]);
    ok(TT_CALL(client->api, Event_OnReady, &args));
  }
  accel.tt_accel_hold(false);
  while (ended < MANY) nap();
  for (int i = 0; i < MANY; i++) tt_event_destroy(client, events[i]);
}

static bool in_order(void) {
  for (int i = 0; i < MANY; i++)
    if (ranks[i] != i) return false;
  return true;
}

static void test_executions_keep_order(void **state) {
  (void)state;
  tt_executable *add = compile(ADD);
  tt_buffer *a = upload(ONE), *b = upload(TWO);
  tt_event *events[MANY];
  accel.tt_accel_hold(true);
  for (int i = 0; i < MANY; i++) {
    tt_buffer *sum = NULL;
    ok(tt_execute(add, device, (tt_buffer *[]){a, b}, 2, NULL, 0, &sum, &events[i]));
    drop(sum);
  }
  rank_events(events);
  assert_true(in_order());
  drop(a);
  drop(b);
  tt_executable_destroy(add);
}

static void test_copies_keep_no_order(void **state) {
  (void)state;
  tt_buffer *source = upload(ONE), *copies[MANY];
  tt_event *events[MANY];
  float back[MANY][6];
  ok(tt_buffer_await(client, source));
  accel.tt_accel_hold(true);
  for (int i = 0; i < MANY; i++) events[i] = download(source, back[i]);
  rank_events(events);
  assert_false(in_order());
  accel.tt_accel_hold(true);
  for (int i = 0; i < MANY; i++) {
    copies[i] = upload(ONE);
    events[i] = ready_event(copies[i]);
  }
  rank_events(events);
  assert_false(in_order());
  for (int i = 0; i < MANY; i++) drop(copies[i]);
  drop(source);
}

/* A copy does not wait for executions that it has nothing to do with. */
static void test_copies_pass_executions(void **state) {
  (void)state;
  tt_client_destroy(client);
  setenv("TT_ACCEL_DELAY_US", "2000", 1);
  open_client();
  unsetenv("TT_ACCEL_DELAY_US");
  tt_executable *add_to = compile(ADD_TO);
  tt_buffer *a = upload(ONE), *b = upload(TWO);
  for (int i = 0; i < MANY; i++) { /* a long queue */
    tt_buffer *next = run(add_to, a, b);
    drop(a);
    a = next;
  }
  holds(b, TWO);
  ready_is(a, false);
  ok(tt_buffer_await(client, a));
  drop(a);
  drop(b);
  tt_executable_destroy(add_to);
}

/* Which of 64 executions fail by chance, as bits. */
static uint64_t pattern(const char *seed) {
  uint64_t bits = 0;
  setenv("TT_ACCEL_SEED", seed, 1);
  tt_client *old = client;
  open_client();
  tt_executable *add = compile(ADD);
  tt_buffer *a = upload(ONE), *result = NULL;
  assert_true(accel.tt_accel_fail("execute:p0.5"));
  for (int i = 0; i < 64; i++) {
    tt_status status = tt_execute(add, device, (tt_buffer *[]){a, a}, 2, NULL, 0, &result, NULL);
    bits |= (uint64_t)(status != TT_SUCCESS) << i;
    tt_status_release(status);
    if (result) ok(tt_buffer_await(client, result));
    drop(result);
  }
  assert_true(accel.tt_accel_fail(""));
  drop(a);
  tt_executable_destroy(add);
  tt_client_destroy(client);
  client = old;
  device = tt_client_device(client, 0);
  return bits;
}

static void test_seeds(void **state) {
  (void)state;
  uint64_t first = pattern("1");
  assert_true(first && ~first);
  assert_true(pattern("1") == first);
  assert_true(pattern("2") != first);
}

/* -- Memory that ends -- */

static void test_memory(void **state) {
  (void)state;
  enum { FIT = 16384 / BLOCK };
  tt_type type = matrix();
  tt_buffer *buffers[FIT], *none = NULL;
  int64_t used = 0, limit = 0;
  for (int i = 0; i < FIT; i++) buffers[i] = upload(ONE);
  ok(tt_pjrt_device_memory(device, &used, &limit));
  assert_true(used == 16384 && limit == 16384);
  fails(tt_buffer_from_host(device, &type, ONE, NULL, NULL, &none), TT_RESOURCE_EXHAUSTED,
        "Out of memory");
  tt_executable *add = compile(ADD), *add_to = compile(ADD_TO);
  run_fails(add, buffers[0], buffers[1], TT_RESOURCE_EXHAUSTED, "Out of memory");
  fails(tt_buffer_copy_to_device(client, buffers[0], device, &none), TT_INVALID_ARGUMENT,
        "already on");
  tt_buffer *sum = run(add_to, buffers[0], buffers[1]); /* in the place of a donated argument */
  drop(upload_to(tt_client_device(client, 1), ONE));    /* of another device */
  holds(sum, (float[]){2, 4, 6, 8, 10, 12});
  drop(sum);
  assert_int_equal(in_use(device), 16384 - BLOCK);
  drop(upload(ONE));
  for (int i = 0; i < FIT; i++) drop(buffers[i]);
  while (in_use(device)) nap(); /* the last upload may go on without its buffer */
  tt_executable_destroy(add);
  tt_executable_destroy(add_to);
}

/* Memory is free after its last use, not after its handle. */
static void test_memory_in_use(void **state) {
  (void)state;
  tt_executable *add = compile(ADD);
  tt_buffer *a = upload(ONE), *b = upload(TWO);
  ok(tt_buffer_await(client, a));
  ok(tt_buffer_await(client, b));
  assert_int_equal(in_use(device), 2 * BLOCK);
  accel.tt_accel_hold(true);
  tt_buffer *sum = run(add, a, b);
  drop(a);
  drop(b);
  assert_int_equal(in_use(device), 3 * BLOCK);
  accel.tt_accel_hold(false);
  holds(sum, SUM);
  assert_int_equal(in_use(device), BLOCK);
  drop(sum);
  tt_executable_destroy(add);
}

/* -- Donation -- */

static void test_donated_is_gone(void **state) {
  (void)state;
  tt_executable *add = compile(ADD), *add_to = compile(ADD_TO);
  tt_buffer *a = upload(ONE), *b = upload(TWO), *none = NULL, *kept = NULL;
  run_fails(add_to, a, a, TT_INVALID_ARGUMENT, "donate the same buffer twice");
  ok(tt_execute(add_to, device, (tt_buffer *[]){a, b}, 2, (int64_t[]){0}, 1, &kept, NULL));
  assert_false(tt_buffer_deleted(client, a));
  holds(a, ONE);
  holds(kept, SUM);
  accel.tt_accel_hold(true);
  tt_buffer *sum = run(add_to, a, b);
  assert_true(tt_buffer_deleted(client, a)); /* although nothing was computed yet */
  assert_false(tt_buffer_deleted(client, b));
  run_fails(add, a, b, TT_INVALID_ARGUMENT, "deleted or donated");
  fails(tt_buffer_await(client, a), TT_INVALID_ARGUMENT, "deleted or donated");
  fails(tt_buffer_copy_to_device(client, a, tt_client_device(client, 1), &none),
        TT_INVALID_ARGUMENT, "deleted or donated");
  tt_type type = matrix();
  float back[6];
  fails(tt_buffer_to_host(client, a, &type, back, sizeof back), TT_INVALID_ARGUMENT,
        "deleted or donated");
  accel.tt_accel_hold(false);
  holds(sum, SUM);
  drop(a);
  drop(b);
  drop(kept);
  drop(sum);
  tt_executable_destroy(add);
  tt_executable_destroy(add_to);
}

/* What reads an argument before it is donated reads its value. */
static void test_donation_waits_for_readers(void **state) {
  (void)state;
  tt_executable *add_to = compile(ADD_TO);
  tt_buffer *b = upload(TWO);
  for (int i = 0; i < MANY; i++) {
    tt_buffer *a = upload(ONE), *copy = NULL;
    float back[6];
    tt_event *event = download(a, back);
    ok(tt_buffer_copy_to_device(client, a, tt_client_device(client, 1), &copy));
    tt_buffer *sum = run(add_to, a, b);
    drop(a);
    ok(tt_event_await(client, event));
    assert_memory_equal(back, ONE, sizeof back);
    holds(copy, ONE);
    holds(sum, SUM);
    tt_event_destroy(client, event);
    drop(copy);
    drop(sum);
  }
  drop(b);
  tt_executable_destroy(add_to);
}

/* -- What it does not know -- */

static void test_client_options(void **state) {
  (void)state;
  PJRT_NamedValue option = {.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                            .name = "cpu_device_count",
                            .name_size = strlen("cpu_device_count"),
                            .type = PJRT_NamedValue_kInt64,
                            .value.int64_value = 2,
                            .value_size = 1};
  TT_ARGS(Client_Create, args, .create_options = &option, .num_options = 1);
  fails(TT_CALL(client->api, Client_Create, &args), TT_INVALID_ARGUMENT, "cpu_device_count");
  tt_client *none = NULL;
  setenv("TT_ACCEL_FAIL", "sometimes", 1);
  fails(tt_client_create(plugin, NULL, &none), TT_INVALID_ARGUMENT, "sometimes");
  unsetenv("TT_ACCEL_FAIL");
}

static void compile_fails(const char *text, const tt_compile_options *options, tt_code code,
                          const char *words) {
  tt_executable *none = NULL;
  fails(tt_compile(client, text, strlen(text), options, &none), code, words);
  assert_null(none);
}

static void test_compile_options(void **state) {
  (void)state;
  const char *names[] = {"xla_backend_optimization_level", "xla_cpu_enable_fast_min_max"};
  const char *values[] = {"1", "False"};
  tt_compile_options options = {.portable = true,
                                .optimization_level = 2,
                                .override_names = names,
                                .override_values = values,
                                .override_count = 1};
  tt_executable *add = NULL;
  ok(tt_compile(client, ADD, strlen(ADD), &options, &add));
  tt_executable_destroy(add);
  options.override_count = 2;
  compile_fails(ADD, &options, TT_INVALID_ARGUMENT, "xla_cpu_enable_fast_min_max");
}

/* As StableHLO has it, which the CPU's compiler does only when it is told. */
static void test_a_maximum_keeps_nan(void **state) {
  (void)state;
  static const float some[6] = {NAN, 2, NAN, 4, 5, 6}, others[6] = {1, NAN, NAN, 1, 9, 6};
  tt_type type = matrix();
  tt_executable *maximum = compile(MAXIMUM);
  tt_buffer *a = upload(some), *b = upload(others), *c = run(maximum, a, b);
  float back[6] = {0};
  ok(tt_buffer_to_host(client, c, &type, back, sizeof back));
  for (int i = 0; i < 3; i++) assert_true(isnan(back[i]));
  assert_memory_equal(back + 3, ((float[]){4, 9, 6}), 3 * sizeof *back);
  drop(a), drop(b), drop(c);
  tt_executable_destroy(maximum);
}

static void test_programs(void **state) {
  (void)state;
  static const char call[] =
      "module { func.func public @main(%arg0: " MATRIX ") -> (" MATRIX ") {"
      " %0 = \"stablehlo.custom_call\"(%arg0) {call_target_name = \"torch_tpu.potrf\","
      " api_version = 4 : i32} : (" MATRIX ") -> " MATRIX " \"func.return\"(%0) : (" MATRIX
      ") -> () } }";
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  compile_fails(call, &options, TT_UNIMPLEMENTED, "torch_tpu.potrf");
  compile_fails("ML\xefR", &options, TT_UNIMPLEMENTED, "as text");
  compile_fails("module {}", &options, TT_INVALID_ARGUMENT, "no @main");
  compile_fails("module { func.func @main(%arg0: tensor<", &options, TT_INVALID_ARGUMENT, "@main");
  tt_topology *topology = NULL;
  fails(tt_topology_create(plugin, "v5e:2x2", &topology), TT_UNIMPLEMENTED, "v5e:2x2");
}

static void test_arguments(void **state) {
  (void)state;
  tt_executable *add = compile(ADD);
  tt_buffer *a = upload(ONE), *far = upload_to(tt_client_device(client, 1), TWO), *none = NULL;
  run_fails(add, a, far, TT_INVALID_ARGUMENT, "argument 1 is on AccelDevice(1)");
  fails(tt_execute(add, device, &a, 1, NULL, 0, &none, NULL), TT_INVALID_ARGUMENT,
        "1 arguments, expected 2");
  drop(a);
  drop(far);
  tt_executable_destroy(add);
}

/* -- Failures on demand -- */

static void test_failures_in_the_call(void **state) {
  (void)state;
  tt_type type = matrix();
  tt_executable *add = compile(ADD), *add_to = compile(ADD_TO);
  tt_buffer *a = upload(ONE), *b = upload(TWO), *none = NULL;
  assert_true(accel.tt_accel_fail("execute:2:14,h2d:1,d2h:1:15,d2d:1,compile:1:13"));
  drop(run(add, a, b));
  run_fails(add_to, a, b, TT_UNAVAILABLE, "execute on demand");
  assert_false(tt_buffer_deleted(client, a)); /* nothing was taken */
  drop(run(add, a, b));
  fails(tt_buffer_from_host(device, &type, ONE, NULL, NULL, &none), TT_INTERNAL, "h2d on demand");
  float back[6];
  fails(tt_buffer_to_host(client, a, &type, back, sizeof back), TT_DATA_LOSS, "d2h on demand");
  fails(tt_buffer_copy_to_device(client, a, tt_client_device(client, 1), &none), TT_INTERNAL,
        "d2d on demand");
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  compile_fails(ADD, &options, TT_INTERNAL, "compile on demand");
  assert_true(accel.tt_accel_fail("alloc:1"));
  run_fails(add, a, b, TT_RESOURCE_EXHAUSTED, "alloc on demand");
  holds(a, ONE);
  drop(a);
  drop(b);
  tt_executable_destroy(add);
  tt_executable_destroy(add_to);
}

static void test_failures_later(void **state) {
  (void)state;
  tt_type type = matrix();
  atomic_int released = 0;
  tt_executable *add = compile(ADD), *add_to = compile(ADD_TO);
  tt_buffer *a = upload(ONE), *b = upload(TWO), *lost = NULL, *far = NULL, *sum = NULL;
  tt_event *done = NULL;
  assert_true(accel.tt_accel_fail("execute-async:1:14,h2d-async:1:15,d2d-async:2,d2h-async:1:9"));
  ok(tt_execute(add_to, device, (tt_buffer *[]){a, b}, 2, NULL, 0, &sum, &done));
  assert_true(tt_buffer_deleted(client, a)); /* taken before it failed */
  tt_buffer *next = run(add, sum, b);
  ok(tt_buffer_copy_to_device(client, next, tt_client_device(client, 1), &far));
  fails(tt_event_await(client, done), TT_UNAVAILABLE, "execute, after the call");
  float back[6];
  fails(tt_buffer_to_host(client, b, &type, back, sizeof back), TT_FAILED_PRECONDITION,
        "d2h, after the call");
  has_failed(sum, TT_UNAVAILABLE, "execute, after the call");
  has_failed(next, TT_UNAVAILABLE, "execute, after the call"); /* and what follows from it */
  has_failed(far, TT_UNAVAILABLE, "execute, after the call");
  ok(tt_buffer_from_host(device, &type, ONE, count_release, &released, &lost));
  has_failed(lost, TT_DATA_LOSS, "h2d, after the call");
  drop(far);
  ok(tt_buffer_copy_to_device(client, b, tt_client_device(client, 1), &far));
  has_failed(far, TT_INTERNAL, "d2d, after the call");
  while (!released) nap();
  tt_buffer *all[] = {a, b, sum, next, far, lost};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
  tt_event_destroy(client, done);
  tt_executable_destroy(add);
  tt_executable_destroy(add_to);
}

static void test_failure_lists(void **state) {
  (void)state;
  static const char *const bad[] = {
      "execute", "execute:", "execute:0", "execute:1:", "run:1",        "h2d:p2",
      "h2d:p",   "d2h:1:17", "d2h:1x",    "alloc:1;2",  "alloc-async:1"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (accel.tt_accel_fail(bad[i])) fail_msg("'%s' was read", bad[i]);
  assert_true(accel.tt_accel_fail("d2h:p0,execute-async:p0.01:8,alloc:3"));
  assert_int_equal(accel.tt_accel_count("run"), -1);
}

/* -- Several devices, stored programs, the end -- */

static void test_copy_to_device(void **state) {
  (void)state;
  tt_executable *add = compile(ADD);
  tt_pjrt_device *other = tt_client_device(client, 1);
  tt_buffer *a = upload(ONE), *b = upload(TWO), *far = NULL;
  int64_t to_host = accel.tt_accel_count("d2h"), to_device = accel.tt_accel_count("h2d");
  accel.tt_accel_hold(true);
  tt_buffer *sum = run(add, a, b); /* on its way before it is there */
  ok(tt_buffer_copy_to_device(client, sum, other, &far));
  drop(sum);
  ready_is(far, false);
  accel.tt_accel_hold(false);
  ok(tt_buffer_await(client, far));
  assert_int_equal(accel.tt_accel_count("d2h"), to_host); /* not through the host */
  assert_int_equal(accel.tt_accel_count("h2d"), to_device);
  holds(far, SUM);
  drop(a);
  drop(b);
  drop(far);
  tt_executable_destroy(add);
}

/* Launches on both devices, between those on one. */
static void test_all_reduce(void **state) {
  (void)state;
  static const char text[] =
      "module { func.func public @main(%arg0: " MATRIX ") -> (" MATRIX ") {"
      " %0 = \"stablehlo.all_reduce\"(%arg0) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):"
      " %s = \"stablehlo.add\"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>"
      " \"stablehlo.return\"(%s) : (tensor<f32>) -> () })"
      " {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (" MATRIX ") -> " MATRIX
      " \"func.return\"(%0) : (" MATRIX ") -> () } }";
  tt_compile_options options = {.num_replicas = 2, .optimization_level = -1};
  tt_executable *reduce = NULL, *add = compile(ADD);
  tt_pjrt_device *devices[2] = {NULL};
  int count = 0;
  ok(tt_compile(client, text, strlen(text), &options, &reduce));
  ok(tt_executable_devices(reduce, devices, 2, &count));
  assert_int_equal(count, 2);
  for (int i = 0; i < 4; i++) {
    tt_buffer *first = upload_to(devices[0], ONE), *second = upload_to(devices[1], TWO);
    tt_buffer *zero = upload((float[6]){0}), *one = run(add, first, zero);
    tt_buffer *const *arguments[2] = {&one, &second};
    tt_buffer *sums[2] = {NULL}, **outputs[2] = {&sums[0], &sums[1]};
    ok(tt_execute_all(reduce, 2, arguments, 1, NULL, 0, outputs, NULL));
    tt_buffer *more = run(add, sums[0], first);
    holds(more, MORE);
    holds(sums[1], SUM);
    tt_buffer *all[] = {first, second, zero, one, sums[0], sums[1], more};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) drop(all[k]);
  }
  tt_executable_destroy(add);
  tt_executable_destroy(reduce);
}

static void test_stored_programs(void **state) {
  (void)state;
  tt_executable *add_to = compile(ADD_TO), *copy = NULL;
  void *data = NULL;
  size_t size = 0;
  tt_program_memory memory;
  ok(tt_executable_memory(add_to, &memory));
  assert_true(memory.arguments == 48 && memory.aliased == 24);
  ok(tt_executable_serialize(add_to, &data, &size));
  tt_executable_destroy(add_to);
  ok(tt_executable_load(client, data, size, &copy));
  tt_buffer *a = upload(ONE), *b = upload(TWO), *sum = run(copy, a, b);
  assert_true(tt_buffer_deleted(client, a)); /* donation is stored, too */
  assert_false(tt_buffer_deleted(client, b));
  holds(sum, SUM);
  drop(a);
  drop(b);
  drop(sum);
  tt_executable_destroy(copy);
  fails(tt_executable_load(client, "not a program", 13, &copy), TT_INVALID_ARGUMENT, "not a");
  tt_status status = tt_executable_load(client, data, 14, &copy);
  assert_non_null(status);
  tt_status_release(status);
  tt_free(data);
}

static void test_small_shapes(void **state) {
  (void)state;
  int64_t dims[] = {0, 4};
  tt_type empty = tt_type_make(TT_F32, 2, dims);
  tt_buffer *buffer = NULL;
  ok(tt_buffer_from_host(device, &empty, NULL, NULL, NULL, &buffer));
  ok(tt_buffer_to_host(client, buffer, &empty, NULL, 0));
  drop(buffer);
#define X(name, number, mlir, bytes, kind)                                                         \
  {                                                                                                \
    char raw[16] = {1}, got[16] = {0};                                                             \
    tt_type one = tt_type_make(TT_##name, 0, NULL);                                                \
    ok(tt_buffer_from_host(device, &one, raw, NULL, NULL, &buffer));                               \
    ok(tt_buffer_to_host(client, buffer, &one, got, bytes));                                       \
    assert_memory_equal(raw, got, bytes);                                                          \
    drop(buffer);                                                                                  \
  }
  TT_DTYPES(X)
#undef X
}

/* A buffer that outlives its client crashes other plugins. */
static void test_forgotten_buffers(void **state) {
  (void)state;
  tt_buffer *forgotten = upload(ONE);
  TT_ARGS(Client_Destroy, args, .client = client->raw);
  fails(TT_CALL(client->api, Client_Destroy, &args), TT_FAILED_PRECONDITION, "1 buffers");
  drop(forgotten);
}

/* Several threads, each with a chain of its own through all kinds of work. */
static void *chain(void *user) {
  tt_executable *add_to = user;
  tt_buffer *one = upload(ONE), *sum = upload((float[6]){0}), *far = NULL;
  for (int i = 0; i < 100; i++) {
    tt_buffer *arguments[] = {sum, one}, *next = NULL;
    ok(tt_execute(add_to, device, arguments, 2, NULL, 0, &next, NULL));
    drop(sum);
    sum = next;
    if (i % 10) continue;
    ok(tt_buffer_copy_to_device(client, sum, tt_client_device(client, 1), &far));
    drop(far);
  }
  holds(sum, (float[]){100, 200, 300, 400, 500, 600});
  drop(one);
  drop(sum);
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  tt_executable *add_to = compile(ADD_TO);
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, chain, add_to), 0);
  for (int i = 0; i < 3; i++) (void)pthread_join(threads[i], NULL);
  tt_executable_destroy(add_to);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_no_host_memory),
      TEST(test_layout_is_needed),
      TEST(test_devices),
      TEST(test_lent_data_is_read_later),
      TEST(test_release_comes_later),
      TEST(test_own_data_is_copied_at_once),
      TEST(test_executions_end_later),
      TEST(test_downloads_end_later),
      TEST(test_executions_keep_order),
      TEST(test_copies_keep_no_order),
      TEST(test_copies_pass_executions),
      TEST(test_seeds),
      TEST(test_memory),
      TEST(test_memory_in_use),
      TEST(test_donated_is_gone),
      TEST(test_donation_waits_for_readers),
      TEST(test_client_options),
      TEST(test_compile_options),
      TEST(test_a_maximum_keeps_nan),
      TEST(test_programs),
      TEST(test_arguments),
      TEST(test_failures_in_the_call),
      TEST(test_failures_later),
      TEST(test_failure_lists),
      TEST(test_copy_to_device),
      TEST(test_all_reduce),
      TEST(test_stored_programs),
      TEST(test_small_shapes),
      TEST(test_forgotten_buffers),
      TEST(test_threads),
  };
  const char *path = getenv("TT_ACCEL_PLUGIN");
  if (!path || !getenv("TT_CPU_PLUGIN")) {
    print_message("skipped: TT_ACCEL_PLUGIN or TT_CPU_PLUGIN is not set\n");
    return 0;
  }
  void *library = dlopen(path, RTLD_NOW);
  if (!library || tt_plugin_open(path, &plugin)) return 1;
#define X(type, name, arguments) *(void **)&accel.name = dlsym(library, #name);
  CONTROLS(X)
#undef X
  return cmocka_run_group_tests(tests, NULL, NULL);
}
