/* Branches and loops in captured graphs, with right numbers: on the CPU plugin and on an
 * accelerator-like one. */
#include "captures.h"

/* -- Operators of a part -- */

static tt_storage *scaled(tt_storage *a, float number) {
  tt_storage *out = NULL;
  touch(a);
  ok(record_scale(stream, a, number, &out));
  return out;
}

static tt_storage *sum(tt_storage *a, tt_storage *b) {
  tt_storage *out = NULL;
  touch(a);
  touch(b);
  ok(record_add(stream, a, b, &out));
  return out;
}

static tt_storage *below_one(tt_storage *a, tt_storage *b) {
  tt_storage *out[REQUEST_MAX] = {NULL};
  touch(a);
  touch(b);
  request r = {.row = tt_op_find("lt.Tensor"),
               .tensor_count = 2,
               .tensors = {a, b},
               .result = tt_type_make(TT_BOOL, a->type->rank, a->type->dims)};
  ok(request_record(stream, &r, out));
  return out[0];
}

/* -- Parts -- */

static tt_storage *argument(const tt_type *type) {
  tt_storage *storage = storage_new(stream, *type);
  ok(tt_nested_argument(stream, storage));
  return storage;
}

static tt_nested *end_part(int count, tt_storage **results) {
  tt_nested *part = NULL;
  ok(tt_nested_end(stream, results, count, &part));
  release(count, results);
  return part;
}

static tt_status record(const tt_nested_region *region, tt_storage **results) {
  return tt_nested_record(stream, region, &policy, 0, results);
}

/* -- Branches -- */

static tt_nested *branch(tt_storage *a, tt_storage *b, float by) {
  ok(tt_nested_begin(stream));
  tt_storage *product = scaled(a, by), *result = b ? sum(product, b) : scaled(product, 1);
  tt_storage_release(product);
  return end_part(1, &result);
}

/* flag ? 2 a + b : 3 a, of which one is taken anew at each replay. */
static void branches(void) {
  tt_type one = type_of(TT_BOOL, 0, NULL);
  bool flag = true;
  tt_storage *a = floats_of(stream, 2, (float[2]){1, 2});
  tt_storage *b = floats_of(stream, 2, (float[2]){10, 20}), *chosen = NULL;
  tt_storage *predicate = storage_of(stream, one, &flag);
  begin();
  tt_nested_region region = {.kind = TT_REGION_IF,
                             .name = "cond",
                             .bodies = {branch(a, b, 2), branch(a, NULL, 3)},
                             .operands = &predicate,
                             .operand_count = 1};
  ok(record(&region, &chosen));
  tt_storage *twice = scaled(chosen, 2);
  tt_captured *captured = end();
  int64_t launches = tt_count_get(TT_COUNT_LAUNCHES);
  for (int i = 0; i < 4; i++) {
    flag = i % 2 == 0;
    ok(storage_write(predicate, predicate->type, &flag, 0));
    replay(captured, NULL);
    expect(chosen, 2, flag ? (float[2]){12, 24} : (float[2]){3, 6});
    expect(twice, 2, flag ? (float[2]){24, 48} : (float[2]){6, 12});
  }
  assert_int_equal(tt_count_get(TT_COUNT_LAUNCHES) - launches, 4);
  expect(a, 2, (float[2]){1, 2});
  tt_captured_destroy(captured);
  release(5, (tt_storage *[]){a, b, predicate, chosen, twice});
}

/* -- Loops -- */

/* while x < limit: x = 2 x. */
static void loop(void) {
  tt_storage *x = floats_of(stream, 1, (float[1]){3}), *grown = NULL;
  tt_storage *limit = floats_of(stream, 1, (float[1]){100});
  begin();
  ok(tt_nested_begin(stream));
  tt_storage *value = argument(x->type), *test = below_one(value, limit);
  tt_nested *condition = end_part(1, &test);
  ok(tt_nested_begin(stream));
  tt_storage *again = argument(x->type);
  ok(record_add_into(stream, again, NULL, again, NULL)); /* an argument is the part's own */
  assert_true(tt_nested_wrote(stream, again));
  tt_nested *step = end_part(1, (tt_storage *[]){tt_storage_retain(again)});
  tt_nested_region region = {.kind = TT_REGION_WHILE,
                             .name = "while_loop",
                             .bodies = {condition, step},
                             .operands = &x,
                             .operand_count = 1};
  ok(record(&region, &grown));
  tt_captured *captured = end();
  replay(captured, NULL);
  expect(grown, 1, (float[1]){192});
  ok(storage_write(limit, limit->type, (float[1]){1}, 0));
  replay(captured, NULL);
  expect(grown, 1, (float[1]){3}); /* no step */
  tt_captured_destroy(captured);
  release(5, (tt_storage *[]){x, limit, grown, value, again});
}

/* s, x -> s + x, 10 (s + x) + outside, and what is drawn in each round; `part` is where it is. */
static tt_nested *running_sum(const tt_type *type, tt_storage *outside) {
  tt_storage *results[3] = {NULL};
  ok(tt_nested_begin(stream));
  tt_storage *s = argument(type), *x = argument(type);
  results[0] = sum(s, x);
  tt_storage *tenfold = scaled(results[0], 10);
  results[1] = sum(tenfold, outside);
  ok(record_draw(stream, NULL, 3, (tt_philox_place){7, 7}, &results[2]));
  release(3, (tt_storage *[]){s, x, tenfold});
  return end_part(3, results);
}

/* Over three rows of operands[1]; operands[0] is carried. */
static tt_nested_region scan_of(tt_nested *body, tt_storage *const *operands) {
  return (tt_nested_region){.kind = TT_REGION_SCAN,
                            .name = "scan",
                            .bodies = {body},
                            .operands = operands,
                            .operand_count = 2,
                            .carried = 1,
                            .length = 3};
}

static void scans(void) {
  tt_storage *s = floats_of(stream, 1, (float[1]){100}), *results[3] = {NULL};
  tt_storage *xs = storage_of(stream, type_of(TT_F32, 2, DIMS(3, 1)), (float[3]){1, 2, 3});
  tt_storage *outside = floats_of(stream, 1, (float[1]){5}), *before = NULL, *after = NULL;
  begin();
  ok(record_draw(stream, NULL, 2, (tt_philox_place){7, 7}, &before));
  tt_nested_region region = scan_of(running_sum(s->type, outside), (tt_storage *[]){s, xs});
  ok(record(&region, results));
  ok(record_draw(stream, NULL, 1, (tt_philox_place){7, 7}, &after));
  tt_captured *captured = end();
  assert_int_equal(tt_captured_draw(captured, 0).blocks, 2 + 3 * 3 + 1);
  for (uint64_t at = 0xFFFFFFFD; at < 0x100000001; at += 3) {
    int64_t places[6];
    replay(captured, &(tt_philox_place){5, at}); /* the sum of offsets carries */
    expect(results[0], 1, (float[1]){106});
    expect(results[1], 3, (float[3]){1015, 1035, 1065});
    expect_place(before, 5, at);
    expect_place(after, 5, at + 11);
    ok(storage_read(results[2], places, sizeof places));
    for (uint64_t i = 0; i < 3; i++) {
      assert_int_equal(places[2 * i], 5);
      assert_true((uint64_t)places[2 * i + 1] == at + 2 + 3 * i);
    }
  }
  tt_captured_destroy(captured);
  release(3, results);
  release(5, (tt_storage *[]){s, xs, outside, before, after});
}

/* Each generator's numbers go on by themselves. */
static void two_generators(void) {
  int generator = 0;
  tt_storage *xs = storage_of(stream, type_of(TT_F32, 2, DIMS(2, 1)), (float[2]){1, 2});
  tt_storage *drawn[3] = {NULL}, *results[3] = {NULL};
  tt_philox_place nowhere = {7, 7};
  tt_type slice = type_of(TT_F32, 1, DIMS(1));
  begin();
  ok(tt_nested_begin(stream));
  tt_storage *x = argument(&slice);
  ok(record_draw(stream, &generator, 3, nowhere, &drawn[0]));
  ok(record_draw(stream, NULL, 2, nowhere, &drawn[1]));
  ok(record_draw(stream, &generator, 1, nowhere, &drawn[2]));
  tt_nested_region region = {.kind = TT_REGION_SCAN,
                             .name = "scan",
                             .bodies = {end_part(3, drawn)},
                             .operands = &xs,
                             .operand_count = 1,
                             .length = 2};
  ok(record(&region, results));
  tt_captured *captured = end();
  assert_int_equal(tt_captured_generators(captured), 2);
  bool first = tt_captured_draw(captured, 0).generator == &generator;
  assert_int_equal(tt_captured_draw(captured, first ? 0 : 1).blocks, 8);
  assert_int_equal(tt_captured_draw(captured, first ? 1 : 0).blocks, 4);
  tt_philox_place places[2] = {{1, 100}, {2, 200}};
  replay(captured, first ? places : (tt_philox_place[]){places[1], places[0]});
  static const int64_t expected[3][4] = {{1, 100, 1, 104}, {2, 200, 2, 202}, {1, 103, 1, 107}};
  for (int i = 0; i < 3; i++) {
    int64_t got[4];
    ok(storage_read(results[i], got, sizeof got));
    assert_memory_equal(got, expected[i], sizeof got);
  }
  tt_captured_destroy(captured);
  release(3, results);
  release(2, (tt_storage *[]){xs, x});
}

/* A scan in a branch, which draws more than the other one. */
static void nested_parts(void) {
  bool flag = true;
  tt_storage *s = floats_of(stream, 1, (float[1]){100}), *inner[3] = {NULL}, *after = NULL;
  tt_storage *xs = storage_of(stream, type_of(TT_F32, 2, DIMS(3, 1)), (float[3]){1, 2, 3});
  tt_storage *predicate = storage_of(stream, type_of(TT_BOOL, 0, NULL), &flag);
  tt_storage *results[2] = {NULL};
  begin();
  ok(tt_nested_begin(stream));
  tt_nested_region scan = scan_of(running_sum(s->type, s), (tt_storage *[]){s, xs});
  ok(record(&scan, inner));
  tt_storage_release(inner[1]);
  tt_nested *yes = end_part(2, (tt_storage *[]){inner[0], inner[2]});
  ok(tt_nested_begin(stream));
  tt_storage *other[2] = {scaled(s, 2), NULL};
  tt_type places = type_of(TT_I64, 2, DIMS(3, 2));
  tt_storage *zeros = storage_of(stream, places, (int64_t[6]){0});
  other[1] = sum(zeros, zeros);
  tt_nested *no = end_part(2, other);
  tt_nested_region region = {.kind = TT_REGION_IF,
                             .name = "cond",
                             .bodies = {yes, no},
                             .operands = &predicate,
                             .operand_count = 1};
  ok(record(&region, results));
  ok(record_draw(stream, NULL, 1, (tt_philox_place){7, 7}, &after));
  tt_captured *captured = end();
  for (int i = 0; i < 2; i++) {
    int64_t drawn[6];
    flag = i == 0;
    ok(storage_write(predicate, predicate->type, &flag, 0));
    replay(captured, &(tt_philox_place){9, 40});
    expect(results[0], 1, (float[1]){flag ? 106 : 200});
    ok(storage_read(results[1], drawn, sizeof drawn));
    for (int k = 0; k < 3; k++) assert_int_equal(drawn[2 * k + 1], flag ? 40 + 3 * k : 0);
    expect_place(after, 9, 49);
  }
  tt_captured_destroy(captured);
  release(2, results);
  release(5, (tt_storage *[]){s, xs, predicate, zeros, after});
}

/* -- What is refused -- */

static void bodies_that_do_not_fit(void) {
  bool flag = true;
  tt_storage *a = floats_of(stream, 2, (float[2]){1, 2}), *result = NULL;
  tt_storage *b = floats_of(stream, 3, (float[3]){1, 2, 3});
  tt_storage *predicate = storage_of(stream, type_of(TT_BOOL, 0, NULL), &flag);
  begin();
  tt_nested_region region = {.kind = TT_REGION_IF,
                             .name = "cond",
                             .bodies = {branch(a, NULL, 2), branch(b, NULL, 3)},
                             .operands = &predicate,
                             .operand_count = 1};
  fails(record(&region, &result), TT_INVALID_ARGUMENT, "tensor<3xf32>, expected tensor<2xf32>");
  region.operands = &a;
  fails(record(&region, &result), TT_INVALID_ARGUMENT, "the predicate must be one bool");
  region.kind = TT_REGION_WHILE;
  fails(record(&region, &result), TT_INVALID_ARGUMENT, "the condition must be one bool");
  region.kind = TT_REGION_SCAN;
  region.length = 2;
  fails(record(&region, &result), TT_INVALID_ARGUMENT, "slice of operand 0 is missing");
  tt_capture_abandon(stream);
  fails(record(&region, &result), TT_FAILED_PRECONDITION, "is not captured");
  release(3, (tt_storage *[]){a, b, predicate});
}

static void draws_without_end(void) {
  tt_storage *x = floats_of(stream, 1, (float[1]){3}), *result = NULL, *drawn = NULL;
  begin();
  ok(tt_nested_begin(stream));
  tt_storage *value = argument(x->type), *test = below_one(value, value);
  tt_nested *condition = end_part(1, &test);
  ok(tt_nested_begin(stream));
  tt_storage *again = argument(x->type), *doubled = scaled(again, 2);
  ok(record_draw(stream, NULL, 3, (tt_philox_place){7, 7}, &drawn));
  tt_nested *step = end_part(1, &doubled);
  tt_nested_region region = {.kind = TT_REGION_WHILE,
                             .name = "while_loop",
                             .bodies = {condition, step},
                             .operands = &x,
                             .operand_count = 1};
  fails(record(&region, &result), TT_UNIMPLEMENTED, "draws random numbers");
  tt_capture_abandon(stream);
  release(4, (tt_storage *[]){x, value, again, drawn});
}

/* Whatever happens, storages hold afterwards what they held before. */
static void parts_that_fail(void) {
  tt_storage *a = floats_of(stream, 2, (float[2]){1, 2}), *b = NULL;
  tt_captured *captured = NULL;
  tt_nested *part = NULL;
  fails(tt_nested_begin(stream), TT_FAILED_PRECONDITION, "while the graph is");
  fails(tt_nested_end(stream, NULL, 0, &part), TT_FAILED_PRECONDITION, "no part of a graph");
  tt_nested_abandon(stream);
  begin();
  fails(tt_nested_argument(stream, a), TT_FAILED_PRECONDITION, "no part of a graph");
  fails(tt_nested_end(stream, NULL, 0, &part), TT_FAILED_PRECONDITION, "no part of a graph");
  ok(tt_nested_begin(stream));
  touch(a);
  assert_false(tt_nested_wrote(stream, a));
  ok(record_add_into(stream, a, NULL, a, NULL));
  assert_true(tt_nested_wrote(stream, a));
  fails(tt_nested_end(stream, &a, 1, &part), TT_FAILED_PRECONDITION, "from outside in place");
  ok(tt_nested_begin(stream));
  fails(tt_nested_end(stream, &a, 1, &part), TT_INVALID_ARGUMENT, "is not computed in it");
  ok(tt_nested_begin(stream));
  b = scaled(a, 5);
  tt_nested_abandon(stream);
  tt_storage_release(b);
  b = scaled(a, 3);
  ok(tt_nested_begin(stream));
  fails(tt_capture_end(stream, &policy, &captured), TT_FAILED_PRECONDITION, "still being captured");
  assert_null(captured);
  assert_true(tt_stream_captured(stream) == 0);
  expect(a, 2, (float[2]){1, 2});
  release(2, (tt_storage *[]){a, b});
}

/* -- When memory is out -- */

/* A scan of a part that doubles its slices; what it made is the caller's, also on failure. */
static tt_status doubled_slices(tt_storage *xs, tt_storage *made[4]) {
  const tt_type *slice = NULL;
  tt_type one = type_of(TT_F32, 1, DIMS(1));
  tt_nested *part = NULL;
  tt_nested_region region = {
      .kind = TT_REGION_SCAN, .name = "scan", .operands = &xs, .operand_count = 1, .length = 3};
  TT_TRY(tt_nested_begin(stream));
  TT_TRY(tt_type_intern(&one, &slice));
  TT_TRY(tt_storage_create(stream->device, slice, &made[0]));
  TT_TRY(tt_nested_argument(stream, made[0]));
  TT_TRY(record_scale(stream, made[0], 2, &made[1]));
  TT_TRY(record_draw(stream, NULL, 1, (tt_philox_place){7, 7}, &made[2]));
  TT_TRY(tt_nested_end(stream, &made[1], 1, &part));
  region.bodies[0] = part;
  return tt_nested_record(stream, &region, &policy, 0, &made[3]);
}

static void memory_that_runs_out(void) {
  tt_storage *xs = storage_of(stream, type_of(TT_F32, 2, DIMS(3, 1)), (float[3]){1, 2, 3});
  tt_captured *captured = NULL;
  for (int64_t nth = 1;; nth++) {
    tt_storage *made[4] = {NULL};
    begin();
    tt_alloc_fail_at(nth, true);
    tt_status status = doubled_slices(xs, made);
    if (!status) status = tt_capture_end(stream, &policy, &captured);
    tt_alloc_fail_at(0, false);
    if (status) tt_capture_abandon(stream);
    if (!status) replay(captured, &(tt_philox_place){1, 1});
    if (!status) expect(made[3], 3, (float[3]){2, 4, 6});
    expect(xs, 3, (float[3]){1, 2, 3});
    release(4, made);
    if (!status) break;
    fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
  }
  tt_captured_destroy(captured);
  tt_storage_release(xs);
}

/* -- All of it -- */

ON_ALL(branches)
ON_ALL(loop)
ON_ALL(scans)
ON_ALL(nested_parts)
ON_ALL(two_generators)
ON_ALL(bodies_that_do_not_fit)
ON_ALL(draws_without_end)
ON_ALL(parts_that_fail)
ON_ALL(memory_that_runs_out)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_branches),
      cmocka_unit_test(test_loop),
      cmocka_unit_test(test_scans),
      cmocka_unit_test(test_nested_parts),
      cmocka_unit_test(test_two_generators),
      cmocka_unit_test(test_bodies_that_do_not_fit),
      cmocka_unit_test(test_draws_without_end),
      cmocka_unit_test(test_parts_that_fail),
      cmocka_unit_test(test_memory_that_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
