#include "stream/marker.h"

struct tt_marker {
  atomic_int refs;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  _Atomic int64_t time_ns; /* 0: not passed */
};

static tt_marker *create(void) {
  tt_marker *marker = tt_calloc(1, sizeof *marker);
  if (!marker) return NULL;
  atomic_init(&marker->refs, 1);
  pthread_mutex_init(&marker->lock, NULL);
  pthread_cond_init(&marker->changed, NULL);
  return marker;
}

tt_marker *tt_marker_retain(tt_marker *marker) {
  if (marker) atomic_fetch_add(&marker->refs, 1);
  return marker;
}

void tt_marker_release(tt_marker *marker) {
  if (!marker || atomic_fetch_sub(&marker->refs, 1) != 1) return;
  pthread_mutex_destroy(&marker->lock);
  pthread_cond_destroy(&marker->changed);
  tt_free(marker);
}

/* -- Being passed -- */

/* Lets go of the reference that was taken for this. */
static void pass(void *user) {
  tt_marker *marker = user;
  pthread_mutex_lock(&marker->lock);
  atomic_store(&marker->time_ns, tt_now_ns());
  pthread_cond_broadcast(&marker->changed);
  pthread_mutex_unlock(&marker->lock);
  tt_marker_release(marker);
}

int64_t tt_marker_time_ns(tt_marker *marker) { return atomic_load(&marker->time_ns); }

bool tt_marker_passed(tt_marker *marker) { return tt_marker_time_ns(marker) != 0; }

tt_status tt_marker_await(tt_marker *marker) {
  while (!tt_marker_passed(marker)) {
    pthread_mutex_lock(&marker->lock);
    if (!tt_marker_passed(marker)) tt_interrupt_cond_wait(&marker->changed, &marker->lock);
    pthread_mutex_unlock(&marker->lock);
    if (!tt_marker_passed(marker)) TT_TRY(tt_interrupted());
  }
  return TT_SUCCESS;
}

/* -- Jobs -- */

typedef struct marking {
  tt_job job;
  tt_marker *marker; /* one reference */
} marking;

static void destroy(tt_job *job) {
  tt_marker_release(((marking *)job)->marker);
  tt_free(job);
}

static tt_status run_mark(tt_job *job, tt_event **end) {
  (void)end;
  tt_marker *marker = tt_marker_retain(((marking *)job)->marker);
  tt_status status = tt_queue_on_drained(job->queue, pass, marker);
  if (!status) return TT_SUCCESS;
  tt_status_release(status); /* without memory: it is waited for here */
  tt_status_release(tt_queue_await(job->queue, job->ticket - 1));
  pass(marker);
  return TT_SUCCESS;
}

/* The queue's thread waits, not the user's. */
static tt_status run_wait(tt_job *job, tt_event **end) {
  (void)end;
  tt_marker *marker = ((marking *)job)->marker;
  while (!tt_marker_passed(marker)) tt_status_release(tt_marker_await(marker));
  return TT_SUCCESS;
}

/* Behind everything that was recorded. */
static tt_status push(tt_stream *stream, tt_marker *marker, const tt_job_class *class,
                      const tt_policy *policy) {
  marking *m = tt_calloc(1, sizeof *m);
  if (!m) return tt_out_of_memory();
  *m = (marking){.job = {.is = class}, .marker = tt_marker_retain(marker)};
  tt_guard_enter();
  tt_device_lock(stream->device);
  if (!stream->capture) {
    tt_lanes_note_wait(&stream->lanes, policy);
    tt_queue_remember(stream->queue, tt_stream_flush(stream, TT_CUT_SYNC, policy));
  }
  tt_queue_push(stream->queue, &m->job);
  tt_device_unlock(stream->device);
  tt_guard_leave();
  return TT_SUCCESS;
}

tt_status tt_stream_mark(tt_stream *stream, const tt_policy *policy, tt_marker **out) {
  static const tt_job_class mark = {run_mark, NULL, destroy};
  tt_marker *marker = create();
  tt_status status = marker ? push(stream, marker, &mark, policy) : tt_out_of_memory();
  if (status) tt_marker_release(marker);
  else *out = marker;
  return status;
}

tt_status tt_stream_wait_marker(tt_stream *stream, tt_marker *marker, const tt_policy *policy) {
  static const tt_job_class wait = {run_wait, NULL, destroy};
  return tt_marker_passed(marker) ? TT_SUCCESS : push(stream, marker, &wait, policy);
}
