/* The ends of launches: asynchronous ones, waiting, and the errors that synchronisation reports. */
#include "run/run.h"
#include "run/stream_internal.h"

void tt_stream_remember(tt_stream *stream, tt_status error) {
  if (!error) return;
  pthread_mutex_lock(&stream->sleep_lock);
  if (!stream->error) stream->error = error;
  else tt_status_release(error);
  pthread_mutex_unlock(&stream->sleep_lock);
}

/* -- Asynchronous launches -- */

/* Takes the ends of the launches up to `ticket`, after waiting for them, and of later ones that
 * are known to have ended. flight_lock is held. */
static void land(tt_stream *stream, uint64_t ticket) {
  tt_client *client = tt_runtime_client();
  while (stream->landed < stream->departed) {
    tt_flight *f = &stream->flights[stream->landed % TT_FLIGHTS];
    if (f->ticket > ticket && !tt_event_ready(client, f->end)) break;
    tt_status status = tt_event_await(client, f->end);
    if (status && f->origin.end)
      status = tt_status_extend(status, "; its inputs were given away before it failed, so it cannot be "
                                 "run again operator by operator");
    tt_stream_remember(stream, tt_launch_error(status, stream, &f->origin, NULL));
    tt_event_destroy(client, f->end);
    stream->landed++;
  }
}

void tt_stream_depart(tt_stream *stream, tt_flight started) {
  pthread_mutex_lock(&stream->flight_lock);
  bool full = stream->departed - stream->landed == TT_FLIGHTS;
  land(stream, full ? stream->flights[stream->landed % TT_FLIGHTS].ticket : 0);
  stream->flights[stream->departed++ % TT_FLIGHTS] = started;
  pthread_mutex_unlock(&stream->flight_lock);
}

/* -- Waiting -- */

static bool was_launched(tt_stream *stream, uint64_t ticket) {
  return atomic_load_explicit(&stream->tail, memory_order_acquire) >= ticket;
}

bool tt_stream_passed(tt_stream *stream, uint64_t ticket) {
  if (!was_launched(stream, ticket)) return false;
  pthread_mutex_lock(&stream->flight_lock);
  land(stream, 0);
  bool passed = stream->landed == stream->departed ||
                stream->flights[stream->landed % TT_FLIGHTS].ticket > ticket;
  pthread_mutex_unlock(&stream->flight_lock);
  return passed;
}

void tt_stream_note_wait(tt_stream *stream) {
  if (tt_runtime_mode() == TT_MODE_FUSED) tt_cutter_stop(&stream->chunk.cutter);
}

uint64_t tt_stream_ticket(tt_stream *stream) {
  pthread_mutex_lock(&stream->record_lock);
  tt_stream_note_wait(stream);
  tt_stream_remember(stream, tt_stream_flush(stream, TT_CUT_SYNC));
  uint64_t ticket = atomic_load_explicit(&stream->head, memory_order_relaxed);
  pthread_mutex_unlock(&stream->record_lock);
  return ticket;
}

bool tt_stream_idle(tt_stream *stream) {
  return tt_stream_passed(stream, tt_stream_ticket(stream));
}

void tt_stream_await(tt_stream *stream, uint64_t ticket) {
  for (int i = 0; i < TT_SPINS; i++) {
    if (was_launched(stream, ticket)) return;
    tt_cpu_relax();
  }
  pthread_mutex_lock(&stream->sleep_lock);
  while (!was_launched(stream, ticket)) {
    if (ticket < atomic_load(&stream->wake_at)) atomic_store(&stream->wake_at, ticket);
    if (atomic_load(&stream->tail) >= ticket) break;
    pthread_cond_wait(&stream->progress, &stream->sleep_lock);
  }
  pthread_mutex_unlock(&stream->sleep_lock);
}

void tt_stream_wait(tt_stream *stream, uint64_t ticket) {
  tt_stream_await(stream, ticket);
  pthread_mutex_lock(&stream->flight_lock);
  land(stream, ticket);
  pthread_mutex_unlock(&stream->flight_lock);
}

tt_status tt_stream_sync(tt_stream *stream) {
  tt_count_add(TT_COUNT_SYNCS, 1);
  tt_stream_wait(stream, tt_stream_ticket(stream));
  pthread_mutex_lock(&stream->sleep_lock);
  tt_status status = stream->error;
  stream->error = TT_SUCCESS;
  pthread_mutex_unlock(&stream->sleep_lock);
  return status;
}
