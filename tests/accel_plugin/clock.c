#include "internal.h"

#include <time.h>

#define ACCEL_SECOND INT64_C(1000000000)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint_fast64_t state;
static atomic_int_fast64_t scale;

static void init(void) {
  pthread_condattr_t attributes;
  (void)pthread_condattr_init(&attributes);
  (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  (void)pthread_cond_init(&changed, &attributes);
  (void)pthread_condattr_destroy(&attributes);
}

void accel_lock(void) {
  (void)pthread_once(&once, init);
  (void)pthread_mutex_lock(&mutex);
}

void accel_unlock(void) { (void)pthread_mutex_unlock(&mutex); }

void accel_sleep(int64_t due) {
  struct timespec time = {(time_t)(due / ACCEL_SECOND), (long)(due % ACCEL_SECOND)};
  if (due) (void)pthread_cond_timedwait(&changed, &mutex, &time);
  else (void)pthread_cond_wait(&changed, &mutex);
}

void accel_wake(void) { (void)pthread_cond_broadcast(&changed); }

int64_t accel_now(void) {
  struct timespec time;
  (void)clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * ACCEL_SECOND + time.tv_nsec;
}

void accel_seed(uint64_t seed, int64_t delay_us) {
  atomic_store(&state, seed * 0x2545F4914F6CDD1DU);
  atomic_store(&scale, delay_us);
}

/* Numbers that follow one another are mixed, so that threads share a sequence without a lock. */
double accel_random(void) {
  uint64_t x = atomic_fetch_add(&state, 0x9E3779B97F4A7C15U) + 0x9E3779B97F4A7C15U;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
  x = (x ^ x >> 27) * 0x94D049BB133111EBU;
  return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

int64_t accel_delay(void) {
  double kind = accel_random(), length = accel_random();
  double times = kind < 1.0 / 32 ? 2 + 98 * length : 0.2 + 1.8 * length;
  return (int64_t)(times * 1000 * (double)atomic_load(&scale));
}
