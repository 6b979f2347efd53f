/* The op stream on the fake plugin: storages, recording, waiting, errors, donation, memory. */
#include "support.h"

#include "stream/value.h"

#include <stdio.h>

static tt_stream *stream, *other; /* of two devices */

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  setenv("TORCH_TPU_FUSED_TIER", "chunks", 1);
  setenv("TT_FAKE_DEVICES", "2", 1);
  tt_status status = session_open(getenv("TT_FAKE_PLUGIN"));
  stream = stream_at(0);
  other = stream_at(1);
  return status || !stream || !other ? -1 : 0;
}

static int reset(void **state) {
  (void)state;
  fake_reset();
  return session_sync() || (policy.mode = TT_MODE_STRICT, 0);
}

static tt_type vector(int64_t n) { return tt_type_make(TT_F32, 1, &n); }

static tt_storage *floats(int64_t n, float value) {
  float *data = malloc((size_t)n * sizeof *data);
  assert_non_null(data);
  for (int64_t i = 0; i < n; i++) data[i] = value;
  tt_storage *storage = storage_of(stream, vector(n), data);
  free(data);
  return storage;
}

/* The first element, of a storage of any number of floats. */
static float first_of(tt_storage *storage) {
  float data[4096];
  ok(storage_read(storage, data, tt_storage_bytes(storage)));
  return data[0];
}

static int64_t allocated(void) {
  tt_memory memory;
  memory_of(stream, &memory);
  return memory.allocated;
}

/* Everything that will be called is compiled, so that the next call of the plugin is the launch. */
static void warm_up(tt_storage *a) {
  tt_storage *out = NULL;
  ok(record_add(stream, a, a, &out));
  ok(record_add_into(stream, out, NULL, out, NULL));
  ok(stream_sync(stream));
  tt_storage_release(out);
}

/* -- The session -- */

static void test_session(void **state) {
  (void)state;
  assert_int_equal(session->device_count, 2);
  assert_null(stream_at(-1));
  assert_null(stream_at(2));
  assert_int_equal(other->device->index, 1);
  assert_non_null(session->plugin);
  tt_session *none = NULL;
  fails(tt_session_create("/nowhere", NULL, &none), TT_NOT_FOUND, "/nowhere");
  assert_null(none);
}

static void test_sites(void **state) {
  (void)state;
  uint32_t site = tt_site_add("net.py", 12, "forward");
  assert_string_equal(tt_site_text(site), "net.py:12 in forward");
  assert_string_equal(tt_site_text(0), "");
  assert_string_equal(tt_site_text(site + 1), "");
  for (int i = 0; i < 70000; i++) assert_int_equal(tt_site_add("net.py", 12, "forward"), site);
  assert_int_equal(tt_site_count(), site + 1);
  tt_alloc_fail_at(1, false);
  assert_int_equal(tt_site_add("net.py", 13, "forward"), 0);
}

static void test_counters(void **state) {
  (void)state;
  int64_t syncs = tt_count_get(TT_COUNT_SYNCS);
  ok(session_sync());
  assert_int_equal(tt_count_get(TT_COUNT_SYNCS), syncs + 2);
  assert_string_equal(tt_count_name(TT_COUNT_SYNCS), "SYNCS");
}

/* -- Storages -- */

static void test_undefined_reads_as_zeros(void **state) {
  (void)state;
  tt_storage *a = storage_new(stream, vector(3)), *sum = NULL;
  float data[3] = {1, 1, 1};
  ok(storage_read(a, data, sizeof data));
  assert_true(data[0] == 0 && data[1] == 0 && data[2] == 0);
  ok(record_add(stream, a, a, &sum)); /* and as an operand */
  assert_true(first_of(sum) == 0);
  tt_storage_release(a);
  tt_storage_release(sum);
}

static void test_write_and_read(void **state) {
  (void)state;
  int64_t dims[2] = {2, 2};
  float data[4] = {1, 2, 3, 4}, back[4];
  tt_storage *a = storage_new(stream, vector(4));
  tt_type square = type_of(TT_F32, 2, dims), bytes = type_of(TT_U8, 1, DIMS(5));
  for (int round = 0; round < 3; round++) {
    ok(storage_write(a, &square, data, 0));
    data[1] = 9; /* the storage has its own copy */
    ok(storage_read(a, back, sizeof back));
    assert_true(back[0] == 1 && back[1] == 2 && back[3] == 4);
    data[1] = 2;
  }
  assert_true(tt_type_equal(a->type, &square));
  fails(storage_read(a, back, 4), TT_INVALID_ARGUMENT, "destination has 4 bytes");
  ok(storage_write(a, &bytes, "hello", 0)); /* another type: the storage takes it */
  char text[5];
  ok(storage_read(a, text, 5));
  assert_memory_equal(text, "hello", 5);
  assert_int_equal(tt_storage_bytes(a), 5);
  tt_storage_release(a);
  tt_storage_release(NULL);
}

static void test_memory_is_accounted(void **state) {
  (void)state;
  tt_memory before, after;
  memory_of(stream, &before);
  assert_int_equal(before.limit, (int64_t)1 << 30);
  tt_storage *a = floats(256, 1), *b = NULL, *empty = storage_of(stream, vector(0), NULL);
  ok(record_add(stream, a, a, &b));
  ok(stream_sync(stream));
  memory_of(stream, &after);
  assert_int_equal(after.allocated - before.allocated, 2048);
  assert_int_equal(after.allocations - before.allocations, 3);
  assert_true(after.peak >= after.allocated);
  tt_storage_release(a);
  tt_storage_release(b);
  tt_storage_release(empty);
  memory_of(stream, &after);
  assert_int_equal(after.allocated, before.allocated);
  assert_int_equal(after.allocations - after.frees, before.allocations - before.frees);
  assert_int_equal(after.total_allocated - before.total_allocated, 2048);
  tt_account_reset_peak(&stream->device->account);
  tt_account_reset_totals(&stream->device->account);
  memory_of(stream, &after);
  assert_true(after.peak == after.allocated && after.total_allocated == 0 && after.frees == 0);
}

static void test_resize(void **state) {
  (void)state;
  tt_storage *a = storage_new(stream, vector(4));
  ok(storage_resize(a, 40)); /* undefined stays undefined */
  assert_int_equal(tt_storage_bytes(a), 40);
  assert_null(a->value);
  fails(storage_resize(a, -1), TT_INVALID_ARGUMENT, "-1 bytes");
  tt_storage_release(a);
  static const int64_t sizes[] = {64, 16, 3, 7, 16, 0, 8};
  a = floats(4, 1);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    ok(storage_resize(a, sizes[i]));
    assert_int_equal(tt_storage_bytes(a), sizes[i]);
    char data[64];
    ok(storage_read(a, data, sizes[i]));
  }
  tt_storage_release(a);
}

/* -- Recording -- */

static void test_record(void **state) {
  (void)state;
  int64_t launches = fake.tt_fake_launches();
  tt_storage *a = floats(8, 1), *b = floats(8, 2), *sum = NULL;
  ok(record_add(stream, a, b, &sum));
  assert_true(tt_type_equal(sum->type, a->type));
  assert_true(first_of(sum) == 0); /* the fake plugin's sums */
  assert_true(first_of(a) == 1 && first_of(b) == 2);
  ok(record_add_into(stream, a, NULL, b, NULL));
  assert_true(first_of(a) == 0 && first_of(b) == 2);
  assert_int_equal(fake.tt_fake_launches() - launches, 2);
  assert_int_equal(tt_count_get(TT_COUNT_LAUNCHES), fake.tt_fake_launches());
  tt_storage_release(a);
  tt_storage_release(b);
  tt_storage_release(sum);
}

static void test_more_than_the_queue_holds(void **state) {
  (void)state;
  int64_t before = allocated();
  for (int async = 0; async < 2; async++) {
    fake.tt_fake_async(async);
    tt_storage *a = floats(8, 1), *b = floats(8, 2);
    int64_t launches = fake.tt_fake_launches();
    int count = async ? 1500 : 5000;
    for (int i = 0; i < count; i++) {
      ok(record_add_into(stream, a, NULL, b, NULL));
      if (i % 7) continue;
      tt_storage *kept = a;
      ok(record_add(stream, kept, b, &a));
      tt_storage_release(kept); /* still an operand of what is pending */
    }
    ok(stream_sync(stream));
    assert_true(stream_idle(stream));
    assert_int_equal(fake.tt_fake_launches() - launches, count + (count + 6) / 7);
    tt_storage_release(a);
    tt_storage_release(b);
    assert_int_equal(allocated(), before);
  }
}

static void test_tickets(void **state) {
  (void)state;
  for (int async = 0; async < 2; async++) {
    fake.tt_fake_async(async);
    tt_storage *a = floats(8, 1);
    uint64_t first = stream_ticket(stream);
    stream_wait(stream, first);
    assert_true(stream_passed(stream, first));
    for (int i = 0; i < 100; i++) ok(record_add_into(stream, a, NULL, a, NULL));
    uint64_t ticket = stream_ticket(stream);
    assert_true(ticket == first + 100);
    assert_false(stream_passed(stream, ticket + 1));
    if (async) assert_false(stream_passed(stream, ticket)); /* 20 ms from now */
    stream_wait(stream, first + 50);
    assert_true(stream_passed(stream, first + 50));
    stream_wait(stream, ticket);
    assert_true(stream_passed(stream, ticket) && stream_idle(stream));
    tt_storage_release(a);
  }
}

static void test_numbers_are_cached(void **state) {
  (void)state;
  tt_storage *a = floats(8, 1), *out = NULL;
  for (int i = 0; i < 3000; i++) { /* more than there are slots */
    ok(record_scale(stream, a, (float)(i % 1500), &out));
    tt_storage_release(out);
  }
  ok(stream_sync(stream));
  int64_t calls = fake.tt_fake_calls();
  for (int i = 0; i < 100; i++) {
    ok(record_scale(stream, a, 7, &out));
    tt_storage_release(out);
  }
  ok(stream_sync(stream));
  calls = fake.tt_fake_calls() - calls; /* Execute, Buffer_Destroy, four for the event */
  assert_true(calls < 100 * 7);
  tt_storage_release(a);
}

static void test_many_numbers(void **state) { /* too many words for the cache */
  (void)state;
  tt_storage *a = floats(8, 1), *results[REQUEST_MAX];
  request r = {.row = tt_op_find("mul.Tensor"),
               .tensor_count = 1,
               .tensors = {a},
               .arg_count = 2,
               .args = {{.kind = TT_ARG_TENSOR}, {.kind = TT_ARG_SCALAR, .first = 4}},
               .scalar_count = 5,
               .scalars = {TT_F64, TT_F64, TT_I64, TT_I64, TT_F64}};
  for (int i = 0; i < 3; i++) {
    ok(request_record(stream, &r, results));
    assert_true(first_of(results[0]) == 0);
    tt_storage_release(results[0]);
  }
  tt_storage_release(a);
}

/* -- Fused mode -- */

static void one_iteration(tt_storage *a, tt_storage *b) {
  for (int i = 0; i < 10; i++) {
    tt_storage *sum = NULL, *scaled = NULL;
    ok(record_add(stream, a, b, &sum));
    ok(record_scale(stream, sum, (float)i, &scaled));
    ok(record_add_into(stream, i % 3 ? a : b, NULL, scaled, NULL));
    tt_storage_release(sum);
    tt_storage_release(scaled);
  }
}

static void test_a_fused_loop_settles(void **state) {
  (void)state;
  int64_t before = allocated(), programs = 0, launches = 0;
  policy.mode = TT_MODE_FUSED;
  tt_storage *a = floats(9, 1), *b = floats(9, 2);
  for (int i = 0; i < 100; i++) {
    one_iteration(a, b);
    if (i == 50) programs = tt_count_get(TT_COUNT_PROGRAMS);
    if (i == 50) launches = fake.tt_fake_launches();
  }
  assert_int_equal(tt_count_get(TT_COUNT_PROGRAMS), programs);
  ok(stream_sync(stream));
  launches = fake.tt_fake_launches() - launches;
  assert_true(launches > 0 && launches < 49 * 30 / 10);
  assert_true(first_of(a) == 0 && first_of(b) == 0);
  tt_storage_release(a);
  tt_storage_release(b);
  assert_int_equal(allocated(), before);
}

static void test_fused_errors(void **state) {
  (void)state;
  policy.mode = TT_MODE_FUSED;
  tt_storage *a = floats(10, 1), *bad = NULL, *dependent = NULL;
  ok(record_add(stream, a, a, &bad));
  ok(stream_sync(stream));
  tt_storage_release(bad);
  ok(record_add(stream, a, a, &bad)); /* the same chunk again, so it is compiled */
  uint64_t ticket = stream_ticket(stream);
  stream_wait(stream, ticket);
  tt_storage_release(bad);
  ok(record_add(stream, a, a, &bad));
  assert_true(stream_passed(stream, ticket)); /* what was recorded later does not count */
  fake.tt_fake_fail_at(1);
  fails(stream_sync(stream), TT_INTERNAL, "add.Tensor");
  ok(stream_sync(stream));
  ok(record_add(stream, bad, a, &dependent));
  ok(stream_sync(stream)); /* reported already */
  float data[10];
  fails(storage_read(dependent, data, sizeof data), TT_INTERNAL, "injected");
  tt_storage_release(dependent);
  ok(record_add(stream, a, a, &dependent));
  assert_true(first_of(dependent) == 0);
  tt_storage_release(a);
  tt_storage_release(bad);
  tt_storage_release(dependent);
}

/* A storage goes from mode to mode. */
static void test_modes_mixed(void **state) {
  (void)state;
  tt_storage *a = floats(8, 1), *b = floats(8, 2);
  static const tt_mode modes[] = {TT_MODE_FUSED, TT_MODE_STRICT, TT_MODE_FUSED, TT_MODE_DEBUG};
  for (int i = 0; i < 40; i++) {
    policy.mode = modes[i % 4];
    ok(record_add_into(stream, a, NULL, b, NULL));
    ok(record_add_into(stream, b, NULL, a, NULL));
    if (i % 9 == 0) ok(storage_resize(b, 40));
    if (i % 9 == 0) ok(storage_write(b, a->type, (float[8]){1}, 0));
  }
  assert_true(first_of(a) == 0);
  ok(stream_sync(stream));
  tt_storage_release(a);
  tt_storage_release(b);
}

/* -- Donation -- */

static void test_donation(void **state) {
  (void)state;
  tt_storage *a = floats(8, 1), *b = floats(8, 2), *sum = NULL;
  int64_t donated = fake.tt_fake_donations();
  ok(record_add_into(stream, a, NULL, b, NULL));
  ok(stream_sync(stream));
  assert_int_equal(fake.tt_fake_donations() - donated, 1);

  tt_value *held = tt_value_retain(a->value); /* as by somebody who reads it just now */
  ok(record_add_into(stream, a, NULL, b, NULL));
  ok(stream_sync(stream));
  assert_int_equal(fake.tt_fake_donations() - donated, 1);
  float back[8];
  ok(tt_buffer_to_host(session->client, held->buffer, held->holding.type, back, sizeof back));
  tt_value_release(held);

  ok(record_add_into(stream, a, NULL, a, NULL)); /* an operand twice, but one input */
  ok(record_add(stream, a, b, &sum));            /* no target, nothing to donate */
  ok(stream_sync(stream));
  assert_int_equal(fake.tt_fake_donations() - donated, 2);
  tt_storage_release(a);
  tt_storage_release(b);
  tt_storage_release(sum);
}

/* A tensor that an earlier operation, still in the queue, reads as well is not overwritten. */
static void test_readers_before_a_write(void **state) {
  (void)state;
  tt_storage *a = floats(8, 1), *kept[64];
  warm_up(a);
  for (int i = 0; i < 64; i++) {
    ok(record_add(stream, a, a, &kept[i]));
    ok(record_add_into(stream, a, NULL, kept[i], NULL));
  }
  ok(stream_sync(stream)); /* the plugin refuses deleted buffers */
  for (int i = 0; i < 64; i++) tt_storage_release(kept[i]);
  tt_storage_release(a);
}

/* -- Errors -- */

static void test_an_error_is_reported_once(void **state) {
  (void)state;
  tt_storage *a = floats(8, 1), *bad = NULL, *dependent = NULL, *good = NULL;
  warm_up(a);
  request r = {.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {a}};
  tt_storage *results[REQUEST_MAX];
  ok(request_record(stream, &r, results));
  tt_storage_release(results[0]);
  ok(stream_sync(stream));
  r.site = tt_site_add("train.py", 31, "step");
  fake.tt_fake_fail_at(1);
  ok(request_record(stream, &r, results));
  bad = results[0];
  ok(record_add(stream, bad, a, &dependent));
  ok(record_add(stream, a, a, &good));
  fails(stream_sync(stream), TT_INTERNAL,
        "neg, called at train.py:31 in step: PJRT_LoadedExecutable_Execute: injected");
  ok(stream_sync(stream));
  float data[8];
  fails(storage_read(bad, data, sizeof data), TT_INTERNAL, "neg, called at train.py:31");
  fails(storage_read(dependent, data, sizeof data), TT_INTERNAL, "neg, called at train.py:31");
  assert_true(first_of(good) == 0);
  ok(record_add_into(stream, dependent, NULL, a, NULL)); /* reported already */
  ok(stream_sync(stream));
  fails(storage_read(dependent, data, sizeof data), TT_INTERNAL, "neg, called at train.py:31");
  ok(storage_write(dependent, a->type, data, 0)); /* and healed */
  ok(record_add_into(stream, dependent, NULL, a, NULL));
  assert_true(first_of(dependent) == 0);
  ok(stream_sync(stream));
  tt_storage_release(a);
  tt_storage_release(bad);
  tt_storage_release(dependent);
  tt_storage_release(good);
}

static void test_a_read_reports_its_own_error(void **state) {
  (void)state;
  tt_storage *a = floats(8, 1), *first = NULL, *second = NULL;
  float data[8];
  warm_up(a);
  fake.tt_fake_fail_at(1);
  ok(record_add(stream, a, a, &first));
  fails(storage_read(first, data, sizeof data), TT_INTERNAL, "add.Tensor: PJRT_Loaded");
  ok(stream_sync(stream)); /* the read has reported it */
  tt_storage_release(first);
  ok(stream_sync(stream));
  fake.tt_fake_fail_at(1);
  ok(record_add(stream, a, a, &first));
  stream_wait(stream, stream_ticket(stream));
  tt_alloc_fail_at(1, true);
  tt_status status = record_add(stream, a, a, &second); /* another one fails at once */
  tt_alloc_fail_at(0, false);
  fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
  fails(stream_sync(stream), TT_INTERNAL, "add.Tensor: PJRT_Loaded");
  tt_storage_release(first);
  tt_storage_release(a);
}

static void test_asynchronous_errors(void **state) {
  (void)state;
  tt_storage *a = floats(8, 1), *bad = NULL, *dependent = NULL, *good = NULL;
  float data[8];
  warm_up(a);
  fake.tt_fake_async(true);
  for (int read = 0; read < 2; read++) {
    fake.tt_fake_fail_launch(1);
    ok(record_add(stream, a, a, &bad));
    ok(record_add(stream, bad, a, &dependent));
    for (int i = 0; i < 600; i++) { /* more than may be in flight */
      if (good) tt_storage_release(good);
      ok(record_add(stream, a, a, &good));
    }
    if (read) {
      fails(storage_read(bad, data, sizeof data), TT_INTERNAL, "add.Tensor: PJRT_Event");
    } else {
      fails(stream_sync(stream), TT_INTERNAL, "add.Tensor: PJRT_Event: injected");
      ok(stream_sync(stream));
    }
    fails(storage_read(bad, data, sizeof data), TT_INTERNAL, "injected asynchronous");
    fails(storage_read(dependent, data, sizeof data), TT_INTERNAL, "injected asynchronous");
    assert_true(first_of(good) == 0);
    tt_status_release(stream_sync(stream));
    tt_storage_release(bad);
    tt_storage_release(dependent);
    tt_storage_release(good);
    good = NULL;
  }
  tt_storage_release(a);
}

static void test_out_of_device_memory(void **state) {
  (void)state;
  int64_t before = allocated(),
          n = (int64_t)1 << 26; /* 256 MiB of 1 GiB, of which little is used */
  tt_storage *nothing = storage_new(stream, vector(n)), *big[4] = {NULL}, *again = NULL;
  for (int i = 0; i < 4; i++) ok(record_add(stream, nothing, nothing, &big[i]));
  fails(stream_sync(stream), TT_RESOURCE_EXHAUSTED, "Out of memory allocating 268435456");
  assert_int_equal(allocated() - before, 3 * n * 4);
  tt_storage_release(big[0]);
  ok(record_add(stream, nothing, nothing, &again)); /* there is room again */
  ok(stream_sync(stream));
  tt_storage_release(again);
  for (int i = 1; i < 4; i++) tt_storage_release(big[i]);
  tt_storage_release(nothing);
  assert_int_equal(allocated(), before);
}

static void test_debug_errors_come_at_once(void **state) {
  (void)state;
  policy.mode = TT_MODE_DEBUG;
  tt_storage *a = floats(8, 1), *b = floats(8, 1), *out = NULL;
  tt_storage *results[REQUEST_MAX];
  for (int async = 0; async < 2; async++) {
    fake_reset();
    warm_up(a);
    ok(storage_write(b, a->type, (float[8]){1}, 0));
    fake.tt_fake_async(async);
    const char *words = async ? "add.Tensor, called at f.py:1 in g: PJRT_Event_Await: injected"
                              : "add.Tensor, called at f.py:1 in g: PJRT_LoadedExecutable_Execute";
    tt_call *call = NULL;
    request r = {.row = tt_op_find("add.Tensor"), .tensor_count = 2, .tensors = {a, a}};
    r.arg_count = 3;
    r.args[0] = r.args[1] = (tt_arg){.kind = TT_ARG_TENSOR};
    r.args[2] = (tt_arg){.kind = TT_ARG_INT, .i = 1, .dtype = TT_I64};
    r.site = tt_site_add("f.py", 1, "g");
    ok(request_call(&r, &call));
    memset(results, 0xAB, sizeof results);
    if (async) fake.tt_fake_fail_launch(1);
    else fake.tt_fake_fail_at(1);
    fails(call_record(stream, call, &r, results), TT_INTERNAL, words);
    assert_null(results[0]);
    ok(stream_sync(stream)); /* it is reported, and only there */
    if (async) fake.tt_fake_fail_launch(1);
    else fake.tt_fake_fail_at(1);
    fails(record_add_into(stream, b, NULL, a, NULL), TT_INTERNAL, "add.Tensor: PJRT_");
    fails(record_add(stream, b, a, &out), TT_INTERNAL, "add.Tensor: PJRT_"); /* as its operand */
    float data[8];
    fails(storage_read(b, data, sizeof data), TT_INTERNAL, "add.Tensor: PJRT_");
    ok(record_add(stream, a, a, &out));
    assert_true(first_of(out) == 0);
    tt_storage_release(out);
  }
  tt_storage_release(a);
  tt_storage_release(b);
}

/* What the compiler refuses stays refused; what failed for want of memory is tried again. */
static void test_failed_compilations(void **state) {
  (void)state;
  tt_storage *a = floats(11, 1), *out = NULL;
  fake.tt_fake_fail_at(1);
  ok(record_add(stream, a, a, &out));
  fails(stream_sync(stream), TT_INTERNAL, "add.Tensor: PJRT_Client_Compile: injected");
  tt_storage_release(out);
  fake.tt_fake_fail_at(0);
  ok(record_add(stream, a, a, &out));
  fails(stream_sync(stream), TT_INTERNAL, "add.Tensor: PJRT_Client_Compile: injected");
  tt_storage_release(out);

  request r = {.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {a}};
  tt_storage *results[REQUEST_MAX];
  tt_call *call = NULL;
  ok(session_sync());
  for (int64_t nth = 1;; nth++) {
    tt_alloc_fail_at(nth, true);
    tt_status status = request_call(&r, &call);
    if (!status) { /* the launch is recorded with memory, but compiled without */
      status = call_record(stream, call, &r, results);
      if (!status) {
        status = stream_sync(stream);
        tt_storage_release(results[0]);
      }
    }
    tt_alloc_fail_at(0, false);
    if (!status) break;
    fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
  }
  ok(request_record(stream, &r, results));
  assert_true(first_of(results[0]) == 0);
  tt_storage_release(results[0]);
  tt_storage_release(a);
}

/* -- Two devices -- */

static void test_devices_are_separate(void **state) {
  (void)state;
  float data[8] = {3};
  tt_storage *a = floats(8, 1), *b = storage_of(other, vector(8), data), *x = NULL, *y = NULL;
  ok(record_add(stream, a, a, &x));
  ok(record_add(other, b, b, &y));
  ok(session_sync());
  tt_storage_release(x);
  tt_storage_release(y);
  fake.tt_fake_fail_at(1);
  ok(record_add(other, b, b, &y));
  ok(stream_sync(stream));
  fails(session_sync(), TT_INTERNAL, "add.Tensor: PJRT_");
  tt_storage_release(y);
  fails((ok(record_add(stream, a, b, &x)), stream_sync(stream)), TT_INVALID_ARGUMENT,
        "argument 1 is on another device");
  tt_storage_release(x);
  tt_storage_release(a);
  tt_storage_release(b);
}

static void test_init_again(void **state) {
  (void)state;
  session_close();
  assert_int_equal(fake.tt_fake_live_objects(), 0);
  assert_null(stream_at(0));
  ok(session_open(getenv("TT_FAKE_PLUGIN")));
  assert_int_equal(tt_call_table_size(session->calls), 0);
  stream = stream_at(0);
  other = stream_at(1);
  tt_storage *a = floats(8, 1);
  warm_up(a);
  tt_storage_release(a);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, reset)
  const struct CMUnitTest tests[] = {
      TEST(test_session),
      TEST(test_sites),
      TEST(test_counters),
      TEST(test_undefined_reads_as_zeros),
      TEST(test_write_and_read),
      TEST(test_memory_is_accounted),
      TEST(test_resize),
      TEST(test_record),
      TEST(test_more_than_the_queue_holds),
      TEST(test_tickets),
      TEST(test_numbers_are_cached),
      TEST(test_many_numbers),
      TEST(test_a_fused_loop_settles),
      TEST(test_fused_errors),
      TEST(test_modes_mixed),
      TEST(test_donation),
      TEST(test_readers_before_a_write),
      TEST(test_an_error_is_reported_once),
      TEST(test_a_read_reports_its_own_error),
      TEST(test_asynchronous_errors),
      TEST(test_out_of_device_memory),
      TEST(test_debug_errors_come_at_once),
      TEST(test_failed_compilations),
      TEST(test_devices_are_separate),
      TEST(test_init_again),
  };
  return cmocka_run_group_tests(tests, setup, fake_close);
}
