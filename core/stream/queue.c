#include "stream/queue.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

/* A chunk may become as many jobs as it has operators. Two jobs may be under way whatever they
 * take: one that runs, and the next. */
enum { MOST = 4096, ROOM = 1024, UNDER_WAY = 256, FREE = 2, SPINS = 4000 };
static const int64_t BYTES_UNDER_WAY = (int64_t)256 << 20;

/* Who wants to know when the jobs that are under way now are retired. */
typedef struct drain {
  struct drain *next;
  uint64_t ticket;
  void (*fn)(void *user);
  void *user;
} drain;

struct tt_queue {
  tt_client *client;
  bool runs_inline;
  tt_job *jobs[MOST];
  _Atomic uint64_t pushed, submitted; /* tickets */
  atomic_bool sleeps, compiling;
  _Atomic uint64_t wake_at; /* the lowest ticket that somebody sleeps for; UINT64_MAX: nobody */
  pthread_mutex_t lock;     /* guards what follows */
  pthread_cond_t work, progress;
  tt_status error;
  tt_job *under_way, **under_way_end; /* by ticket, ended ones among them */
  int under_way_count, unended;
  int64_t unended_bytes;
  drain *drains;
  pthread_t thread;
};

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/* -- Errors -- */

static void remember(tt_queue *queue, tt_status error) {
  if (!queue->error) queue->error = error;
  else tt_status_release(error);
}

void tt_queue_remember(tt_queue *queue, tt_status error) {
  if (!error) return;
  pthread_mutex_lock(&queue->lock);
  remember(queue, error);
  pthread_mutex_unlock(&queue->lock);
}

tt_status tt_queue_take_error(tt_queue *queue) {
  pthread_mutex_lock(&queue->lock);
  tt_status error = queue->error;
  queue->error = TT_SUCCESS;
  pthread_mutex_unlock(&queue->lock);
  return error;
}

tt_status tt_queue_tell_error(tt_queue *queue, tt_status error) {
  pthread_mutex_lock(&queue->lock);
  if (tt_status_same(queue->error, error)) {
    tt_status_release(error);
    error = queue->error;
    queue->error = TT_SUCCESS;
  }
  pthread_mutex_unlock(&queue->lock);
  return error;
}

struct tt_outcome {
  atomic_int refs;
  tt_status status;
};

tt_outcome *tt_outcome_create(void) {
  tt_outcome *outcome = tt_calloc(1, sizeof *outcome);
  if (outcome) atomic_init(&outcome->refs, 1);
  return outcome;
}

tt_outcome *tt_outcome_retain(tt_outcome *outcome) {
  if (outcome) atomic_fetch_add(&outcome->refs, 1);
  return outcome;
}

void tt_outcome_release(tt_outcome *outcome) {
  if (!outcome || atomic_fetch_sub(&outcome->refs, 1) != 1) return;
  tt_status_release(outcome->status);
  tt_free(outcome);
}

tt_status tt_outcome_take(tt_outcome *outcome) {
  tt_status status = outcome ? outcome->status : TT_SUCCESS;
  if (outcome) outcome->status = TT_SUCCESS;
  return status;
}

/* -- Jobs under way -- */

/* The lock is held. */
static bool has_ended(const tt_queue *queue, uint64_t ticket) {
  for (const tt_job *job = queue->under_way; job && job->ticket <= ticket; job = job->next)
    if (!job->ended) return false;
  return true;
}

/* Takes out the ended jobs at the front, in their order. The lock is held. */
static tt_job *take_ended(tt_queue *queue) {
  tt_job *first = queue->under_way, *last = NULL;
  for (; queue->under_way && queue->under_way->ended; queue->under_way = last->next) {
    last = queue->under_way;
    queue->under_way_count--;
  }
  if (!queue->under_way) queue->under_way_end = &queue->under_way;
  if (last) last->next = NULL;
  return last ? first : NULL;
}

/* Takes out who waited for nothing but what has ended. The lock is held. */
static drain *take_drained(tt_queue *queue) {
  drain *drained = NULL;
  for (drain **link = &queue->drains; *link;) {
    drain *one = *link;
    if (!has_ended(queue, one->ticket)) {
      link = &one->next;
      continue;
    }
    *link = one->next;
    one->next = drained;
    drained = one;
  }
  return drained;
}

static void tell_drained(drain *drains) {
  for (drain *next; drains; drains = next) {
    next = drains->next;
    drains->fn(drains->user);
    tt_free(drains);
  }
}

void tt_queue_retire(tt_queue *queue) {
  pthread_mutex_lock(&queue->lock);
  tt_job *jobs = take_ended(queue);
  pthread_mutex_unlock(&queue->lock);
  for (tt_job *next; jobs; jobs = next) {
    next = jobs->next;
    jobs->is->destroy(jobs);
  }
}

/* A thread of the plugin's, mostly: another one destroys the job. */
static void on_end(void *user, tt_status status) {
  tt_job *job = user;
  tt_queue *queue = job->queue;
  if (status && job->is->explain) status = job->is->explain(job, status);
  pthread_mutex_lock(&queue->lock);
  if (status) remember(queue, status);
  job->ended = true;
  queue->unended--;
  queue->unended_bytes -= job->bytes;
  drain *drained = take_drained(queue);
  pthread_cond_broadcast(&queue->progress);
  if (atomic_load(&queue->sleeps)) pthread_cond_signal(&queue->work);
  pthread_mutex_unlock(&queue->lock);
  tell_drained(drained);
}

/* The job was started and goes on. */
static void set_under_way(tt_queue *queue, tt_job *job, tt_event *end) {
  pthread_mutex_lock(&queue->lock);
  job->next = NULL;
  *queue->under_way_end = job;
  queue->under_way_end = &job->next;
  queue->under_way_count++;
  queue->unended++;
  queue->unended_bytes += job->bytes;
  pthread_mutex_unlock(&queue->lock);
  tt_status status = tt_event_on_ready(queue->client, end, on_end, job);
  if (status) {
    tt_status_release(status);
    on_end(job, tt_event_await(queue->client, end));
  }
  tt_event_destroy(queue->client, end);
}

/* The lock is held. */
static bool has_enough(const tt_queue *queue) {
  if (queue->under_way_count >= UNDER_WAY && !queue->under_way->ended) return true;
  return queue->unended_bytes > BYTES_UNDER_WAY && queue->unended >= FREE;
}

/* The queue's thread: the plugin is not given more than so much at a time. */
static void await_some(tt_queue *queue) {
  tt_queue_retire(queue);
  pthread_mutex_lock(&queue->lock);
  while (has_enough(queue)) pthread_cond_wait(&queue->progress, &queue->lock);
  pthread_mutex_unlock(&queue->lock);
}

bool tt_queue_drain(tt_queue *queue) {
  pthread_mutex_lock(&queue->lock);
  bool waits = queue->unended > 0;
  while (queue->unended > 0) pthread_cond_wait(&queue->progress, &queue->lock);
  pthread_mutex_unlock(&queue->lock);
  tt_queue_retire(queue);
  return waits;
}

/* -- The queue's thread -- */

static void await_work(tt_queue *queue, uint64_t submitted) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&queue->pushed, memory_order_acquire) != submitted) return;
    relax();
  }
  pthread_mutex_lock(&queue->lock);
  atomic_store(&queue->sleeps, true);
  while (atomic_load(&queue->pushed) == submitted) {
    bool ended = queue->under_way && queue->under_way->ended;
    if (!ended) pthread_cond_wait(&queue->work, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    tt_queue_retire(queue);
    pthread_mutex_lock(&queue->lock);
  }
  atomic_store(&queue->sleeps, false);
  pthread_mutex_unlock(&queue->lock);
}

static void set_submitted(tt_queue *queue, uint64_t ticket) {
  atomic_store(&queue->submitted, ticket);
  if (ticket < atomic_load(&queue->wake_at)) return;
  pthread_mutex_lock(&queue->lock);
  atomic_store(&queue->wake_at, UINT64_MAX); /* who still has to wait says so again */
  pthread_cond_broadcast(&queue->progress);
  pthread_mutex_unlock(&queue->lock);
}

static void run(tt_queue *queue, tt_job *job) {
  tt_event *end = NULL;
  tt_status status = job->is->run(job, queue->runs_inline ? NULL : &end);
  if (job->outcome) job->outcome->status = status;
  else tt_queue_remember(queue, status);
  tt_outcome_release(job->outcome);
  if (end) set_under_way(queue, job, end);
  else job->is->destroy(job);
}

static void *work(void *user) {
  tt_queue *queue = user;
  for (uint64_t ticket = 1;; ticket++) {
    await_work(queue, ticket - 1);
    tt_job *job = queue->jobs[ticket % MOST];
    if (!job) return NULL; /* tt_queue_destroy */
    if (!queue->runs_inline) await_some(queue);
    run(queue, job);
    set_submitted(queue, ticket);
  }
}

/* -- Pushing -- */

uint64_t tt_queue_push(tt_queue *queue, tt_job *job) {
  uint64_t ticket = atomic_load_explicit(&queue->pushed, memory_order_relaxed) + 1;
  while (ticket - atomic_load_explicit(&queue->submitted, memory_order_acquire) >= MOST)
    tt_status_release(tt_queue_await_submitted(queue, ticket - MOST / 2));
  if (job) {
    job->ticket = ticket;
    job->queue = queue;
  }
  queue->jobs[ticket % MOST] = job;
  atomic_store(&queue->pushed, ticket);
  if (!atomic_load(&queue->sleeps)) return ticket;
  pthread_mutex_lock(&queue->lock);
  pthread_cond_signal(&queue->work);
  pthread_mutex_unlock(&queue->lock);
  return ticket;
}

tt_status tt_queue_await_room(tt_queue *queue) {
  /* In this order: other threads push meanwhile, and what was pushed is never the smaller one. */
  uint64_t submitted = atomic_load_explicit(&queue->submitted, memory_order_acquire);
  uint64_t pushed = tt_queue_last(queue);
  if (pushed - submitted < ROOM) return TT_SUCCESS;
  return tt_queue_await_submitted(queue, pushed - ROOM / 2);
}

uint64_t tt_queue_last(const tt_queue *queue) {
  return atomic_load_explicit(&queue->pushed, memory_order_relaxed);
}

/* -- Waiting -- */

static bool was_submitted(tt_queue *queue, uint64_t ticket) {
  return atomic_load_explicit(&queue->submitted, memory_order_acquire) >= ticket;
}

tt_status tt_queue_await_submitted(tt_queue *queue, uint64_t ticket) {
  for (int i = 0; i < SPINS; i++) {
    if (was_submitted(queue, ticket)) return TT_SUCCESS;
    relax();
  }
  while (!was_submitted(queue, ticket)) {
    pthread_mutex_lock(&queue->lock);
    if (ticket < atomic_load(&queue->wake_at)) atomic_store(&queue->wake_at, ticket);
    if (!was_submitted(queue, ticket)) tt_interrupt_cond_wait(&queue->progress, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    if (!was_submitted(queue, ticket)) TT_TRY(tt_interrupted());
  }
  return TT_SUCCESS;
}

bool tt_queue_passed(tt_queue *queue, uint64_t ticket) {
  if (!was_submitted(queue, ticket)) return false;
  if (queue->runs_inline) return true;
  pthread_mutex_lock(&queue->lock);
  bool passed = has_ended(queue, ticket);
  pthread_mutex_unlock(&queue->lock);
  return passed;
}

tt_status tt_queue_await(tt_queue *queue, uint64_t ticket) {
  TT_TRY(tt_queue_await_submitted(queue, ticket));
  while (!tt_queue_passed(queue, ticket)) {
    pthread_mutex_lock(&queue->lock);
    if (!has_ended(queue, ticket)) tt_interrupt_cond_wait(&queue->progress, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
    if (!tt_queue_passed(queue, ticket)) TT_TRY(tt_interrupted());
  }
  return TT_SUCCESS;
}

tt_status tt_queue_on_drained(tt_queue *queue, void (*fn)(void *user), void *user) {
  drain *one = tt_malloc(sizeof *one);
  if (!one) return tt_out_of_memory();
  uint64_t ticket = atomic_load(&queue->submitted);
  *one = (drain){.ticket = ticket, .fn = fn, .user = user};
  pthread_mutex_lock(&queue->lock);
  bool drained = has_ended(queue, ticket);
  if (!drained) {
    one->next = queue->drains;
    queue->drains = one;
  }
  pthread_mutex_unlock(&queue->lock);
  if (drained) tell_drained(one);
  return TT_SUCCESS;
}

void tt_queue_set_compiling(tt_queue *queue, bool compiling) {
  atomic_store_explicit(&queue->compiling, compiling, memory_order_relaxed);
}

bool tt_queue_compiling(const tt_queue *queue) {
  return atomic_load_explicit(&queue->compiling, memory_order_relaxed);
}

/* -- Making one -- */

static void destroy(tt_queue *queue) {
  tt_status_release(queue->error);
  pthread_mutex_destroy(&queue->lock);
  pthread_cond_destroy(&queue->work);
  pthread_cond_destroy(&queue->progress);
  tt_free(queue);
}

tt_status tt_queue_create(tt_client *client, const char *name, tt_queue **out) {
  tt_queue *queue = tt_calloc(1, sizeof *queue);
  if (!queue) return tt_out_of_memory();
  queue->client = client;
  queue->runs_inline = tt_client_inline(client);
  queue->under_way_end = &queue->under_way;
  atomic_init(&queue->wake_at, UINT64_MAX);
  pthread_mutex_init(&queue->lock, NULL);
  pthread_cond_init(&queue->work, NULL);
  pthread_cond_init(&queue->progress, NULL);
  if (pthread_create(&queue->thread, NULL, work, queue) == 0) {
    *out = queue;
    return TT_SUCCESS;
  }
  destroy(queue);
  return tt_error(TT_RESOURCE_EXHAUSTED, "cannot start the thread that launches for %s", name);
}

/* Nobody may interrupt this: jobs refer to what is about to go. */
void tt_queue_destroy(tt_queue *queue) {
  if (!queue) return;
  uint64_t last = tt_queue_push(queue, NULL) - 1;
  (void)pthread_join(queue->thread, NULL);
  while (!tt_queue_passed(queue, last)) {
    pthread_mutex_lock(&queue->lock);
    if (!has_ended(queue, last)) tt_interrupt_cond_wait(&queue->progress, &queue->lock);
    pthread_mutex_unlock(&queue->lock);
  }
  tt_queue_retire(queue);
  assert(!queue->under_way);
  destroy(queue);
}
