#include "base/guard.h"

#include <assert.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct guard {
  struct guard *next, **link;      /* under the lock */
  bool listed;                     /* the thread's own */
  tt_deferred *deferred;           /* the thread's own: not before its next guard */
  atomic_int depth;                /* 0: in none */
  atomic_uint_least64_t inside_at; /* the time when the outermost was entered */
} guard;

enum { RECLAIM = 1, DEFERRED = 2 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static guard *guards; /* of the threads that were in one */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local guard own;

static atomic_int due; /* what is to be attended to by who enters a guard */
static void (*reclaimer)(void *user);
static void *reclaimer_user;

static atomic_uint_least64_t now = 1;                        /* counts what was deferred */
static tt_deferred *first_deferred, **end = &first_deferred; /* under the lock, by time */

/* -- What is deferred -- */

/* The lock is held. */
static void defer_own(guard *of) {
  for (tt_deferred *next; of->deferred; of->deferred = next) {
    tt_deferred *item = of->deferred;
    next = item->next;
    item->next = NULL;
    item->since = atomic_fetch_add(&now, 1) + 1;
    *end = item;
    end = &item->next;
    atomic_fetch_or(&due, DEFERRED);
  }
}

/* When the guard was entered that a thread has been in for longest. The lock is held. */
static uint64_t oldest(void) {
  uint64_t found = UINT64_MAX;
  for (guard *s = guards; s; s = s->next) {
    if (atomic_load_explicit(&s->depth, memory_order_acquire) == 0) continue;
    uint64_t at = atomic_load_explicit(&s->inside_at, memory_order_relaxed);
    if (at < found) found = at;
  }
  return found;
}

/* -- Threads -- */

static void unlist(void *user) {
  guard *gone = user;
  pthread_mutex_lock(&lock);
  defer_own(gone);
  *gone->link = gone->next;
  if (gone->next) gone->next->link = gone->link;
  pthread_mutex_unlock(&lock);
  gone->listed = false;
}

static void prepare(void) {
  (void)pthread_key_create(&key, unlist);
  (void)syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

static void list(void) {
  (void)pthread_once(&once, prepare);
  pthread_mutex_lock(&lock);
  own.next = guards;
  own.link = &guards;
  if (guards) guards->link = &own.next;
  guards = &own;
  pthread_mutex_unlock(&lock);
  (void)pthread_setspecific(key, &own);
  own.listed = true;
}

/* -- What is run -- */

/* All threads' stores are seen from here on, so that entering a guard needs no fence. */
static void fence_all(void) {
  (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

static tt_deferred *take_free(void) {
  tt_deferred *taken = NULL, **last = &taken;
  pthread_mutex_lock(&lock);
  defer_own(&own);
  if (first_deferred && oldest() >= first_deferred->since) fence_all();
  uint64_t before = first_deferred ? oldest() : 0;
  while (first_deferred && first_deferred->since <= before) {
    *last = first_deferred;
    last = &first_deferred->next;
    first_deferred = *last;
  }
  *last = NULL;
  if (!first_deferred) {
    end = &first_deferred;
    atomic_fetch_and(&due, ~DEFERRED);
  }
  pthread_mutex_unlock(&lock);
  return taken;
}

static void run_deferred(void) {
  for (tt_deferred *next, *item = take_free(); item; item = next) {
    next = item->next;
    item->run(item);
  }
}

void tt_guard_defer(tt_deferred *item) {
  if (!own.listed) list();
  item->next = own.deferred;
  own.deferred = item;
}

/* -- Guards -- */

bool tt_guard_others(void) {
  bool inside = false;
  pthread_mutex_lock(&lock);
  for (guard *s = guards; s; s = s->next)
    inside |= s != &own && atomic_load_explicit(&s->depth, memory_order_acquire) > 0;
  pthread_mutex_unlock(&lock);
  return inside;
}

static void attend(void) {
  if (atomic_load(&due) & RECLAIM && reclaimer) reclaimer(reclaimer_user);
  run_deferred();
}

void tt_guard_enter(void) {
  int depth = atomic_load_explicit(&own.depth, memory_order_relaxed);
  if (depth == 0) {
    if (!own.listed) list();
    if (own.deferred || atomic_load_explicit(&due, memory_order_relaxed)) attend();
    uint64_t at = atomic_load_explicit(&now, memory_order_acquire);
    atomic_store_explicit(&own.inside_at, at, memory_order_relaxed);
  }
  atomic_store_explicit(&own.depth, depth + 1, memory_order_release);
  atomic_signal_fence(memory_order_seq_cst);
}

void tt_guard_leave(void) {
  int depth = atomic_load_explicit(&own.depth, memory_order_relaxed);
  assert(depth > 0);
  atomic_store_explicit(&own.depth, depth - 1, memory_order_release);
}

void tt_guard_set_reclaimer(void (*reclaim)(void *user), void *user) {
  reclaimer = reclaim;
  reclaimer_user = user;
}

void tt_guard_set_due(bool value) {
  if (value) atomic_fetch_or(&due, RECLAIM);
  else atomic_fetch_and(&due, ~RECLAIM);
}
