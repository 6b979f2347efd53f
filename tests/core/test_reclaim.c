/* Tables that grow: in a process that makes new shapes all the time they are emptied, and what is
 * alive goes on. */
#include "support.h"

#include "graph/explain.h"
#include "program/program.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>

enum { LIMIT = 1000, THREADS = 4 };

static tt_stream *stream;

static int setup(void **state) {
  (void)state;
  setenv("TORCH_TPU_CALL_LIMIT", "1000", 1);
  setenv("TORCH_TPU_PROGRAM_LIMIT", "64", 1);
  setenv("TORCH_TPU_COMPILE_THREADS", "1", 1);
  setenv("TT_FAKE_DEVICES", "2", 1);
  return fake_open() ? 0 : -1;
}

static int start(void **state) {
  (void)state;
  fake_reset();
  tt_status status = session_open(getenv("TT_FAKE_PLUGIN"));
  stream = stream_at(0);
  policy.mode = TT_MODE_STRICT;
  tt_count_reset();
  return status || !stream ? -1 : 0;
}

/* Without elements, as only shapes matter here. */
static tt_storage *new_input(tt_stream *on, int64_t length) {
  float data = 0;
  tt_type type = type_of(TT_F32, 2, DIMS(length, 0));
  tt_guard_enter();
  tt_storage *made = storage_of(on, type, &data);
  tt_guard_leave();
  return made;
}

/* As the glue does it. */
static tt_storage *add(tt_stream *on, tt_storage *a, tt_storage *b) {
  tt_storage *sum = NULL;
  tt_guard_enter();
  ok(record_add(on, a, b, &sum));
  tt_guard_leave();
  return sum;
}

/* An operator on operands of a shape that was never seen. */
static void run_new(tt_stream *on, int64_t length) {
  tt_storage *a = new_input(on, length), *sum = add(on, a, a);
  tt_storage_release(a);
  tt_storage_release(sum);
}

static size_t heap(void) { return mallinfo2().uordblks; }

static void run_many(int64_t from, int64_t to) {
  for (int64_t length = from; length < to; length++) run_new(stream, length);
  ok(stream_sync(stream));
}

/* Many shapes take no more memory than a fifth of them. */
static void many_shapes(int64_t first, int64_t count) {
  tt_storage *kept = new_input(stream, first + 5);
  run_many(first, first + count / 5);
  size_t before = heap();
  run_many(first + count / 5, first + count);
  assert_true(heap() < before + (4 << 20));
  assert_in_range(tt_call_table_size(session->calls), 1, LIMIT + 1);
  assert_in_range(tt_type_table_size(), 1, 6 * LIMIT);
  assert_in_range(tt_program_table_size(session->programs), 0, 2 * LIMIT);
  assert_in_range(tt_count_get(TT_COUNT_RECLAIMS), count / LIMIT - 2, count / LIMIT);
  tt_storage *sum = add(stream, kept, kept); /* its type is still there */
  assert_ptr_equal(sum->type, kept->type);
  assert_int_equal(sum->type->dims[0], first + 5);
  tt_storage_release(sum);
  tt_storage_release(kept);
}

static void test_many_shapes(void **state) {
  (void)state;
  many_shapes(1, 100000);
}

static void test_many_shapes_fused(void **state) {
  (void)state;
  policy.mode = TT_MODE_FUSED;
  many_shapes(200000, 30000);
}

/* The same few operators in ever new order: no new calls, but new chunks. */
static void test_many_chunks(void **state) {
  (void)state;
  tt_storage *a[8];
  unsigned random = 1;
  policy.mode = TT_MODE_FUSED;
  for (int i = 0; i < 8; i++) a[i] = new_input(stream, 10 + i);
  size_t before = 0;
  int steps = 1000 * case_count(120);
  for (int i = 0; i < steps; i++) {
    random = random * 1103515245 + 12345;
    tt_storage *operand = a[random >> 20 & 7];
    tt_storage_release(add(stream, operand, operand));
    if (i % 17 == 0) ok(stream_sync(stream));
    if (i == steps / 3) before = heap();
  }
  assert_true(tt_count_get(TT_COUNT_RECLAIMS) >= 2);
  assert_true(heap() < before + (4 << 20));
  for (int i = 0; i < 8; i++) tt_storage_release(a[i]);
}

/* Where chunks end is not changed by it, as long as they end by themselves. */
static void test_at_the_end_of_a_chunk(void **state) {
  (void)state;
  policy.mode = TT_MODE_FUSED;
  tt_storage *a = new_input(stream, 7);
  for (int64_t i = 0; i < 3 * LIMIT; i++) {
    run_new(stream, 400000 + i);
    for (int k = 0; k < 3; k++) tt_storage_release(add(stream, a, a));
  }
  assert_true(tt_count_get(TT_COUNT_RECLAIMS) >= 2);
  assert_int_equal(tt_count_get(TT_COUNT_CUTS_SYNCHRONISE), 0);
  tt_storage_release(a);
}

/* What is loaded is not compiled again, nor missed where nothing may be compiled. */
static void test_what_is_loaded_stays(void **state) {
  (void)state;
  tt_storage *a = new_input(stream, 9);
  tt_storage_release(add(stream, a, a));
  for (int64_t i = 0; i < 3 * LIMIT; i++) {
    run_new(stream, 500000 + i);
    int64_t programs = tt_count_get(TT_COUNT_PROGRAMS);
    tt_storage_release(add(stream, a, a));
    assert_int_equal(tt_count_get(TT_COUNT_PROGRAMS), programs);
  }
  assert_in_range(tt_count_get(TT_COUNT_RECLAIMS), 2, 3);
  ok(stream_sync(stream));
  policy.known_only = true;
  for (int64_t i = 0; i < 2 * LIMIT; i++) {
    tt_storage *b = new_input(stream, 510000 + i), *sum = NULL;
    tt_guard_enter();
    fails(record_add(stream, b, b, &sum), TT_FAILED_PRECONDITION, "forbids");
    tt_guard_leave();
    tt_storage_release(b);
  }
  assert_in_range(tt_count_get(TT_COUNT_RECLAIMS), 4, 5);
  tt_storage_release(add(stream, a, a));
  policy.known_only = false;
  tt_storage_release(a);
}

/* A template's calls are forgotten with the others. */
static void test_templates(void **state) {
  (void)state;
  int slot = 0;
  tt_template *made = NULL;
  tt_storage *a = new_input(stream, 11);
  ok(tt_template_begin(session->calls, &a, 1));
  tt_storage *sum = add(stream, a, a);
  ok(tt_template_end(&sum, 1, &slot, &made));
  assert_non_null(made);
  tt_key key;
  tt_key_init(&key);
  tt_templates_keep(session->templates, &key, made);
  assert_true(tt_templates_find(session->templates, &key, &made));
  tt_template_release(made);
  run_many(600000, 600000 + LIMIT + 10);
  assert_false(tt_templates_find(session->templates, &key, &made));
  tt_key_deinit(&key);
  tt_storage_release(sum);
  tt_storage_release(a);
}

/* -- Threads -- */

typedef struct worker {
  tt_stream *on;
  unsigned random;
  int64_t first;
} worker;

/* Long-lived storages among short ones; reads and resizes between. */
static void *work(void *user) {
  enum { KEPT = 32 };
  worker *w = user;
  tt_storage *kept[KEPT];
  for (int i = 0; i < KEPT; i++) kept[i] = new_input(w->on, w->first + i);
  for (int i = 0; i < 1500; i++) {
    w->random = w->random * 1103515245 + 12345;
    int at = (int)(w->random >> 16) % KEPT;
    tt_storage *sum = add(w->on, kept[at], kept[at]);
    assert_int_equal(sum->type->dims[0], kept[at]->type->dims[0]);
    tt_storage_release(sum);
    run_new(w->on, w->first + 1000 + i);
    if (i % 13 == 0) ok(storage_read(kept[at], NULL, 0));
    if (i % 5) continue;
    tt_storage_release(kept[at]);
    kept[at] = new_input(w->on, w->first + 20000 + i);
  }
  for (int i = 0; i < KEPT; i++) tt_storage_release(kept[i]);
  return NULL;
}

static void run_threads(tt_mode mode) {
  pthread_t threads[THREADS];
  worker workers[THREADS];
  fake.tt_fake_async(true);
  policy.mode = mode;
  for (int i = 0; i < THREADS; i++) {
    workers[i] =
        (worker){stream_at(i & 1), (unsigned)i + 1, 1000000 + 100000 * i + 1000000 * (int)mode};
    assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  ok(session_sync());
  assert_true(tt_count_get(TT_COUNT_RECLAIMS) >= 1);
}

static void test_threads(void **state) {
  (void)state;
  run_threads(TT_MODE_STRICT);
}

static void test_threads_fused(void **state) {
  (void)state;
  run_threads(TT_MODE_FUSED);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, fake_close)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_many_shapes),
      TEST(test_many_shapes_fused),
      TEST(test_many_chunks),
      TEST(test_at_the_end_of_a_chunk),
      TEST(test_what_is_loaded_stays),
      TEST(test_templates),
      TEST(test_threads),
      TEST(test_threads_fused),
  };
#ifdef __SANITIZE_THREAD__ /* which sees nothing more in the long runs of one thread */
  cmocka_set_test_filter("test_threads*");
#endif
  return cmocka_run_group_tests(tests, setup, NULL);
}
