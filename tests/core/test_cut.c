/* Where chunks end: at the same places of a loop's body, whatever came before. */
#include "graph/cut.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LONGEST = 700 };

typedef struct simulation {
  tt_cutter cutter;
  int depth;
  int64_t bytes;
  uint64_t random;
} simulation;

static uint64_t next_random(simulation *s) {
  s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return s->random >> 20;
}

/* Records one operator; why the chunk ended after it, if it did. */
static tt_cut record(simulation *s, uint64_t call, int64_t bytes) {
  s->bytes += bytes;
  tt_cut why = tt_cutter_add(&s->cutter, call, ++s->depth, s->bytes);
  if (why) s->depth = 0, s->bytes = 0;
  return why;
}

/* The cuts of one turn of a loop, one character an operator. */
static void turn(simulation *s, const uint64_t *body, int length, char *cuts) {
  for (int i = 0; i < length; i++) cuts[i] = (char)('0' + (int)record(s, body[i], 4));
  cuts[length] = '\0';
}

static void make_body(simulation *s, uint64_t *body, int length) {
  for (int i = 0; i < length; i++) body[i] = next_random(s);
}

static void every_loop_settles(void **state) {
  (void)state;
  uint64_t body[LONGEST];
  char cuts[LONGEST + 1], again[LONGEST + 1];
  for (int length = 33; length < LONGEST; length += 7) {
    simulation s = {.cutter.limits = TT_CUT_OPERATORS, .random = (uint64_t)length};
    make_body(&s, body, length);
    for (int i = (int)(next_random(&s) % 300); i > 0; i--) record(&s, next_random(&s), 4);
    for (int i = 0; i < 3 + 200 / length; i++) turn(&s, body, length, cuts);
    turn(&s, body, length, cuts);
    assert_non_null(strpbrk(cuts, "1"));
    for (int i = 0; i < 5; i++) {
      turn(&s, body, length, again);
      assert_string_equal(cuts, again);
    }
  }
}

static void what_came_before_does_not_matter(void **state) {
  (void)state;
  uint64_t body[LONGEST];
  char cuts[LONGEST + 1], first[LONGEST + 1];
  for (int length = 40; length < LONGEST; length += 61)
    for (uint64_t before = 0; before < 5; before++) {
      simulation s = {.cutter.limits = TT_CUT_OPERATORS, .random = (uint64_t)length};
      make_body(&s, body, length);
      s.random = before;
      for (int i = (int)(next_random(&s) % 200); i > 0; i--) record(&s, next_random(&s), 4);
      for (int i = 0; i < 4 + 200 / length; i++) turn(&s, body, length, cuts);
      if (before == 0) memcpy(first, cuts, sizeof first);
      assert_string_equal(cuts, first);
    }
}

static void equal_operators_make_equal_chunks(void **state) {
  (void)state;
  simulation s = {.cutter.limits = TT_CUT_OPERATORS};
  int length = 0, last = 0;
  for (int i = 0; i < 1000; i++) {
    length++;
    if (!record(&s, 7, 4)) continue;
    if (last) assert_int_equal(length, last);
    last = length;
    length = 0;
  }
  assert_true(last > 0);
}

/* The host waits at one place in the tenth turn alone. */
static void a_wait_makes_a_place(void **state) {
  (void)state;
  enum { LENGTH = 50, PLACE = 20 };
  uint64_t body[LENGTH];
  char cuts[LENGTH + 1];
  simulation s = {.cutter.limits = TT_CUT_OPERATORS, .random = 5};
  make_body(&s, body, LENGTH);
  for (int i = 0; i <= PLACE; i++) record(&s, body[i], 4);
  tt_cutter_stop(&s.cutter);
  s.depth = 0;
  for (int i = PLACE + 1; i < LENGTH; i++) record(&s, body[i], 4);
  for (int i = 0; i < 5; i++) {
    turn(&s, body, LENGTH, cuts);
    for (int k = 0; k < LENGTH; k++)
      assert_int_equal(cuts[k], '0' + (k == PLACE ? (int)TT_CUT_STOP : (int)TT_CUT_NONE));
  }
}

static void a_wait_in_a_uniform_stretch_does_not_cut_it_up(void **state) {
  (void)state;
  simulation s = {.cutter.limits = TT_CUT_OPERATORS};
  for (int i = 0; i < 40; i++) record(&s, 7, 4);
  tt_cutter_stop(&s.cutter);
  int cuts = 0, stretch = 960;
  for (int i = 0; i < stretch; i++) cuts += record(&s, 7, 4) != TT_CUT_NONE;
  assert_in_range(cuts, 2, stretch / 24);
}

static void limits_hold(void **state) {
  (void)state;
  simulation s = {.cutter.limits = TT_CUT_OPERATORS, .random = 3};
  int longest = 0;
  int64_t most = 0;
  for (int i = 0; i < 20000; i++) {
    /* Ranks that fall for ever would never be lowest again. */
    int depth = s.depth;
    int64_t bytes = s.bytes;
    record(&s, next_random(&s), i % 100 < 50 ? INT64_C(1) << 25 : 4);
    if (depth > longest) longest = depth;
    if (bytes > most) most = bytes;
  }
  assert_true(longest < 640);
  assert_true(most < INT64_C(1) << 28);
}

static void nothing_to_wait_for(void **state) {
  (void)state;
  tt_cutter cutter = {.limits = TT_CUT_OPERATORS};
  tt_cutter_stop(&cutter);
  assert_int_equal(tt_cutter_add(&cutter, 1, 1, 4), TT_CUT_NONE);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_loop_settles),
      cmocka_unit_test(what_came_before_does_not_matter),
      cmocka_unit_test(equal_operators_make_equal_chunks),
      cmocka_unit_test(a_wait_makes_a_place),
      cmocka_unit_test(a_wait_in_a_uniform_stretch_does_not_cut_it_up),
      cmocka_unit_test(limits_hold),
      cmocka_unit_test(nothing_to_wait_for),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
