/* Guards, and what waits until nobody is in one. */
#include "base/guard.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* A thread that is in a guard until it is told to leave. */
typedef struct inside {
  pthread_t thread;
  sem_t entered, leave;
} inside;

static void *stay(void *user) {
  inside *one = user;
  tt_guard_enter();
  tt_guard_enter();
  sem_post(&one->entered);
  sem_wait(&one->leave);
  tt_guard_leave();
  tt_guard_leave();
  return NULL;
}

static void start(inside *one) {
  sem_init(&one->entered, 0, 0);
  sem_init(&one->leave, 0, 0);
  assert_int_equal(pthread_create(&one->thread, NULL, stay, one), 0);
  sem_wait(&one->entered);
}

static void stop(inside *one) {
  sem_post(&one->leave);
  pthread_join(one->thread, NULL);
}

static atomic_int runs;

static void count(tt_deferred *item) {
  (void)item;
  atomic_fetch_add(&runs, 1);
}

static int reset(void **state) {
  (void)state;
  atomic_store(&runs, 0);
  return 0;
}

static void pass(void) {
  tt_guard_enter();
  tt_guard_leave();
}

static void test_it_runs_with_the_next_guard(void **state) {
  (void)state;
  tt_deferred items[2] = {{.run = count}, {.run = count}};
  tt_guard_defer(&items[0]);
  tt_guard_defer(&items[1]);
  assert_int_equal(runs, 0);
  pass();
  assert_int_equal(runs, 2);
  pass();
  assert_int_equal(runs, 2);
}

static void test_it_waits_for_who_is_in_a_guard(void **state) {
  (void)state;
  inside before, after;
  tt_deferred item = {.run = count};
  start(&before);
  tt_guard_defer(&item);
  pass(); /* its time begins here */
  start(&after);
  pass();
  assert_int_equal(runs, 0);
  stop(&before);
  assert_int_equal(runs, 0);
  pass();
  assert_int_equal(runs, 1); /* who entered later could not find it any more */
  stop(&after);
}

static void test_its_own_guard_counts(void **state) {
  (void)state;
  tt_deferred item = {.run = count};
  tt_guard_enter();
  tt_guard_defer(&item);
  pass();
  assert_int_equal(runs, 0);
  tt_guard_leave();
  pass();
  assert_int_equal(runs, 1);
}

static void *defer(void *user) {
  tt_guard_defer(user);
  return NULL;
}

static void test_a_thread_ends(void **state) {
  (void)state;
  pthread_t thread;
  tt_deferred item = {.run = count};
  assert_int_equal(pthread_create(&thread, NULL, defer, &item), 0);
  pthread_join(thread, NULL);
  pass();
  assert_int_equal(runs, 1);
}

/* -- Found by some, replaced and let go by others -- */

typedef struct shared {
  tt_deferred item;
  atomic_int alive;
} shared;

static shared *_Atomic place;
static atomic_bool ended;
static atomic_int dead;

static void let_go(tt_deferred *item) {
  shared *gone = (shared *)item;
  atomic_store(&gone->alive, 0);
  free(gone);
}

static shared *make(void) {
  shared *made = calloc(1, sizeof *made);
  assert_non_null(made);
  made->item.run = let_go;
  atomic_store(&made->alive, 1);
  return made;
}

static void *look(void *user) {
  (void)user;
  while (!atomic_load(&ended)) {
    tt_guard_enter();
    shared *found = atomic_load_explicit(&place, memory_order_acquire);
    for (int i = 0; i < 20; i++)
      if (atomic_load_explicit(&found->alive, memory_order_relaxed) != 1) atomic_store(&dead, 1);
    tt_guard_leave();
  }
  return NULL;
}

static void *replace(void *user) {
  (void)user;
  for (int i = 0; i < 20000; i++) {
    shared *old = atomic_exchange(&place, make());
    tt_guard_defer(&old->item);
    pass();
  }
  return NULL;
}

static void test_what_was_found_stays(void **state) {
  (void)state;
  pthread_t threads[4];
  atomic_store(&place, make());
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? look : replace, NULL), 0);
  for (int i = 2; i < 4; i++) pthread_join(threads[i], NULL);
  atomic_store(&ended, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  pass();
  assert_int_equal(dead, 0);
  free(atomic_load(&place));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_it_runs_with_the_next_guard, reset),
      cmocka_unit_test_setup(test_it_waits_for_who_is_in_a_guard, reset),
      cmocka_unit_test_setup(test_its_own_guard_counts, reset),
      cmocka_unit_test_setup(test_a_thread_ends, reset),
      cmocka_unit_test(test_what_was_found_stays),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
