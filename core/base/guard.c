#include "base/guard.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

typedef struct guard {
  struct guard *next, **link; /* under the lock */
  bool listed;                /* the thread's own */
  atomic_int depth;
} guard;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static guard *guards; /* of the threads that were in one */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local guard own;

static atomic_bool due;
static void (*reclaimer)(void *user);
static void *reclaimer_user;

static void unlist(void *user) {
  guard *gone = user;
  pthread_mutex_lock(&lock);
  *gone->link = gone->next;
  if (gone->next) gone->next->link = gone->link;
  pthread_mutex_unlock(&lock);
  gone->listed = false;
}

static void make_key(void) { (void)pthread_key_create(&key, unlist); }

static void list(void) {
  (void)pthread_once(&once, make_key);
  pthread_mutex_lock(&lock);
  own.next = guards;
  own.link = &guards;
  if (guards) guards->link = &own.next;
  guards = &own;
  pthread_mutex_unlock(&lock);
  (void)pthread_setspecific(key, &own);
  own.listed = true;
}

bool tt_guard_others(void) {
  bool inside = false;
  pthread_mutex_lock(&lock);
  for (guard *s = guards; s; s = s->next)
    inside |= s != &own && atomic_load_explicit(&s->depth, memory_order_acquire) > 0;
  pthread_mutex_unlock(&lock);
  return inside;
}

void tt_guard_enter(void) {
  int depth = atomic_load_explicit(&own.depth, memory_order_relaxed);
  if (depth == 0) {
    if (!own.listed) list();
    if (atomic_load_explicit(&due, memory_order_relaxed) && reclaimer) reclaimer(reclaimer_user);
  }
  atomic_store_explicit(&own.depth, depth + 1, memory_order_relaxed);
}

void tt_guard_leave(void) {
  int depth = atomic_load_explicit(&own.depth, memory_order_relaxed);
  atomic_store_explicit(&own.depth, depth - 1, memory_order_release);
}

void tt_guard_set_reclaimer(void (*reclaim)(void *user), void *user) {
  reclaimer = reclaim;
  reclaimer_user = user;
}

void tt_guard_set_due(bool value) { atomic_store_explicit(&due, value, memory_order_relaxed); }
