/* The op stream on the real CPU plugin (TT_CPU_PLUGIN): right numbers in every mode. */
#include "support.h"

#include "ops/lower.h"

#include <stdio.h>

static tt_stream *stream;

static int setup(void **state) {
  (void)state;
  const char *path = getenv("TT_CPU_PLUGIN");
  if (!path || !*path) return 0;
  setenv("TORCH_TPU_CACHE", "off", 1);
  tt_status status = session_open(path);
  stream = stream_at(0);
  return status ? -1 : 0;
}

static int teardown(void **state) {
  (void)state;
  session_close();
  return 0;
}

static const tt_mode modes[] = {TT_MODE_STRICT, TT_MODE_DEBUG, TT_MODE_FUSED};
enum { MODES = sizeof modes / sizeof *modes };

static tt_type vector(int64_t n) { return tt_type_make(TT_F32, 1, &n); }

static void expect(tt_storage *storage, const float *expected) {
  float got[64] = {0};
  int64_t count = tt_type_numel(storage->type);
  ok(storage_read(storage, got, tt_storage_bytes(storage)));
  for (int64_t i = 0; i < count; i++)
    if (got[i] != expected[i])
      fail_msg("element %d is %g, expected %g", (int)i, (double)got[i], (double)expected[i]);
}

static void test_order(void **state) {
  (void)state;
  if (!stream) skip();
  for (int m = 0; m < MODES; m++) {
    policy.mode = modes[m];
    float x[4] = {1, 2, 3, 4}, y[4] = {1, 1, 2, -1}, step[4] = {1, 3, 5, 7};
    tt_storage *a = storage_of(stream, vector(4), x), *b = storage_of(stream, vector(4), y);
    tt_storage *c = storage_of(stream, vector(4), step);
    for (int i = 0; i < 300; i++) {
      tt_storage *scaled = NULL;
      float factor = i % 3 ? -1 : 1;
      ok(record_scale(stream, a, factor, &scaled)); /* x = x * factor + step; y += x */
      ok(record_add_into(stream, scaled, NULL, c, NULL));
      ok(record_add_into(stream, b, NULL, scaled, NULL));
      tt_storage_release(a);
      a = scaled;
      for (int k = 0; k < 4; k++) {
        x[k] = x[k] * factor + step[k];
        y[k] += x[k];
      }
    }
    expect(a, x);
    expect(b, y);
    ok(stream_sync(stream));
    tt_storage_release(a);
    tt_storage_release(b);
    tt_storage_release(c);
  }
}

static void test_writes_through_views(void **state) {
  (void)state;
  if (!stream) skip();
  for (int m = 0; m < MODES; m++) {
    policy.mode = modes[m];
    float x[6] = {0, 1, 2, 3, 4, 5};
    tt_storage *a = storage_of(stream, tt_type_make(TT_F32, 2, DIMS(2, 3)), x), *before = NULL;
    tt_view columns = {TT_F32, 2, 0, {3, 2}, {1, 3}}, row = {TT_F32, 1, 3, {3}, {1}};
    tt_view back = {TT_F32, 2, 1, {2, 2}, {3, 1}}, front = {TT_F32, 2, 0, {2, 2}, {3, 1}};
    ok(record_add(stream, a, a, &before));
    ok(record_add_into(stream, a, &row, a, &row));         /* 0 1 2 6 8 10 */
    ok(record_add_into(stream, a, &columns, a, &columns)); /* 0 2 4 12 16 20 */
    ok(record_add_into(stream, a, &back, a, &front));      /* 0 2 6 12 28 36 */
    expect(a, (float[6]){0, 2, 6, 12, 28, 36});
    expect(before, (float[6]){0, 2, 4, 6, 8, 10}); /* whoever read earlier keeps what it read */
    tt_storage_release(a);
    tt_storage_release(before);
  }
}

/* Two targets of one call in one storage. */
static void lower_swap(tt_lower *cx) {
  tt_out(cx, 0, tt_in(cx, 1));
  tt_out(cx, 1, tt_in(cx, 0));
}
static const tt_op_row swap_row = {
    .name = "test.swap", .lower = lower_swap, .statics = "", .doc = ""};

static void test_two_targets_in_one_storage(void **state) {
  (void)state;
  if (!stream) skip();
  for (int m = 0; m < MODES; m++) {
    policy.mode = modes[m];
    tt_storage *a = storage_of(stream, vector(4), (float[4]){1, 2, 3, 4}), *results[REQUEST_MAX];
    tt_view low = {TT_F32, 1, 0, {2}, {1}}, high = {TT_F32, 1, 2, {2}, {1}};
    request r = {.row = &swap_row,
                 .tensor_count = 2,
                 .tensors = {a, a},
                 .views = {&low, &high},
                 .target_count = 2,
                 .targets = {0, 1}};
    ok(request_record(stream, &r, results));
    expect(a, (float[4]){3, 4, 1, 2});
    tt_storage_release(a);
  }
}

/* -- Numbers -- */

static void lower_numbers(tt_lower *cx) {
  tt_out(cx, 0, tt_num(cx, 0, TT_F64));
  tt_out(cx, 1, tt_num(cx, 1, TT_F32));
  tt_out(cx, 2, tt_num(cx, 2, TT_I64));
  tt_out(cx, 3, tt_num(cx, 3, TT_BOOL));
  tt_out(cx, 4, tt_num(cx, 4, TT_BOOL));
}
static const tt_op_row numbers_row = {
    .name = "test.scalars", .lower = lower_numbers, .statics = "", .doc = ""};

static void test_packed_numbers(void **state) {
  (void)state;
  if (!stream) skip();
  static const tt_dtype dtypes[] = {TT_F64, TT_F32, TT_I64, TT_BOOL, TT_BOOL};
  for (int m = 0; m < MODES; m++) {
    policy.mode = modes[m];
    for (int round = 0; round < 3; round++) {
      tt_storage *results[REQUEST_MAX];
      request r = {.row = &numbers_row, .arg_count = 5, .scalar_count = 5, .no_meta = true};
      double f64 = 3.141592653589793 * (round + 1);
      float f32 = 0.1f + (float)round;
      int64_t i64 = -5000000000000007 + round;
      for (int i = 0; i < 5; i++) {
        r.args[i] = (tt_arg){.kind = TT_ARG_SCALAR, .first = i, .dtype = dtypes[i]};
        r.scalars[i] = dtypes[i];
      }
      memcpy(r.words, &f64, 8);
      memcpy(r.words + 2, &f32, 4);
      memcpy(r.words + 3, &i64, 8);
      r.words[5] = 1;
      r.words[6] = 0;
      ok(request_record(stream, &r, results));
      double got_f64;
      float got_f32;
      int64_t got_i64;
      bool got_true = false, got_false = true;
      ok(storage_read(results[0], &got_f64, 8));
      ok(storage_read(results[1], &got_f32, 4));
      ok(storage_read(results[2], &got_i64, 8));
      ok(storage_read(results[3], &got_true, 1));
      ok(storage_read(results[4], &got_false, 1));
      assert_true(got_f64 == f64 && got_f32 == f32 && got_i64 == i64 && got_true && !got_false);
      for (int i = 0; i < 5; i++) tt_storage_release(results[i]);
    }
  }
}

/* -- The rest -- */

static void test_resize_keeps_the_prefix(void **state) {
  (void)state;
  if (!stream) skip();
  for (int m = 0; m < MODES; m++) {
    policy.mode = modes[m];
    char bytes[12];
    tt_storage *a = storage_of(stream, tt_type_make(TT_U8, 2, DIMS(2, 3)), "abcdef");
    ok(storage_resize(a, 9));
    ok(storage_read(a, bytes, 9));
    assert_memory_equal(bytes, "abcdef\0\0\0", 9);
    ok(storage_resize(a, 4));
    ok(storage_resize(a, 6));
    ok(storage_read(a, bytes, 6));
    assert_memory_equal(bytes, "abcd\0\0", 6);
    tt_storage_release(a);
    a = storage_of(stream, vector(2), (float[2]){1.5f, -2}); /* cut inside of an element */
    ok(storage_resize(a, 6));
    assert_int_equal(a->type->dtype, TT_U8);
    ok(storage_read(a, bytes, 6));
    assert_memory_equal(bytes, "\0\0\xC0\x3F\0\0", 6);
    ok(storage_resize(a, 8));
    tt_storage *sum = NULL;
    request r = {.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {a}};
    tt_view view = {TT_F32, 1, 0, {2}, {1}};
    r.views[0] = &view; /* the bytes seen as floats again */
    r.result = vector(2);
    tt_storage *results[REQUEST_MAX];
    ok(request_record(stream, &r, results));
    sum = results[0];
    expect(sum, (float[2]){-1.5f, -0.0f});
    tt_storage_release(sum);
    tt_storage_release(a);
  }
}

static void lower_check(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *zero = tt_hlo_const(cx->h, TT_F32, 0);
  tt_check(cx, tt_hlo_compare(cx->h, TT_LT, x, zero), TT_VALUE, "test.check: below zero");
  tt_out(cx, 0, tt_hlo_sqrt(cx->h, x));
}
static const tt_op_row check_row = {
    .name = "test.check", .lower = lower_check, .statics = "", .doc = ""};

static void test_checks(void **state) {
  (void)state;
  if (!stream) skip();
  tt_storage *good = storage_of(stream, vector(2), (float[2]){4, 9}), *results[REQUEST_MAX];
  tt_storage *bad = storage_of(stream, vector(2), (float[2]){4, -9});
  request r = {.row = &check_row, .tensor_count = 1, .tensors = {good}};
  r.site = tt_site_add("model.py", 5, "norm");
  policy.mode = TT_MODE_DEBUG;
  ok(request_record(stream, &r, results));
  expect(results[0], (float[2]){2, 3});
  tt_storage_release(results[0]);
  r.tensors[0] = bad;
  fails(request_record(stream, &r, results), TT_VALUE,
        "test.check, called at model.py:5 in norm: test.check: below zero");
  ok(stream_sync(stream));
  policy.mode = TT_MODE_STRICT; /* nobody checks */
  ok(request_record(stream, &r, results));
  ok(stream_sync(stream));
  tt_storage_release(results[0]);
  tt_storage_release(good);
  tt_storage_release(bad);
}

/* -- A chunk that the compiler refuses -- */

static _Atomic bool refused;

/* Negates; while `refused` is set, by a function that XLA does not have. */
static void lower_strange(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  if (refused) tt_hlo_custom_call(cx->h, "no_such_function", NULL, 1, &x, 1, &x->type, &x);
  tt_out(cx, 0, tt_hlo_negate(cx->h, x));
}
static const tt_op_row strange_row = {
    .name = "test.strange", .lower = lower_strange, .statics = "", .doc = ""};

static void strange_chunk(tt_storage *a, tt_storage **x, tt_storage **y, tt_storage **z) {
  tt_view back = {TT_F32, 1, 2, {2}, {1}}, front = {TT_F32, 1, 0, {2}, {1}};
  tt_storage *results[REQUEST_MAX], *scaled = NULL;
  ok(record_scale(stream, a, 3, x));
  ok(record_add_into(stream, *x, &back, *x, &front));
  ok(record_scale(stream, *x, 0.5f, &scaled));
  request r = {.row = &strange_row,
               .tensor_count = 1,
               .tensors = {scaled},
               .site = tt_site_add("odd.py", 7, "f")};
  ok(request_record(stream, &r, results));
  *y = results[0];
  ok(record_add(stream, *y, scaled, z));
  tt_storage_release(scaled);
  ok(record_scale(stream, *z, 2, &scaled));
  tt_storage_release(scaled); /* nobody needs it */
}

static void destroy(int count, tt_storage **storages) {
  for (int i = 0; i < count; i++) tt_storage_release(storages[i]);
}

static void test_a_chunk_that_the_compiler_refuses(void **state) {
  (void)state;
  if (!stream) skip();
  for (int alone = 0; alone < 2; alone++) { /* does the operator's own program compile? */
    tt_storage *a = storage_of(stream, vector(4 + alone), (float[5]){1, 2, 3, 4, 5}), *s[3];
    int64_t replays = tt_count_get(TT_COUNT_REPLAYS);
    policy.mode = TT_MODE_STRICT;
    if (alone) {
      strange_chunk(a, &s[0], &s[1], &s[2]);
      destroy(3, s);
    }
    policy.mode = TT_MODE_FUSED;
    strange_chunk(a, &s[0], &s[1], &s[2]);
    refused = true;
    tt_status status = stream_sync(stream);
    refused = false;
    if (alone) ok(status);
    else fails(status, TT_NOT_FOUND, "test.strange, called at odd.py:7 in f: PJRT_Client_Compile");
    assert_int_equal(tt_count_get(TT_COUNT_REPLAYS) - replays, 1);
    expect(s[0], (float[5]){3, 6, 12, 18, 15});
    if (alone) expect(s[1], (float[5]){-1.5f, -3, -6, -9, -7.5f});
    if (alone) expect(s[2], (float[5]){0});
    destroy(3, s);
    tt_storage_release(a);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_writes_through_views),
      cmocka_unit_test(test_two_targets_in_one_storage),
      cmocka_unit_test(test_packed_numbers),
      cmocka_unit_test(test_resize_keeps_the_prefix),
      cmocka_unit_test(test_checks),
      cmocka_unit_test(test_a_chunk_that_the_compiler_refuses),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
