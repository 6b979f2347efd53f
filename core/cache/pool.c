#include "cache/pool.h"

#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

#define TT_POOL_MAX_THREADS 256
#define TT_POOL_FIRST 64 /* queue slots to begin with; a power of two, as TT_POOL_LIMIT is */

typedef struct tt_pool_job {
  tt_job fn;
  void *user;
} tt_pool_job;

struct tt_pool {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool stopping;
  tt_pool_job *queue;            /* a ring of `capacity` jobs, */
  size_t capacity, first, count; /* of which `count` wait from `first` on */
  int thread_count;
  pthread_t threads[];
};

/* -- The queue; the lock is held -- */

static tt_status queue_grow(tt_pool *pool) {
  size_t capacity = pool->capacity ? pool->capacity * 2 : TT_POOL_FIRST;
  tt_pool_job *queue = tt_calloc(capacity, sizeof *queue);
  if (!queue) return tt_out_of_memory();
  for (size_t i = 0; i < pool->count; i++)
    queue[i] = pool->queue[(pool->first + i) & (pool->capacity - 1)];
  tt_free(pool->queue);
  pool->queue = queue;
  pool->capacity = capacity;
  pool->first = 0;
  return TT_SUCCESS;
}

static tt_status queue_push(tt_pool *pool, tt_pool_job job) {
  if (pool->count == TT_POOL_LIMIT)
    return tt_error(TT_RESOURCE_EXHAUSTED, "%d programs already wait to be compiled",
                    TT_POOL_LIMIT);
  if (pool->count == pool->capacity) TT_TRY(queue_grow(pool));
  pool->queue[(pool->first + pool->count) & (pool->capacity - 1)] = job;
  pool->count++;
  return TT_SUCCESS;
}

static bool queue_pop(tt_pool *pool, tt_pool_job *job) {
  if (!pool->count) return false;
  *job = pool->queue[pool->first];
  pool->first = (pool->first + 1) & (pool->capacity - 1);
  pool->count--;
  return true;
}

/* -- The threads -- */

static void *pool_thread(void *user) {
  tt_pool *pool = user;
  tt_pool_job job;
  (void)pthread_mutex_lock(&pool->lock);
  while (!pool->stopping) {
    if (!queue_pop(pool, &job)) {
      (void)pthread_cond_wait(&pool->wake, &pool->lock);
      continue;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    job.fn(job.user, false);
    (void)pthread_mutex_lock(&pool->lock);
  }
  (void)pthread_mutex_unlock(&pool->lock);
  return NULL;
}

/* Signals are for the threads of the program, not for ours: these inherit a full mask. */
static tt_status pool_start(tt_pool *pool, int threads) {
  sigset_t all, old;
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &old);
  tt_status status = TT_SUCCESS;
  for (int i = 0; i < threads && !status; i++) {
    int error = pthread_create(&pool->threads[i], NULL, pool_thread, pool);
    if (error) {
      status = tt_error(TT_RESOURCE_EXHAUSTED,
                        "cannot start compile thread %d of %d (error %d); set fewer", i + 1,
                        threads, error);
      continue;
    }
    char name[16]; /* the kernel's limit */
    (void)snprintf(name, sizeof name, "tt-compile-%d", i % 1000);
    (void)pthread_setname_np(pool->threads[i], name);
    pool->thread_count++;
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
  tt_status status = pool_start(pool, threads);
  if (status) {
    tt_pool_destroy(pool);
    return status;
  }
  *out = pool;
  return TT_SUCCESS;
}

void tt_pool_destroy(tt_pool *pool) {
  if (!pool) return;
  (void)pthread_mutex_lock(&pool->lock);
  pool->stopping = true;
  (void)pthread_cond_broadcast(&pool->wake);
  (void)pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->thread_count; i++) (void)pthread_join(pool->threads[i], NULL);
  tt_pool_job job;
  while (queue_pop(pool, &job)) job.fn(job.user, true);
  (void)pthread_mutex_destroy(&pool->lock);
  (void)pthread_cond_destroy(&pool->wake);
  tt_free(pool->queue);
  tt_free(pool);
}

tt_status tt_pool_submit(tt_pool *pool, tt_job fn, void *user) {
  (void)pthread_mutex_lock(&pool->lock);
  tt_status status = queue_push(pool, (tt_pool_job){fn, user});
  if (!status) (void)pthread_cond_signal(&pool->wake);
  (void)pthread_mutex_unlock(&pool->lock);
  return status;
}

int tt_pool_threads(const tt_pool *pool) { return pool->thread_count; }
