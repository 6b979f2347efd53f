/* Every call of the plugin and every allocation fails once, in a small script of operators and in
 * the life of a whole runtime: errors are clean, nothing leaks, and what comes next works. */
#include "support.h"

static const char *path;

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  path = getenv("TT_FAKE_PLUGIN");
  setenv("TT_FAKE_DEVICES", "2", 1);
  return 0;
}

/* -- The script; cleans up after any error -- */

enum { STORAGES = 8 };

typedef struct script {
  tt_stream *stream;
  tt_storage *storages[STORAGES];
} script;

static tt_status create(script *s, int at, int64_t n) {
  float data[64] = {0};
  const tt_type *type = NULL;
  tt_type wanted = tt_type_make(TT_F32, 1, &n);
  TT_TRY(tt_type_intern(&wanted, &type));
  TT_TRY(tt_storage_create(s->stream->device, type, &s->storages[at]));
  return at < 2 ? storage_write(s->storages[at], type, data, 0) : TT_SUCCESS;
}

static tt_status run(script *s, int64_t n) {
  tt_storage **a = s->storages;
  float data[64];
  for (int i = 0; i < 3; i++) TT_TRY(create(s, i, n)); /* the third remains undefined */
  TT_TRY(record_add(s->stream, a[0], a[1], &a[3]));
  tt_view view = {.dtype = TT_F32, .rank = 1, .offset = 1, .sizes = {2}, .strides = {2}};
  TT_TRY(record_add_into(s->stream, a[0], &view, a[1], &view));
  TT_TRY(record_add_into(s->stream, a[2], NULL, a[3], NULL));
  TT_TRY(record_scale(s->stream, a[2], 0.5f, &a[4]));
  TT_TRY(storage_resize(a[1], 4 * n + 3));
  TT_TRY(record_add(s->stream, a[4], a[4], &a[5]));
  TT_TRY(storage_read(a[4], data, 4 * n));
  TT_TRY(storage_read(a[1], data, 4 * n + 3));
  return stream_sync(s->stream);
}

static tt_status run_script(int64_t n) {
  script s = {.stream = stream_at(1)};
  tt_status status = run(&s, n);
  status = tt_join(status, stream_sync(s.stream));
  for (int i = 0; i < STORAGES; i++) tt_storage_release(s.storages[i]);
  return status;
}

static void nothing_allocated(void) {
  tt_memory memory;
  memory_of(stream_at(1), &memory);
  assert_int_equal(memory.allocated, 0);
  assert_int_equal(memory.allocations, memory.frees);
}

/* A plugin's failure keeps its code, unless it hit the question for the code. */
static void injected(tt_status status) {
  if (tt_status_code(status) != TT_INTERNAL && tt_status_code(status) != TT_UNKNOWN)
    fail_msg("%s: %s", tt_code_name(tt_status_code(status)), tt_status_message(status));
  if (!strstr(tt_status_message(status), "injected")) fail_msg("%s", tt_status_message(status));
  tt_status_release(status);
}

static void set_mode(int number) {
  static const tt_mode modes[] = {TT_MODE_STRICT, TT_MODE_DEBUG, TT_MODE_FUSED};
  policy.mode = modes[number];
}

/* -- In a running runtime -- */

static void test_every_call_fails_once(void **state) {
  (void)state;
  int failures = 0;
  ok(session_open(path));
  for (int live_set = 0; live_set < 6; live_set++) {
    set_mode(live_set % 3);
    fake.tt_fake_async(live_set >= 3);
    for (int64_t nth = 1;; nth++) {
      int64_t n = 4 + nth % 30; /* what was not compiled before, and what was */
      fake.tt_fake_fail_at(nth);
      tt_status status = run_script(n);
      bool happened = fake.tt_fake_failed();
      fake.tt_fake_fail_at(0);
      failures += status != NULL;
      if (status) injected(status);
      nothing_allocated();
      if (!happened) break;
      session_close(); /* what a plugin fails to compile is not tried again */
      assert_int_equal(fake.tt_fake_live_objects(), 0);
      ok(session_open(path));
      ok(run_script(n));
    }
  }
  assert_true(failures > 100);
}

static void test_every_allocation_fails_once(void **state) {
  (void)state;
  int failures = 0;
  ok(session_open(path));
  for (int live_set = 0; live_set < 6; live_set++) {
    set_mode(live_set % 3);
    session_close(); /* so that everything is new again */
    ok(session_open(path));
    for (int64_t nth = 1, n = 4;; nth++) {
      tt_alloc_fail_at(nth, live_set >= 3);
      tt_status status = run_script(n);
      int64_t asked = tt_alloc_count();
      tt_alloc_fail_at(0, false);
      nothing_allocated();
      if (asked < nth) {
        ok(status);
        break;
      }
      failures += status != NULL;
      if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      if (nth % 4 == 0) ok(run_script(n++)); /* then everything of this size is known */
    }
  }
  assert_true(failures > 100);
}

/* -- From the first call to the last -- */

static tt_status whole_life(void) {
  TT_TRY(session_open(path));
  TT_TRY(run_script(5));
  return run_script(5);
}

static void test_every_call_of_a_life_fails_once(void **state) {
  (void)state;
  int failures = 0;
  for (int live_set = 0; live_set < 4; live_set++) {
    fake.tt_fake_async(live_set & 1);
    set_mode(live_set & 2);
    for (int64_t nth = 1;; nth++) {
      fake.tt_fake_fail_at(nth);
      tt_status status = whole_life();
      session_close();
      bool happened = fake.tt_fake_failed();
      fake.tt_fake_fail_at(0);
      failures += status != NULL;
      if (status) injected(status);
      assert_int_equal(fake.tt_fake_live_objects(), 0);
      if (!happened) break;
    }
  }
  assert_true(failures > 100);
}

static void test_every_allocation_of_a_life_fails_once(void **state) {
  (void)state;
  int failures = 0;
  for (int live_set = 0; live_set < 4; live_set++) {
    set_mode(live_set & 2);
    for (int64_t nth = 1;; nth++) {
      tt_alloc_fail_at(nth, live_set & 1);
      tt_status status = whole_life();
      int64_t asked = tt_alloc_count();
      tt_alloc_fail_at(0, false);
      if (asked >= nth) ok(whole_life()); /* also when only half of the runtime was there */
      session_close();
      failures += status != NULL;
      if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      assert_int_equal(fake.tt_fake_live_objects(), 0);
      if (asked < nth) break;
    }
  }
  assert_true(failures > 100);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_close, fake_close)
  const struct CMUnitTest tests[] = {
      TEST(test_every_call_fails_once),
      TEST(test_every_allocation_fails_once),
      TEST(test_every_call_of_a_life_fails_once),
      TEST(test_every_allocation_of_a_life_fails_once),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
