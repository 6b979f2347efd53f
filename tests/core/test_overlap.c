/* Which elements of lists share memory. */
#include "support.h"

#include "call/overlap.h"

static int first_storage, second_storage; /* only their addresses count */

static tt_extent bytes(int64_t first, int64_t end, int element, bool write) {
  return (tt_extent){&first_storage, first, end, element, write};
}

static void test_extent_of_a_view(void **state) {
  (void)state;
  tt_view view = {.dtype = TT_F64, .rank = 2, .offset = 3, .sizes = {2, 4}, .strides = {10, 2}};
  tt_extent one = tt_extent_of(&first_storage, &view, 5, true);
  assert_ptr_equal(one.storage, &first_storage);
  assert_int_equal(one.first, 24);
  assert_int_equal(one.end, 8 * (3 + 10 + 6 + 1));
  assert_int_equal(one.element, 5);
  assert_true(one.write);
  tt_view number = {.dtype = TT_U8, .offset = 7};
  one = tt_extent_of(&first_storage, &number, TT_EVERY_ELEMENT, false);
  assert_int_equal(one.end - one.first, 1);
}

static void test_elements_that_meet(void **state) {
  (void)state;
  tt_extent writes_into_next[] = {bytes(8, 16, 1, false), bytes(0, 9, 0, true)};
  assert_true(tt_extents_meet(writes_into_next, 2));
  tt_extent both_write[] = {bytes(0, 8, 0, true), bytes(0, 8, 1, true)};
  assert_true(tt_extents_meet(both_write, 2));
  tt_extent far[] = {bytes(0, 100, 0, false), bytes(10, 20, 1, false), bytes(90, 95, 2, true)};
  assert_true(tt_extents_meet(far, 3));
  tt_extent for_all[] = {bytes(0, 8, 0, true), bytes(0, 8, TT_EVERY_ELEMENT, false)};
  assert_true(tt_extents_meet(for_all, 2));
  tt_extent written_for_all[] = {bytes(0, 8, TT_EVERY_ELEMENT, true),
                                 bytes(4, 8, TT_EVERY_ELEMENT, false)};
  assert_true(tt_extents_meet(written_for_all, 2));
}

static void test_elements_that_stay_apart(void **state) {
  (void)state;
  tt_extent neighbours[] = {bytes(8, 16, 1, true), bytes(0, 8, 0, true)};
  assert_false(tt_extents_meet(neighbours, 2));
  tt_extent only_read[] = {bytes(0, 8, 0, false), bytes(0, 8, 1, false), bytes(8, 9, 2, true)};
  assert_false(tt_extents_meet(only_read, 3));
  tt_extent own[] = {bytes(0, 8, 0, true), bytes(4, 8, 0, false), bytes(8, 9, 1, true)};
  assert_false(tt_extents_meet(own, 3));
  tt_extent elsewhere[] = {bytes(0, 8, 0, true), {&second_storage, 0, 8, 1, true}};
  assert_false(tt_extents_meet(elsewhere, 2));
  assert_false(tt_extents_meet(NULL, 0));
}

static void test_pointers_twice(void **state) {
  (void)state;
  enum { MANY = 1000 };
  static char place[MANY];
  const void *pointers[MANY];
  for (int i = 0; i < MANY; i++) pointers[i] = &place[i];
  assert_false(tt_any_twice(pointers, MANY));
  assert_false(tt_any_twice(pointers, 0));
  tt_alloc_fail_at(1, false);
  assert_true(tt_any_twice(pointers, MANY));
  pointers[MANY - 1] = &place[0];
  assert_true(tt_any_twice(pointers, MANY));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_extent_of_a_view),
      cmocka_unit_test(test_elements_that_meet),
      cmocka_unit_test(test_elements_that_stay_apart),
      cmocka_unit_test(test_pointers_twice),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
