/* The compile pool: order, limits, cancelling. */
#include "base/clock.h"
#include "base/mem.h"
#include "program/pool.h"
#include "program/priority.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KEEPS_FREED /* the C library itself, so that it can be seen to give that back */
#endif

static atomic_int ran, cancelled, order_errors, next_number;
static atomic_bool open_gate;

static void reset(void) {
  atomic_store(&ran, 0);
  atomic_store(&cancelled, 0);
  atomic_store(&order_errors, 0);
  atomic_store(&next_number, 0);
  atomic_store(&open_gate, false);
}

static void nap(void) {
  struct timespec time = {0, 1000000};
  (void)nanosleep(&time, NULL);
}

static void count_job(void *user, bool is_cancelled) {
  (void)user;
  atomic_fetch_add(is_cancelled ? &cancelled : &ran, 1);
}

static void ordered_job(void *user, bool is_cancelled) {
  if (atomic_fetch_add(&next_number, 1) != (int)(intptr_t)user) atomic_fetch_add(&order_errors, 1);
  count_job(NULL, is_cancelled);
}

static void gate_job(void *user, bool is_cancelled) {
  while (!is_cancelled && !atomic_load(&open_gate)) nap();
  count_job(user, is_cancelled);
}

static void wait_for(atomic_int *counter, int value) {
  for (int i = 0; i < 10000 && atomic_load(counter) < value; i++) nap();
  assert_int_equal(atomic_load(counter), value);
}

static void test_order(void **state) {
  (void)state;
  reset();
  tt_pool *pool = NULL;
  assert_null(tt_pool_create(1, &pool));
  for (intptr_t i = 0; i < 2000; i++)
    assert_null(tt_pool_submit(pool, TT_NOW, ordered_job, (void *)i));
  wait_for(&ran, 2000);
  assert_int_equal(order_errors, 0);
  tt_pool_destroy(pool);
}

static void test_destroy_cancels(void **state) {
  (void)state;
  reset();
  tt_pool *pool = NULL;
  assert_null(tt_pool_create(2, &pool));
  assert_int_equal(tt_pool_threads(pool), 2);
  for (int i = 0; i < 100; i++) assert_null(tt_pool_submit(pool, TT_NOW, gate_job, NULL));
  nap();
  atomic_store(&open_gate, true);
  tt_pool_destroy(pool);
  assert_int_equal(ran + cancelled, 100);
}

/* A process that ends waits for no background job. */
static void test_end(void **state) {
  (void)state;
  for (int runs = 0; runs < 2; runs++) {
    reset();
    tt_pool *pool = NULL;
    assert_null(tt_pool_create(1, &pool));
    if (runs) assert_null(tt_pool_submit(pool, TT_BACKGROUND, gate_job, NULL));
    for (int i = 0; runs && i < 100; i++) nap(); /* it has begun */
    for (int i = 0; i < 3 * runs; i++)
      assert_null(tt_pool_submit(pool, TT_BACKGROUND, count_job, NULL));
    assert_int_equal(tt_pool_end(pool), !runs);
    assert_int_equal(cancelled, 3 * runs);
    atomic_store(&open_gate, true);
    wait_for(&ran, runs);
  }
}

static void test_queue_limit(void **state) {
  (void)state;
  reset();
  tt_pool *pool = NULL;
  assert_null(tt_pool_create(1, &pool));
  int accepted = 0;
  tt_status status = NULL;
  for (; accepted < TT_POOL_LIMIT + 10; accepted++)
    if ((status = tt_pool_submit(pool, TT_NOW, gate_job, NULL))) break;
  assert_in_range(accepted, TT_POOL_LIMIT, TT_POOL_LIMIT + 1); /* one may already run */
  assert_int_equal(tt_status_code(status), TT_RESOURCE_EXHAUSTED);
  tt_status_release(status);
  atomic_store(&open_gate, true);
  tt_pool_destroy(pool);
  assert_int_equal(ran + cancelled, accepted);
}

typedef struct submitter {
  tt_pool *pool;
  int accepted;
} submitter;

static void *submit_many(void *user) {
  submitter *mine = user;
  for (int i = 0; i < 3000; i++) {
    tt_status status = tt_pool_submit(mine->pool, TT_NOW, count_job, NULL);
    if (!status) mine->accepted++;
    tt_status_release(status);
  }
  return NULL;
}

static void test_many_submitters(void **state) {
  (void)state;
  reset();
  submitter users[4] = {{0}};
  pthread_t threads[4];
  tt_pool *pool = NULL;
  assert_null(tt_pool_create(3, &pool));
  for (int i = 0; i < 4; i++) {
    users[i].pool = pool;
    assert_int_equal(pthread_create(&threads[i], NULL, submit_many, &users[i]), 0);
  }
  int accepted = 0;
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    accepted += users[i].accepted;
  }
  wait_for(&ran, accepted);
  tt_pool_destroy(pool);
}

static tt_pool *own_pool;

static void resubmit_job(void *user, bool is_cancelled) {
  if (!is_cancelled) {
    while (!atomic_load(&open_gate)) nap();
    tt_status_release(tt_pool_submit(own_pool, TT_NOW, count_job, user));
  }
  count_job(user, is_cancelled);
}

static void test_job_submits(void **state) {
  (void)state;
  reset();
  assert_null(tt_pool_create(1, &own_pool));
  assert_null(tt_pool_submit(own_pool, TT_NOW, resubmit_job, NULL));
  atomic_store(&open_gate, true);
  tt_pool_destroy(own_pool);
  assert_true(ran + cancelled == 2 || (ran + cancelled == 1 && cancelled == 1));
}

static atomic_int later_ran;

static void later_job(void *user, bool is_cancelled) {
  (void)user;
  atomic_fetch_add(is_cancelled ? &cancelled : &later_ran, 1);
}

/* Jobs for later do not begin while others wait or run, however many threads are free. */
static void test_later_waits(void **state) {
  (void)state;
  reset();
  atomic_store(&later_ran, 0);
  tt_pool *pool = NULL;
  assert_null(tt_pool_create(2, &pool));
  assert_null(tt_pool_submit(pool, TT_NOW, gate_job, NULL));
  for (int i = 0; i < 5; i++) assert_null(tt_pool_submit(pool, TT_BACKGROUND, later_job, NULL));
  for (int i = 0; i < 100; i++) assert_null(tt_pool_submit(pool, TT_NOW, count_job, NULL));
  wait_for(&ran, 100);
  assert_int_equal(later_ran, 0);
  atomic_store(&open_gate, true);
  wait_for(&later_ran, 5);
  tt_pool_destroy(pool);
}

static void note_time(void *user, bool is_cancelled) {
  *(int64_t *)user = tt_now_ns();
  count_job(NULL, is_cancelled);
}

/* Between the programs of a first step nothing begins that would take a core from the next. */
static void test_later_rests(void **state) {
  (void)state;
  reset();
  tt_pool *pool = NULL;
  int64_t ended = 0, began = 0;
  assert_null(tt_pool_create(1, &pool));
  assert_null(tt_pool_submit(pool, TT_NOW, note_time, &ended));
  wait_for(&ran, 1);
  assert_null(tt_pool_submit(pool, TT_BACKGROUND, note_time, &began));
  wait_for(&ran, 2);
  assert_true(began - ended >= 100000000);
  tt_pool_destroy(pool);
}

#ifdef KEEPS_FREED
static int64_t resident(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%*d %ld", &pages), 1);
  assert_int_equal(fclose(file), 0);
  return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* The C library keeps what was freed below what was not. */
static void leave_free_memory(void *user, bool is_cancelled) {
  enum { BLOCKS = 1024, SIZE = 64 << 10 };
  static char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) assert_non_null(memset(blocks[i] = malloc(SIZE), 1, SIZE));
  *(char **)user = malloc(64);
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
  count_job(NULL, is_cancelled);
}

/* What compilers have freed goes back to the system, whoever compiled, and once. */
static void test_freed_memory_goes_back(void **state) {
  (void)state;
  tt_urgency urgencies[] = {TT_NOW, TT_BACKGROUND};
  for (int i = 0; i < 2; i++) {
    reset();
    tt_pool *pool = NULL;
    char *last = NULL;
    int64_t before = resident();
    assert_null(tt_pool_create(1, &pool));
    assert_null(tt_pool_submit(pool, urgencies[i], leave_free_memory, &last));
    wait_for(&ran, 1);
    assert_true(resident() - before > 48 << 20);
    for (int k = 0; k < 5000 && resident() - before > 8 << 20; k++) nap();
    assert_true(resident() - before <= 8 << 20);
    tt_pool_destroy(pool);
    free(last);
  }
}
#endif

/* Others do not wait for a job for later that runs, even if there is but one thread. */
static void test_later_delays_nobody(void **state) {
  (void)state;
  reset();
  tt_pool *pool = NULL;
  assert_null(tt_pool_create(1, &pool));
  assert_null(tt_pool_submit(pool, TT_BACKGROUND, gate_job, NULL));
  for (int i = 0; i < 20; i++) nap();
  for (int i = 0; i < 100; i++) assert_null(tt_pool_submit(pool, TT_NOW, count_job, NULL));
  wait_for(&ran, 100);
  atomic_store(&open_gate, true);
  wait_for(&ran, 101);
  tt_pool_destroy(pool);
}

static void *stay(void *user) {
  (void)pthread_setname_np(pthread_self(), "tt-compile-0");
  atomic_store((_Atomic int *)user, (int)gettid());
  while (!atomic_load(&open_gate)) nap();
  return NULL;
}

static void wait_for_nice(int thread, int nice) {
  for (int i = 0; i < 2000 && getpriority(PRIO_PROCESS, (id_t)thread) != nice; i++) nap();
  assert_int_equal(getpriority(PRIO_PROCESS, (id_t)thread), nice);
}

/* Threads that the compiler started from one of ours leave the processor to the program while only
 * a background job runs, and take their part again when somebody waits for a job. */
static void test_priority(void **state) {
  (void)state;
  if (!tt_priority_may_rise()) skip();
  reset();
  tt_pool *pool = NULL;
  pthread_t compiler;
  _Atomic int thread = 0;
  int before = getpriority(PRIO_PROCESS, 0), nice = before < 7 ? before + 3 : before;
  assert_int_equal(setpriority(PRIO_PROCESS, 0, nice), 0); /* as whoever starts a process chooses */
  assert_null(tt_pool_create(1, &pool));
  assert_int_equal(pthread_create(&compiler, NULL, stay, &thread), 0);
  while (!atomic_load(&thread)) nap();
  assert_null(tt_pool_submit(pool, TT_BACKGROUND, gate_job, NULL));
  wait_for_nice(thread, nice > 10 ? nice : 10);
  assert_int_equal(getpriority(PRIO_PROCESS, 0), nice);
  assert_null(tt_pool_submit(pool, TT_NOW, gate_job, NULL));
  wait_for_nice(thread, nice);
  atomic_store(&open_gate, true);
  wait_for(&ran, 2);
  tt_pool_destroy(pool);
  assert_int_equal(pthread_join(compiler, NULL), 0);
  assert_int_equal(setpriority(PRIO_PROCESS, 0, before), 0);
}

static void test_hurry(void **state) {
  (void)state;
  reset();
  tt_pool *pool = NULL;
  assert_null(tt_pool_create(1, &pool));
  assert_null(
      tt_pool_submit(pool, TT_BACKGROUND, gate_job, NULL)); /* keeps the later thread busy */
  for (int i = 0; i < 20; i++) nap();
  for (intptr_t i = 0; i < 4; i++)
    assert_null(tt_pool_submit(pool, TT_BACKGROUND, i == 2 ? count_job : later_job, (void *)i));
  assert_false(tt_pool_promote(pool, count_job, (void *)7));
  assert_true(tt_pool_promote(pool, count_job, (void *)2));
  assert_false(tt_pool_promote(pool, count_job, (void *)2));
  wait_for(&ran, 1);
  atomic_store(&later_ran, 0);
  atomic_store(&open_gate, true);
  wait_for(&later_ran, 3);
  tt_pool_destroy(pool);
  assert_int_equal(ran, 2);
  assert_int_equal(cancelled, 0);
}

static void test_later_is_cancelled(void **state) {
  (void)state;
  reset();
  tt_pool *pool = NULL;
  assert_null(tt_pool_create(1, &pool));
  atomic_store(&later_ran, 0);
  assert_null(tt_pool_submit(pool, TT_NOW, gate_job, NULL));
  for (int i = 0; i < 10; i++) assert_null(tt_pool_submit(pool, TT_BACKGROUND, later_job, NULL));
  for (int i = 0; i < 5; i++) nap();
  atomic_store(&open_gate, true);
  tt_pool_destroy(pool);
  assert_int_equal(later_ran + cancelled + ran, 11);
}

static void test_bad_arguments(void **state) {
  (void)state;
  tt_pool *pool = NULL;
  tt_status status = tt_pool_create(-1, &pool);
  assert_int_equal(tt_status_code(status), TT_INVALID_ARGUMENT);
  tt_status_release(status);
  status = tt_pool_create(257, &pool);
  assert_int_equal(tt_status_code(status), TT_INVALID_ARGUMENT);
  tt_status_release(status);
  assert_null(pool);
  assert_null(tt_pool_create(0, &pool));
  assert_true(tt_pool_threads(pool) >= 1);
  tt_pool_destroy(pool);
  tt_pool_destroy(NULL);
}

static void test_out_of_memory(void **state) {
  (void)state;
  reset();
  tt_pool *pool = NULL;
  tt_alloc_fail_at(1, false);
  tt_status status = tt_pool_create(1, &pool);
  tt_alloc_fail_at(0, false);
  assert_int_equal(tt_status_code(status), TT_RESOURCE_EXHAUSTED);
  assert_null(tt_pool_create(1, &pool));
  tt_alloc_fail_at(1, false);
  status = tt_pool_submit(pool, TT_NOW, count_job, NULL);
  tt_alloc_fail_at(0, false);
  assert_int_equal(tt_status_code(status), TT_RESOURCE_EXHAUSTED);
  assert_null(tt_pool_submit(pool, TT_NOW, count_job, NULL));
  wait_for(&ran, 1);
  tt_pool_destroy(pool);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_destroy_cancels),
      cmocka_unit_test(test_end),
      cmocka_unit_test(test_queue_limit),
      cmocka_unit_test(test_many_submitters),
      cmocka_unit_test(test_job_submits),
      cmocka_unit_test(test_bad_arguments),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_later_waits),
      cmocka_unit_test(test_later_rests),
#ifdef KEEPS_FREED
      cmocka_unit_test(test_freed_memory_goes_back),
#endif
      cmocka_unit_test(test_later_delays_nobody),
      cmocka_unit_test(test_priority),
      cmocka_unit_test(test_hurry),
      cmocka_unit_test(test_later_is_cancelled),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
