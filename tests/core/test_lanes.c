/* Threads that record in Fused mode: the lanes of a stream, and the numbers of threads. */
#include "support.h"

#include "base/thread.h"
#include "stream/lanes.h"

#include <pthread.h>

static tt_stream *stream;

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  setenv("TORCH_TPU_FUSED_TIER", "chunks", 1);
  tt_status status = session_open(getenv("TT_FAKE_PLUGIN"));
  stream = stream_at(0);
  policy.mode = TT_MODE_FUSED;
  return status || !stream ? -1 : 0;
}

static int reset(void **state) {
  (void)state;
  fake_reset();
  return session_sync() != TT_SUCCESS;
}

static tt_storage *floats(void) {
  const float data[4] = {0};
  return storage_of(stream, tt_type_make(TT_F32, 1, &(int64_t){4}), data);
}

static tt_storage *sum(tt_storage *a, tt_storage *b) {
  tt_storage *out = NULL;
  ok(record_add(stream, a, b, &out));
  return out;
}

static void read(tt_storage *storage) {
  float data[4];
  ok(storage_read(storage, data, sizeof data));
}

/* -- Another thread, which lives until it is joined and does one thing after the other -- */

typedef struct helper {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t turn;
  tt_storage *a, *b, *result; /* b NULL: it ends */
  bool asked;
  int number;
} helper;

static void *help(void *user) {
  helper *h = user;
  pthread_mutex_lock(&h->lock);
  h->number = tt_thread_number();
  for (;;) {
    while (!h->asked) pthread_cond_wait(&h->turn, &h->lock);
    if (!h->b) break;
    h->result = sum(h->a, h->b);
    h->asked = false;
    pthread_cond_broadcast(&h->turn);
  }
  pthread_mutex_unlock(&h->lock);
  return NULL;
}

static void begin(helper *h) {
  *h = (helper){.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};
  assert_int_equal(pthread_create(&h->thread, NULL, help, h), 0);
}

static tt_storage *sum_there(helper *h, tt_storage *a, tt_storage *b) {
  pthread_mutex_lock(&h->lock);
  h->a = a;
  h->b = b;
  h->asked = true;
  pthread_cond_broadcast(&h->turn);
  while (b && h->asked) pthread_cond_wait(&h->turn, &h->lock);
  pthread_mutex_unlock(&h->lock);
  return h->result;
}

static void end(helper *h) {
  (void)sum_there(h, NULL, NULL);
  assert_int_equal(pthread_join(h->thread, NULL), 0);
}

/* -- Tests -- */

/* The first test: a stream that nobody has recorded on. */
static void test_a_thread_that_follows(void **state) {
  (void)state;
  tt_storage *a = floats(), *here = sum(a, a);
  helper h, other;
  begin(&h);
  policy.follows = true;
  tt_storage *there = sum_there(&h, a, a);
  policy.follows = false;
  begin(&other);
  tt_storage *elsewhere = sum_there(&other, a, a);
  const tt_chunk *own = tt_lane_own(&stream->lanes, &policy);
  assert_ptr_equal(tt_lane_of(&stream->lanes, here->value), own);
  assert_ptr_equal(tt_lane_of(&stream->lanes, there->value), own);
  assert_ptr_not_equal(tt_lane_of(&stream->lanes, elsewhere->value), own);
  ok(stream_sync(stream));
  end(&h);
  end(&other);
  tt_storage *all[] = {a, here, there, elsewhere};
  for (int i = 0; i < 4; i++) tt_storage_release(all[i]);
}

static void test_numbers_of_threads(void **state) {
  (void)state;
  int own = tt_thread_number();
  assert_int_equal(tt_thread_number(), own);
  tt_storage *a = floats();
  helper first, second;
  begin(&first);
  tt_storage_release(sum_there(&first, a, a));
  begin(&second);
  tt_storage_release(sum_there(&second, a, a));
  assert_true(first.number != own && second.number != own && first.number != second.number);
  end(&first);
  helper third;
  begin(&third);
  tt_storage_release(sum_there(&third, a, a));
  assert_int_equal(third.number, first.number); /* which nobody has any more */
  end(&second);
  end(&third);
  tt_storage_release(a);
}

static void test_a_read_ends_the_chunk_of_its_value(void **state) {
  (void)state;
  helper h;
  begin(&h);
  tt_storage *a = floats(), *here = sum(a, a), *there = sum_there(&h, a, a);
  int64_t before = fake.tt_fake_launches();
  read(here);
  assert_int_equal(fake.tt_fake_launches(), before + 1);
  assert_non_null(tt_lane_of(&stream->lanes, there->value));
  tt_device_lock(stream->device);
  ok(tt_stream_flush(stream, TT_CUT_SYNC, &policy)); /* which is for all threads */
  tt_device_unlock(stream->device);
  ok(stream_sync(stream));
  assert_int_equal(fake.tt_fake_launches(), before + 2);
  end(&h);
  tt_storage_release(a);
  tt_storage_release(here);
  tt_storage_release(there);
}

static void test_operators_follow_their_data(void **state) {
  (void)state;
  helper h;
  begin(&h);
  tt_storage *a = floats(), *here = sum(a, a);
  tt_storage *joined = sum_there(&h, here, a), *next = sum_there(&h, a, a);
  tt_chunk *chunk = tt_lane_of(&stream->lanes, here->value);
  assert_ptr_equal(chunk, tt_lane_own(&stream->lanes, &policy));
  assert_ptr_equal(tt_lane_of(&stream->lanes, joined->value), chunk);
  assert_ptr_equal(tt_lane_of(&stream->lanes, next->value), chunk);
  int64_t before = fake.tt_fake_launches();
  read(next);
  assert_int_equal(fake.tt_fake_launches(), before + 1);
  end(&h);
  tt_storage *all[] = {a, here, joined, next};
  for (int i = 0; i < 4; i++) tt_storage_release(all[i]);
}

/* The other chunk is launched first; this one stays open. */
static void test_data_of_two_chunks(void **state) {
  (void)state;
  helper h;
  begin(&h);
  tt_storage *a = floats(), *here = sum(a, a), *there = sum_there(&h, a, a);
  int64_t before = fake.tt_fake_launches();
  tt_storage *both = sum(there, here);
  assert_null(tt_lane_of(&stream->lanes, there->value));
  assert_ptr_equal(tt_lane_of(&stream->lanes, both->value), tt_lane_own(&stream->lanes, &policy));
  read(both);
  assert_int_equal(fake.tt_fake_launches(), before + 2);
  end(&h);
  tt_storage *all[] = {a, here, there, both};
  for (int i = 0; i < 4; i++) tt_storage_release(all[i]);
}

/* Where another thread uses the same value meanwhile, it stays one input. */
static void test_inputs_that_lanes_share(void **state) {
  (void)state;
  helper h;
  begin(&h);
  tt_storage *all[7] = {floats()};
  for (int i = 1; i < 7; i += 2) {
    all[i] = sum(all[0], all[0]);
    all[i + 1] = sum_there(&h, all[0], all[0]);
  }
  const tt_section *section = &tt_lane_of(&stream->lanes, all[5]->value)->section;
  assert_int_equal(section->slot_count, 1 + 3);
  assert_int_equal(tt_lane_of(&stream->lanes, all[6]->value)->section.slot_count, 1 + 3);
  ok(stream_sync(stream));
  end(&h);
  for (int i = 0; i < 7; i++) tt_storage_release(all[i]);
}

static void test_a_forgotten_chunk_ends(void **state) {
  (void)state;
  helper h;
  begin(&h);
  tt_storage *a = floats(), *there = sum_there(&h, a, a);
  for (int i = 0; i <= TT_LANE_PATIENCE; i++) {
    assert_non_null(tt_lane_of(&stream->lanes, there->value));
    tt_storage *here = sum(a, a);
    read(here);
    tt_storage_release(here);
  }
  assert_null(tt_lane_of(&stream->lanes, there->value));
  end(&h);
  tt_storage_release(a);
  tt_storage_release(there);
}

/* Strict operators end their own thread's chunk, and those that they need. */
static void test_strict_beside_fused(void **state) {
  (void)state;
  helper h;
  begin(&h);
  tt_storage *a = floats(), *here = sum(a, a), *there = sum_there(&h, a, a);
  int64_t before = fake.tt_fake_launches();
  policy.mode = TT_MODE_STRICT;
  tt_storage *first = sum(a, a);
  assert_null(tt_lane_of(&stream->lanes, here->value));
  assert_non_null(tt_lane_of(&stream->lanes, there->value));
  tt_storage *second = sum(there, a);
  assert_null(tt_lane_of(&stream->lanes, there->value));
  ok(stream_sync(stream));
  assert_int_equal(fake.tt_fake_launches(), before + 4);
  policy.mode = TT_MODE_FUSED;
  end(&h);
  tt_storage *all[] = {a, here, there, first, second};
  for (int i = 0; i < 5; i++) tt_storage_release(all[i]);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, reset)
  const struct CMUnitTest tests[] = {
      TEST(test_a_thread_that_follows),
      TEST(test_numbers_of_threads),
      TEST(test_a_read_ends_the_chunk_of_its_value),
      TEST(test_operators_follow_their_data),
      TEST(test_data_of_two_chunks),
      TEST(test_inputs_that_lanes_share),
      TEST(test_a_forgotten_chunk_ends),
      TEST(test_strict_beside_fused),
  };
  return cmocka_run_group_tests(tests, setup, fake_close);
}
