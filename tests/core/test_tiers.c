/* What chunks are launched as: their pieces as long as their own program is not there. */
#include "support.h"

#include "stream/tier.h"

#include <unistd.h>

enum { LENGTH = 4 };

static tt_stream *stream;

static int setup(void **state) {
  (void)state;
  return fake_open() ? 0 : -1;
}

static int start(void **state) {
  (void)state;
  fake_reset();
  tt_status status = session_open(getenv("TT_FAKE_PLUGIN"));
  policy = (tt_policy){.mode = TT_MODE_FUSED};
  stream = stream_at(0);
  tt_count_reset();
  return status || !stream ? -1 : 0;
}

static tt_storage *zeros(int64_t length) {
  float data[64] = {0};
  return storage_of(stream, type_of(TT_F32, 1, DIMS(length)), data);
}

/* A chunk of two pieces: add and scale; and add again, which is as the first one is. */
enum { SELDOM = 3 }; /* what has come so often is not compiled whole */

static tt_status run(int64_t length) {
  tt_storage *a = zeros(length), *b = zeros(length), *all[3] = {NULL};
  tt_status status = record_add(stream, a, b, &all[0]);
  if (!status) status = record_scale(stream, all[0], 2, &all[1]);
  if (!status) status = record_add(stream, all[1], b, &all[2]);
  status = tt_join(status, stream_sync(stream));
  tt_storage_release(a);
  tt_storage_release(b);
  for (int i = 0; i < 3; i++) tt_storage_release(all[i]);
  return status;
}

static void launched_as(int64_t operators, int64_t pieces, int64_t chunks) {
  assert_int_equal(tt_count_get(TT_COUNT_TIER_OPERATORS), operators);
  assert_int_equal(tt_count_get(TT_COUNT_TIER_PIECES), pieces);
  assert_int_equal(tt_count_get(TT_COUNT_TIER_CHUNKS), chunks);
}

/* Until a chunk is launched whole. */
static void await_chunk(int64_t length) {
  for (int i = 0; i < 2000 && !tt_count_get(TT_COUNT_TIER_CHUNKS); i++) {
    ok(run(length));
    usleep(1000);
  }
  assert_int_equal(tt_count_get(TT_COUNT_TIER_CHUNKS), 3);
}

static void test_small_programs_first(void **state) {
  (void)state;
  for (int i = 0; i < SELDOM; i++) ok(run(LENGTH));
  launched_as(SELDOM, 2 * SELDOM, 0);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 2); /* not whole yet */
  await_chunk(LENGTH);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 3);
}

/* The chunk's own program takes its time, and nobody waits. */
static void test_nobody_waits_for_a_chunk(void **state) {
  (void)state;
  for (int i = 0; i < SELDOM; i++) ok(run(LENGTH));
  fake.tt_fake_hold_programs("");
  ok(run(LENGTH));
  for (int i = 0; i < 2000 && !fake.tt_fake_held(); i++) usleep(1000);
  assert_int_equal(fake.tt_fake_held(), 1);
  for (int i = 0; i < 4; i++) ok(run(LENGTH));
  launched_as(SELDOM + 5, 2 * (SELDOM + 5), 0);
  fake.tt_fake_hold_programs(NULL);
  await_chunk(LENGTH);
}

static void test_a_chunk_that_fails_to_compile(void **state) {
  (void)state;
  ok(run(LENGTH));
  fake.tt_fake_fail_programs("stablehlo.add", 2, TT_FAKE_COMPILE);
  for (int i = 0; i < 20; i++) {
    ok(run(LENGTH));
    usleep(1000);
  }
  launched_as(21, 42, 0);
  assert_int_equal(tt_count_get(TT_COUNT_REPLAYS), 0);
}

static void test_equal_operators_share_a_program(void **state) {
  (void)state;
  tt_storage *all[9] = {zeros(LENGTH)};
  for (int i = 0; i < 8; i++) ok(record_add(stream, all[i], all[i], &all[i + 1]));
  ok(stream_sync(stream));
  launched_as(8, 0, 0);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 1);
  for (int i = 0; i < 9; i++) tt_storage_release(all[i]);
}

/* What nobody needs is not computed, whatever launches the rest. */
static void test_what_nobody_needs(void **state) {
  (void)state;
  tt_storage *a = zeros(LENGTH), *b = NULL, *c = NULL, *d = NULL;
  ok(record_add(stream, a, a, &b));
  ok(record_add(stream, b, b, &c));
  ok(record_scale(stream, a, 2, &d));
  tt_storage_release(b);
  tt_storage_release(c);
  ok(stream_sync(stream));
  launched_as(1, 0, 0);
  tt_storage_release(a);
  tt_storage_release(d);
}

static void test_deterministic(void **state) {
  (void)state;
  policy.deterministic = true;
  for (int i = 0; i < 40; i++) ok(run(LENGTH));
  launched_as(120, 0, 0);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 2);
}

static void test_a_forced_tier(void **state) {
  (void)state;
  for (int tier = TT_TIER_OPERATORS; tier <= TT_TIER_CHUNKS; tier++) {
    tt_tier_force((tt_tier)tier);
    assert_int_equal(tt_tier_chosen(&policy), tier);
    tt_count_reset();
    for (int i = 0; i < 8; i++) ok(run(LENGTH));
    if (tier == TT_TIER_OPERATORS) launched_as(24, 0, 0);
    if (tier == TT_TIER_PIECES) launched_as(8, 16, 0);
    if (tier == TT_TIER_KERNELS) launched_as(8, 16, 0); /* it has none */
    if (tier == TT_TIER_CHUNKS) launched_as(0, 0, 24);
  }
  tt_tier_force(TT_TIER_AUTO);
}

static void test_nothing_new(void **state) {
  (void)state;
  ok(run(LENGTH));
  int64_t before = tt_count_get(TT_COUNT_COMPILES);
  policy.known_only = true;
  ok(run(LENGTH));
  fails(run(LENGTH + 1), TT_FAILED_PRECONDITION, "needs a new program");
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), before);
  policy.known_only = false;
  ok(stream_sync(stream));
}

static void test_an_error_in_a_piece(void **state) {
  (void)state;
  fake.tt_fake_fail_programs("stablehlo.multiply", 1, TT_FAKE_EXECUTE);
  tt_storage *a = zeros(LENGTH), *b = zeros(LENGTH), *all[3] = {NULL};
  ok(record_add(stream, a, b, &all[0]));
  ok(record_scale(stream, all[0], 2, &all[1]));
  ok(record_add(stream, all[1], b, &all[2]));
  fails(stream_sync(stream), TT_INTERNAL, "mul");
  float data[LENGTH];
  ok(storage_read(all[0], data, sizeof data));
  fails(storage_read(all[2], data, sizeof data), TT_INTERNAL, "mul");
  tt_storage_release(a);
  tt_storage_release(b);
  for (int i = 0; i < 3; i++) tt_storage_release(all[i]);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, fake_close)
  const struct CMUnitTest tests[] = {
      TEST(test_small_programs_first),
      TEST(test_nobody_waits_for_a_chunk),
      TEST(test_a_chunk_that_fails_to_compile),
      TEST(test_equal_operators_share_a_program),
      TEST(test_what_nobody_needs),
      TEST(test_deterministic),
      TEST(test_a_forced_tier),
      TEST(test_nothing_new),
      TEST(test_an_error_in_a_piece),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
