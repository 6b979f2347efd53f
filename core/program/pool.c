#include "program/pool.h"

#include "base/clock.h"
#include "base/mem.h"
#include "program/priority.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define TT_POOL_MAX_THREADS 256
#define TT_POOL_FIRST 64 /* queue slots to begin with; a power of two, as TT_POOL_LIMIT is */
#define TT_POOL_NICE 10  /* of background jobs, at least: a tenth of a core that others use */
/* Milliseconds after an urgent job before one in the background begins. A first step compiles one
 * program after the other: what began between two would take a core from the next. */
#define TT_POOL_REST 100
/* Milliseconds after the last job before the C library gives back what compilers have freed, which
 * it would keep: up to a third of a process's memory. It takes some ten milliseconds. */
#define TT_POOL_TRIM 1000
#define TT_POOL_NAME "tt-compile-"

typedef struct job {
  tt_task fn;
  void *user;
} job;

typedef struct ring {
  job *jobs;
  size_t capacity, first, count; /* `count` jobs wait from `first` on */
} ring;

struct tt_pool {
  pthread_mutex_t lock;
  pthread_cond_t wake, idle; /* for the threads, and for the one that does background jobs */
  bool stopping;
  ring waiting[2];    /* by urgency */
  int running;        /* urgent jobs */
  int64_t rest_until; /* background jobs begin no earlier: tt_now_ms() */
  int64_t trim_at;    /* or 0: no job since the last time */
  int thread_count;
  bool has_background, runs_background;
  bool may_rise, low; /* the priority of all threads that compile */
  int nice, low_nice; /* as the pool was made; and of background jobs */
  pid_t background_id;
  bool left; /* to the thread that does background jobs */
  pthread_t background, threads[];
};

/* -- The queues; the lock is held -- */

static job *at(ring *queue, size_t i) {
  return &queue->jobs[(queue->first + i) & (queue->capacity - 1)];
}

static tt_status grow(ring *queue) {
  size_t capacity = queue->capacity ? queue->capacity * 2 : TT_POOL_FIRST;
  job *jobs = tt_calloc(capacity, sizeof *jobs);
  if (!jobs) return tt_out_of_memory();
  for (size_t i = 0; i < queue->count; i++) jobs[i] = *at(queue, i);
  tt_free(queue->jobs);
  *queue = (ring){jobs, capacity, 0, queue->count};
  return TT_SUCCESS;
}

static tt_status push(ring *queue, job one) {
  if (queue->count == TT_POOL_LIMIT)
    return tt_error(TT_RESOURCE_EXHAUSTED, "%d programs already wait to be compiled",
                    TT_POOL_LIMIT);
  if (queue->count == queue->capacity) TT_TRY(grow(queue));
  *at(queue, queue->count++) = one;
  return TT_SUCCESS;
}

static bool pop(ring *queue, job *one) {
  if (!queue->count) return false;
  *one = *at(queue, 0);
  queue->first = (queue->first + 1) & (queue->capacity - 1);
  queue->count--;
  return true;
}

static bool take_out(ring *queue, job one) {
  size_t i = 0;
  while (i < queue->count && (at(queue, i)->fn != one.fn || at(queue, i)->user != one.user)) i++;
  if (i == queue->count) return false;
  for (; i + 1 < queue->count; i++) *at(queue, i) = *at(queue, i + 1);
  queue->count--;
  return true;
}

/* -- The threads -- */

/* Others that compile for a background job are as polite as its own thread is, unless somebody
 * waits for a job. The lock is held. */
static void share(tt_pool *pool) {
  bool low = pool->runs_background && !pool->running && !pool->waiting[TT_NOW].count;
  if (!pool->may_rise || low == pool->low) return;
  tt_priority_set(TT_POOL_NAME, pool->background_id, low ? pool->low_nice : pool->nice);
  pool->low = low;
}

static void run(tt_pool *pool, job one) {
  (void)pthread_mutex_unlock(&pool->lock);
  one.fn(one.user, false);
  (void)pthread_mutex_lock(&pool->lock);
  pool->trim_at = tt_now_ms() + TT_POOL_TRIM;
}

static void *work(void *user) {
  tt_pool *pool = user;
  job one;
  (void)pthread_mutex_lock(&pool->lock);
  while (!pool->stopping) {
    if (!pop(&pool->waiting[TT_NOW], &one)) {
      (void)pthread_cond_wait(&pool->wake, &pool->lock);
      continue;
    }
    pool->running++;
    run(pool, one);
    pool->rest_until = tt_now_ms() + 1 + TT_POOL_REST; /* with the millisecond that has begun */
    if (--pool->running == 0) (void)pthread_cond_signal(&pool->idle);
    share(pool);
  }
  (void)pthread_mutex_unlock(&pool->lock);
  return NULL;
}

static void release(tt_pool *pool) {
  for (int i = 0; i < 2; i++) tt_free(pool->waiting[i].jobs);
  (void)pthread_mutex_destroy(&pool->lock);
  (void)pthread_cond_destroy(&pool->wake);
  (void)pthread_cond_destroy(&pool->idle);
  tt_free(pool);
}

/* The lock is held, as by all that follow but the thread itself. */
static void run_background(tt_pool *pool) {
  job one;
  if (!pop(&pool->waiting[TT_BACKGROUND], &one)) return;
  pool->runs_background = true;
  share(pool);
  run(pool, one);
  pool->runs_background = false;
  share(pool);
}

static void trim(tt_pool *pool) {
  pool->trim_at = 0;
  (void)pthread_mutex_unlock(&pool->lock);
  tt_memory_trim();
  (void)pthread_mutex_lock(&pool->lock);
}

/* Does what is due, or waits until something may be. */
static void turn(tt_pool *pool) {
  bool busy = pool->running || pool->waiting[TT_NOW].count;
  bool waiting = pool->waiting[TT_BACKGROUND].count;
  int64_t when = waiting ? pool->rest_until : pool->trim_at, rest = when - tt_now_ms();
  if (busy || (!waiting && !pool->trim_at)) {
    (void)pthread_cond_wait(&pool->idle, &pool->lock);
  } else if (rest > 0) {
    struct timespec until = tt_deadline(rest);
    (void)pthread_cond_timedwait(&pool->idle, &pool->lock, &until);
  } else if (waiting) {
    run_background(pool);
  } else {
    trim(pool);
  }
}

static void *work_background(void *user) {
  tt_pool *pool = user;
  bool may_rise = tt_priority_may_rise();
  int nice = getpriority(PRIO_PROCESS, (id_t)gettid());
  int low_nice = nice > TT_POOL_NICE ? nice : TT_POOL_NICE;
  (void)setpriority(PRIO_PROCESS, (id_t)gettid(), low_nice);
  (void)pthread_mutex_lock(&pool->lock);
  pool->may_rise = may_rise;
  pool->nice = nice;
  pool->low_nice = low_nice;
  pool->background_id = gettid();
  while (!pool->stopping) turn(pool);
  bool left = pool->left;
  (void)pthread_mutex_unlock(&pool->lock);
  if (left) release(pool);
  return NULL;
}

static tt_status start_thread(pthread_t *thread, void *(*body)(void *), tt_pool *pool, int number) {
  char name[16]; /* the kernel's limit */
  int error = pthread_create(thread, NULL, body, pool);
  if (error)
    return tt_error(TT_RESOURCE_EXHAUSTED, "cannot start compile thread %d (error %d); set fewer",
                    number, error);
  (void)snprintf(name, sizeof name, TT_POOL_NAME "%d", number % 1000);
  (void)pthread_setname_np(*thread, name);
  return TT_SUCCESS;
}

/* Signals are for the threads of the program, not for ours: these inherit a full mask. */
static tt_status start(tt_pool *pool, int threads) {
  sigset_t all, old;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &old);
  tt_status status = start_thread(&pool->background, work_background, pool, threads);
  pool->has_background = !status;
  for (int i = 0; i < threads && !status; i++) {
    status = start_thread(&pool->threads[i], work, pool, i);
    pool->thread_count += !status;
  }
  (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
  return status;
}

static int pool_cores(void) {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return cores < TT_POOL_MAX_THREADS ? cores : TT_POOL_MAX_THREADS;
}

tt_status tt_pool_create(int threads, tt_pool **out) {
  *out = NULL;
  if (threads == 0) threads = pool_cores();
  if (threads < 0 || threads > TT_POOL_MAX_THREADS)
    return tt_error(TT_INVALID_ARGUMENT, "%d compile threads were asked for; give 0 to %d", threads,
                    TT_POOL_MAX_THREADS);
  tt_pool *pool = tt_calloc(1, sizeof *pool + (size_t)threads * sizeof pool->threads[0]);
  if (!pool) return tt_out_of_memory();
  (void)pthread_mutex_init(&pool->lock, NULL);
  (void)pthread_cond_init(&pool->wake, NULL);
  tt_cond_init(&pool->idle);
  tt_status status = start(pool, threads);
  if (status) {
    tt_pool_destroy(pool);
    return status;
  }
  *out = pool;
  return TT_SUCCESS;
}

static void join(pthread_t thread) {
  int error = pthread_join(thread, NULL);
  assert(error == 0);
  (void)error;
}

/* Nothing begins any more, and what is urgent has ended. */
static void stop(tt_pool *pool) {
  (void)pthread_mutex_lock(&pool->lock);
  pool->stopping = true;
  (void)pthread_cond_broadcast(&pool->wake);
  (void)pthread_cond_broadcast(&pool->idle);
  (void)pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->thread_count; i++) join(pool->threads[i]);
}

static void cancel_waiting(tt_pool *pool) {
  job one;
  (void)pthread_mutex_lock(&pool->lock);
  for (int i = 0; i < 2; i++) {
    while (pop(&pool->waiting[i], &one)) {
      (void)pthread_mutex_unlock(&pool->lock);
      one.fn(one.user, true);
      (void)pthread_mutex_lock(&pool->lock);
    }
  }
  (void)pthread_mutex_unlock(&pool->lock);
}

/* Once it was stopped. */
static void finish(tt_pool *pool) {
  if (pool->has_background) join(pool->background);
  cancel_waiting(pool);
  release(pool);
}

void tt_pool_destroy(tt_pool *pool) {
  if (!pool) return;
  stop(pool);
  finish(pool);
}

bool tt_pool_end(tt_pool *pool) {
  if (!pool) return true;
  stop(pool);
  cancel_waiting(pool);
  (void)pthread_mutex_lock(&pool->lock);
  bool left = pool->left = pool->runs_background;
  (void)pthread_mutex_unlock(&pool->lock);
  if (left) (void)pthread_detach(pool->background);
  else finish(pool);
  return !left;
}

tt_status tt_pool_submit(tt_pool *pool, tt_urgency urgency, tt_task fn, void *user) {
  (void)pthread_mutex_lock(&pool->lock);
  tt_status status = push(&pool->waiting[urgency], (job){fn, user});
  if (!status) (void)pthread_cond_signal(urgency == TT_NOW ? &pool->wake : &pool->idle);
  share(pool);
  (void)pthread_mutex_unlock(&pool->lock);
  return status;
}

bool tt_pool_promote(tt_pool *pool, tt_task fn, void *user) {
  job one = {fn, user};
  (void)pthread_mutex_lock(&pool->lock);
  bool moved = take_out(&pool->waiting[TT_BACKGROUND], one);
  tt_status status = moved ? push(&pool->waiting[TT_NOW], one) : TT_SUCCESS;
  if (status) tt_status_release(push(&pool->waiting[TT_BACKGROUND], one)); /* there is room again */
  else if (moved) (void)pthread_cond_signal(&pool->wake);
  share(pool);
  moved = moved && !status;
  tt_status_release(status);
  (void)pthread_mutex_unlock(&pool->lock);
  return moved;
}

int tt_pool_threads(const tt_pool *pool) { return pool->thread_count; }
