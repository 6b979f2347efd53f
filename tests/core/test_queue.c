/* Queues: jobs in order, ends in any order, room, errors, waits that the user ends. */
#include "support.h"

#include "stream/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static tt_plugin *plugin;
static tt_client *client;
static tt_executable *program;
static tt_queue *queue;

static atomic_int destroyed, begun;
static atomic_int drained;    /* 1 for each job that drained, and 1 where it had to wait */
static atomic_bool gate;      /* open: jobs that wait for it go on */
static int order[8192];       /* of destruction, by ticket */
static atomic_bool interrupt; /* the user asks for it */

static bool is_interrupted(void) { return atomic_load(&interrupt); }

static const char text[] = "func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> // queue";

static int setup(void **state) {
  (void)state;
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  if (!fake_open()) return -1;
  ok(tt_plugin_open(getenv("TT_FAKE_PLUGIN"), &plugin));
  ok(tt_client_create(plugin, NULL, &client));
  ok(tt_compile(client, text, sizeof text - 1, &options, &program));
  tt_interrupt_set_check(is_interrupted);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  tt_executable_destroy(program);
  tt_client_destroy(client);
  return fake.tt_fake_live_objects() == 0 ? 0 : -1;
}

static int start(void **state) {
  (void)state;
  fake_reset();
  atomic_store(&destroyed, 0);
  atomic_store(&begun, 0);
  atomic_store(&gate, true);
  atomic_store(&interrupt, false);
  ok(tt_queue_create(client, "a test", &queue));
  return 0;
}

static int stop(void **state) {
  (void)state;
  atomic_store(&gate, true);
  fake_reset();
  tt_queue_destroy(queue);
  return 0;
}

/* -- Jobs -- */

typedef enum kind { PLAIN, GATED, FAILS, LAUNCHES, LARGE, DRAINS } kind;

typedef struct job {
  tt_job job;
  kind is;
} job;

static tt_status launch(tt_event **end) {
  tt_buffer *argument = NULL, *result = NULL;
  tt_type type = tt_type_make(TT_F32, 1, DIMS(2));
  float data[2] = {0};
  tt_pjrt_device *device = tt_client_device(client, 0);
  TT_TRY(tt_buffer_from_host(device, &type, data, NULL, NULL, &argument));
  tt_status status = tt_execute(program, device, &argument, 1, NULL, 0, &result, end);
  tt_buffer_destroy(client, argument);
  tt_buffer_destroy(client, result);
  return status;
}

static tt_status run(tt_job *one, tt_event **end) {
  kind is = ((job *)one)->is;
  atomic_fetch_add(&begun, 1);
  while (is == GATED && !atomic_load(&gate)) usleep(100);
  if (is == FAILS) return tt_error(TT_OUT_OF_RANGE, "job %d", (int)one->ticket);
  if (is == LARGE) one->bytes = (int64_t)100 << 20;
  if (is == DRAINS) atomic_fetch_add(&drained, 1 + tt_queue_drain(queue));
  return is == LAUNCHES || is == LARGE ? launch(end) : TT_SUCCESS;
}

static tt_status explain(tt_job *one, tt_status status) {
  return tt_status_prefix(status, "explained %d", (int)one->ticket);
}

static void destroy(tt_job *one) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  order[atomic_load(&destroyed)] = (int)one->ticket;
  atomic_fetch_add(&destroyed, 1);
  pthread_mutex_unlock(&lock);
  free(one);
}

static uint64_t push_with(kind is, tt_outcome *outcome) {
  static const tt_job_class class = {run, explain, destroy};
  job *one = calloc(1, sizeof *one);
  assert_non_null(one);
  *one = (job){.job = {.is = &class, .outcome = tt_outcome_retain(outcome)}, .is = is};
  return tt_queue_push(queue, &one->job);
}

static uint64_t push(kind is) { return push_with(is, NULL); }

static void in_order(int count) {
  assert_int_equal(atomic_load(&destroyed), count);
  for (int i = 0; i < count; i++) assert_int_equal(order[i], i + 1);
}

static void until(atomic_int *counter, int value) {
  for (int i = 0; i < 5000 && atomic_load(counter) != value; i++) usleep(1000);
  assert_int_equal(atomic_load(counter), value);
}

/* -- Order -- */

static void test_jobs_in_order(void **state) {
  (void)state;
  assert_true(tt_queue_last(queue) == 0);
  for (uint64_t i = 1; i <= 3000; i++) assert_true(push(PLAIN) == i);
  assert_true(tt_queue_last(queue) == 3000);
  ok(tt_queue_await_submitted(queue, 3000));
  assert_true(tt_queue_passed(queue, 3000));
  assert_false(tt_queue_passed(queue, 3001));
  in_order(3000);
}

/* The ends come in the opposite order; a job counts as passed when those before it are. */
static void test_ends_in_any_order(void **state) {
  enum { COUNT = 40 };
  (void)state;
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  fake.tt_fake_backwards(true);
  for (int i = 0; i < COUNT; i++) push(LAUNCHES);
  ok(tt_queue_await_submitted(queue, COUNT));
  for (uint64_t i = 1; i <= COUNT; i++) assert_false(tt_queue_passed(queue, i));
  assert_int_equal(atomic_load(&destroyed), 0);
  fake.tt_fake_hold(false);
  while (!tt_queue_passed(queue, COUNT))
    for (uint64_t i = COUNT; i > 1; i--)
      if (tt_queue_passed(queue, i)) assert_true(tt_queue_passed(queue, i - 1));
  until(&destroyed, COUNT);
  in_order(COUNT);
}

/* Synchronous jobs among asynchronous ones are passed only with these. */
static void test_mixed_ends(void **state) {
  (void)state;
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  push(PLAIN);
  push(LAUNCHES);
  push(PLAIN);
  ok(tt_queue_await_submitted(queue, 3));
  assert_true(tt_queue_passed(queue, 1));
  assert_false(tt_queue_passed(queue, 2));
  assert_false(tt_queue_passed(queue, 3));
  assert_int_equal(atomic_load(&destroyed), 2);
  fake.tt_fake_hold(false);
  ok(tt_queue_await(queue, 3));
  assert_true(tt_queue_passed(queue, 3));
}

/* What has ended is let go although nobody asks and nothing follows. */
static void test_an_idle_queue_lets_go(void **state) {
  (void)state;
  fake.tt_fake_async(true);
  for (int i = 1; i <= 3; i++) {
    push(LAUNCHES);
    until(&destroyed, i);
  }
}

/* Of many jobs while none ends, the plugin is given so many. */
static void few_are_under_way(kind is, int pushed, int given) {
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  for (int i = 0; i < pushed; i++) push(is);
  until(&begun, given);
  usleep(20000);
  assert_int_equal(atomic_load(&begun), given);
  fake.tt_fake_hold(false);
  ok(tt_queue_await(queue, (uint64_t)pushed));
  until(&destroyed, pushed);
  in_order(pushed);
}

static void test_few_are_under_way(void **state) {
  (void)state;
  few_are_under_way(LAUNCHES, 600, 256);
}

static void test_few_bytes_are_under_way(void **state) {
  (void)state;
  few_are_under_way(LARGE, 20, 3);
}

static void test_a_job_drains(void **state) {
  (void)state;
  atomic_store(&drained, 0);
  push(DRAINS);
  until(&drained, 1);
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  for (int i = 0; i < 3; i++) push(LAUNCHES);
  push(DRAINS);
  until(&begun, 5);
  usleep(5000);
  assert_int_equal(atomic_load(&drained), 1);
  fake.tt_fake_hold(false);
  until(&drained, 3);
  assert_true(tt_queue_passed(queue, 4));
}

/* -- Being told of ends -- */

static atomic_int told;
static void tell(void *user) { atomic_fetch_add(&told, *(int *)user); }

static void test_drained(void **state) {
  (void)state;
  int one = 1, ten = 10;
  atomic_store(&told, 0);
  ok(tt_queue_on_drained(queue, tell, &one)); /* nothing is under way */
  assert_int_equal(atomic_load(&told), 1);
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  fake.tt_fake_backwards(true);
  for (int i = 0; i < 5; i++) push(LAUNCHES);
  ok(tt_queue_await_submitted(queue, 5));
  for (int i = 0; i < 3; i++) ok(tt_queue_on_drained(queue, tell, &ten));
  usleep(5000);
  assert_int_equal(atomic_load(&told), 1);
  fake.tt_fake_hold(false);
  until(&told, 31);
  assert_true(tt_queue_passed(queue, 5));
  tt_alloc_fail_at(1, false);
  fails(tt_queue_on_drained(queue, tell, &one), TT_RESOURCE_EXHAUSTED, "out of host memory");
  assert_int_equal(atomic_load(&told), 31);
}

/* -- Errors -- */

static void test_errors(void **state) {
  (void)state;
  push(FAILS);
  push(FAILS);
  ok(tt_queue_await(queue, 2));
  fails(tt_queue_take_error(queue), TT_OUT_OF_RANGE, "job 1"); /* the first */
  assert_null(tt_queue_take_error(queue));
  tt_status error = tt_error(TT_INTERNAL, "it broke"), copy = tt_status_clone(error);
  tt_queue_remember(queue, tt_status_prefix(error, "neg, called at a.py:1"));
  tt_queue_remember(queue, TT_SUCCESS);
  fails(tt_queue_tell_error(queue, tt_error(TT_INTERNAL, "it broke")), TT_INTERNAL, "it broke");
  fails(tt_queue_tell_error(queue, copy), TT_INTERNAL, "neg, called at a.py:1: it broke");
  assert_null(tt_queue_take_error(queue)); /* told */
}

static void test_outcome(void **state) {
  (void)state;
  tt_outcome *outcome = tt_outcome_create();
  assert_non_null(outcome);
  ok(tt_queue_await_submitted(queue, push_with(FAILS, outcome)));
  assert_null(tt_queue_take_error(queue));
  fails(tt_outcome_take(outcome), TT_OUT_OF_RANGE, "job 1");
  assert_null(tt_outcome_take(outcome));
  assert_null(tt_outcome_take(NULL));
  ok(tt_queue_await_submitted(queue, push_with(FAILS, outcome))); /* whose error nobody takes */
  tt_outcome_release(outcome);
}

/* Who waits leaves first. */
static void test_outcome_outlives_its_reader(void **state) {
  (void)state;
  tt_outcome *outcome = tt_outcome_create();
  assert_non_null(outcome);
  atomic_store(&gate, false);
  push(GATED);
  uint64_t ticket = push_with(FAILS, outcome);
  tt_outcome_release(outcome);
  atomic_store(&gate, true);
  ok(tt_queue_await(queue, ticket));
  assert_null(tt_queue_take_error(queue));
}

static void test_late_errors_are_explained(void **state) {
  (void)state;
  fake.tt_fake_async(true);
  fake.tt_fake_fail_launch(2);
  for (int i = 0; i < 3; i++) push(LAUNCHES);
  ok(tt_queue_await(queue, 3));
  fails(tt_queue_take_error(queue), TT_INTERNAL, "explained 2: PJRT_Event: injected asynchronous");
  assert_null(tt_queue_take_error(queue));
}

/* An end that the plugin cannot tell of is waited for. */
static void test_no_callbacks(void **state) {
  (void)state;
  fake.tt_fake_async(true);
  for (int64_t nth = 1; nth < 12; nth++) {
    fake.tt_fake_fail_at(nth);
    push(LAUNCHES);
    ok(tt_queue_await(queue, (uint64_t)nth));
    tt_status_release(tt_queue_take_error(queue));
  }
  fake.tt_fake_fail_at(0);
  tt_queue_retire(queue);
  until(&destroyed, 11);
}

/* -- Room, and the user's patience -- */

static void *open_gate(void *unused) {
  usleep(60000);
  atomic_store(&gate, true);
  return unused;
}

static void test_room(void **state) {
  (void)state;
  pthread_t thread;
  atomic_store(&gate, false);
  push(GATED);
  for (int i = 1; i < 1024; i++) {
    ok(tt_queue_await_room(queue));
    push(PLAIN);
  }
  atomic_store(&interrupt, true);
  fails(tt_queue_await_room(queue), TT_CANCELLED, "interrupted");
  for (int i = 0; i < 60; i++) push(PLAIN); /* there is some all the same */
  atomic_store(&interrupt, false);
  assert_int_equal(pthread_create(&thread, NULL, open_gate, NULL), 0);
  for (int i = 0; i < 4096; i++) push(PLAIN); /* until there is none, which is waited for */
  assert_true(atomic_load(&gate));
  ok(tt_queue_await_room(queue));
  pthread_join(thread, NULL);
  ok(tt_queue_await(queue, tt_queue_last(queue)));
  in_order(1024 + 60 + 4096);
}

static void *ask_for_room(void *stop) {
  tt_status status = TT_SUCCESS;
  while (!status && !atomic_load((atomic_bool *)stop)) status = tt_queue_await_room(queue);
  return status;
}

/* Who asks while jobs are pushed and done has room: it waited for a job that never came. */
static void test_room_while_jobs_are_done(void **state) {
  enum { ROUNDS = 200, ASKERS = 3 };
  (void)state;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_t threads[ASKERS];
    atomic_bool stopped = false;
    for (int i = 0; i < ASKERS; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, ask_for_room, &stopped), 0);
    for (int i = 0; i < 100; i++) push(PLAIN);
    ok(tt_queue_await(queue, 100));
    atomic_store(&stopped, true);
    atomic_store(&interrupt, true); /* whoever waits */
    for (int i = 0; i < ASKERS; i++) {
      void *status = NULL;
      pthread_join(threads[i], &status);
      ok(status);
    }
    stop(state);
    start(state);
  }
}

/* What was begun goes on. */
static void test_interrupts(void **state) {
  (void)state;
  atomic_store(&gate, false);
  uint64_t ticket = push(GATED);
  atomic_store(&interrupt, true);
  fails(tt_queue_await_submitted(queue, ticket), TT_CANCELLED, "interrupted");
  fails(tt_queue_await(queue, ticket), TT_CANCELLED, "interrupted");
  atomic_store(&gate, true);
  atomic_store(&interrupt, false);
  ok(tt_queue_await(queue, ticket));
  fake.tt_fake_async(true);
  fake.tt_fake_hold(true);
  ticket = push(LAUNCHES);
  ok(tt_queue_await_submitted(queue, ticket));
  atomic_store(&interrupt, true);
  fails(tt_queue_await(queue, ticket), TT_CANCELLED, "interrupted");
  assert_false(tt_queue_passed(queue, ticket));
  fake.tt_fake_hold(false);
  atomic_store(&interrupt, false);
  ok(tt_queue_await(queue, ticket));
}

static void test_an_event_s_interrupt(void **state) {
  (void)state;
  tt_event *end = NULL;
  for (int late = 0; late < 2; late++) { /* does it become ready while nobody waits any more? */
    fake.tt_fake_async(true);
    fake.tt_fake_hold(true);
    ok(launch(&end));
    atomic_store(&interrupt, true);
    fails(tt_event_wait(client, end), TT_CANCELLED, "interrupted");
    atomic_store(&interrupt, false);
    fake.tt_fake_hold(false);
    if (!late) ok(tt_event_wait(client, end));
    tt_event_destroy(client, end);
  }
  usleep(5000);
}

/* Nothing is cancelled when a queue ends, whatever the user wishes. */
static void test_the_end_waits(void **state) {
  (void)state;
  pthread_t thread;
  fake.tt_fake_async(true);
  atomic_store(&gate, false);
  push(GATED);
  for (int i = 0; i < 20; i++) push(LAUNCHES);
  atomic_store(&interrupt, true);
  assert_int_equal(pthread_create(&thread, NULL, open_gate, NULL), 0);
  tt_queue_destroy(queue);
  pthread_join(thread, NULL);
  in_order(21);
  ok(tt_queue_create(client, "a test", &queue));
}

static void test_compiling(void **state) {
  (void)state;
  assert_false(tt_queue_compiling(queue));
  tt_queue_set_compiling(queue, true);
  assert_true(tt_queue_compiling(queue));
}

/* -- Threads -- */

static pthread_mutex_t pushing = PTHREAD_MUTEX_INITIALIZER;

static void *push_and_wait(void *unused) {
  for (int i = 0; i < 200; i++) {
    pthread_mutex_lock(&pushing);
    uint64_t ticket = push(i % 3 ? LAUNCHES : PLAIN);
    pthread_mutex_unlock(&pushing);
    if (i % 7 == 0) ok(tt_queue_await(queue, ticket));
    if (i % 11 == 0) tt_queue_retire(queue);
    if (i % 5 == 0) (void)tt_queue_passed(queue, ticket);
  }
  return unused;
}

static void test_threads(void **state) {
  (void)state;
  pthread_t threads[4];
  fake.tt_fake_async(true);
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, push_and_wait, NULL), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  ok(tt_queue_await(queue, 800));
  until(&destroyed, 800);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
  const struct CMUnitTest tests[] = {
      TEST(test_jobs_in_order),
      TEST(test_ends_in_any_order),
      TEST(test_mixed_ends),
      TEST(test_an_idle_queue_lets_go),
      TEST(test_few_are_under_way),
      TEST(test_few_bytes_are_under_way),
      TEST(test_a_job_drains),
      TEST(test_drained),
      TEST(test_errors),
      TEST(test_outcome),
      TEST(test_outcome_outlives_its_reader),
      TEST(test_late_errors_are_explained),
      TEST(test_no_callbacks),
      TEST(test_room),
      TEST(test_room_while_jobs_are_done),
      TEST(test_interrupts),
      TEST(test_an_event_s_interrupt),
      TEST(test_the_end_waits),
      TEST(test_compiling),
      TEST(test_threads),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
