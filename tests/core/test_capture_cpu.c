/* Captured graphs with right numbers: on the CPU plugin and on an accelerator-like one. */
#include "captures.h"

#include <pthread.h>

/* -- What is replayed -- */

/* w += 2 x; out = w + x. The input is read anew, w is written in place, out is made each time. */
static void a_step(void) {
  float x[2] = {1, 2}, w[2] = {10, 20};
  tt_storage *in = floats_of(stream, 2, x), *weight = floats_of(stream, 2, w), *twice = NULL;
  tt_storage *out = NULL;
  begin();
  touch(in);
  ok(record_scale(stream, in, 2, &twice));
  touch(weight);
  ok(record_add_into(stream, weight, NULL, twice, NULL));
  tt_storage_release(twice);
  touch(weight);
  ok(record_add(stream, weight, in, &out));
  tt_captured *captured = end();
  assert_non_null(captured);
  expect(in, 2, x); /* nothing was computed */
  expect(weight, 2, w);
  expect(out, 2, (float[2]){0, 0});
  int steps = 0, inputs = 0, outputs = 0;
  tt_captured_sizes(captured, &steps, &inputs, &outputs);
  assert_true(steps == 3 && inputs == 2 && outputs == 2);
  assert_int_equal(tt_captured_generators(captured), 0);
  int64_t launches = tt_count_get(TT_COUNT_LAUNCHES);
  tt_memory before, after;
  for (int i = 0; i < 20; i++) {
    if (i == 1) memory_of(stream, &before);
    if (i % 3 == 0) {
      x[0] += 3;
      ok(storage_write(in, in->type, x, 0));
    }
    replay(captured, NULL);
    for (int k = 0; k < 2; k++) w[k] += 2 * x[k];
    if (i % 4 == 0) expect(weight, 2, w);
    expect(out, 2, (float[2]){w[0] + x[0], w[1] + x[1]});
  }
  assert_int_equal(tt_count_get(TT_COUNT_LAUNCHES) - launches, 20);
  ok(stream_sync(stream));
  memory_of(stream, &after);
  assert_int_equal(after.allocated, before.allocated);
  tt_storage_release(in); /* the graph holds it */
  replay(captured, NULL);
  for (int k = 0; k < 2; k++) w[k] += 2 * x[k];
  expect(weight, 2, w);
  tt_captured_destroy(captured);
  release(2, (tt_storage *[]){weight, out});
}

/* What is recorded and not launched yet, and what other streams do, is in order with replays. */
static void in_order(void) {
  float x[1] = {1};
  tt_storage *a = floats_of(stream, 1, x), *sum = NULL;
  ok(record_add_into(stream, a, NULL, a, NULL)); /* pending, when the capture begins */
  begin();
  touch(a);
  ok(record_add_into(stream, a, NULL, a, NULL));
  tt_captured *captured = end();
  ok(record_add_into(second, a, NULL, a, NULL)); /* 4 */
  replay(captured, NULL);                        /* 8 */
  ok(record_add_into(second, a, NULL, a, NULL));
  ok(tt_captured_replay(captured, second, NULL, NULL, &policy, 0));
  ok(record_add(second, a, a, &sum));
  replay(captured, NULL);
  expect(sum, 1, (float[1]){64});
  expect(a, 1, (float[1]){64});
  tt_captured_destroy(captured);
  release(2, (tt_storage *[]){a, sum});
}

/* Through views, and of storages that nobody had written. */
static void views_and_zeros(void) {
  tt_view first = {TT_F32, 1, 0, {2}, {1}}, last = {TT_F32, 1, 2, {2}, {1}};
  tt_storage *a = floats_of(stream, 4, (float[4]){1, 2, 3, 4});
  tt_storage *zeros = storage_new(stream, *a->type), *born = NULL;
  begin();
  ok(tt_stream_new_storage(stream, a->type, &born));
  assert_true(born->born == tt_stream_captured(stream));
  touch(a);
  ok(record_add_into(stream, a, &last, a, &first));
  touch(zeros);
  ok(record_add_into(stream, zeros, NULL, a, NULL));
  touch(born); /* is no input: it was made here, and has no value */
  ok(record_add_into(stream, born, NULL, zeros, NULL));
  tt_captured *captured = end();
  int steps = 0, inputs = 0, outputs = 0;
  tt_captured_sizes(captured, &steps, &inputs, &outputs);
  assert_true(steps == 3 && inputs == 2 && outputs == 3);
  assert_null(zeros->value);
  replay(captured, NULL);
  expect(a, 4, (float[4]){1, 2, 4, 6});
  expect(zeros, 4, (float[4]){1, 2, 4, 6});
  replay(captured, NULL);
  expect(a, 4, (float[4]){1, 2, 5, 8});
  expect(zeros, 4, (float[4]){2, 4, 9, 14});
  expect(born, 4, (float[4]){2, 4, 9, 14}); /* made anew each time */
  tt_captured_destroy(captured);
  release(3, (tt_storage *[]){a, zeros, born});
}

/* Two generators; places are where they stand when the graph is replayed. */
static void random_numbers(void) {
  int generator = 0;
  tt_storage *draws[4] = {NULL};
  tt_philox_place nowhere = {77, 88};
  begin();
  ok(record_draw(stream, NULL, 5, nowhere, &draws[0]));
  ok(record_draw(stream, &generator, 3, nowhere, &draws[1]));
  ok(record_draw(stream, NULL, 2, nowhere, &draws[2]));
  ok(record_draw(stream, NULL, 1, nowhere, &draws[3]));
  tt_captured *captured = end();
  assert_int_equal(tt_captured_generators(captured), 2);
  tt_draw first = tt_captured_draw(captured, 0), other = tt_captured_draw(captured, 1);
  assert_true(!first.generator && first.blocks == 8);
  assert_true(other.generator == &generator && other.blocks == 3);
  tt_philox_place places[2] = {{1, 100}, {UINT64_C(1) << 40, 0xFFFFFFFE}};
  for (int i = 0; i < 3; i++) {
    replay(captured, places);
    expect_place(draws[0], 1, places[0].offset);
    expect_place(draws[1], UINT64_C(1) << 40, places[1].offset);
    expect_place(draws[2], 1, places[0].offset + 5);
    expect_place(draws[3], 1, places[0].offset + 7);
    places[0].offset += 8, places[1].offset += 3;
  }
  tt_captured_destroy(captured);
  release(4, draws);
}

static void resizes(void) {
  tt_storage *a = floats_of(stream, 2, (float[2]){1, 2});
  begin();
  ok(storage_resize(a, 16)); /* which touches it */
  ok(record_add_into(stream, a, NULL, a, NULL));
  tt_captured *captured = end();
  expect(a, 2, (float[2]){1, 2}); /* also its size */
  replay(captured, NULL);
  expect(a, 4, (float[4]){2, 4, 0, 0});
  fails(tt_captured_replay(captured, stream, NULL, NULL, &policy, 0), TT_FAILED_PRECONDITION,
        "another size or dtype than when it was captured; capture the graph again");
  ok(storage_resize(a, 8));
  replay(captured, NULL);
  expect(a, 4, (float[4]){4, 8, 0, 0});
  tt_captured_destroy(captured);
  tt_storage_release(a);
}

/* A template in a capture, whose draws are the graph's. */
static void templates(void) {
  int slots[2];
  tt_storage *a = floats_of(stream, 2, (float[2]){1, 2}), *made[2] = {NULL};
  tt_template *t = NULL;
  ok(tt_template_begin(session->calls, &a, 1));
  ok(record_add_into(stream, a, NULL, a, NULL));
  ok(record_draw(stream, NULL, 4, (tt_philox_place){1, 1}, &made[0]));
  ok(record_scale(stream, a, 10, &made[1]));
  ok(tt_template_end(made, 2, slots, &t));
  assert_non_null(t);
  release(2, made);
  expect(a, 2, (float[2]){2, 4});
  begin();
  tt_storage *storages[2][3] = {{a}, {a}};
  for (int i = 0; i < 2; i++) {
    touch(a);
    ok(tt_template_run(t, stream, storages[i], (tt_philox_place){9, 9}, &policy, 0));
  }
  tt_captured *captured = end();
  expect(a, 2, (float[2]){2, 4});
  for (uint64_t i = 1; i < 3; i++) {
    replay(captured, &(tt_philox_place){5, 50 * i});
    float x = i == 1 ? 8 : 32;
    expect(a, 2, (float[2]){x, 2 * x});
    expect_place(storages[0][slots[0]], 5, 50 * i);
    expect_place(storages[1][slots[0]], 5, 50 * i + 4);
    expect(storages[0][slots[1]], 2, (float[2]){x * 5, x * 10});
    expect(storages[1][slots[1]], 2, (float[2]){x * 10, x * 20});
  }
  tt_captured_destroy(captured);
  tt_template_release(t);
  for (int i = 0; i < 2; i++) release(2, storages[i] + 1);
  tt_storage_release(a);
}

/* -- Layers -- */

enum { LAYERS = 6 };

/* Of each layer: w += x; draws; x = 2 w + x. x is written in the end, as are all w. */
static tt_captured *capture_layers(tt_storage *in, tt_storage **weights, tt_storage **draws,
                                   tt_storage **out, tt_repeats repeats) {
  tt_captured *captured = NULL;
  tt_storage *x = tt_storage_retain(in);
  begin();
  touch(in);
  for (int i = 0; i < LAYERS; i++) {
    tt_storage *twice = NULL, *sum = NULL;
    touch(weights[i]);
    ok(record_add_into(stream, weights[i], NULL, x, NULL));
    ok(record_draw(stream, NULL, i + 1, (tt_philox_place){0}, &draws[i]));
    ok(record_scale(stream, weights[i], 2, &twice));
    ok(record_add(stream, twice, x, &sum));
    release(2, (tt_storage *[]){twice, x});
    x = sum;
  }
  ok(record_add_into(stream, in, NULL, x, NULL));
  *out = x;
  policy.repeats = repeats;
  ok(tt_capture_end(stream, &policy, &captured));
  policy.repeats = TT_REPEATS_WHOLE;
  return captured;
}

/* The same numbers, memory and places of random numbers, whole or divided. */
static void layers(void) {
  static const tt_repeats all[] = {TT_REPEATS_WHOLE, TT_REPEATS_AUTO, TT_REPEATS_DIVIDED};
  for (int k = 0; k < 3; k++) {
    tt_storage *weights[LAYERS] = {NULL}, *draws[LAYERS] = {NULL}, *out = NULL;
    float x[2] = {1, 2}, w[LAYERS][2] = {{0}};
    tt_storage *in = floats_of(stream, 2, x);
    for (int i = 0; i < LAYERS; i++) weights[i] = floats_of(stream, 2, w[i]);
    int64_t programs = tt_count_get(TT_COUNT_PROGRAMS);
    tt_captured *captured = capture_layers(in, weights, draws, &out, all[k]);
    bool divided = all[k] == TT_REPEATS_DIVIDED; /* what is so small is not by itself */
    assert_int_equal(captured->divided.part_count, divided ? LAYERS + 1 : 1);
    assert_true(tt_count_get(TT_COUNT_PROGRAMS) - programs <= 2);
    int64_t launches = tt_count_get(TT_COUNT_LAUNCHES),
            replays = tt_count_get(TT_COUNT_GRAPH_REPLAYS);
    tt_memory before, after;
    for (uint64_t turn = 0; turn < 4; turn++) {
      if (turn == 1) memory_of(stream, &before);
      replay(captured, &(tt_philox_place){5, 100 * turn});
      float sum[2] = {x[0], x[1]};
      for (int i = 0, drawn = 0; i < LAYERS; drawn += ++i) {
        for (int e = 0; e < 2; e++) {
          w[i][e] += sum[e];
          sum[e] += 2 * w[i][e];
        }
        expect(weights[i], 2, w[i]);
        expect_place(draws[i], 5, 100 * turn + (uint64_t)drawn);
      }
      expect(out, 2, sum);
      for (int e = 0; e < 2; e++) x[e] += sum[e];
      expect(in, 2, x);
    }
    ok(stream_sync(stream));
    memory_of(stream, &after);
    assert_int_equal(after.allocated, before.allocated);
    assert_int_equal(tt_count_get(TT_COUNT_LAUNCHES) - launches, divided ? 4 * (LAYERS + 1) : 4);
    assert_int_equal(tt_count_get(TT_COUNT_GRAPH_REPLAYS) - replays, 4);
    tt_captured_destroy(captured);
    release(LAYERS, weights);
    release(LAYERS, draws);
    release(2, (tt_storage *[]){in, out});
  }
}

/* -- All of it -- */

ON_ALL(a_step)
ON_ALL(in_order)
ON_ALL(views_and_zeros)
ON_ALL(random_numbers)
ON_ALL(resizes)
ON_ALL(templates)
ON_ALL(layers)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_step),          cmocka_unit_test(test_in_order),
      cmocka_unit_test(test_views_and_zeros), cmocka_unit_test(test_random_numbers),
      cmocka_unit_test(test_resizes),         cmocka_unit_test(test_templates),
      cmocka_unit_test(test_layers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
