/* Templates with right numbers: on the CPU plugin and on an accelerator-like one. */
#include "computed.h"

static void begin(tt_storage *const *args, int count) {
  ok(tt_template_begin(session->calls, args, count));
}

static tt_template *end(tt_storage *const *results, int count, int *slots) {
  tt_template *made = NULL;
  ok(tt_template_end(results, count, slots, &made));
  assert_non_null(made);
  return made;
}

static void run(const tt_template *t, tt_storage **storages, tt_philox_place place) {
  ok(tt_template_run(t, stream, storages, place, &policy, 0));
}

static const tt_philox_place nowhere = {0, 0};

/* a += b, in place; then 3 a by way of what is freed again, and a itself as a result. */
static tt_template *in_place(float x, float y, int slots[3]) {
  tt_storage *args[2] = {floats_of(stream, 1, &x), floats_of(stream, 1, &y)}, *twice = NULL;
  tt_storage *results[3] = {args[0]};
  begin(args, 2);
  ok(record_add_into(stream, args[0], NULL, args[1], NULL));
  ok(record_scale(stream, args[0], 2, &twice));
  ok(record_add(stream, twice, args[0], &results[1]));
  tt_storage_release(twice);
  results[2] = results[1]; /* the same, twice */
  tt_template *t = end(results, 3, slots);
  expect(args[0], 1, (float[]){x + y});
  expect(results[1], 1, (float[]){3 * (x + y)});
  release(2, args);
  tt_storage_release(results[1]);
  return t;
}

static void arguments_in_place(void) {
  int slots[3];
  tt_template *t = in_place(1, 2, slots);
  assert_int_equal(tt_template_slots(t), 3);
  assert_true(slots[0] == 0 && slots[1] == 2 && slots[2] == 2);
  assert_int_equal(tt_template_blocks(t), 0);
  float x = 10, y = 0.5f;
  tt_storage *storages[3] = {floats_of(stream, 1, &x), floats_of(stream, 1, &y)};
  for (int i = 0; i < 5; i++) {
    run(t, storages, nowhere);
    x += y;
    expect(storages[0], 1, &x);
    expect(storages[1], 1, &y);
    expect(storages[2], 1, (float[]){3 * x});
    tt_storage_release(storages[2]);
    storages[2] = NULL;
  }
  /* the same storage for both is another key: the two are told apart here by their slots alone */
  release(2, storages);
  tt_template_release(t);
}

/* Each draws where the generator stands, one behind the other. */
static void draws(void) {
  int slots[3], outer[4];
  tt_storage *results[3] = {NULL}, *more[4] = {NULL};
  begin(NULL, 0);
  for (uint64_t i = 0; i < 3; i++)
    ok(record_draw(stream, NULL, 4 + (int64_t)i, (tt_philox_place){1, i}, &results[i]));
  tt_template *t = end(results, 3, slots);
  assert_int_equal(tt_template_blocks(t), 15);
  for (uint64_t i = 0; i < 3; i++) {
    tt_storage *storages[3] = {NULL};
    run(t, storages, (tt_philox_place){i, 100 * i});
    expect_place(storages[slots[0]], i, 100 * i);
    expect_place(storages[slots[1]], i, 100 * i + 4);
    expect_place(storages[slots[2]], i, 100 * i + 9);
    release(3, storages);
  }
  /* within another: what was drawn before it, it, and what is drawn behind it */
  begin(NULL, 0);
  ok(record_draw(stream, NULL, 2, nowhere, &more[0]));
  tt_storage *storages[3] = {NULL};
  run(t, storages, nowhere);
  more[1] = storages[slots[1]];
  ok(record_draw(stream, NULL, 1, nowhere, &more[2]));
  tt_storage *again[3] = {NULL};
  run(t, again, nowhere);
  more[3] = again[slots[2]];
  tt_template *nested = end(more, 4, outer);
  assert_int_equal(tt_template_blocks(nested), 2 + 15 + 1 + 15);
  release(3, storages);
  release(3, again);
  tt_storage *all[4] = {NULL};
  run(nested, all, (tt_philox_place){9, 1000});
  expect_place(all[outer[0]], 9, 1000);
  expect_place(all[outer[1]], 9, 1000 + 2 + 4);
  expect_place(all[outer[2]], 9, 1000 + 17);
  expect_place(all[outer[3]], 9, 1000 + 18 + 9);
  release(4, all);
  tt_storage_release(more[0]);
  tt_storage_release(more[2]);
  release(3, results);
  tt_template_release(nested);
  tt_template_release(t);
}

/* A template that writes to its argument, within notes of another one: on an argument of those, and
 * on what those made. */
static void nested(void) {
  int slots[3], outer[2];
  float one = 1, two = 2;
  tt_template *inner = in_place(1, 2, slots);
  tt_storage *arg = floats_of(stream, 1, &one), *results[2] = {NULL};
  begin(&arg, 1);
  tt_storage *first[3] = {arg, NULL}, *later[3] = {NULL};
  ok(record_scale(stream, arg, 4, &first[1]));
  run(inner, first, nowhere); /* arg = 5 arg; first[2] = 15 */
  later[0] = first[2];
  later[1] = arg;
  run(inner, later, nowhere); /* first[2] = 20; later[2] = 60 */
  results[0] = later[2];
  results[1] = first[2];
  tt_template *t = end(results, 2, outer);
  expect(arg, 1, (float[]){5});
  expect(results[0], 1, (float[]){60});
  expect(results[1], 1, (float[]){20});
  for (tt_storage **s = (tt_storage *[]){first[1], first[2], later[2], arg, NULL}; *s; s++)
    tt_storage_release(*s);
  tt_storage *storages[3] = {floats_of(stream, 1, &two)};
  run(t, storages, nowhere);
  expect(storages[0], 1, (float[]){10});
  expect(storages[outer[0]], 1, (float[]){120});
  expect(storages[outer[1]], 1, (float[]){40});
  release(3, storages);
  tt_template_release(t);
  tt_template_release(inner);
}

/* Of storages that nobody wrote; one is given a new size, and then a value. */
static void unwritten(void) {
  int slot;
  tt_type pair = type_of(TT_F32, 1, DIMS(2)), single = type_of(TT_F32, 1, DIMS(1));
  tt_storage *args[2] = {storage_new(stream, single), floats_of(stream, 2, (float[]){1, 2})};
  tt_storage *made = NULL, *scaled = NULL;
  begin(args, 2);
  ok(tt_stream_new_storage(stream, &single, &made));
  ok(storage_resize(made, 8));
  ok(record_scale(stream, args[1], 3, &scaled));
  ok(record_add_into(stream, made, NULL, scaled, NULL));
  tt_storage_release(scaled);
  tt_template *t = end(&made, 1, &slot);
  expect(made, 2, (float[]){3, 6});
  tt_storage *storages[3] = {args[0], floats_of(stream, 2, (float[]){5, 7})};
  run(t, storages, nowhere);
  assert_null(args[0]->value);
  assert_true(tt_type_equal(storages[slot]->type, &pair));
  expect(storages[slot], 2, (float[]){15, 21});
  release(3, storages);
  release(2, (tt_storage *[]){args[1], made});
  tt_template_release(t);
}

ON_ALL(arguments_in_place)
ON_ALL(draws)
ON_ALL(nested)
ON_ALL(unwritten)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_arguments_in_place),
      cmocka_unit_test(test_draws),
      cmocka_unit_test(test_nested),
      cmocka_unit_test(test_unwritten),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
