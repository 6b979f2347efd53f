/* Several streams and devices with right numbers: on the CPU plugin and on an accelerator-like one.
 */
#include "numbers.h"

static tt_stream *stream, *second, *other;

static bool start(int plugin) {
  if (!numbers_open(plugin)) return false;
  stream = stream_at(0);
  other = stream_at(1);
  ok(tt_stream_get(session->devices[0], 1, &second));
  return true;
}

/* Two streams take turns with the same two tensors, of which they know nothing but the order. */
static void exchange(int plugin) {
  (void)plugin;
  float x = 1, y = 2;
  tt_storage *a = floats_of(stream, 1, &x), *b = floats_of(second, 1, &y);
  for (int i = 0; i < 100; i++) {
    tt_storage *sum = NULL, *half = NULL;
    ok(record_add(i & 1 ? stream : second, a, b, &sum));
    ok(record_scale(second, sum, 0.5f, &half));
    ok(record_add_into(stream, a, NULL, half, NULL));
    tt_storage_release(sum);
    ok(record_scale(i % 3 ? second : stream, a, 0.25f, &sum));
    ok(record_add_into(second, b, NULL, sum, NULL));
    tt_storage_release(sum);
    x += (x + y) * 0.5f;
    y += x * 0.25f;
    x *= 0.5f, y *= 0.5f; /* not to grow without end */
    ok(record_scale(stream, a, 0.5f, &sum));
    tt_storage_release(a);
    a = sum;
    ok(record_scale(second, b, 0.5f, &sum));
    tt_storage_release(b);
    b = sum;
    tt_storage_release(half);
    if (i % 30 == 29) expect(a, 1, &x);
  }
  expect(b, 1, &y);
  ok(session_sync());
  tt_storage_release(a);
  tt_storage_release(b);
}

/* A thousand copies between two devices, computing on both; the host's memory is not touched. */
static void transfers(int plugin) {
  float x = 0, step = 1;
  tt_storage *here = floats_of(stream, 1, &x), *one = floats_of(stream, 1, &step);
  tt_storage *there = floats_of(other, 1, &x), *far_one = floats_of(other, 1, &step);
  ok(session_sync());
  int64_t down = accel_count("d2h"), up = accel_count("h2d"), across = accel_count("d2d");
  int64_t reads = tt_count_get(TT_COUNT_READS), writes = tt_count_get(TT_COUNT_WRITES);
  int64_t count = tt_count_get(TT_COUNT_TRANSFERS);
  for (int i = 0; i < 500; i++) {
    ok(tt_storage_transfer(other, there, here, &policy, 0));
    ok(record_add_into(other, there, NULL, far_one, NULL));
    ok(tt_storage_transfer(stream, here, there, &policy, 0));
    ok(record_add_into(stream, here, NULL, one, NULL));
    x += 2;
  }
  ok(session_sync());
  assert_int_equal(tt_count_get(TT_COUNT_TRANSFERS) - count, 1000);
  if (plugin) {
    assert_int_equal(accel_count("d2d") - across, 1000);
    assert_int_equal(accel_count("d2h"), down);
    assert_int_equal(accel_count("h2d"), up);
  }
  assert_int_equal(tt_count_get(TT_COUNT_READS), reads);
  assert_int_equal(tt_count_get(TT_COUNT_WRITES), writes);
  expect(here, 1, &x);
  expect(there, 1, (float[]){x - 1});
  for (tt_storage **s = (tt_storage *[]){here, there, one, far_one, NULL}; *s; s++)
    tt_storage_release(*s);
}

/* What the host is given later is what the tensor held when it was asked for. */
static void reads_later(int plugin) {
  enum { COUNT = 50 };
  (void)plugin;
  float x = 1, back[COUNT];
  tt_storage *a = floats_of(stream, 1, &x);
  for (int i = 0; i < COUNT; i++) {
    ok(tt_storage_read_later(i & 1 ? stream : second, a, &back[i], sizeof back[i], &policy, free,
                             malloc(1)));
    ok(record_add_into(stream, a, NULL, a, NULL));
    if (i % 20 == 19) ok(storage_write(a, a->type, &x, 0));
  }
  ok(stream_sync(stream));
  ok(stream_sync(second));
  float expected = 1;
  for (int i = 0; i < COUNT; i++) {
    assert_true(back[i] == expected);
    expected = i % 20 == 19 ? 1 : expected * 2;
  }
  tt_storage_release(a);
}

/* One number of the host takes turns in what a stream copies from it and to it. */
static void through_the_host(int plugin) {
  enum { COUNT = 50 };
  (void)plugin;
  float x = 1, cell = 0;
  tt_storage *a = floats_of(stream, 1, &x), *b = storage_new(stream, *a->type);
  for (int i = 0; i < COUNT; i++) {
    ok(tt_storage_read_later(stream, a, &cell, sizeof cell, &policy, free, malloc(1)));
    ok(tt_storage_write_later(stream, b, a->type, &cell, free, malloc(1), &policy, 0));
    ok(record_add_into(stream, a, NULL, b, NULL));
    if (i % 20 == 19) {
      ok(tt_stream_await_host(stream, &cell, sizeof cell, false));
      assert_true(cell == (float)(INT64_C(1) << i));
      ok(tt_stream_await_host(stream, &cell, sizeof cell, true));
      cell = -1; /* nobody reads or writes it now */
    }
  }
  expect(a, 1, (float[]){(float)(INT64_C(1) << COUNT)});
  ok(session_sync());
  tt_storage_release(a);
  tt_storage_release(b);
}

/* What comes behind a marker sees what was written before it. */
static void markers(int plugin) {
  (void)plugin;
  float x = 3;
  tt_storage *a = floats_of(stream, 1, &x);
  tt_marker *before = NULL, *after = NULL;
  ok(tt_stream_mark(stream, &policy, &before));
  for (int i = 0; i < 20; i++) ok(record_add_into(stream, a, NULL, a, NULL));
  ok(tt_stream_mark(stream, &policy, &after));
  ok(tt_stream_wait_marker(second, after, &policy));
  ok(tt_marker_await(after));
  assert_true(tt_marker_passed(before));
  assert_true(tt_marker_time_ns(before) <= tt_marker_time_ns(after));
  expect(a, 1, (float[]){3 * 1048576.0f});
  tt_marker_release(before);
  tt_marker_release(after);
  tt_storage_release(a);
}

static void on_all(void (*test)(int plugin)) {
  static const tt_mode modes[] = {TT_MODE_STRICT, TT_MODE_FUSED, TT_MODE_DEBUG};
  for (int plugin = 0; plugin < PLUGINS; plugin++) {
    if (!start(plugin)) skip();
    for (int i = 0; i < (plugin > 1 ? 2 : 3); i++) {
      policy.mode = modes[i];
      test(plugin);
    }
    assert_int_equal(numbers_close(), 0);
  }
}

#define TEST(name)                                                                                 \
  static void test_##name(void **state) {                                                          \
    (void)state;                                                                                   \
    on_all(name);                                                                                  \
  }
TEST(exchange)
TEST(transfers)
TEST(reads_later)
TEST(through_the_host)
TEST(markers)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exchange),    cmocka_unit_test(test_transfers),
      cmocka_unit_test(test_reads_later), cmocka_unit_test(test_through_the_host),
      cmocka_unit_test(test_markers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
