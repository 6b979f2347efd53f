#include "base/thread.h"

#include <pthread.h>
#include <stdint.h>

/* Threads beyond so many share the last number. */
enum { WORDS = 16, BITS = 64, SHARED = WORDS * BITS };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t taken[WORDS]; /* a bit a number */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local int own; /* the number plus one; 0: none yet */

static void give_back(void *user) {
  int number = (int)(intptr_t)user - 1;
  if (number == SHARED) return;
  pthread_mutex_lock(&lock);
  taken[number / BITS] &= ~(UINT64_C(1) << number % BITS);
  pthread_mutex_unlock(&lock);
}

static void prepare(void) { (void)pthread_key_create(&key, give_back); }

static int take(void) {
  int number = SHARED;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < WORDS && number == SHARED; i++) {
    if (!~taken[i]) continue;
    int bit = __builtin_ctzll(~taken[i]);
    taken[i] |= UINT64_C(1) << bit;
    number = i * BITS + bit;
  }
  pthread_mutex_unlock(&lock);
  return number;
}

int tt_thread_number(void) {
  if (!own) {
    (void)pthread_once(&once, prepare);
    own = take() + 1;
    (void)pthread_setspecific(key, (void *)(intptr_t)own);
  }
  return own - 1;
}
