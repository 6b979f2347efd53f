/* Several streams and devices on the fake plugin: what waits for what, markers, copies. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static tt_stream *stream, *second; /* of one device */
static tt_stream *other;           /* of another */
static atomic_bool interrupt;

static bool is_interrupted(void) { return atomic_load(&interrupt); }

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  setenv("TORCH_TPU_FUSED_TIER", "chunks", 1);
  setenv("TT_FAKE_DEVICES", "2", 1);
  tt_interrupt_set_check(is_interrupted);
  return 0;
}

static int start(void **state) {
  (void)state;
  fake_reset();
  atomic_store(&interrupt, false);
  policy = (tt_policy){.mode = TT_MODE_STRICT};
  ok(session_open(getenv("TT_FAKE_PLUGIN")));
  stream = stream_at(0);
  other = stream_at(1);
  ok(tt_stream_get(session->devices[0], 1, &second));
  return 0;
}

/* -- Operators -- */

static tt_storage *floats(const tt_stream *on, int64_t n) {
  float data[64] = {0};
  return storage_of((tt_stream *)(uintptr_t)on, type_of(TT_F32, 1, &n), data);
}

static tt_storage *run(tt_stream *on, const char *row, tt_storage *a) {
  tt_storage *results[REQUEST_MAX] = {NULL};
  request r = {.row = tt_op_find(row), .tensor_count = 1, .tensors = {a}};
  ok(request_record(on, &r, results));
  return results[0];
}

static tt_storage *neg(tt_stream *on, tt_storage *a) { return run(on, "neg", a); }

static void release(int count, tt_storage **storages) {
  for (int i = 0; i < count; i++) tt_storage_release(storages[i]);
}

static void until_held(int count) {
  for (int i = 0; i < 5000 && fake.tt_fake_held() != count; i++) usleep(1000);
  assert_int_equal(fake.tt_fake_held(), count);
}

static void until_passed(tt_marker *marker) {
  for (int i = 0; i < 5000 && !tt_marker_passed(marker); i++) usleep(1000);
  assert_true(tt_marker_passed(marker));
}

static tt_marker *mark(tt_stream *on) {
  tt_marker *marker = NULL;
  ok(tt_stream_mark(on, &policy, &marker));
  return marker;
}

static tt_status value_of(tt_storage *storage) {
  float data[64];
  return storage_read(storage, data, tt_storage_bytes(storage));
}

/* -- Streams -- */

static void test_getting_streams(void **state) {
  (void)state;
  tt_stream *same = NULL, *last = NULL;
  ok(tt_stream_get(session->devices[0], 1, &same));
  assert_ptr_equal(same, second);
  assert_ptr_not_equal(second, stream);
  assert_int_equal(second->id, 1);
  assert_ptr_equal(second->device, stream->device);
  ok(tt_stream_get(session->devices[0], TT_DEVICE_STREAMS - 1, &last));
  assert_int_equal(last->id, TT_DEVICE_STREAMS - 1);
  fails(tt_stream_get(session->devices[0], TT_DEVICE_STREAMS, &same), TT_INVALID_ARGUMENT,
        "device tpu:0 has streams 0 to 255, not 256");
  fails(tt_stream_get(session->devices[1], -1, &same), TT_INVALID_ARGUMENT, "tpu:1");
}

static void test_getting_streams_without_memory(void **state) {
  (void)state;
  for (int64_t nth = 1;; nth++) {
    tt_stream *made = NULL;
    tt_alloc_fail_at(nth, false);
    tt_status status = tt_stream_get(session->devices[0], 7, &made);
    tt_alloc_fail_at(0, false);
    if (!status) break;
    fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
    assert_null(made);
  }
}

/* What one stream has not launched yet is launched when the other uses it. */
static void test_streams_exchange_values(void **state) {
  (void)state;
  for (int fused = 0; fused < 2; fused++) {
    policy.mode = fused ? TT_MODE_FUSED : TT_MODE_STRICT;
    tt_storage *a = floats(stream, 8), *b = neg(stream, a), *c = neg(second, b), *d = NULL;
    for (int i = 0; i < 50; i++) {
      ok(record_add_into(stream, b, NULL, c, NULL));
      ok(record_add_into(second, c, NULL, b, NULL));
    }
    ok(record_add(second, b, c, &d));
    ok(value_of(d));
    assert_true(stream_idle(stream) && stream_idle(second));
    ok(session_sync());
    release(4, (tt_storage *[]){a, b, c, d});
  }
}

/* One waits for what it uses, and for nothing else. */
static void test_streams_do_not_wait(void **state) {
  (void)state;
  tt_storage *a = floats(stream, 8), *warm = run(second, "abs", a);
  ok(stream_sync(second));
  fake.tt_fake_hold_programs("stablehlo.negate");
  tt_storage *b = neg(stream, a), *c = run(second, "abs", a), *d = NULL;
  until_held(1);
  ok(value_of(c));
  ok(stream_sync(second));
  assert_false(stream_idle(stream));
  ok(record_add(second, b, c, &d)); /* returns, and runs when b is there */
  usleep(5000);
  assert_false(stream_idle(second));
  fake.tt_fake_hold_programs(NULL);
  ok(value_of(d));
  ok(session_sync());
  release(5, (tt_storage *[]){a, warm, b, c, d});
}

/* A read waits for the job of its value, not for what was recorded later. */
static void test_a_read_waits_for_its_value(void **state) {
  (void)state;
  tt_storage *a = floats(stream, 8), *b = run(stream, "abs", a);
  fake.tt_fake_hold_programs("stablehlo.negate");
  tt_storage *c = neg(stream, a);
  until_held(1);
  ok(value_of(b));
  ok(value_of(a));
  assert_false(stream_idle(stream));
  fake.tt_fake_hold_programs(NULL);
  ok(stream_sync(stream));
  release(3, (tt_storage *[]){a, b, c});
}

static void test_errors_go_with_values(void **state) {
  (void)state;
  tt_storage *a = floats(stream, 9);
  fake.tt_fake_fail_programs("stablehlo.negate", 1, TT_FAKE_EXECUTE);
  tt_storage *b = neg(stream, a), *c = run(second, "abs", b);
  ok(stream_sync(second)); /* it is the other's to tell */
  fails(value_of(c), TT_INTERNAL, "neg: PJRT_");
  fails(stream_sync(stream), TT_INTERNAL, "neg: PJRT_");
  ok(session_sync());
  release(3, (tt_storage *[]){a, b, c});
}

/* What a chunk leaves when it ends may not be compiled: reading waits for a policy that allows it.
 */
static void test_waits_have_a_policy(void **state) {
  (void)state;
  tt_storage *a = floats(stream, 10), *b = NULL, *c = storage_new(other, *a->type);
  policy.mode = TT_MODE_FUSED;
  b = neg(stream, a);
  policy.known_only = true;
  for (int i = 0; i < 2; i++) {
    fails(value_of(b), TT_FAILED_PRECONDITION, "forbids");
    fails(stream_sync(stream), TT_FAILED_PRECONDITION, "forbids");
    fails(tt_storage_transfer(other, c, b, &policy, 0), TT_FAILED_PRECONDITION, "forbids");
    tt_status_release(session_sync());
  }
  policy.known_only = false;
  ok(value_of(b)); /* nothing was lost */
  ok(stream_sync(stream));
  release(3, (tt_storage *[]){a, b, c});
}

/* -- Interrupts -- */

static void test_interrupts(void **state) {
  (void)state;
  tt_marker *marker = NULL;
  fake.tt_fake_async(true);
  tt_storage *a = floats(stream, 8), *b = neg(stream, a);
  ok(stream_sync(stream));
  fake.tt_fake_hold(true);
  tt_storage *c = neg(stream, a);
  marker = mark(stream);
  atomic_store(&interrupt, true);
  fails(value_of(c), TT_CANCELLED, "interrupted");
  fails(stream_sync(stream), TT_CANCELLED, "interrupted");
  fails(tt_marker_await(marker), TT_CANCELLED, "interrupted");
  atomic_store(&interrupt, false);
  fake.tt_fake_hold(false);
  ok(value_of(c));
  ok(tt_marker_await(marker));
  ok(stream_sync(stream));
  tt_marker_release(marker);
  release(3, (tt_storage *[]){a, b, c});
}

/* -- Markers -- */

static void test_a_mark_does_not_wait(void **state) {
  (void)state;
  fake.tt_fake_async(true);
  tt_storage *a = floats(stream, 8), *b = neg(stream, a);
  tt_marker *before = mark(stream);
  ok(tt_marker_await(before));
  fake.tt_fake_hold(true);
  tt_storage *c = neg(stream, b), *d = neg(second, b);
  tt_marker *marker = mark(stream), *also = mark(second), *last = NULL;
  ok(tt_queue_await_submitted(stream->queue, tt_queue_last(stream->queue)));
  usleep(5000);
  assert_true(tt_marker_passed(before));
  assert_false(tt_marker_passed(marker) || tt_marker_passed(also));
  assert_true(tt_marker_time_ns(marker) == 0);
  fake.tt_fake_hold(false);
  ok(tt_marker_await(marker));
  usleep(2000);
  last = mark(stream);
  until_passed(last); /* nobody waits for it */
  assert_true(tt_marker_time_ns(before) < tt_marker_time_ns(marker));
  assert_true(tt_marker_time_ns(last) - tt_marker_time_ns(marker) >= 2000000);
  ok(tt_marker_await(also));
  tt_marker_release(tt_marker_retain(also));
  for (tt_marker **m = (tt_marker *[]){before, marker, also, last, NULL}; *m; m++)
    tt_marker_release(*m);
  tt_marker_release(NULL);
  release(4, (tt_storage *[]){a, b, c, d});
}

/* Not even for a compiler; it ends the open chunk; what comes later does not count. */
static void test_a_mark_and_compilers(void **state) {
  (void)state;
  policy.mode = TT_MODE_FUSED;
  fake.tt_fake_hold_programs("stablehlo.negate");
  tt_storage *a = floats(stream, 11), *b = run(stream, "abs", a);
  tt_marker *first = mark(stream);
  tt_storage *c = neg(stream, b);
  tt_marker *marker = mark(stream);
  until_held(1);
  until_passed(first);
  assert_false(tt_marker_passed(marker));
  fake.tt_fake_hold_programs(NULL);
  ok(tt_marker_await(marker));
  tt_marker_release(first);
  tt_marker_release(marker);
  release(3, (tt_storage *[]){a, b, c});
}

static void test_released_before_it_is_passed(void **state) {
  (void)state;
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  tt_storage *a = floats(stream, 8), *b = neg(stream, a);
  for (int i = 0; i < 5; i++) tt_marker_release(mark(stream));
  fake.tt_fake_hold(false);
  ok(stream_sync(stream));
  release(2, (tt_storage *[]){a, b});
}

/* The stream waits; the host does not. */
static void test_waiting_for_a_marker(void **state) {
  (void)state;
  tt_storage *a = floats(stream, 8), *b = NULL, *c = NULL, *far = floats(other, 8);
  tt_storage *warm[2] = {run(second, "abs", a), run(other, "abs", far)}, *d = NULL;
  ok(session_sync());
  fake.tt_fake_hold_programs("stablehlo.negate");
  b = neg(stream, a);
  tt_marker *marker = mark(stream);
  ok(tt_stream_wait_marker(second, marker, &policy));
  ok(tt_stream_wait_marker(other, marker, &policy)); /* of another device */
  int64_t launches = fake.tt_fake_launches();
  c = run(second, "abs", a), d = run(other, "abs", far);
  until_held(1);
  usleep(5000);
  assert_int_equal(fake.tt_fake_launches(), launches);
  assert_false(stream_idle(second) || stream_idle(other));
  fake.tt_fake_hold_programs(NULL);
  ok(session_sync());
  assert_int_equal(fake.tt_fake_launches(), launches + 3);
  uint64_t last = tt_queue_last(second->queue);
  ok(tt_stream_wait_marker(second, marker, &policy)); /* passed: there is nothing to do */
  assert_true(tt_queue_last(second->queue) == last);
  tt_marker_release(marker);
  release(7, (tt_storage *[]){a, b, c, d, far, warm[0], warm[1]});
}

static void test_a_mark_without_memory(void **state) {
  (void)state;
  tt_marker *marker = NULL;
  for (int64_t nth = 1; nth < 3; nth++) {
    tt_alloc_fail_at(nth, false);
    fails(tt_stream_mark(stream, &policy, &marker), TT_RESOURCE_EXHAUSTED, "out of host memory");
    assert_null(marker);
  }
  tt_alloc_fail_at(0, false);
  fake.tt_fake_hold_programs("stablehlo.negate");
  tt_storage *a = floats(stream, 12), *b = neg(stream, a);
  marker = mark(stream);
  until_held(1);
  tt_alloc_fail_at(1, true); /* when its turn comes */
  fake.tt_fake_hold_programs(NULL);
  until_passed(marker);
  tt_alloc_fail_at(0, false);
  tt_status_release(stream_sync(stream));
  tt_marker_release(marker);
  release(2, (tt_storage *[]){a, b});
}

/* -- Copies between devices -- */

static void test_transfers(void **state) {
  (void)state;
  float data[4] = {1, 2, 3, 4}, back[4] = {0};
  tt_storage *a = storage_of(stream, type_of(TT_F32, 2, DIMS(2, 2)), data);
  tt_storage *b = floats(other, 7);
  int64_t transfers = tt_count_get(TT_COUNT_TRANSFERS);
  for (int async = 0; async < 2; async++) {
    fake.tt_fake_async(async);
    ok(tt_storage_transfer(other, b, a, &policy, 0));
    assert_true(tt_type_equal(b->type, a->type)); /* it takes the type as well */
    ok(storage_read(b, back, sizeof back));
    assert_memory_equal(back, data, sizeof data);
    memset(back, 0, sizeof back);
  }
  assert_int_equal(tt_count_get(TT_COUNT_TRANSFERS) - transfers, 2);
  tt_storage *unwritten = storage_new(stream, *a->type);
  ok(tt_storage_transfer(other, b, unwritten, &policy, 0));
  ok(storage_read(b, back, sizeof back));
  assert_true(back[0] == 0 && back[3] == 0);
  release(3, (tt_storage *[]){a, b, unwritten});
}

/* Of what is recorded on the other device, and of what failed there. */
static void test_transfers_of_pending_values(void **state) {
  (void)state;
  for (int fused = 0; fused < 2; fused++) {
    policy.mode = fused ? TT_MODE_FUSED : TT_MODE_STRICT;
    fake_reset();
    tt_storage *a = floats(stream, 13), *b = neg(stream, a), *c = floats(other, 13), *d = NULL;
    ok(tt_storage_transfer(other, c, b, &policy, 0));
    d = neg(other, c);
    ok(value_of(d));
    fake.tt_fake_fail_programs("stablehlo.negate", 1, TT_FAKE_EXECUTE);
    release(2, (tt_storage *[]){b, d});
    b = neg(stream, a);
    ok(tt_storage_transfer(other, c, b, &policy, 0));
    fails(value_of(c), TT_INTERNAL, "neg");
    tt_status_release(stream_sync(other));
    fails(stream_sync(stream), TT_INTERNAL, "neg");
    release(3, (tt_storage *[]){a, b, c});
  }
}

static atomic_int released;
static void count_release(void *user) { atomic_fetch_add(&released, *(int *)user); }

/* Any thread calls it, perhaps after who waits for the copy has gone on. */
static void until_released(int count) {
  for (int i = 0; i < 5000 && atomic_load(&released) != count; i++) usleep(1000);
  assert_int_equal(atomic_load(&released), count);
}

static tt_status exchange(void) {
  tt_storage *a = NULL, *b = NULL;
  float data[8] = {0}, back[8];
  int one = 1;
  tt_type type = type_of(TT_F32, 1, DIMS(8));
  const tt_type *interned = NULL;
  tt_status status = tt_type_intern(&type, &interned);
  if (!status) status = tt_storage_create(stream->device, interned, &a);
  if (!status) status = tt_storage_create(other->device, interned, &b);
  if (!status) status = storage_write(a, &type, data, 0);
  if (!status) status = tt_storage_transfer(other, b, a, &policy, 0);
  if (!status) status = tt_storage_transfer(stream, a, b, &policy, 0);
  atomic_store(&released, 0);
  bool asked = !status;
  if (asked)
    status = tt_storage_read_later(stream, a, back, sizeof back, &policy, count_release, &one);
  status = tt_join(status, session_sync());
  if (asked) until_released(1);
  release(2, (tt_storage *[]){a, b});
  return status;
}

static void test_copies_that_fail(void **state) {
  for (int async = 0; async < 2; async++)
    for (int64_t nth = 1;; nth++) {
      fake.tt_fake_async(async);
      fake.tt_fake_fail_at(nth);
      tt_status status = exchange();
      bool happened = fake.tt_fake_failed();
      fake.tt_fake_fail_at(0);
      if (status && tt_status_code(status) != TT_UNKNOWN) fails(status, TT_INTERNAL, "injected");
      else tt_status_release(status);
      if (!happened) break;
      assert_int_equal(fake_close(state), 0);
      assert_int_equal(start(state), 0);
    }
  for (int64_t nth = 1;; nth++) {
    tt_alloc_fail_at(nth, false);
    tt_status status = exchange();
    int64_t asked = tt_alloc_count();
    tt_alloc_fail_at(0, false);
    if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
    ok(exchange());
    if (asked < nth) break;
  }
}

/* -- Copies to the host that nobody waits for -- */

static void test_reads_later(void **state) {
  (void)state;
  int one = 1;
  float data[4] = {1, 2, 3, 4}, back[4] = {0};
  tt_storage *a = storage_of(stream, type_of(TT_F32, 1, DIMS(4)), data);
  tt_storage *unwritten = storage_new(stream, *a->type);
  for (int async = 0; async < 2; async++) {
    fake.tt_fake_async(async);
    fake.tt_fake_hold(async);
    atomic_store(&released, 0);
    ok(tt_storage_read_later(second, a, back, sizeof back, &policy, count_release, &one));
    tt_marker *marker = mark(second);
    if (async) usleep(5000);
    if (async) assert_false(tt_marker_passed(marker) || atomic_load(&released));
    fake.tt_fake_hold(false);
    ok(tt_marker_await(marker));
    assert_memory_equal(back, data, sizeof data);
    until_released(1); /* though the stream is idle */
    ok(tt_storage_read_later(second, unwritten, back, sizeof back, &policy, count_release, &one));
    ok(stream_sync(second));
    until_released(2);
    assert_true(back[0] == 0 && back[3] == 0);
    tt_marker_release(marker);
  }
  ok(tt_storage_read_later(second, a, back, 4, &policy, count_release, &one));
  fails(stream_sync(second), TT_INVALID_ARGUMENT, "a copy to the host: ");
  until_released(3);
  ok(stream_sync(second));
  release(2, (tt_storage *[]){a, unwritten});
}

/* A value that failed cannot be copied, which is said where it was asked for. */
static void test_reads_of_failed_values(void **state) {
  (void)state;
  int one = 1;
  float back[14];
  atomic_store(&released, 0);
  fake.tt_fake_fail_programs("stablehlo.negate", 1, TT_FAKE_EXECUTE);
  tt_storage *a = floats(stream, 14), *b = neg(stream, a);
  ok(tt_storage_read_later(second, b, back, sizeof back, &policy, count_release, &one));
  fails(stream_sync(second), TT_INTERNAL, "a copy to the host of a tensor that has no value: neg");
  fails(stream_sync(stream), TT_INTERNAL, "neg");
  until_released(1);
  release(2, (tt_storage *[]){a, b});
}

/* -- Writes that lend -- */

static void test_writes_later(void **state) {
  (void)state;
  int one = 1;
  float data[4] = {1, 2, 3, 4}, back[4] = {0};
  tt_type type = type_of(TT_F32, 1, DIMS(4));
  tt_storage *a = storage_new(stream, type);
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  atomic_store(&released, 0);
  ok(tt_storage_write_later(second, a, &type, data, count_release, &one, &policy, 0));
  tt_marker *marker = mark(second), *elsewhere = mark(stream);
  usleep(5000);
  assert_int_equal(atomic_load(&released), 0);
  assert_false(tt_marker_passed(marker)); /* the memory is not the user's yet */
  ok(tt_marker_await(elsewhere));
  fake.tt_fake_hold(false);
  ok(tt_marker_await(marker));
  ok(storage_read(a, back, sizeof back));
  assert_memory_equal(back, data, sizeof data);
  until_released(1);
  tt_marker_release(marker);
  tt_marker_release(elsewhere);
  tt_storage_release(a);
}

/* Released once, and told. */
static void test_the_host_keeps_pace(void **state) {
  (void)state;
  int64_t much = (int64_t)1 << 30;
  tt_storage *a = floats(stream, 3);
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  tt_storage *b = neg(stream, a);
  ok(tt_stream_keep_pace(stream, 1, true, &policy));
  ok(tt_stream_keep_pace(stream, much, true, &policy)); /* ahead from here on */
  ok(tt_stream_keep_pace(stream, much, false, &policy));
  atomic_store(&interrupt, true);
  fails(tt_stream_keep_pace(stream, much, true, &policy), TT_CANCELLED, "interrupted");
  fails(tt_stream_drain(stream, &policy), TT_CANCELLED, "interrupted");
  atomic_store(&interrupt, false);
  fake.tt_fake_hold(false);
  ok(tt_stream_keep_pace(stream, much, true, &policy));
  ok(tt_stream_drain(stream, &policy));
  release(2, (tt_storage *[]){a, b});
}

/* The chunk would hold what it reads. */
static void test_a_chunk_of_large_copies_is_launched(void **state) {
  (void)state;
  int64_t much = (int64_t)1 << 30;
  policy.mode = TT_MODE_FUSED;
  tt_storage *a = floats(stream, 3), *b = neg(stream, a);
  ok(tt_stream_keep_pace(stream, much, false, &policy));
  tt_storage *c = neg(stream, b);
  uint64_t before = tt_queue_last(stream->queue);
  ok(tt_stream_keep_pace(stream, much, false, &policy));
  assert_int_equal(tt_queue_last(stream->queue), before + 1);
  ok(tt_stream_keep_pace(stream, much, false, &policy)); /* nothing is recorded */
  assert_int_equal(tt_queue_last(stream->queue), before + 1);
  release(3, (tt_storage *[]){a, b, c});
}

static void test_drained_errors_are_kept(void **state) {
  (void)state;
  tt_storage *a = floats(stream, 3);
  fake.tt_fake_fail_programs("stablehlo.negate", 1, TT_FAKE_EXECUTE);
  tt_storage *b = neg(stream, a);
  ok(tt_stream_drain(stream, &policy));
  fails(tt_stream_sync(stream, &policy), TT_INTERNAL, "neg");
  release(2, (tt_storage *[]){a, b});
}

static void test_writes_later_that_fail(void **state) {
  int one = 1;
  float data[4] = {1, 2, 3, 4};
  tt_type type = type_of(TT_F32, 1, DIMS(4));
  for (int kind = 0; kind < 3; kind++) /* plugin, plugin asynchronously, memory */
    for (int64_t nth = 1;; nth++) {
      fake.tt_fake_async(kind == 1);
      tt_storage *a = storage_new(stream, type);
      atomic_store(&released, 0);
      if (kind < 2) fake.tt_fake_fail_at(nth);
      else tt_alloc_fail_at(nth, false);
      tt_status status =
          tt_storage_write_later(second, a, &type, data, count_release, &one, &policy, 0);
      status = tt_join(status, stream_sync(second));
      bool happened = kind < 2 ? fake.tt_fake_failed() : tt_alloc_count() >= nth;
      fake.tt_fake_fail_at(0);
      tt_alloc_fail_at(0, false);
      until_released(1);
      tt_storage_release(a);
      if (kind == 2 && status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      else if (status) fails(status, TT_INTERNAL, "a copy from the host: ");
      if (!happened) break;
      assert_int_equal(fake_close(state), 0);
      assert_int_equal(start(state), 0);
    }
}

/* -- Threads -- */

enum { THREADS = 4, ROUNDS = 60, SHARED = 4 };
static tt_storage *shared[SHARED]; /* whoever makes a call of them has this lock, as in Python */
static pthread_mutex_t sharing = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *user) {
  int number = *(int *)user;
  tt_stream *own = NULL, *far = NULL;
  ok(tt_stream_get(session->devices[number & 1], number, &own));
  ok(tt_stream_get(session->devices[~number & 1], number + 8, &far));
  tt_storage *mine = floats(own, 8), *copy = floats(far, 8);
  tt_guard_enter();
  for (int i = 0; i < ROUNDS; i++) {
    tt_storage *use = shared[(number & 1) + (i & 1) * 2], *sum = NULL;
    pthread_mutex_lock(&sharing);
    ok(record_add(own, mine, use, &sum));
    if (i % 7 == 0) ok(record_add_into(own, use, NULL, mine, NULL)); /* written by several */
    pthread_mutex_unlock(&sharing);
    ok(record_add_into(own, mine, NULL, sum, NULL));
    tt_storage_release(sum);
    if (i % 3 == 0) ok(tt_storage_transfer(far, copy, mine, &policy, 0));
    if (i % 5 == 0) ok(tt_storage_transfer(own, mine, copy, &policy, 0));
    tt_marker *marker = mark(own);
    if (i % 4 == 0) ok(tt_stream_wait_marker(far, marker, &policy));
    if (i % 11 == 0) ok(tt_marker_await(marker));
    tt_marker_release(marker);
    if (i % 13 == 0) ok(value_of(use));
  }
  tt_guard_leave();
  ok(stream_sync(own));
  ok(stream_sync(far));
  tt_storage_release(mine);
  tt_storage_release(copy);
  return NULL;
}

static void run_threads(tt_mode mode, bool async) {
  pthread_t threads[THREADS];
  int numbers[THREADS];
  policy.mode = mode;
  fake.tt_fake_async(async);
  for (int i = 0; i < SHARED; i++) shared[i] = floats(i & 1 ? other : stream, 8);
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    assert_int_equal(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  ok(session_sync());
  release(SHARED, shared);
}

static void test_threads(void **state) {
  (void)state;
  run_threads(TT_MODE_STRICT, false);
  run_threads(TT_MODE_STRICT, true);
  run_threads(TT_MODE_FUSED, true);
  run_threads(TT_MODE_DEBUG, true);
}

/* -- Two sessions -- */

static void test_two_sessions(void **state) {
  (void)state;
  tt_session *first = session, *later = NULL;
  tt_storage *a = floats(stream, 8), *b = neg(stream, a);
  ok(tt_session_create(getenv("TT_FAKE_PLUGIN"), NULL, &later));
  session = later;
  stream = stream_at(0);
  tt_storage *c = floats(stream, 8), *d = neg(stream, c);
  ok(value_of(d));
  release(2, (tt_storage *[]){c, d});
  tt_session_destroy(later);
  session = first;
  ok(value_of(b));
  release(2, (tt_storage *[]){a, b});
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, fake_close)
  const struct CMUnitTest tests[] = {
      TEST(test_getting_streams),
      TEST(test_getting_streams_without_memory),
      TEST(test_streams_exchange_values),
      TEST(test_streams_do_not_wait),
      TEST(test_a_read_waits_for_its_value),
      TEST(test_errors_go_with_values),
      TEST(test_waits_have_a_policy),
      TEST(test_interrupts),
      TEST(test_a_mark_does_not_wait),
      TEST(test_a_mark_and_compilers),
      TEST(test_released_before_it_is_passed),
      TEST(test_waiting_for_a_marker),
      TEST(test_a_mark_without_memory),
      TEST(test_transfers),
      TEST(test_transfers_of_pending_values),
      TEST(test_copies_that_fail),
      TEST(test_reads_later),
      TEST(test_reads_of_failed_values),
      TEST(test_writes_later),
      TEST(test_the_host_keeps_pace),
      TEST(test_a_chunk_of_large_copies_is_launched),
      TEST(test_drained_errors_are_kept),
      TEST(test_writes_later_that_fail),
      TEST(test_threads),
      TEST(test_two_sessions),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
