#include "run/stream_internal.h"

#include "run/run.h"

/* -- The queue -- */

void tt_stream_push(tt_stream *stream, tt_launch *launch) {
  uint64_t head = atomic_load_explicit(&stream->head, memory_order_relaxed);
  if (head - atomic_load_explicit(&stream->tail, memory_order_acquire) >= TT_QUEUE)
    tt_stream_await(stream, head - TT_QUEUE / 2);
  stream->queue[head % TT_QUEUE] = launch;
  atomic_store(&stream->head, head + 1);
  if (!atomic_load(&stream->launcher_sleeps)) return;
  pthread_mutex_lock(&stream->sleep_lock);
  pthread_cond_signal(&stream->work);
  pthread_mutex_unlock(&stream->sleep_lock);
}

tt_status tt_stream_flush(tt_stream *stream, tt_cut why) {
  tt_launch *launch = NULL;
  tt_status status = tt_chunk_close(&stream->chunk, why, &launch);
  if (!tt_chunk_empty(&stream->chunk)) return status;
  tt_stream_remember(stream, status);
  for (tt_launch *next; launch; launch = next) {
    next = launch->next;
    tt_stream_push(stream, launch);
  }
  return TT_SUCCESS;
}

/* -- The launch thread -- */

static void finish(tt_stream *stream, tt_launch *launch, tt_status status) {
  if (status && launch->failure) {
    *launch->failure = status;
    status = TT_SUCCESS;
  }
  tt_launch_destroy(launch);
  tt_stream_remember(stream, status);
  uint64_t tail = atomic_fetch_add(&stream->tail, 1) + 1;
  if (tail < atomic_load(&stream->wake_at)) return;
  pthread_mutex_lock(&stream->sleep_lock);
  atomic_store(&stream->wake_at, UINT64_MAX); /* who still has to wait says so again */
  pthread_cond_broadcast(&stream->progress);
  pthread_mutex_unlock(&stream->sleep_lock);
}

static void await_work(tt_stream *stream, uint64_t tail) {
  for (int i = 0; i < TT_SPINS; i++) {
    if (atomic_load_explicit(&stream->head, memory_order_acquire) != tail) return;
    tt_cpu_relax();
  }
  pthread_mutex_lock(&stream->sleep_lock);
  atomic_store(&stream->launcher_sleeps, true);
  while (atomic_load(&stream->head) == tail) pthread_cond_wait(&stream->work, &stream->sleep_lock);
  atomic_store(&stream->launcher_sleeps, false);
  pthread_mutex_unlock(&stream->sleep_lock);
}

static void *launch_loop(void *user) {
  tt_stream *stream = user;
  bool inline_execution = tt_client_inline(tt_runtime_client());
  for (uint64_t tail = 0;; tail++) {
    await_work(stream, tail);
    tt_launch *launch = stream->queue[tail % TT_QUEUE];
    if (!launch) return NULL; /* tt_stream_destroy */
    tt_event *done = NULL;
    tt_status status = tt_launch_run(launch, stream, inline_execution ? NULL : &done);
    if (done && launch->wait) tt_event_destroy(tt_runtime_client(), done);
    else if (done) tt_stream_depart(stream, (tt_flight){done, tail + 1, launch->origin});
    finish(stream, launch, status);
  }
}

static void destroy(tt_stream *stream) {
  tt_stream_release_zeros(stream);
  tt_chunk_deinit(&stream->chunk);
  tt_word_cache_destroy(stream->words);
  tt_status_release(stream->error);
  pthread_mutex_destroy(&stream->record_lock);
  pthread_mutex_destroy(&stream->sleep_lock);
  pthread_mutex_destroy(&stream->flight_lock);
  pthread_mutex_destroy(&stream->value_lock);
  pthread_cond_destroy(&stream->work);
  pthread_cond_destroy(&stream->progress);
  tt_free(stream);
}

tt_status tt_stream_create(tt_device *device, int index, tt_stream **out) {
  tt_stream *stream = tt_calloc(1, sizeof *stream);
  if (!stream) return tt_out_of_memory();
  stream->device = device;
  stream->index = index;
  tt_chunk_init(&stream->chunk);
  atomic_init(&stream->wake_at, UINT64_MAX);
  pthread_mutex_init(&stream->record_lock, NULL);
  pthread_mutex_init(&stream->sleep_lock, NULL);
  pthread_mutex_init(&stream->flight_lock, NULL);
  pthread_mutex_init(&stream->value_lock, NULL);
  pthread_cond_init(&stream->work, NULL);
  pthread_cond_init(&stream->progress, NULL);
  tt_status status = tt_word_cache_create(device, &stream->words);
  if (!status && pthread_create(&stream->thread, NULL, launch_loop, stream) != 0)
    status = tt_error(TT_RESOURCE_EXHAUSTED, "cannot start the launch thread of device %d", index);
  if (status) {
    destroy(stream);
    return status;
  }
  *out = stream;
  return TT_SUCCESS;
}

void tt_stream_destroy(tt_stream *stream) {
  if (!stream) return;
  tt_stream_wait(stream, tt_stream_ticket(stream));
  pthread_mutex_lock(&stream->record_lock);
  tt_stream_push(stream, NULL);
  pthread_mutex_unlock(&stream->record_lock);
  (void)pthread_join(stream->thread, NULL);
  destroy(stream);
}

int tt_stream_device_index(const tt_stream *stream) { return stream->index; }
