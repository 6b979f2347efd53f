/* Capturing on the fake plugin: what is refused meanwhile, what is left afterwards, and failures.
 */
#include "support.h"

#include "stream/settle.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static tt_stream *stream, *second, *other;
static tt_storage *a, *b; /* f32[8], written */

static int setup(void **state) {
  (void)state;
  setenv("TORCH_TPU_CALL_LIMIT", "300", 1);
  setenv("TT_FAKE_DEVICES", "2", 1);
  return fake_open() ? 0 : -1;
}

static int start(void **state) {
  (void)state;
  float data[8] = {0};
  fake_reset();
  policy = (tt_policy){.mode = TT_MODE_STRICT};
  ok(session_open(getenv("TT_FAKE_PLUGIN")));
  stream = stream_at(0);
  other = stream_at(1);
  ok(tt_stream_get(session->devices[0], 1, &second));
  a = storage_of(stream, type_of(TT_F32, 1, DIMS(8)), data);
  b = storage_of(stream, type_of(TT_F32, 1, DIMS(8)), data);
  tt_count_reset();
  return 0;
}

static int stop(void **state) {
  tt_storage_release(a);
  tt_storage_release(b);
  return fake_close(state);
}

static void touch(tt_storage *storage) { ok(tt_capture_touch(stream, storage, &policy)); }

static void begin(void) { ok(tt_capture_begin(stream, &policy)); }

static tt_captured *end(void) {
  tt_captured *made = NULL;
  ok(tt_capture_end(stream, &policy, &made));
  return made;
}

/* a += b, then a new one: a + b. */
static tt_storage *step(void) {
  tt_storage *sum = NULL;
  touch(a);
  touch(b);
  ok(record_add_into(stream, a, NULL, b, NULL));
  ok(record_add(stream, a, b, &sum));
  return sum;
}

static tt_status value_of(tt_storage *storage) {
  float data[64];
  return storage_read(storage, data, tt_storage_bytes(storage));
}

/* -- One at a time -- */

static void test_begin_and_end(void **state) {
  (void)state;
  tt_captured *made = NULL;
  assert_true(tt_stream_captured(stream) == 0);
  fails(tt_capture_end(stream, &policy, &made), TT_FAILED_PRECONDITION, "is not captured");
  assert_null(made);
  tt_capture_abandon(stream);
  begin();
  assert_true(tt_stream_captured(stream) != 0);
  assert_true(tt_stream_captured(second) == 0);
  fails(tt_capture_begin(stream, &policy), TT_FAILED_PRECONDITION, "captured already");
  assert_null(end()); /* nothing was computed */
  assert_true(tt_stream_captured(stream) == 0);
  begin();
  tt_storage *sum = step();
  tt_storage_release(sum);
  tt_storage *none = NULL;
  ok(record_add(stream, a, b, &none)); /* dropped as well; a is an output */
  tt_storage_release(none);
  made = end();
  int steps = 0, inputs = 0, outputs = 0;
  tt_captured_sizes(made, &steps, &inputs, &outputs);
  assert_true(steps == 3 && inputs == 2 && outputs == 1);
  assert_int_equal(tt_count_get(TT_COUNT_CAPTURES), 1);
  tt_captured_destroy(made);
  tt_captured_destroy(NULL);
}

/* What is only touched is no input. */
static void test_what_is_only_touched(void **state) {
  (void)state;
  tt_storage *sum = NULL, *unwritten = storage_new(stream, *a->type);
  begin();
  touch(unwritten);
  touch(a);
  touch(a);
  ok(record_add(stream, a, a, &sum));
  touch(b);
  tt_captured *made = end();
  int steps = 0, inputs = 0, outputs = 0;
  tt_captured_sizes(made, &steps, &inputs, &outputs);
  assert_true(steps == 1 && inputs == 1 && outputs == 1);
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, 0));
  ok(value_of(sum));
  assert_null(unwritten->value);
  tt_captured_destroy(made);
  tt_storage_release(sum);
  tt_storage_release(unwritten);
}

/* -- Meanwhile -- */

static void test_what_is_refused(void **state) {
  (void)state;
  float data[8] = {0};
  tt_marker *marker = NULL;
  tt_storage *outside = storage_of(stream, *a->type, data), *far = storage_new(other, *a->type);
  tt_storage *none = NULL;
  uint64_t ticket = 0;
  begin();
  tt_storage *sum = step();
  for (int i = 0; i < 2; i++) {
    tt_storage *one = i ? sum : a;
    fails(value_of(one), TT_FAILED_PRECONDITION, "being captured");
    fails(storage_write(one, a->type, data, 0), TT_FAILED_PRECONDITION, "being captured");
    fails(tt_storage_read_later(second, one, data, sizeof data, &policy, free, NULL),
          TT_FAILED_PRECONDITION, "being captured");
    fails(tt_storage_transfer(other, far, one, &policy, 0), TT_FAILED_PRECONDITION,
          "being captured");
    fails(tt_storage_transfer(stream, one, far, &policy, 0), TT_FAILED_PRECONDITION,
          "being captured");
    fails(record_add(second, one, b, &none), TT_FAILED_PRECONDITION, "being captured");
    assert_null(none);
  }
  fails(stream_sync(stream), TT_FAILED_PRECONDITION, "while a graph is captured");
  fails(session_sync(), TT_FAILED_PRECONDITION, "while a graph is captured");
  fails(tt_stream_ticket(stream, &policy, &ticket), TT_FAILED_PRECONDITION, "captured");
  assert_false(stream_idle(stream));
  /* the stream is the capture's, and others go on */
  fails(record_add(stream, outside, b, &none), TT_FAILED_PRECONDITION, "another stream");
  ok(value_of(outside));
  ok(record_add_into(second, outside, NULL, outside, NULL));
  ok(value_of(outside));
  ok(stream_sync(second));
  ok(tt_stream_mark(second, &policy, &marker));
  ok(tt_marker_await(marker));
  tt_marker_release(marker);
  tt_captured *made = end();
  begin();
  fails(tt_captured_replay(made, stream, NULL, NULL, &policy, 0), TT_FAILED_PRECONDITION,
        "cannot be replayed while another is captured");
  tt_capture_abandon(stream);
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, 0));
  ok(value_of(a));
  tt_captured_destroy(made);
  for (tt_storage **s = (tt_storage *[]){sum, outside, far, NULL}; *s; s++) tt_storage_release(*s);
}

/* What the host makes meanwhile is an input like others. */
static void test_constants(void **state) {
  (void)state;
  float data[8] = {0};
  tt_storage *constant = NULL, *sum = NULL;
  begin();
  ok(tt_stream_new_storage(stream, a->type, &constant));
  ok(storage_write(constant, a->type, data, 0));
  touch(a);
  touch(constant);
  ok(record_add(stream, a, constant, &sum));
  tt_captured *made = end();
  int steps = 0, inputs = 0, outputs = 0;
  tt_captured_sizes(made, &steps, &inputs, &outputs);
  assert_true(steps == 1 && inputs == 2 && outputs == 1);
  ok(value_of(constant));
  tt_storage_release(constant);
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, 0));
  ok(value_of(sum));
  tt_captured_destroy(made);
  tt_storage_release(sum);
}

/* Of an output only so much counts as the replay says; a replay takes it with its padding. */
static void test_lengths(void **state) {
  (void)state;
  tt_storage *sum = NULL, *shown = NULL, *next = NULL, *exact = NULL;
  float data[8] = {0};
  begin();
  touch(a);
  touch(b);
  ok(record_add(stream, a, b, &sum));
  tt_captured *made = end();
  shown = storage_of(stream, type_of(TT_F32, 1, DIMS(5)), data);
  next = storage_of(stream, type_of(TT_F32, 1, DIMS(6)), data);
  exact = storage_of(stream, type_of(TT_F32, 1, DIMS(5)), data);
  tt_captured_storages on = {.inputs = (tt_storage *[]){a, b},
                             .outputs = &shown,
                             .lengths = &(tt_captured_length){0, 0, 5},
                             .length_count = 1};
  ok(tt_captured_replay(made, stream, &on, NULL, &policy, 0));
  assert_true(shown->type->dims[0] == 5 && shown->bounded->dims[0] == 8 && shown->reach.of[0] == 5);
  ok(storage_read(shown, data, 5 * sizeof *data));
  assert_true(tt_captured_takes_padding(made, 0, shown));
  assert_false(tt_captured_takes_padding(made, 0, exact) || tt_captured_takes_padding(made, 0, a));
  on = (tt_captured_storages){.inputs = (tt_storage *[]){shown, b},
                              .outputs = &next,
                              .lengths = &(tt_captured_length){0, 0, 6},
                              .length_count = 1};
  int64_t settled = tt_count_get(TT_COUNT_SETTLED);
  ok(tt_captured_settle(made, stream, &on, &policy, 0));
  ok(tt_captured_replay(made, stream, &on, NULL, &policy, 0));
  assert_true(tt_count_get(TT_COUNT_SETTLED) == settled && next->reach.of[0] == 6);
  on.inputs = (tt_storage *[]){exact, b};
  fails(tt_captured_replay(made, stream, &on, NULL, &policy, 0), TT_FAILED_PRECONDITION,
        "has another size");
  tt_captured_destroy(made);
  for (tt_storage **s = (tt_storage *[]){sum, shown, next, exact, NULL}; *s; s++)
    tt_storage_release(*s);
}

/* Nothing is launched before it is replayed, in any mode. */
static void test_nothing_is_launched(void **state) {
  (void)state;
  static const tt_mode modes[] = {TT_MODE_STRICT, TT_MODE_FUSED, TT_MODE_DEBUG};
  for (int i = 0; i < 3; i++) {
    policy.mode = modes[i];
    int64_t launches = fake.tt_fake_launches(), donations = fake.tt_fake_donations();
    tt_value *before = a->value;
    begin();
    tt_storage *sum = step();
    tt_captured *made = end();
    assert_ptr_equal(a->value, before);
    assert_null(sum->value);
    assert_int_equal(fake.tt_fake_launches(), launches);
    for (int k = 0; k < 50; k++) ok(tt_captured_replay(made, stream, NULL, NULL, &policy, 0));
    ok(stream_sync(stream));
    assert_int_equal(fake.tt_fake_launches() - launches, 50);
    assert_int_equal(fake.tt_fake_donations() - donations, 50); /* a's old memory, each time */
    assert_int_equal(tt_count_get(TT_COUNT_GRAPH_REPLAYS), 50 * (i + 1));
    tt_captured_destroy(made);
    tt_storage_release(sum);
  }
}

static void test_abandoned(void **state) {
  (void)state;
  tt_value *before[2] = {a->value, b->value};
  begin();
  tt_storage *sum = step();
  tt_capture_abandon(stream);
  assert_ptr_equal(a->value, before[0]);
  assert_ptr_equal(b->value, before[1]);
  ok(value_of(a));
  ok(value_of(sum)); /* zeros: nothing was written */
  ok(record_add_into(stream, sum, NULL, a, NULL));
  ok(stream_sync(stream));
  tt_storage_release(sum);
}

/* Another thread ends it: garbage is collected anywhere. */
static void *abandon(void *user) {
  tt_capture_abandon(user);
  return NULL;
}

static void test_ended_elsewhere(void **state) {
  (void)state;
  pthread_t thread;
  begin();
  tt_storage *sum = step();
  assert_int_equal(pthread_create(&thread, NULL, abandon, stream), 0);
  pthread_join(thread, NULL);
  ok(value_of(a));
  tt_storage_release(sum);
  assert_false(tt_guard_others());
}

/* The process ends while something is captured, and something else is under way. */
static void test_the_end(void **state) {
  (void)state;
  tt_value *before = NULL;
  fake.tt_fake_async(true);
  ok(record_add_into(stream, b, NULL, b, NULL));
  before = b->value;
  begin();
  tt_storage *sum = step();
  tt_session_end(session);
  assert_true(tt_stream_captured(stream) == 0);
  assert_ptr_equal(b->value, before);
  assert_true(stream_passed(stream, tt_queue_last(stream->queue)));
  tt_storage_release(sum);
}

static void test_no_new_programs(void **state) {
  (void)state;
  tt_captured *made = NULL;
  tt_value *before = a->value;
  begin();
  tt_storage *sum = step();
  policy.known_only = true;
  fails(tt_capture_end(stream, &policy, &made), TT_FAILED_PRECONDITION, "forbids");
  policy.known_only = false;
  assert_null(made);
  assert_ptr_equal(a->value, before);
  tt_storage_release(sum);
  begin();
  sum = step();
  made = end();
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, 0));
  tt_captured_destroy(made);
  tt_storage_release(sum);
}

/* What is captured for its text is compiled if it is launched after all. */
static void test_text_only(void **state) {
  (void)state;
  tt_captured *made = NULL;
  begin();
  tt_storage *sum = step();
  policy.text_only = policy.known_only = true;
  ok(tt_capture_end(stream, &policy, &made));
  policy.text_only = policy.known_only = false;
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
  assert_true(made->divided.parts[0].program->module.text.size > 0 && !made->divided.known);
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, 0));
  ok(stream_sync(stream));
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 1);
  tt_captured_destroy(made);
  tt_storage_release(sum);
}

/* -- Errors of replays -- */

static void test_failing_replays(void **state) {
  (void)state;
  begin();
  tt_storage *sum = step();
  tt_captured *made = end();
  uint32_t site = tt_site_add("train.py", 7, "step");
  fake.tt_fake_fail_programs("stablehlo.add", 2, TT_FAKE_EXECUTE);
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, site));
  fails(stream_sync(stream), TT_INTERNAL,
        "a captured graph, called at train.py:7 in step (2 operators): PJRT_");
  fails(value_of(sum), TT_INTERNAL, "a captured graph, called at train.py:7");
  fails(value_of(a), TT_INTERNAL, "a captured graph, called at train.py:7");
  fake_reset();
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, site)); /* its input has failed */
  fails(value_of(a), TT_INTERNAL, "a captured graph, called at train.py:7");
  ok(storage_write(a, b->type, (float[8]){0}, 0));
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, site));
  ok(value_of(sum));
  ok(stream_sync(stream));
  ok(storage_write(b, &(tt_type){.dtype = TT_F32, .rank = 1, .dims = {4}}, (float[4]){0}, 0));
  fails(tt_captured_replay(made, stream, NULL, NULL, &policy, site), TT_FAILED_PRECONDITION,
        "another size or dtype");
  ok(value_of(a));
  tt_captured_destroy(made);
  tt_storage_release(sum);
}

/* What was captured is dropped while its launch waits for the compiler. */
static void test_destroyed_before_it_is_launched(void **state) {
  (void)state;
  fake.tt_fake_hold_programs("stablehlo.add");
  fake.tt_fake_fail_programs("stablehlo.add", 1, TT_FAKE_EXECUTE);
  begin();
  tt_storage *sum = step();
  tt_captured *made = end();
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, tt_site_add("train.py", 7, "step")));
  tt_captured_destroy(made);
  fake.tt_fake_hold_programs(NULL);
  fails(stream_sync(stream), TT_INTERNAL, "a captured graph, called at train.py:7 in step");
  tt_storage_release(sum);
}

enum { LAYERS = 5 };

/* x = (0.5 x) + y, again and again, divided; y is written in the end. */
static tt_status record_layers(tt_storage *x, tt_storage *y) {
  tt_status status = TT_SUCCESS;
  tt_storage *hidden = tt_storage_retain(x);
  for (int i = 0; i < LAYERS && !status; i++) {
    tt_storage *half = NULL, *sum = NULL;
    status = record_scale(stream, hidden, 0.5f, &half);
    if (!status) status = record_add(stream, half, y, &sum);
    tt_storage_release(half);
    tt_storage_release(hidden);
    hidden = sum;
  }
  if (!status) status = record_add_into(stream, y, NULL, hidden, NULL);
  tt_storage_release(hidden);
  return status;
}

static tt_status capture_layers(tt_storage *x, tt_storage *y, tt_captured **made) {
  TT_TRY(tt_capture_begin(stream, &policy));
  tt_status status = tt_capture_touch(stream, x, &policy);
  if (!status) status = tt_capture_touch(stream, y, &policy);
  if (!status) status = record_layers(x, y);
  if (status) {
    tt_capture_abandon(stream);
    return status;
  }
  policy.repeats = TT_REPEATS_DIVIDED;
  status = tt_capture_end(stream, &policy, made);
  policy.repeats = TT_REPEATS_WHOLE;
  return status;
}

/* One of the launches fails: what is said, and that it is said once, is as if there were but one.
 */
static void test_failing_parts(void **state) {
  (void)state;
  tt_captured *made = NULL;
  uint32_t site = tt_site_add("train.py", 7, "step");
  ok(capture_layers(a, b, &made));
  assert_int_equal(made->divided.part_count, LAYERS + 1);
  int steps = 0, inputs = 0, outputs = 0;
  tt_captured_sizes(made, &steps, &inputs, &outputs);
  assert_true(steps == 2 * LAYERS + 1 && inputs == 2 && outputs == 1);
  static const char *words[] = {"stablehlo.multiply", "tf.aliasing_output"}; /* first, last */
  for (int last = 0; last < 2; last++) {
    int64_t launches = tt_count_get(TT_COUNT_LAUNCHES);
    ok(storage_write(b, a->type, (float[8]){0}, 0));
    fake.tt_fake_fail_programs(words[last], 1, TT_FAKE_EXECUTE);
    ok(tt_captured_replay(made, stream, NULL, NULL, &policy, site));
    fails(stream_sync(stream), TT_INTERNAL,
          "a captured graph, called at train.py:7 in step (11 operators): PJRT_");
    fails(value_of(b), TT_INTERNAL, "a captured graph, called at train.py:7");
    ok(stream_sync(stream));
    ok(value_of(a));
    assert_int_equal(tt_count_get(TT_COUNT_LAUNCHES) - launches, last ? LAYERS : 0);
    fake_reset();
  }
  ok(storage_write(b, a->type, (float[8]){0}, 0));
  ok(tt_captured_replay(made, stream, NULL, NULL, &policy, site));
  ok(value_of(b));
  tt_captured_destroy(made);
}

/* Of n numbers; y holds nothing yet. */
static tt_status two_storages(int64_t n, tt_storage **x, tt_storage **y) {
  float data[64] = {0};
  tt_type type = tt_type_make(TT_F32, 1, &n);
  TT_TRY(tt_stream_new_storage(stream, &type, x));
  TT_TRY(tt_stream_new_storage(stream, &type, y));
  return storage_write(*x, &type, data, 0);
}

/* Unless something has failed already. Destroys what was captured. */
static tt_status replay_three_times(tt_status status, tt_captured *made, tt_storage *y) {
  for (int i = 0; i < 3 && made && !status; i++)
    status = tt_captured_replay(made, stream, NULL, NULL, &policy, 0);
  status = tt_join(status, stream_sync(stream));
  if (!status) status = value_of(y);
  tt_captured_destroy(made);
  return status;
}

static tt_status divide_and_replay(int64_t n) {
  tt_storage *x = NULL, *y = NULL;
  tt_captured *made = NULL;
  tt_status status = two_storages(n, &x, &y);
  if (!status) status = capture_layers(x, y, &made);
  status = replay_three_times(status, made, y);
  tt_storage_release(x);
  tt_storage_release(y);
  return status;
}

static tt_status capture_and_replay(int64_t n) {
  tt_storage *x = NULL, *y = NULL, *sum = NULL;
  tt_captured *made = NULL;
  tt_status status = two_storages(n, &x, &y);
  if (!status) status = tt_capture_begin(stream, &policy);
  if (!status) {
    status = tt_capture_touch(stream, x, &policy);
    if (!status) status = tt_capture_touch(stream, y, &policy);
    if (!status) status = record_add_into(stream, x, NULL, y, NULL);
    if (!status) status = record_scale(stream, x, 0.5f, &sum);
    if (!status) status = record_add_into(stream, y, NULL, sum, NULL);
    if (status) tt_capture_abandon(stream);
    else status = tt_capture_end(stream, &policy, &made);
  }
  assert_true(tt_stream_captured(stream) == 0);
  status = replay_three_times(status, made, y);
  for (int i = 0; i < 3; i++) tt_storage_release((tt_storage *[]){x, y, sum}[i]);
  return status;
}

static void fail_everywhere(void **state, tt_status (*run)(int64_t n)) {
  int failures = 0;
  for (int lasting = 0; lasting < 2; lasting++)
    for (int64_t nth = 1;; nth++) {
      tt_alloc_fail_at(nth, lasting);
      tt_status status = run(4 + nth % 40);
      int64_t asked = tt_alloc_count();
      tt_alloc_fail_at(0, false);
      failures += status != NULL;
      if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      if (asked < nth) break;
      ok(run(4 + nth % 40));
    }
  assert_true(failures > 40);
  for (int async = 0; async < 2; async++)
    for (int64_t nth = 1;; nth++) {
      fake.tt_fake_async(async);
      fake.tt_fake_fail_at(nth);
      tt_status status = run(5);
      bool happened = fake.tt_fake_failed();
      fake.tt_fake_fail_at(0);
      if (status && tt_status_code(status) != TT_UNKNOWN) fails(status, TT_INTERNAL, "injected");
      else tt_status_release(status);
      if (!happened) break;
      assert_int_equal(stop(state), 0);
      assert_int_equal(start(state), 0);
    }
}

static void test_failures(void **state) { fail_everywhere(state, capture_and_replay); }
static void test_failures_of_parts(void **state) { fail_everywhere(state, divide_and_replay); }

/* -- Reclaiming -- */

/* Operators of ever new shapes. */
static void many_shapes(tt_stream *on, int64_t from, int64_t count) {
  float data = 0;
  for (int64_t i = from; i < from + count; i++) {
    tt_storage *sum = NULL, *one = storage_of(on, type_of(TT_F32, 2, DIMS(i, 0)), &data);
    tt_guard_enter();
    ok(record_add(on, one, one, &sum));
    tt_guard_leave();
    tt_storage_release(one);
    tt_storage_release(sum);
  }
  ok(stream_sync(on));
}

/* Nothing is reclaimed while something is captured; what was captured outlives it. */
static void test_reclaiming(void **state) {
  (void)state;
  many_shapes(second, 1, 100);
  begin();
  tt_storage *sum = step();
  int64_t reclaims = tt_count_get(TT_COUNT_RECLAIMS);
  many_shapes(second, 1000, 1000);
  many_shapes(other, 3000, 500);
  assert_int_equal(tt_count_get(TT_COUNT_RECLAIMS), reclaims);
  ok(record_add_into(stream, sum, NULL, a, NULL));
  tt_captured *made = end();
  for (int64_t i = 0; i < 5; i++) {
    many_shapes(second, 10000 + 1000 * i, 1000);
    ok(tt_captured_replay(made, stream, NULL, NULL, &policy, 0));
  }
  assert_true(tt_count_get(TT_COUNT_RECLAIMS) >= reclaims + 5);
  ok(value_of(sum));
  ok(value_of(a));
  tt_captured_destroy(made);
  tt_storage_release(sum);
}

/* -- Threads -- */

static tt_captured *shared;

static void *replay_many(void *user) {
  for (int i = 0; i < 100; i++) {
    ok(tt_captured_replay(shared, user, NULL, NULL, &policy, 0));
    if (i % 9 == 0) ok(value_of(a));
  }
  return NULL;
}

static void *capture_many(void *user) {
  tt_stream *on = user;
  float data[8] = {0};
  for (int i = 0; i < 50; i++) {
    tt_storage *own = storage_of(on, type_of(TT_F32, 1, DIMS(8)), data);
    ok(tt_capture_begin(on, &policy));
    ok(tt_capture_touch(on, own, &policy));
    ok(record_add_into(on, own, NULL, own, NULL));
    tt_captured *made = NULL;
    if (i % 3 == 0) tt_capture_abandon(on);
    else ok(tt_capture_end(on, &policy, &made));
    if (made) ok(tt_captured_replay(made, on, NULL, NULL, &policy, 0));
    ok(value_of(own));
    tt_captured_destroy(made);
    tt_storage_release(own);
  }
  return NULL;
}

static void test_threads(void **state) {
  (void)state;
  pthread_t threads[4];
  tt_stream *streams[4] = {stream, second};
  for (int i = 2; i < 4; i++) ok(tt_stream_get(session->devices[0], i, &streams[i]));
  fake.tt_fake_async(true);
  begin();
  tt_storage *sum = step();
  shared = end();
  for (int i = 0; i < 4; i++)
    assert_int_equal(
        pthread_create(&threads[i], NULL, i < 2 ? replay_many : capture_many, streams[i]), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  ok(session_sync());
  tt_captured_destroy(shared);
  tt_storage_release(sum);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
  const struct CMUnitTest tests[] = {
      TEST(test_begin_and_end),     TEST(test_what_is_only_touched),
      TEST(test_what_is_refused),   TEST(test_constants),
      TEST(test_lengths),           TEST(test_nothing_is_launched),
      TEST(test_abandoned),         TEST(test_ended_elsewhere),
      TEST(test_no_new_programs),   TEST(test_text_only),
      TEST(test_failing_replays),   TEST(test_destroyed_before_it_is_launched),
      TEST(test_failing_parts),     TEST(test_failures),
      TEST(test_failures_of_parts), TEST(test_reclaiming),
      TEST(test_threads),           TEST(test_the_end),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
