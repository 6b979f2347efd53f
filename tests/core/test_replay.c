/* Errors in a chunk on the fake plugin: a chunk that fails as a whole is run again operator by
 * operator, and what is said when memory runs out. */
#include "support.h"

#include "graph/explain.h"
#include "ops/lower.h"
#include "stream/launch.h"
#include "stream/value.h"

enum { LINES = 10, MEMORY = 1 << 24 };

static tt_stream *stream;
static uint32_t lines[LINES]; /* sites of train.py */
static int64_t replays;       /* before the test */

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  setenv("TORCH_TPU_FUSED_TIER", "chunks", 1);
  setenv("TT_FAKE_MEMORY", "16777216", 1);
  for (int i = 0; i < LINES; i++) lines[i] = tt_site_add("train.py", i, "step");
  return 0;
}

static int start(void **state) {
  (void)state;
  fake_reset();
  tt_status status = session_open(getenv("TT_FAKE_PLUGIN"));
  policy.mode = TT_MODE_FUSED;
  stream = stream_at(0);
  replays = tt_count_get(TT_COUNT_REPLAYS);
  return status ? -1 : 0;
}

static int64_t replayed(void) { return tt_count_get(TT_COUNT_REPLAYS) - replays; }

static int64_t allocated(void) {
  tt_memory memory;
  memory_of(stream, &memory);
  return memory.allocated;
}

static tt_type vector(int64_t n) { return tt_type_make(TT_F32, 1, &n); }

static tt_storage *zeros(int64_t n, uint32_t site) {
  tt_type type = vector(n);
  float *data = calloc((size_t)n + 1, sizeof *data);
  tt_storage *storage = storage_new(stream, type);
  assert_non_null(data);
  ok(storage_write(storage, &type, data, site));
  free(data);
  return storage;
}

static tt_status try_add(tt_storage *a, tt_storage *b, bool into, int line, tt_storage **out) {
  tt_storage *results[REQUEST_MAX] = {NULL};
  request r = {.row = tt_op_find("add.Tensor"),
               .tensor_count = 2,
               .tensors = {a, b},
               .arg_count = 3,
               .args = {{.kind = TT_ARG_TENSOR, .first = 0},
                        {.kind = TT_ARG_TENSOR, .first = 1},
                        {.kind = TT_ARG_INT, .i = 1, .dtype = TT_I64}},
               .target_count = into,
               .site = lines[line]};
  TT_TRY(request_record(stream, &r, results));
  *out = results[0];
  return TT_SUCCESS;
}

static tt_storage *add(tt_storage *a, tt_storage *b, int line) {
  tt_storage *out = NULL;
  ok(try_add(a, b, false, line, &out));
  return out;
}

static void add_into(tt_storage *a, tt_storage *b, int line) {
  tt_storage *out = NULL;
  ok(try_add(a, b, true, line, &out));
}

static tt_storage *neg(tt_storage *a, int line) {
  tt_storage *results[REQUEST_MAX] = {NULL};
  request r = {.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {a}, .site = lines[line]};
  ok(request_record(stream, &r, results));
  return results[0];
}

static tt_status read(tt_storage *storage) {
  float data[4096];
  return storage_read(storage, data, tt_storage_bytes(storage));
}

static void destroy(int count, tt_storage **storages) {
  for (int i = 0; i < count; i++) tt_storage_release(storages[i]);
}

/* -- Replaying -- */

static void test_the_operator_is_named(void **state) {
  (void)state;
  static const int when[] = {TT_FAKE_COMPILE, TT_FAKE_EXECUTE};
  for (int i = 0; i < 2; i++) {
    int64_t before = allocated();
    tt_storage *a = zeros(8 + i, 0);
    fake.tt_fake_fail_programs("stablehlo.negate", 1, when[i]);
    tt_storage *x = add(a, a, 1), *y = neg(x, 2), *z = add(y, a, 3), *w = add(x, x, 4);
    tt_status status = stream_sync(stream);
    assert_int_equal(tt_status_code(status), TT_INTERNAL);
    static const char first[] = "neg, called at train.py:2 in step: PJRT_";
    assert_memory_equal(tt_status_message(status), first, sizeof first - 1);
    fails(status, TT_INTERNAL,
          "\nIt was run alone, because a chunk of 4 operators, add.Tensor at train.py:1 in step "
          "to add.Tensor at train.py:4 in step had failed");
    ok(stream_sync(stream)); /* reported once */
    assert_int_equal(replayed(), i + 1);
    ok(read(x)); /* what does not depend on it is there */
    ok(read(w));
    fails(read(y), TT_INTERNAL, "injected failure of a program with stablehlo.negate");
    fails(read(z), TT_INTERNAL, "neg, called at train.py:2 in step");
    destroy(5, (tt_storage *[]){a, x, y, z, w});
    assert_int_equal(allocated(), before);
  }
}

/* The host's read reports the error as a synchronisation would. */
static void test_a_read_names_the_operator(void **state) {
  (void)state;
  fake.tt_fake_fail_programs("stablehlo.negate", 1, TT_FAKE_EXECUTE);
  tt_storage *a = zeros(8, 0), *x = add(a, a, 1), *y = neg(x, 2);
  fails(read(y), TT_INTERNAL, "It was run alone, because a chunk of 2 operators");
  ok(stream_sync(stream));
  destroy(3, (tt_storage *[]){a, x, y});
}

static void test_only_the_whole_fails(void **state) {
  (void)state;
  tt_storage *a = zeros(8, 0);
  for (int i = 1; i <= 3; i++) {
    if (i < 3) fake.tt_fake_fail_programs("stablehlo.add", 3, TT_FAKE_COMPILE);
    tt_storage *x = add(a, a, 1), *y = add(x, a, 2), *z = add(y, a, 3);
    tt_storage_release(y); /* only the chunk has it now */
    ok(stream_sync(stream));
    assert_int_equal(replayed(), i); /* what the compiler has refused it will refuse again */
    ok(read(x));
    ok(read(z));
    destroy(2, (tt_storage *[]){x, z});
  }
  tt_storage_release(a);
  assert_int_equal(allocated(), 0);
}

static void test_a_failure_that_does_not_come_again(void **state) {
  (void)state;
  tt_storage *a = zeros(9, 0);
  for (int i = 0; i < 2; i++) { /* of the compiler, then of the launch */
    tt_storage *x = add(a, a, 1), *y = neg(x, 2);
    if (i == 1) stream_wait(stream, stream_ticket(stream));
    if (i == 1) destroy(2, (tt_storage *[]){x, y});
    if (i == 1) x = add(a, a, 1), y = neg(x, 2);
    fake.tt_fake_fail_at(1);
    ok(stream_sync(stream));
    assert_true(fake.tt_fake_failed());
    ok(read(x));
    ok(read(y));
    destroy(2, (tt_storage *[]){x, y});
  }
  assert_int_equal(replayed(), 3);
  tt_storage_release(a);
}

/* -- A chunk of which no program can be built -- */

static _Atomic bool picky;

static void lower_picky(tt_lower *cx) {
  if (picky) tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "too picky");
  tt_out(cx, 0, tt_hlo_negate(cx->h, tt_in(cx, 0)));
}
static const tt_op_row picky_row = {
    .name = "test.picky", .lower = lower_picky, .statics = "", .doc = ""};

static tt_storage *pick(tt_storage *a) {
  tt_storage *results[REQUEST_MAX] = {NULL};
  request r = {.row = &picky_row, .tensor_count = 1, .tensors = {a}, .site = lines[1]};
  ok(request_record(stream, &r, results));
  return results[0];
}

static void test_no_program_for_the_whole(void **state) {
  (void)state;
  tt_storage *a = zeros(10, 0), *x = pick(a), *y = add(x, a, 2);
  picky = true;
  tt_status status = stream_sync(stream);
  picky = false;
  fails(status, TT_UNIMPLEMENTED,
        "could not be run again operator by operator: test.picky: too picky");
  assert_int_equal(replayed(), 0);
  fails(read(y), TT_UNIMPLEMENTED, "a chunk of 2 operators, test.picky at train.py:1 in step");
  destroy(2, (tt_storage *[]){x, y});
  policy.mode = TT_MODE_STRICT; /* now the operator has a program of its own */
  tt_storage_release(pick(a));
  policy.mode = TT_MODE_FUSED;
  x = pick(a), y = add(x, a, 2);
  picky = true;
  status = stream_sync(stream);
  picky = false;
  ok(status);
  assert_int_equal(replayed(), 1);
  ok(read(y));
  destroy(3, (tt_storage *[]){a, x, y});
}

/* -- What is run, and on which buffers -- */

static void test_only_what_is_needed_is_run(void **state) {
  (void)state;
  tt_storage *a = zeros(11, 0);
  fake.tt_fake_fail_programs("stablehlo.add", 3, TT_FAKE_EXECUTE);
  int64_t launches = fake.tt_fake_launches();
  tt_storage *x = add(a, a, 1), *dead = neg(x, 2), *y = add(x, a, 3), *z = add(y, a, 4);
  tt_storage_release(dead);
  ok(stream_sync(stream));
  assert_int_equal(replayed(), 1);
  assert_int_equal(fake.tt_fake_launches() - launches, 1 + 3);
  destroy(4, (tt_storage *[]){a, x, y, z});
}

static void test_writes_are_in_place(void **state) {
  (void)state;
  tt_storage *a = zeros(12, 0), *b = zeros(12, 0);
  fake.tt_fake_fail_programs("stablehlo.add", 3, TT_FAKE_EXECUTE);
  for (int held = 0; held < 2; held++) {
    tt_value *old = held ? tt_value_retain(a->value) : NULL;
    int64_t donated = fake.tt_fake_donations();
    for (int i = 0; i < 3; i++) add_into(a, b, i);
    ok(stream_sync(stream));
    assert_int_equal(replayed(), held + 1);
    assert_int_equal(fake.tt_fake_donations() - donated, held ? 2 : 3);
    float back[12];
    if (held) ok(tt_buffer_to_host(session->client, old->buffer, old->holding.type, back, 48));
    tt_value_release(old);
    ok(read(a));
    ok(read(b));
  }
  assert_int_equal(allocated(), 2 * 48);
  destroy(2, (tt_storage *[]){a, b});
}

/* A chunk in which somebody reads what has failed before: the rest of it is computed. */
static void test_an_input_that_failed(void **state) {
  (void)state;
  tt_storage *a = zeros(13, 0);
  fake.tt_fake_fail_programs("stablehlo.negate", 1, TT_FAKE_EXECUTE);
  tt_storage *bad = neg(a, 1);
  fails(stream_sync(stream), TT_INTERNAL, "neg, called at train.py:1 in step: PJRT_");
  assert_int_equal(replayed(), 0); /* a chunk of one operator is that operator */
  tt_storage *x = add(bad, a, 2), *y = add(a, a, 3), *z = add(x, y, 4), *worse = neg(y, 5);
  tt_status status = stream_sync(stream);
  assert_null(strstr(tt_status_message(status), "It was run alone"));
  fails(status, TT_INTERNAL, "neg, called at train.py:5 in step: PJRT_");
  assert_int_equal(replayed(), 1);
  ok(read(y));
  fails(read(x), TT_INTERNAL, "neg, called at train.py:1 in step");
  fails(read(z), TT_INTERNAL, "neg, called at train.py:1 in step");
  fails(read(worse), TT_INTERNAL, "neg, called at train.py:5 in step");
  tt_storage *last = add(z, a, 6), *later = add(last, a, 7); /* nothing can be computed here */
  int64_t calls = fake.tt_fake_launches();
  ok(stream_sync(stream));
  assert_int_equal(fake.tt_fake_launches(), calls);
  assert_int_equal(replayed(), 1);
  fails(read(later), TT_INTERNAL, "neg, called at train.py:1 in step");
  destroy(8, (tt_storage *[]){a, bad, x, y, z, worse, last, later});
}

/* -- Where it cannot be -- */

static void test_inputs_that_were_given_away(void **state) {
  (void)state;
  tt_storage *a = zeros(14, 0);
  fake.tt_fake_fail_programs("stablehlo.negate", 1, TT_FAKE_EXECUTE_DONATED);
  add_into(a, a, 1);
  tt_storage *x = neg(a, 2);
  fails(stream_sync(stream), TT_INTERNAL,
        "in step: PJRT_LoadedExecutable_Execute: injected failure of a program with "
        "stablehlo.negate; it could not be run again operator by operator: its inputs were given "
        "away before it failed");
  assert_int_equal(replayed(), 0);
  fails(read(a), TT_INTERNAL, "a chunk of 2 operators, add.Tensor at train.py:1 in step to neg at");
  fails(read(x), TT_INTERNAL, "train.py:2 in step: PJRT_");
  destroy(2, (tt_storage *[]){a, x});
}

static void test_an_asynchronous_failure(void **state) {
  (void)state;
  tt_storage *a = zeros(15, 0);
  fake.tt_fake_async(true);
  fake.tt_fake_fail_launch(1);
  tt_storage *x = add(a, a, 1), *y = neg(x, 2);
  fails(stream_sync(stream), TT_INTERNAL,
        "a chunk of 2 operators, add.Tensor at train.py:1 in step to neg at train.py:2 in step: "
        "PJRT_Event: injected asynchronous failure; its inputs were given away before it "
        "failed, so it cannot be run again operator by operator");
  destroy(3, (tt_storage *[]){a, x, y});
}

/* Of an operator that is run again, the end is waited for. */
static void test_an_operator_that_fails_late(void **state) {
  (void)state;
  tt_storage *a = zeros(16, 0);
  fake.tt_fake_async(true);
  fake.tt_fake_fail_programs("stablehlo.add", 2, TT_FAKE_EXECUTE);
  fake.tt_fake_fail_launch(2);
  tt_storage *x = add(a, a, 1), *y = neg(x, 2), *z = add(x, a, 3);
  fails(stream_sync(stream), TT_INTERNAL,
        "neg, called at train.py:2 in step: PJRT_Event_Await: injected asynchronous failure\nIt");
  ok(read(x));
  ok(read(z));
  destroy(4, (tt_storage *[]){a, x, y, z});
}

static void test_no_new_programs(void **state) {
  (void)state;
  tt_storage *a = zeros(17, 0), *x = add(a, a, 1), *y = neg(x, 2);
  ok(stream_sync(stream));
  destroy(2, (tt_storage *[]){x, y});
  fake.tt_fake_fail_programs("stablehlo.negate", 1, TT_FAKE_EXECUTE);
  policy.known_only = true;
  x = add(a, a, 1), y = neg(x, 2);
  tt_status status = stream_sync(stream);
  policy.known_only = false;
  fails(status, TT_INTERNAL,
        "could not be run again operator by operator: this needs a new program, which");
  assert_int_equal(replayed(), 0);
  destroy(3, (tt_storage *[]){a, x, y});
}

/* -- Failures on the way -- */

static tt_status failing_chunk(int64_t n) {
  tt_storage *a = NULL, *s[3] = {NULL};
  tt_type type = vector(n);
  const tt_type *interned = NULL;
  tt_status status = tt_type_intern(&type, &interned);
  if (!status)
    status = tt_storage_create(stream->device, interned, &a); /* undefined: reads as zeros */
  if (!status) status = try_add(a, a, false, 1, &s[0]);
  if (!status) status = try_add(s[0], s[0], false, 2, &s[1]);
  if (!status) status = try_add(s[1], s[1], true, 3, &s[2]);
  if (!status) status = try_add(s[1], s[0], false, 4, &s[2]);
  status = tt_join(status, stream_sync(stream));
  tt_storage_release(a);
  destroy(3, s);
  return status;
}

static void test_calls_that_fail_meanwhile(void **state) {
  int failures = 0;
  for (int async = 0; async < 2; async++) {
    for (int64_t nth = 1;; nth++) {
      fake.tt_fake_async(async);
      fake.tt_fake_fail_programs("stablehlo.add", 3, TT_FAKE_EXECUTE);
      fake.tt_fake_fail_at(nth);
      tt_status status = failing_chunk(32);
      bool happened = fake.tt_fake_failed();
      fake.tt_fake_fail_at(0);
      failures += status != NULL;
      if (status && tt_status_code(status) != TT_UNKNOWN) fails(status, TT_INTERNAL, "injected");
      else tt_status_release(status);
      assert_int_equal(allocated(), 0);
      if (!happened) break;
      assert_int_equal(fake_close(state), 0);
      assert_int_equal(start(state), 0);
    }
  }
  assert_true(failures > 25);
}

static void test_allocations_that_fail_meanwhile(void **state) {
  int failures = 0;
  for (int lasting = 0; lasting < 2; lasting++) {
    for (int64_t nth = 1;; nth++) {
      fake.tt_fake_fail_programs("stablehlo.add", 3, TT_FAKE_EXECUTE);
      tt_alloc_fail_at(nth, lasting);
      tt_status status = failing_chunk(32);
      int64_t asked = tt_alloc_count();
      tt_alloc_fail_at(0, false);
      failures += status != NULL;
      if (tt_status_code(status) == TT_INTERNAL) fails(status, TT_INTERNAL, "with stablehlo.add");
      else if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      assert_int_equal(allocated(), 0);
      if (asked < nth) break;
      ok(failing_chunk(32));
      if (nth % 2) continue;
      assert_int_equal(fake_close(state), 0);
      assert_int_equal(start(state), 0);
    }
  }
  assert_true(failures > 25);
}

/* -- Memory -- */

static void test_the_largest_values(void **state) {
  (void)state;
  tt_holding held[3];
  static const int64_t sizes[] = {2000, 5000, 1024, 3000, 4000, 1023};
  tt_storage *s[6];
  assert_int_equal(tt_account_largest(&stream->device->account, held, 3), 0);
  for (int i = 0; i < 6; i++) s[i] = zeros(sizes[i], lines[i]);
  assert_int_equal(tt_account_largest(&stream->device->account, held, 3), 3);
  assert_true(held[0].bytes == 20000 && held[1].bytes == 16000 && held[2].bytes == 12000);
  assert_true(held[0].site == lines[1] && held[2].site == lines[3]);
  assert_int_equal(held[0].type->dims[0], 5000);
  tt_storage_release(s[1]);
  tt_storage_release(s[3]);
  assert_int_equal(tt_account_largest(&stream->device->account, held, 3), 3);
  assert_true(held[0].bytes == 16000 && held[1].bytes == 8000 && held[2].bytes == 4096);
  tt_storage_release(s[0]);
  add_into(s[4], s[4], 7); /* a new value */
  ok(stream_sync(stream));
  assert_int_equal(tt_account_largest(&stream->device->account, held, 3),
                   2); /* small ones are not listed */
  assert_true(held[0].bytes == 16000 && held[0].site == lines[7]);
  destroy(3, (tt_storage *[]){s[2], s[4], s[5]});
  assert_int_equal(tt_account_largest(&stream->device->account, held, 3), 0);
}

static void test_out_of_memory_names_who_holds_it(void **state) {
  (void)state;
  int64_t n = MEMORY / 4 / 4; /* a quarter of the device */
  tt_storage *a = zeros(n, lines[1]), *b = zeros(n / 2, lines[2]), *x, *y, *z;
  x = add(a, a, 3), y = add(x, a, 4), z = add(y, a, 5);
  tt_status status = stream_sync(stream);
  fails(tt_status_clone(status), TT_RESOURCE_EXHAUSTED,
        "add.Tensor, called at train.py:5 in step: PJRT_LoadedExecutable_Execute: Out of memory "
        "allocating 4194304 bytes\nThe program needs 8.0 MiB of inputs, 4.0 MiB of results, 0 "
        "bytes of temporaries\nDevice tpu:0 is out of memory. It holds 14.0 MiB in tensors, of "
        "16.0 MiB; the largest:");
  fails(tt_status_clone(status), TT_RESOURCE_EXHAUSTED,
        "\n  4.0 MiB, f32[1048576], made at train.py:4 in step");
  fails(tt_status_clone(status), TT_RESOURCE_EXHAUSTED,
        "\n  4.0 MiB, f32[1048576], made at train.py:1 in step");
  fails(tt_status_clone(status), TT_RESOURCE_EXHAUSTED,
        "\n  2.0 MiB, f32[524288], made at train.py:2 in step\nIt was run alone, because a chunk "
        "of 3 operators");
  fails(status, TT_RESOURCE_EXHAUSTED,
        "; it needs 4.0 MiB of inputs, 12.0 MiB of results, 0 bytes of temporaries");
  fails(read(z), TT_RESOURCE_EXHAUSTED, "train.py:5");
  destroy(2, (tt_storage *[]){b, z});
  z = add(y, a, 6); /* there is room again */
  ok(stream_sync(stream));
  destroy(4, (tt_storage *[]){a, x, y, z});
}

/* Two results, of which one is not needed. */
static void lower_pair(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_out(cx, 0, tt_hlo_negate(cx->h, x));
  tt_out(cx, 1, tt_hlo_add(cx->h, x, x));
}
static const tt_op_row pair_row = {
    .name = "test.pair", .lower = lower_pair, .statics = "", .doc = ""};

/* Run alone, operators hold no more than they would have in Strict mode. */
static void test_memory_while_replaying(void **state) {
  (void)state;
  int64_t n = MEMORY / 4 / 4;
  tt_storage *a = zeros(n, lines[1]), *pair[REQUEST_MAX] = {NULL};
  request r = {.row = &pair_row, .tensor_count = 1, .tensors = {a}, .no_meta = true};
  ok(request_record(stream, &r, pair));
  tt_storage_release(pair[1]); /* not needed afterwards */
  tt_storage *x = add(pair[0], a, 2), *y = add(x, a, 3);
  tt_storage_release(x); /* only needed for the next */
  tt_storage *z = add(y, a, 4);
  fake.tt_fake_fail_programs("stablehlo.add", 3, TT_FAKE_EXECUTE);
  ok(stream_sync(stream)); /* the device is full */
  assert_int_equal(replayed(), 1);
  assert_int_equal(allocated(), MEMORY);
  destroy(4, (tt_storage *[]){a, pair[0], y, z});
}

static void test_out_of_memory_for_what_the_host_writes(void **state) {
  (void)state;
  int64_t n = MEMORY / 4 / 4 * 3;
  tt_storage *a = zeros(n, lines[1]), *b = storage_new(stream, vector(n));
  float *data = calloc((size_t)n, sizeof *data);
  assert_non_null(data);
  fails(storage_write(b, b->type, data, 0), TT_RESOURCE_EXHAUSTED,
        "bytes\nDevice tpu:0 is out of memory. It holds 12.0 MiB in tensors, of 16.0 MiB; the "
        "largest:\n"
        "  12.0 MiB, f32[3145728], made at train.py:1 in step");
  free(data);
  destroy(2, (tt_storage *[]){a, b});
}

/* What the host lacks, the device's values do not hold. */
static void test_the_host_s_memory(void **state) {
  (void)state;
  tt_status status = tt_status_prefix(tt_out_of_memory(), "neg");
  status = tt_device_report_memory(stream->device, status);
  assert_string_equal(tt_status_message(status), "neg: out of host memory");
  tt_status_release(status);
  status = tt_status_from(tt_error(TT_RESOURCE_EXHAUSTED, "full"), TT_FROM_PLUGIN);
  fails(tt_device_report_memory(stream->device, status), TT_RESOURCE_EXHAUSTED,
        "full\nDevice tpu:0 is out of memory. It holds 0 bytes in tensors, of 16.0 MiB");
  status = tt_error(TT_INTERNAL, "broken");
  fails(tt_device_report_memory(stream->device, status), TT_INTERNAL, "broken");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, fake_close)
  const struct CMUnitTest tests[] = {
      TEST(test_the_operator_is_named),       TEST(test_a_read_names_the_operator),
      TEST(test_only_the_whole_fails),        TEST(test_a_failure_that_does_not_come_again),
      TEST(test_no_program_for_the_whole),    TEST(test_only_what_is_needed_is_run),
      TEST(test_writes_are_in_place),         TEST(test_an_input_that_failed),
      TEST(test_inputs_that_were_given_away), TEST(test_an_asynchronous_failure),
      TEST(test_an_operator_that_fails_late), TEST(test_no_new_programs),
      TEST(test_calls_that_fail_meanwhile),   TEST(test_allocations_that_fail_meanwhile),
      TEST(test_the_largest_values),          TEST(test_out_of_memory_names_who_holds_it),
      TEST(test_memory_while_replaying),      TEST(test_out_of_memory_for_what_the_host_writes),
      TEST(test_the_host_s_memory),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
