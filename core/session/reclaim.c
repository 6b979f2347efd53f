#include "session/reclaim.h"

#include <stdatomic.h>
#include <time.h>

enum { PATIENCE = 512, NAPS = 50, LONG_NAPS = 1000, NAP_EVERY = 16 };

static atomic_bool closing; /* a thread is trying to; others enter when it is done */
static atomic_int tries;    /* since it became due */
static tt_reclaimed reclaimed;
static atomic_int sessions; /* that have started; they share the interned types */

/* Launches refer to calls, graphs and programs. A chunk ends where it would end anyway, unless that
 * has been waited for too long. The lock is held. */
static bool settle_chunk(tt_stream *stream, tt_chunk *chunk, bool patient) {
  if (tt_chunk_empty(chunk)) return true;
  if (!chunk->due && patient) return false;
  tt_cut why = chunk->due ? chunk->due : TT_CUT_SYNC;
  tt_queue_remember(stream->queue, tt_stream_flush_chunk(stream, chunk, why, &tt_policy_any));
  return tt_chunk_empty(chunk);
}

static bool settle_stream(tt_stream *stream, bool patient) {
  for (int i = 0; i < stream->lanes.count; i++)
    if (stream->lanes.chunks[i] && !settle_chunk(stream, stream->lanes.chunks[i], patient))
      return false;
  tt_status status = tt_queue_await(stream->queue, tt_queue_last(stream->queue));
  bool settled = !status;
  tt_status_release(status);
  return settled;
}

static bool is_captured(const tt_device *device) {
  bool captured = false;
  for (int i = 0; i < TT_DEVICE_STREAMS; i++)
    captured |= device->streams[i] && device->streams[i]->capture;
  return captured;
}

static bool settle(tt_device *device, bool patient) {
  if (is_captured(device)) return false;
  for (int i = 0; i < TT_DEVICE_STREAMS; i++)
    if (device->streams[i] && !settle_stream(device->streams[i], patient)) return false;
  return true;
}

static void unlock_devices(const tt_reclaimed *all, int count) {
  for (int i = 0; i < count; i++) tt_device_unlock(all->devices[i]);
}

static bool lock_devices(const tt_reclaimed *all, bool patient) {
  for (int i = 0; i < all->device_count; i++) {
    tt_device *device = all->devices[i];
    if (pthread_mutex_trylock(&device->lock)) return unlock_devices(all, i), false;
    if (!settle(device, patient)) return unlock_devices(all, i + 1), false;
  }
  return true;
}

static void forget_traces(tt_device *device) {
  tt_trace_deinit(&device->trace);
  tt_trace_init(&device->trace);
  tt_device_release_zeros(device);
  for (int i = 0; i < TT_DEVICE_STREAMS; i++)
    if (device->streams[i]) tt_lanes_reclaim(&device->streams[i]->lanes);
}

static void empty_tables(const tt_reclaimed *all) {
  for (int i = 0; i < all->device_count; i++) forget_traces(all->devices[i]);
  tt_call_table_reclaim(all->calls);
  tt_program_table_reclaim(all->programs);
  tt_type_reclaim();
  tt_growth_reset();
  atomic_store(&tries, 0);
  tt_count_add(TT_COUNT_RECLAIMS, 1);
  tt_log(TT_LOG_COMPILE,
         "there were too many calls, chunks, types or programs; they are forgotten "
         "and made again as they are needed (%s)",
         tt_env_name(TT_ENV_CALL_LIMIT));
}

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); }

/* They stay out while this thread waits, but one that is inside may need what this thread has (the
 * GIL), so it waits for no more than `naps`. */
static bool others_leave(int naps) {
  bool inside = tt_guard_others();
  for (int i = 0; i < naps && inside; i++) {
    nap();
    inside = tt_guard_others();
  }
  return !inside;
}

static void try_to_reclaim(const tt_reclaimed *all, int naps, bool patient) {
  if (atomic_load(&sessions) > 1 || !others_leave(naps) || !lock_devices(all, patient)) return;
  tt_call_table_lock(all->calls);
  tt_type_lock();
  if (!tt_guard_others()) empty_tables(all);
  tt_type_unlock();
  tt_call_table_unlock(all->calls);
  unlock_devices(all, all->device_count);
}

/* Gives up if it comes at a bad time: it will be tried again, in the end with long naps, so that a
 * thread that waits for a program within its guard can't let the others fill the tables. */
static void reclaim(void *user) {
  if (!atomic_exchange(&closing, true)) {
    int before = atomic_fetch_add(&tries, 1);
    bool patient = before < PATIENCE;
    try_to_reclaim(user, !patient ? LONG_NAPS : before % NAP_EVERY == 0 ? NAPS : 0, patient);
    atomic_store(&closing, false);
  } else {
    while (atomic_load(&closing)) nap(); /* it naps and waits for launches at most */
  }
}

void tt_reclaim_start(const tt_reclaimed *tables) {
  atomic_fetch_add(&sessions, 1);
  reclaimed = *tables;
  tt_guard_set_reclaimer(reclaim, &reclaimed);
}

void tt_reclaim_stop(tt_call_table *calls) {
  atomic_fetch_sub(&sessions, 1);
  if (reclaimed.calls != calls) return;
  tt_guard_set_reclaimer(NULL, NULL);
  reclaimed = (tt_reclaimed){.calls = NULL};
}
