#include "run/forget.h"

#include "run/explain.h"
#include "run/run.h"
#include "run/stream_internal.h"

#include <time.h>

enum { PATIENCE = 512, NAPS = 50, LONG_NAPS = 1000, NAP_EVERY = 16 };
enum { STEPS_A_CALL = 16, TYPES_A_CALL = 2 };
#define MAX_BYTES ((int64_t)1 << 29)

static _Atomic int64_t grown[TT_GROWTHS];
static atomic_bool due;
static atomic_bool closing; /* a thread is trying to; others enter when it is done */
static atomic_int tries;    /* since it became due */

/* -- Limits -- */

static int64_t limit_of(tt_growth what) {
  int64_t calls = tt_env_int(TT_ENV_CALL_LIMIT);
  if (calls <= 0) return INT64_MAX;
  if (calls > INT32_MAX) calls = INT32_MAX;
  switch (what) {
  case TT_GROWN_STEPS:
    return calls * STEPS_A_CALL;
  case TT_GROWN_TYPES:
    return calls * TYPES_A_CALL;
  case TT_GROWN_BYTES:
    return MAX_BYTES;
  default:
    return calls;
  }
}

int64_t tt_forget_spared_types(void) { return limit_of(TT_GROWN_TYPES); }

void tt_forget_note(tt_growth what, int64_t amount) {
  int64_t now = atomic_fetch_add_explicit(&grown[what], amount, memory_order_relaxed) + amount;
  if (now > limit_of(what)) atomic_store_explicit(&due, true, memory_order_relaxed);
}

/* -- Holds -- */

typedef struct hold {
  struct hold *next, **link; /* under the lock */
  bool listed;               /* the thread's own */
  atomic_int depth;
} hold;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hold *holds; /* of the threads that were in one */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local hold own;

static void unlist(void *user) {
  hold *gone = user;
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
  own.next = holds;
  own.link = &holds;
  if (holds) holds->link = &own.next;
  holds = &own;
  pthread_mutex_unlock(&lock);
  (void)pthread_setspecific(key, &own);
  own.listed = true;
}

static bool others_inside(void) {
  bool inside = false;
  pthread_mutex_lock(&lock);
  for (hold *s = holds; s; s = s->next)
    inside |= s != &own && atomic_load_explicit(&s->depth, memory_order_acquire) > 0;
  pthread_mutex_unlock(&lock);
  return inside;
}

/* -- Forgetting -- */

/* Launches refer to calls, steps and programs. The chunk ends where it would end anyway, unless
 * that has been waited for too long. record_lock is held. */
static bool settle(tt_stream *stream, bool patient) {
  tt_chunk *chunk = &stream->chunk;
  if (!tt_chunk_empty(chunk)) {
    if (!chunk->due && patient) return false;
    tt_stream_remember(stream, tt_stream_flush(stream, chunk->due ? chunk->due : TT_CUT_SYNC));
  }
  if (!tt_chunk_empty(chunk)) return false;
  tt_stream_wait(stream, atomic_load_explicit(&stream->head, memory_order_relaxed));
  return true;
}

static void unlock_streams(int count) {
  for (int i = 0; i < count; i++) pthread_mutex_unlock(&tt_runtime_stream(i)->record_lock);
}

static bool lock_streams(int count, bool patient) {
  for (int i = 0; i < count; i++) {
    tt_stream *stream = tt_runtime_stream(i);
    if (pthread_mutex_trylock(&stream->record_lock)) return unlock_streams(i), false;
    if (!settle(stream, patient)) return unlock_streams(i + 1), false;
  }
  return true;
}

static void empty_tables(int streams) {
  for (int i = 0; i < streams; i++) {
    tt_chunk_forget(&tt_runtime_stream(i)->chunk);
    tt_stream_release_zeros(tt_runtime_stream(i));
  }
  tt_call_forget();
  tt_program_forget();
  tt_type_forget();
  for (int i = 0; i < TT_GROWTHS; i++) atomic_store(&grown[i], 0);
  atomic_store(&tries, 0);
  atomic_store(&due, false);
  tt_count_add(TT_COUNT_FORGOTTEN, 1);
  tt_log(TT_LOG_COMPILE,
         "there were too many calls, chunks, types or programs; they are forgotten "
         "and made again as they are needed (%s)",
         tt_env_name(TT_ENV_CALL_LIMIT));
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); }

/* They stay out while this thread waits, but one that is inside may need what this thread has (the
 * GIL), so it waits for no more than `naps`. */
static bool others_leave(int naps) {
  bool inside = others_inside();
  for (int i = 0; i < naps && inside; i++) {
    nap();
    inside = others_inside();
  }
  return !inside;
}

static void try_to_forget(int naps, bool patient) {
  int streams = tt_runtime_device_count();
  if (tt_programs_forbidden() || !others_leave(naps) || !lock_streams(streams, patient)) return;
  tt_call_lock();
  tt_type_lock();
  if (!others_inside()) empty_tables(streams);
  tt_type_unlock();
  tt_call_unlock();
  unlock_streams(streams);
}

/* Gives up if it comes at a bad time: it will be tried again, in the end with long naps, so that a
 * thread that waits for a program within its hold can't let the others fill the tables. */
static void forget(void) {
  if (!atomic_exchange(&closing, true)) {
    int before = atomic_fetch_add(&tries, 1);
    bool patient = before < PATIENCE;
    try_to_forget(!patient ? LONG_NAPS : before % NAP_EVERY == 0 ? NAPS : 0, patient);
    atomic_store(&closing, false);
  } else {
    while (atomic_load(&closing)) nap(); /* it naps and waits for launches at most */
  }
}

void tt_hold_enter(void) {
  int depth = atomic_load_explicit(&own.depth, memory_order_relaxed);
  if (depth == 0) {
    if (!own.listed) list();
    if (atomic_load_explicit(&due, memory_order_relaxed)) forget();
  }
  atomic_store_explicit(&own.depth, depth + 1, memory_order_relaxed);
}

void tt_hold_leave(void) {
  int depth = atomic_load_explicit(&own.depth, memory_order_relaxed);
  atomic_store_explicit(&own.depth, depth - 1, memory_order_release);
}
