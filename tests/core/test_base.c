/* The base room: statuses, memory, hashing, interning, environment, logging. */
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* -- Status -- */

static void expect(tt_status status, tt_code code, const char *message) {
  assert_int_equal(tt_status_code(status), code);
  assert_string_equal(tt_status_message(status), message);
  tt_status_release(status);
}

static void test_status_success(void **state) {
  (void)state;
  expect(TT_SUCCESS, TT_OK, "");
  assert_null(tt_status_prefix(TT_SUCCESS, "never %d", 1));
  assert_null(tt_status_extend(TT_SUCCESS, "never %d", 1));
  assert_null(tt_join(TT_SUCCESS, TT_SUCCESS));
  assert_null(tt_status_clone(TT_SUCCESS));
}

static void test_status_messages(void **state) {
  (void)state;
  expect(tt_error(TT_VALUE, "dim %d", 3), TT_VALUE, "dim 3");
  expect(tt_status_prefix(tt_error(TT_TYPE, "bad"), "aten::%s", "add"), TT_TYPE, "aten::add: bad");
  expect(tt_status_extend(tt_error(TT_TYPE, "bad"), ", %d%%", 9), TT_TYPE, "bad, 9%");
  expect(tt_error(TT_OK, "odd"), TT_INTERNAL, "odd");
  expect(tt_error(TT_UNKNOWN, "%s", ""), TT_UNKNOWN, "");
}

static void test_status_join(void **state) {
  (void)state;
  tt_status first = tt_error(TT_NOT_FOUND, "a"), second = tt_error(TT_INTERNAL, "b");
  expect(tt_join(first, second), TT_NOT_FOUND, "a; then: b");
  expect(tt_join(NULL, tt_error(TT_INTERNAL, "b")), TT_INTERNAL, "b");
  expect(tt_join(tt_error(TT_INTERNAL, "a"), NULL), TT_INTERNAL, "a");
}

static void test_status_clone(void **state) {
  (void)state;
  tt_status status = tt_error(TT_ABORTED, "x");
  tt_status copy = tt_status_clone(status);
  assert_ptr_not_equal(status, copy);
  expect(status, TT_ABORTED, "x");
  expect(copy, TT_ABORTED, "x");
  assert_ptr_equal(tt_status_clone(tt_out_of_memory()), tt_out_of_memory());
}

static void test_status_long_message(void **state) {
  (void)state;
  char *text = malloc(200001);
  memset(text, 'x', 200000);
  text[200000] = '\0';
  tt_status status = tt_error(TT_INTERNAL, "%s", text);
  assert_int_equal(strlen(tt_status_message(status)), 65536);
  status = tt_join(status, tt_error(TT_INTERNAL, "%s", text));
  assert_int_equal(strlen(tt_status_message(status)), 65536);
  tt_status_release(status);
  free(text);
}

static void test_status_out_of_memory(void **state) {
  (void)state;
  tt_status kept = tt_error(TT_VALUE, "kept");
  tt_alloc_fail_at(1, true);
  tt_status none = tt_error(TT_VALUE, "lost");
  kept = tt_status_prefix(kept, "lost");
  kept = tt_status_extend(kept, "lost");
  kept = tt_join(kept, tt_out_of_memory());
  tt_status copy = tt_status_clone(kept);
  tt_alloc_fail_at(0, false);
  expect(none, TT_RESOURCE_EXHAUSTED, "out of host memory");
  expect(copy, TT_RESOURCE_EXHAUSTED, "out of host memory");
  expect(kept, TT_VALUE, "kept");
}

static void test_code_names(void **state) {
  (void)state;
  assert_string_equal(tt_code_name(TT_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
  assert_string_equal(tt_code_name((tt_code)99), "UNKNOWN");
  assert_int_equal(TT_UNAUTHENTICATED, 16);
}

/* -- Memory -- */

static void test_alloc_hook(void **state) {
  (void)state;
  tt_alloc_fail_at(2, false);
  void *a = tt_malloc(8), *b = tt_calloc(2, 8), *c = tt_realloc(NULL, 8);
  assert_int_equal(tt_alloc_count(), 3);
  tt_alloc_fail_at(0, false);
  assert_non_null(a);
  assert_null(b);
  assert_non_null(c);
  tt_free(a);
  tt_free(c);
  tt_alloc_fail_at(INT64_MAX, false);
  tt_free(tt_malloc(0));
  assert_int_equal(tt_alloc_count(), 1);
  tt_alloc_fail_at(0, false);
}

static void test_alloc_impossible(void **state) {
  (void)state;
  assert_null(tt_malloc(SIZE_MAX));
  assert_null(tt_calloc(SIZE_MAX / 2, 4));
  assert_null(tt_calloc(SIZE_MAX / 2, 2));
  assert_null(tt_realloc(NULL, SIZE_MAX));
  assert_null(tt_strndup("", SIZE_MAX));
}

static void test_checked_arithmetic(void **state) {
  (void)state;
  size_t size = 7;
  int64_t number = 7;
  assert_false(tt_mul_size(SIZE_MAX, 2, &size));
  assert_false(tt_mul_i64(INT64_MAX, 2, &number));
  assert_false(tt_add_i64(INT64_MAX, 1, &number));
  assert_int_equal(size, 7);
  assert_int_equal(number, 7);
  assert_true(tt_mul_size(6, 7, &size) && size == 42);
  assert_true(tt_mul_i64(-6, 7, &number) && number == -42);
  assert_true(tt_add_i64(-6, 7, &number) && number == 1);
}

static void test_arena(void **state) {
  (void)state;
  tt_arena arena = TT_ARENA_INIT;
  for (size_t size = 0; size < 3000; size += 7) {
    unsigned char *memory = tt_arena_alloc(&arena, size);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 16, 0);
    for (size_t i = 0; i < size; i++) assert_int_equal(memory[i], 0);
    memset(memory, 0xff, size);
  }
  assert_non_null(tt_arena_alloc(&arena, 1 << 20));
  assert_null(tt_arena_alloc(&arena, SIZE_MAX));
  assert_string_equal(tt_arena_copy(&arena, "copy", 5), "copy");
  assert_string_equal(tt_arena_printf(&arena, "%d-%s", 7, "x"), "7-x");
  tt_alloc_fail_at(1, true);
  assert_null(tt_arena_alloc(&arena, 1 << 20));
  tt_alloc_fail_at(0, false);
  tt_arena_deinit(&arena);
  assert_null(arena.head);
}

static void test_text(void **state) {
  (void)state;
  tt_text text = TT_TEXT_INIT;
  for (int i = 0; i < 1000; i++) {
    tt_text_add(&text, "ab", 2);
    tt_text_printf(&text, "%d,", i);
  }
  assert_int_equal(text.size, strlen(text.data));
  assert_memory_equal(text.data, "ab0,ab1,ab2,", 12);
  tt_text_printf(&text, "%0*d", 5000, 1); /* longer than what is free */
  assert_int_equal(text.data[text.size - 1], '1');
  assert_null(tt_text_status(&text));
  tt_text_deinit(&text);

  tt_alloc_fail_at(1, true);
  tt_text_printf(&text, "x");
  tt_alloc_fail_at(0, false);
  tt_text_add(&text, "y", 1); /* sticks */
  expect(tt_text_status(&text), TT_RESOURCE_EXHAUSTED, "out of host memory");
  tt_text_deinit(&text);
}

static void test_grow(void **state) {
  (void)state;
  int *array = NULL;
  size_t capacity = 0;
  for (size_t i = 0; i < 1000; i++) {
    assert_null(tt_grow((void **)&array, &capacity, i + 1, sizeof *array));
    array[i] = (int)i;
  }
  for (int i = 0; i < 1000; i++) assert_int_equal(array[i], i);
  size_t before = capacity;
  assert_non_null(tt_grow((void **)&array, &capacity, SIZE_MAX, sizeof *array));
  assert_int_equal(capacity, before);
  tt_free(array);
}

/* -- Hash and intern -- */

static void test_hash(void **state) {
  (void)state;
  unsigned char data[300];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 131 + 7);
  for (size_t size = 0; size <= sizeof data; size++) {
    uint64_t hash = tt_hash_bytes(data, size, 0);
    assert_true(hash == tt_hash_bytes(data, size, 0));
    assert_true(hash != tt_hash_bytes(data, size, 1));
    for (size_t i = 0; i < size; i++) { /* every byte counts */
      data[i] ^= 1;
      assert_true(hash != tt_hash_bytes(data, size, 0));
      data[i] ^= 1;
    }
    if (size) assert_true(hash != tt_hash_bytes(data, size - 1, 0));
  }
}

/* Keys that differ in one counter fill the buckets like random ones. */
static void test_hash_spread(void **state) {
  (void)state;
  enum { BUCKETS = 1 << 12 };
  static int counts[BUCKETS];
  for (uint64_t i = 0; i < 4 * BUCKETS; i++) {
    uint64_t key[9] = {1, 2, 3, i, 5, 6, 7, 8, 9};
    counts[tt_hash_bytes(key, sizeof key, 0) % BUCKETS]++;
  }
  for (int i = 0; i < BUCKETS; i++) assert_in_range(counts[i], 0, 20);
}

static void test_intern(void **state) {
  (void)state;
  static int values[5000];
  tt_intern table = TT_INTERN_INIT;
  assert_null(tt_intern_find(&table, "", 0));
  for (int i = 0; i < 5000; i++) {
    char key[16];
    size_t size = (size_t)snprintf(key, sizeof key, "%d", i);
    assert_null(tt_intern_find(&table, key, size));
    assert_null(tt_intern_add(&table, key, size, &values[i]));
    memset(key, 0, sizeof key); /* the table has its own copy */
  }
  assert_null(tt_intern_add(&table, NULL, 0, values));
  assert_ptr_equal(tt_intern_find(&table, NULL, 0), values);
  for (int i = 0; i < 5000; i++) {
    char key[16];
    size_t size = (size_t)snprintf(key, sizeof key, "%d", i);
    assert_ptr_equal(tt_intern_find(&table, key, size), &values[i]);
  }
  assert_int_equal(table.count, 5001);
  tt_intern_deinit(&table);
  assert_null(tt_intern_find(&table, "1", 1));
}

static int dropped;
static bool is_even(void *value) { return *(int *)value % 2 == 0; }
static void drop(void *value) {
  assert_false(is_even(value));
  dropped++;
}

static void test_intern_filter(void **state) {
  (void)state;
  enum { COUNT = 1000 };
  static int values[COUNT];
  tt_intern table = TT_INTERN_INIT;
  assert_null(tt_intern_filter(&table, is_even, drop));
  for (int i = 0; i < COUNT; i++) {
    values[i] = i;
    assert_null(tt_intern_add(&table, &values[i], sizeof i, &values[i]));
  }
  tt_alloc_fail_at(3, false); /* nothing happens then */
  expect(tt_intern_filter(&table, is_even, drop), TT_RESOURCE_EXHAUSTED, "out of host memory");
  tt_alloc_fail_at(0, false);
  assert_int_equal(dropped, 0);
  assert_int_equal(table.count, COUNT);
  size_t capacity = table.capacity;
  assert_null(tt_intern_filter(&table, is_even, drop));
  assert_int_equal(dropped, COUNT / 2);
  assert_int_equal(table.count, COUNT / 2);
  assert_true(table.capacity < capacity);
  for (int i = 0; i < COUNT; i++)
    assert_ptr_equal(tt_intern_find(&table, &i, sizeof i), i % 2 ? NULL : &values[i]);
  tt_intern_deinit(&table);
}

static void test_intern_lends(void **state) {
  (void)state;
  static int values[] = {0, 1, 2, 3};
  tt_intern table = TT_INTERN_LENT;
  for (int i = 0; i < 4; i++)
    assert_null(tt_intern_add(&table, &values[i], sizeof values[i], &values[i]));
  dropped = 0;
  assert_null(tt_intern_filter(&table, is_even, drop));
  assert_int_equal(dropped, 2);
  for (size_t i = 0; i < table.capacity; i++)
    assert_ptr_equal(table.entries[i].key, table.entries[i].value); /* no copy */
  tt_intern_deinit(&table);
  assert_null(tt_intern_add(&table, &values[1], sizeof values[1], &values[1]));
  tt_intern_deinit(&table);
}

static void test_intern_out_of_memory(void **state) {
  (void)state;
  tt_intern table = TT_INTERN_INIT;
  int value, failures = 0;
  for (int i = 0; i < 100; i++) {
    for (int64_t nth = 1;; nth++) {
      tt_alloc_fail_at(nth, false);
      tt_status status = tt_intern_add(&table, &i, sizeof i, &value);
      tt_alloc_fail_at(0, false);
      if (!status) break;
      failures++;
      assert_null(tt_intern_find(&table, &i, sizeof i));
      expect(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
    }
  }
  assert_true(failures >= 100);
  for (int i = 0; i < 100; i++) assert_ptr_equal(tt_intern_find(&table, &i, sizeof i), &value);
  tt_intern_deinit(&table);
}

/* -- Environment and log -- */

static void test_env(void **state) {
  (void)state;
  assert_string_equal(tt_env(TT_ENV_EAGER_MODE), "fused");
  assert_string_equal(tt_env(TT_ENV_HOST_FALLBACK), "warn"); /* empty counts as unset */
  assert_int_equal(tt_env_int(TT_ENV_CPU_DEVICES), 4);
  assert_int_equal(tt_env_int(TT_ENV_EAGER_MODE), 0);
  setenv("TORCH_TPU_EAGER_MODE", "debug", 1); /* too late */
  assert_string_equal(tt_env(TT_ENV_EAGER_MODE), "fused");
  assert_string_equal(tt_env_name(TT_ENV_PLUGIN), "TORCH_TPU_PLUGIN");
  assert_string_equal(tt_env_default(TT_ENV_COMPILE_THREADS), "0");
  for (int i = 0; i < TT_ENV_COUNT; i++) assert_true(strlen(tt_env_doc((tt_env_var)i)) > 10);
}

static void test_log(void **state) {
  (void)state;
  assert_true(tt_log_on(TT_LOG_COMPILE));
  assert_true(tt_log_on(TT_LOG_HOST));
  assert_false(tt_log_on(TT_LOG_LAUNCH));
  int pipes[2], saved = dup(2);
  assert_int_equal(pipe(pipes), 0);
  dup2(pipes[1], 2);
  tt_log(TT_LOG_LAUNCH, "silent");
  tt_log(TT_LOG_COMPILE, "two\nlines %d", 5);
  tt_log(TT_LOG_HOST, "%0*d", 10000, 0);
  dup2(saved, 2);
  close(pipes[1]);
  char text[8192] = "";
  ssize_t size = read(pipes[0], text, sizeof text - 1);
  close(pipes[0]);
  close(saved);
  assert_true(size > 4000);
  assert_memory_equal(text, "torch_tpu compile: two lines 5\ntorch_tpu host: 000", 50);
  assert_int_equal(text[size - 1], '\n');
}

/* -- The journal -- */

static void keep_line(int number) {
  tt_text text = TT_TEXT_INIT;
  tt_text_printf(&text, "line %d", number);
  tt_journal_keep("new call", &text);
  assert_null(text.data);
}

static void test_journal(void **state) {
  (void)state;
  assert_int_equal(tt_journal_count(), 0);
  assert_null(tt_journal_get(0));
  for (int i = 0; i < TT_JOURNAL_KEPT + 10; i++) keep_line(i);
  assert_int_equal(tt_journal_count(), TT_JOURNAL_KEPT + 10);
  assert_null(tt_journal_get(9)); /* no longer kept */
  assert_null(tt_journal_get(-1));
  assert_null(tt_journal_get(TT_JOURNAL_KEPT + 10)); /* not yet */
  char *first = tt_journal_get(10), *last = tt_journal_get(TT_JOURNAL_KEPT + 9);
  assert_string_equal(first, "new call: line 10");
  assert_string_equal(last, "new call: line 1033");
  tt_free(first);
  tt_free(last);
  tt_alloc_fail_at(1, true);
  keep_line(0); /* there is no memory for it */
  assert_null(tt_journal_get(TT_JOURNAL_KEPT));
  tt_alloc_fail_at(0, false);
  assert_int_equal(tt_journal_count(), TT_JOURNAL_KEPT + 10);
}

int main(void) {
  setenv("TORCH_TPU_EAGER_MODE", "fused", 1);
  setenv("TORCH_TPU_HOST_FALLBACK", "", 1);
  setenv("TORCH_TPU_CPU_DEVICES", "4", 1);
  setenv("TORCH_TPU_LOG", "compile, host", 1);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status_success),
      cmocka_unit_test(test_status_messages),
      cmocka_unit_test(test_status_join),
      cmocka_unit_test(test_status_clone),
      cmocka_unit_test(test_status_long_message),
      cmocka_unit_test(test_status_out_of_memory),
      cmocka_unit_test(test_code_names),
      cmocka_unit_test(test_alloc_hook),
      cmocka_unit_test(test_alloc_impossible),
      cmocka_unit_test(test_checked_arithmetic),
      cmocka_unit_test(test_arena),
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_grow),
      cmocka_unit_test(test_hash),
      cmocka_unit_test(test_hash_spread),
      cmocka_unit_test(test_intern),
      cmocka_unit_test(test_intern_filter),
      cmocka_unit_test(test_intern_lends),
      cmocka_unit_test(test_intern_out_of_memory),
      cmocka_unit_test(test_env),
      cmocka_unit_test(test_log),
      cmocka_unit_test(test_journal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
