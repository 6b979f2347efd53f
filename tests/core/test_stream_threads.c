/* Several threads record on one stream, wait for it, and read, all at once. Meant for TSan. */
#include "support.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 40, SHARED = 3, SMALL = 8, LARGE = 2048, TRIES = 100 };

static tt_stream *stream;
static tt_storage *shared[SHARED]; /* read by all, written by none */
static atomic_int errors_seen;
static int64_t elements = SMALL; /* of each tensor; the device lists large ones */

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  return session_open(getenv("TT_FAKE_PLUGIN")) ? -1 : 0;
}

typedef struct worker {
  pthread_t thread;
  int number;
  tt_status status;
} worker;

static tt_status one_round(const worker *w, int round) {
  const tt_type *type = NULL;
  tt_type wanted = tt_type_make(TT_F32, 1, &elements);
  tt_storage *own = NULL, *sum = NULL, *scaled = NULL;
  float data[LARGE] = {0}, back[LARGE];
  tt_status status = tt_type_intern(&wanted, &type);
  if (!status) status = tt_storage_create(stream->device, type, &own);
  if (!status) status = storage_write(own, type, data, 0);
  for (int i = 0; i < 10 && !status; i++) {
    tt_storage *operand = shared[(w->number + round + i) % SHARED];
    status = record_add_into(stream, own, NULL, operand, NULL);
    if (!status) status = record_add(stream, operand, own, &sum);
    if (!status) status = record_scale(stream, sum, (float)(round % 5), &scaled);
    if (!status && i == 3) status = storage_resize(scaled, 20);
    tt_storage_release(sum);
    tt_storage_release(scaled);
    sum = scaled = NULL;
  }
  tt_memory memory;
  tt_holding largest[3];
  memory_of(stream, &memory);
  (void)tt_account_largest(&stream->device->account, largest, 3);
  uint32_t site = tt_site_add("thread.py", round, "f");
  (void)tt_site_text(site);
  if (!status && round % 4 == w->number) status = stream_sync(stream);
  if (!status && round % 4 == 1) stream_wait(stream, stream_ticket(stream));
  if (!status && round % 4 == 2) (void)stream_idle(stream);
  if (!status) status = storage_read(own, back, elements * (int64_t)sizeof *back);
  tt_storage_release(own);
  return status;
}

static void *work(void *user) {
  worker *w = user;
  for (int round = 0; round < ROUNDS && !w->status; round++) w->status = one_round(w, round);
  return NULL;
}

/* Reports one of the errors and goes on. */
static void *work_among_errors(void *user) {
  worker *w = user;
  for (int round = 0; round < ROUNDS; round++) {
    tt_status status = one_round(w, round);
    if (!status) continue;
    atomic_fetch_add(&errors_seen, 1);
    bool expected = strstr(tt_status_message(status), "injected") != NULL;
    if (expected) tt_status_release(status);
    else if (!w->status) w->status = status;
    else tt_status_release(status);
  }
  return NULL;
}

static void run_workers(void *(*body)(void *)) {
  worker workers[THREADS] = {{0}};
  float data[LARGE] = {0};
  stream = stream_at(0);
  for (int i = 0; i < SHARED; i++)
    shared[i] = storage_of(stream, tt_type_make(TT_F32, 1, &elements), data);
  for (int i = 0; i < THREADS; i++) {
    workers[i].number = i;
    assert_int_equal(pthread_create(&workers[i].thread, NULL, body, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  tt_status status = stream_sync(stream);
  for (int i = 0; i < SHARED; i++) tt_storage_release(shared[i]);
  fake_reset();
  for (int i = 0; i < THREADS; i++) ok(workers[i].status);
  if (body == work) ok(status);
  else tt_status_release(status);
  tt_memory memory;
  memory_of(stream, &memory);
  assert_int_equal(memory.allocated, 0);
}

static void test_strict(void **state) {
  (void)state;
  policy.mode = TT_MODE_STRICT;
  run_workers(work);
}

static void test_debug(void **state) {
  (void)state;
  policy.mode = TT_MODE_DEBUG;
  run_workers(work);
}

static void test_fused(void **state) {
  (void)state;
  policy.mode = TT_MODE_FUSED;
  run_workers(work);
}

static void test_asynchronous(void **state) {
  (void)state;
  policy.mode = TT_MODE_STRICT;
  fake.tt_fake_async(true);
  run_workers(work);
}

static void with_large(tt_mode mode, bool async) {
  elements = LARGE;
  policy.mode = mode;
  fake.tt_fake_async(async);
  run_workers(work);
  elements = SMALL;
}

static void test_large_tensors(void **state) {
  (void)state;
  with_large(TT_MODE_STRICT, false);
  with_large(TT_MODE_FUSED, false);
}

static void test_large_tensors_asynchronous(void **state) {
  (void)state;
  with_large(TT_MODE_STRICT, true);
  with_large(TT_MODE_FUSED, true);
}

/* What fails often releases something, or makes what no worker reads: one try in four shows a
 * worker an error. */
static void with_errors(tt_mode mode) {
  policy.mode = mode;
  atomic_store(&errors_seen, 0);
  for (int i = 0; i < TRIES && !atomic_load(&errors_seen); i++) {
    fake.tt_fake_fail_at(1000 + 37 * i);
    run_workers(work_among_errors);
  }
  assert_true(atomic_load(&errors_seen) > 0);
}

static void test_with_errors(void **state) {
  (void)state;
  with_errors(TT_MODE_STRICT);
}

static void test_with_errors_fused(void **state) {
  (void)state;
  with_errors(TT_MODE_FUSED);
}

/* Everybody meets the same new calls at the same time. */
static void test_from_nothing(void **state) {
  (void)state;
  for (int i = 0; i < 10; i++) {
    session_close();
    assert_int_equal(fake.tt_fake_live_objects(), 0);
    ok(session_open(getenv("TT_FAKE_PLUGIN")));
    policy.mode = i & 1 ? TT_MODE_STRICT : TT_MODE_FUSED;
    run_workers(work);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_strict),        cmocka_unit_test(test_debug),
      cmocka_unit_test(test_fused),         cmocka_unit_test(test_asynchronous),
      cmocka_unit_test(test_large_tensors), cmocka_unit_test(test_large_tensors_asynchronous),
      cmocka_unit_test(test_with_errors),   cmocka_unit_test(test_with_errors_fused),
      cmocka_unit_test(test_from_nothing),
  };
  return cmocka_run_group_tests(tests, setup, fake_close);
}
