/* Templates on the fake plugin: notes that are of no use, donation, failures. */
#include "support.h"

static tt_stream *stream, *other;
static tt_storage *a, *b; /* f32[8], written */

static int setup(void **state) {
  (void)state;
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
  a = storage_of(stream, type_of(TT_F32, 1, DIMS(8)), data);
  b = storage_of(stream, type_of(TT_F32, 1, DIMS(8)), data);
  return 0;
}

static int stop(void **state) {
  tt_storage_release(a);
  tt_storage_release(b);
  return fake_close(state);
}

static void begin(void) { ok(tt_template_begin(session->calls, &a, 1)); }

/* Ends notes whose result is `result`, or none. */
static tt_template *end(tt_storage *result) {
  int slot = -1;
  tt_template *made = NULL;
  ok(tt_template_end(&result, result != NULL, &slot, &made));
  return made;
}

static tt_storage *neg(tt_storage *x) {
  tt_storage *results[REQUEST_MAX] = {NULL};
  request r = {.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {x}};
  ok(request_record(stream, &r, results));
  return results[0];
}

static void test_one_at_a_time(void **state) {
  (void)state;
  int slot = 0;
  tt_template *made = NULL;
  fails(tt_template_end(NULL, 0, &slot, &made), TT_FAILED_PRECONDITION, "takes no notes");
  begin();
  fails(tt_template_begin(session->calls, &a, 1), TT_FAILED_PRECONDITION, "takes notes already");
  made = end(NULL);
  assert_non_null(made); /* of nothing */
  ok(tt_template_run(made, stream, &a, (tt_philox_place){0}, &policy, 0));
  tt_template_release(made);
  tt_template_release(NULL);
}

/* -- What spoils notes -- */

static tt_storage *spoil_nothing(void) { return neg(a); }

static tt_storage *spoil_by_reading(void) {
  float data[8];
  ok(storage_read(a, data, sizeof data));
  return neg(a);
}

static tt_storage *spoil_by_writing(void) {
  tt_storage *x = neg(a);
  ok(storage_write(x, a->type, (float[8]){0}, 0));
  return x;
}

static tt_storage *spoil_by_another_s(void) { return neg(b); }

static tt_storage *spoil_by_a_result_of_others(void) { return tt_storage_retain(b); }

static tt_storage *spoil_by_copying(void) {
  tt_storage *far = storage_new(other, *a->type), *x = neg(a);
  ok(tt_storage_transfer(other, far, a, &policy, 0));
  tt_storage_release(far);
  return x;
}

static tt_storage *spoil_by_resizing(void) {
  tt_storage *x = neg(a);
  ok(storage_resize(x, 48));
  return x;
}

static void test_what_spoils_notes(void **state) {
  (void)state;
  static tt_storage *(*const ways[])(void) = {
      spoil_nothing,     spoil_by_reading,   spoil_by_writing,
      spoil_by_copying,  spoil_by_another_s, spoil_by_a_result_of_others,
      spoil_by_resizing,
  };
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    begin();
    tt_storage *result = ways[i]();
    tt_template *made = end(result);
    assert_int_equal(made != NULL, i == 0);
    tt_template_release(made);
    tt_storage_release(result);
  }
  assert_false(tt_guard_others());
}

static void test_another_generator(void **state) {
  (void)state;
  static const tt_op_row *row;
  row = tt_op_find("uniform");
  int generator = 0;
  for (int own = 0; own < 2 && row; own++) {
    tt_storage *results[REQUEST_MAX] = {NULL};
    request r = {.row = row,
                 .tensor_count = 1,
                 .tensors = {a},
                 .arg_count = 3,
                 .args = {{.kind = TT_ARG_TENSOR},
                          {.kind = TT_ARG_SCALAR, .first = 0, .dtype = TT_F64},
                          {.kind = TT_ARG_SCALAR, .first = 1, .dtype = TT_F64}},
                 .scalar_count = 4,
                 .scalars = {TT_F64, TT_F64, TT_I64, TT_I64},
                 .draw = {.generator = own ? &generator : NULL, .blocks = 3}};
    begin();
    ok(request_record(stream, &r, results));
    tt_template *made = end(results[0]);
    assert_int_equal(made != NULL, !own);
    if (made) assert_int_equal(tt_template_blocks(made), 3);
    tt_template_release(made);
    tt_storage_release(results[0]);
  }
}

/* -- Donation -- */

/* What is written in place is donated each time, however fast the queue is: an argument, and what
 * is made and written again. */
static void test_donation(void **state) {
  (void)state;
  begin();
  ok(record_add_into(stream, a, NULL, a, NULL));
  tt_storage *x = neg(a);
  ok(record_add_into(stream, x, NULL, a, NULL));
  tt_template *made = end(x);
  assert_non_null(made);
  ok(stream_sync(stream));
  int64_t donated = fake.tt_fake_donations();
  for (int i = 0; i < 200; i++) {
    tt_storage *storages[2] = {a};
    ok(tt_template_run(made, stream, storages, (tt_philox_place){0}, &policy, 0));
    tt_storage_release(storages[1]);
  }
  ok(stream_sync(stream));
  assert_int_equal(fake.tt_fake_donations() - donated, 400);
  tt_template_release(made);
  tt_storage_release(x);
}

/* -- The table -- */

static void test_table(void **state) {
  (void)state;
  tt_key keys[2];
  tt_template *found = NULL;
  for (int i = 0; i < 2; i++) {
    tt_key_init(&keys[i]);
    tt_key_u64(&keys[i], (uint64_t)i);
    assert_false(tt_templates_find(session->templates, &keys[i], &found));
    assert_null(found);
  }
  begin();
  tt_template *first = end(NULL);
  begin();
  tt_template *second = end(NULL);
  tt_returned returned = {.arg = -1, .slot = 0, .view = tt_view_whole(a->type)};
  ok(tt_template_return(first, &returned, 1));
  ok(tt_template_return(second, NULL, 0));
  tt_templates_keep(session->templates, &keys[0], first);
  tt_templates_keep(session->templates, &keys[0], second); /* it is known already */
  tt_templates_keep(session->templates, &keys[1], NULL);
  assert_true(tt_templates_find(session->templates, &keys[0], &found));
  assert_ptr_equal(found, first);
  assert_int_equal(found->returned_count, 1);
  assert_int_equal(found->returned[0].view.sizes[0], 8);
  tt_template_release(found);
  assert_true(tt_templates_find(session->templates, &keys[1], &found));
  assert_null(found);
  for (uint64_t i = 2; i <= TT_TEMPLATES_MOST; i++) { /* one more forgets the others */
    tt_key key;
    tt_key_init(&key);
    tt_key_u64(&key, i);
    tt_templates_keep(session->templates, &key, NULL);
  }
  assert_false(tt_templates_find(session->templates, &keys[0], &found));
  for (int i = 0; i < 2; i++) tt_key_deinit(&keys[i]);
}

/* A table that has no memory, and a key that had none, keep nothing. */
static void test_table_without_memory(void **state) {
  (void)state;
  tt_templates *table = NULL;
  tt_template *found = NULL;
  tt_key key;
  tt_key_init(&key);
  for (int64_t nth = 1; nth < 5; nth++) {
    begin();
    tt_template *made = end(NULL);
    tt_returned returned = {.arg = 0};
    tt_alloc_fail_at(nth, false);
    tt_status status = tt_templates_create(session->calls, &table);
    if (!status) status = tt_template_return(made, &returned, 1);
    key.failed = nth == 4;
    if (table) tt_templates_keep(table, &key, tt_template_retain(made));
    tt_alloc_fail_at(0, false);
    if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
    if (table) assert_int_equal(tt_templates_find(table, &key, &found), found != NULL);
    tt_template_release(found);
    tt_templates_destroy(table);
    tt_template_release(made);
    table = NULL;
  }
  assert_null(found);
  tt_key_deinit(&key);
}

/* -- Failures -- */

static tt_template *make(void) {
  tt_storage *twice = NULL, *sum = NULL;
  begin();
  ok(record_scale(stream, a, 2, &twice));
  ok(record_add_into(stream, a, NULL, twice, NULL));
  ok(record_add(stream, a, twice, &sum));
  tt_storage_release(twice);
  tt_template *made = end(sum);
  tt_storage_release(sum);
  return made;
}

static void test_runs_without_memory(void **state) {
  (void)state;
  static const tt_mode modes[] = {TT_MODE_STRICT, TT_MODE_FUSED, TT_MODE_DEBUG};
  tt_template *made = make();
  float data[8];
  assert_non_null(made);
  for (int m = 0; m < 3; m++) {
    policy.mode = modes[m];
    for (int64_t nth = 1;; nth++) {
      tt_storage *storages[2] = {a};
      tt_alloc_fail_at(nth, false);
      tt_status status = tt_template_run(made, stream, storages, (tt_philox_place){0}, &policy, 0);
      int64_t asked = tt_alloc_count();
      tt_alloc_fail_at(0, false);
      status = tt_join(status, stream_sync(stream));
      if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      tt_storage_release(storages[1]);
      tt_status_release(storage_read(a, data, sizeof data));
      ok(storage_write(a, b->type, (float[8]){0}, 0));
      if (asked < nth) break;
    }
  }
  tt_template_release(made);
}

static void test_notes_without_memory(void **state) {
  (void)state;
  for (int64_t nth = 1;; nth++) {
    int slot = 0;
    tt_template *made = NULL;
    tt_storage *x = NULL, *y = NULL;
    tt_alloc_fail_at(nth, false);
    tt_status status = tt_template_begin(session->calls, &a, 1);
    if (!status) {
      status = record_add(stream, a, a, &x);
      if (!status) status = record_scale(stream, a, 3, &y);
      status = tt_join(status, tt_template_end(&x, x != NULL, &slot, &made));
    }
    int64_t asked = tt_alloc_count();
    tt_alloc_fail_at(0, false);
    if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
    tt_template_release(made);
    tt_storage_release(x);
    tt_storage_release(y);
    tt_status_release(stream_sync(stream));
    if (asked < nth) break;
  }
  assert_null(tt_observer_current);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
  const struct CMUnitTest tests[] = {
      TEST(test_one_at_a_time),        TEST(test_what_spoils_notes),
      TEST(test_another_generator),    TEST(test_table),
      TEST(test_table_without_memory), TEST(test_donation),
      TEST(test_runs_without_memory),  TEST(test_notes_without_memory),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
