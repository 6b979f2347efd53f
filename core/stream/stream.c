#include "stream/stream.h"

#include "stream/ids.h"
#include "stream/submit.h"

#include <stdio.h>

static const int64_t AHEAD = (int64_t)128 << 20;
const tt_policy tt_policy_any = {.mode = TT_MODE_FUSED};

/* -- Making streams -- */

static void destroy(tt_stream *stream) {
  if (!stream) return;
  tt_queue_destroy(stream->queue);
  tt_lanes_deinit(&stream->lanes);
  tt_free(stream);
}

static tt_status create(tt_device *device, int id, tt_stream **out) {
  char name[64];
  tt_stream *stream = tt_calloc(1, sizeof *stream);
  if (!stream) return tt_out_of_memory();
  stream->device = device;
  stream->id = id;
  tt_lanes_init(&stream->lanes, device, id);
  snprintf(name, sizeof name, "stream %d of device %d", id, device->index);
  tt_status status = tt_queue_create(device->client, name, &stream->queue);
  if (status) destroy(stream);
  else *out = stream;
  return status;
}

tt_status tt_stream_get(tt_device *device, int64_t id, tt_stream **out) {
  if (id < 0 || id >= TT_DEVICE_STREAMS)
    return tt_error(TT_INVALID_ARGUMENT, "device tpu:%d has streams 0 to %d, not %lld",
                    device->index, TT_DEVICE_STREAMS - 1, (long long)id);
  struct tt_stream **place = &device->streams[id];
  *out = __atomic_load_n(place, __ATOMIC_ACQUIRE);
  if (*out) return TT_SUCCESS;
  tt_device_lock(device);
  tt_status status = *place ? TT_SUCCESS : create(device, (int)id, out);
  if (!status && !*place) __atomic_store_n(place, *out, __ATOMIC_RELEASE);
  *out = *place;
  tt_device_unlock(device);
  return status;
}

void tt_device_end_streams(tt_device *device) {
  for (int i = 0; i < TT_DEVICE_STREAMS; i++) {
    tt_stream *stream = device->streams[i];
    if (!stream) continue;
    tt_device_lock(device);
    tt_status_release(tt_stream_flush(stream, TT_CUT_SYNC, &tt_policy_any));
    tt_device_unlock(device);
  }
  for (int i = 0; i < TT_DEVICE_STREAMS; i++) {
    destroy(device->streams[i]);
    device->streams[i] = NULL;
  }
}

/* -- Flushing -- */

static tt_status launch_chunk(tt_stream *stream, tt_chunk *chunk, tt_cut why,
                              const tt_policy *policy) {
  tt_launch *launch = NULL;
  tt_status status = tt_chunk_close(chunk, why, policy, &launch);
  if (!tt_chunk_empty(chunk)) return status;
  tt_queue_remember(stream->queue, status);
  for (tt_launch *next; launch; launch = next) {
    next = launch->next;
    tt_submit(stream->queue, launch);
  }
  return TT_SUCCESS;
}

tt_status tt_stream_flush_chunk(tt_stream *stream, tt_chunk *chunk, tt_cut why,
                                const tt_policy *policy) {
  if (tt_chunk_empty(chunk)) return TT_SUCCESS;
  TT_TRY(launch_chunk(stream, chunk, why, policy));
  tt_chunk *forgotten = tt_lanes_forgotten(&stream->lanes, chunk);
  if (forgotten) tt_queue_remember(stream->queue, launch_chunk(stream, forgotten, why, policy));
  return TT_SUCCESS;
}

tt_status tt_stream_flush(tt_stream *stream, tt_cut why, const tt_policy *policy) {
  tt_status status = TT_SUCCESS;
  for (int i = 0; i < stream->lanes.count; i++)
    if (stream->lanes.chunks[i])
      status = tt_join(status, tt_stream_flush_chunk(stream, stream->lanes.chunks[i], why, policy));
  return status;
}

/* -- Waiting -- */

tt_status tt_stream_ticket(tt_stream *stream, const tt_policy *policy, uint64_t *out) {
  tt_device_lock(stream->device);
  bool captured = stream->capture != NULL;
  if (!captured) {
    tt_lanes_note_wait(&stream->lanes, policy);
    tt_queue_remember(stream->queue, tt_stream_flush(stream, TT_CUT_SYNC, policy));
  }
  *out = tt_queue_last(stream->queue);
  tt_device_unlock(stream->device);
  if (!captured) return TT_SUCCESS;
  return tt_error(TT_FAILED_PRECONDITION,
                  "a stream cannot be waited for while a graph is captured on it");
}

bool tt_stream_idle(tt_stream *stream, const tt_policy *policy) {
  uint64_t ticket = 0;
  tt_status status = tt_stream_ticket(stream, policy, &ticket);
  bool captured = status != TT_SUCCESS;
  tt_status_release(status);
  return !captured && tt_queue_passed(stream->queue, ticket);
}

tt_status tt_stream_drain(tt_stream *stream, const tt_policy *policy) {
  uint64_t ticket = 0;
  TT_TRY(tt_stream_ticket(stream, policy, &ticket));
  TT_TRY(tt_queue_await(stream->queue, ticket));
  tt_queue_retire(stream->queue);
  return TT_SUCCESS;
}

tt_status tt_stream_sync(tt_stream *stream, const tt_policy *policy) {
  tt_count_add(TT_COUNT_SYNCS, 1);
  TT_TRY(tt_stream_drain(stream, policy));
  return tt_queue_take_error(stream->queue);
}

/* What the host may give before the device must have come to where it began to. */
static int64_t most_given(const tt_device *device) {
  int64_t share = device->account.limit / 8;
  return share > 0 && share < AHEAD ? share : AHEAD;
}

/* The lock is held. Returns the ticket to wait for; 0: none. */
static uint64_t pace(tt_stream *stream, int64_t bytes, const tt_policy *policy) {
  stream->given += bytes;
  if (stream->given < most_given(stream->device) || stream->capture) return 0;
  uint64_t ticket = stream->paced;
  for (int i = 0; i < stream->lanes.count; i++) {
    tt_chunk *chunk = stream->lanes.chunks[i];
    if (chunk && chunk->id < stream->paced_section)
      tt_status_release(tt_stream_flush_chunk(stream, chunk, TT_CUT_BYTES, policy));
  }
  stream->paced = tt_queue_last(stream->queue);
  stream->paced_section = tt_next_section();
  stream->given = bytes;
  return ticket;
}

tt_status tt_stream_keep_pace(tt_stream *stream, int64_t bytes, bool wait,
                              const tt_policy *policy) {
  tt_device_lock(stream->device);
  uint64_t ticket = pace(stream, bytes, policy);
  tt_device_unlock(stream->device);
  return ticket && wait ? tt_queue_await(stream->queue, ticket) : TT_SUCCESS;
}

tt_status tt_device_sync(tt_device *device, const tt_policy *policy) {
  tt_status status = TT_SUCCESS;
  for (int i = 0; i < TT_DEVICE_STREAMS; i++) {
    tt_stream *stream = __atomic_load_n(&device->streams[i], __ATOMIC_ACQUIRE);
    if (stream) status = tt_join(status, tt_stream_sync(stream, policy));
  }
  return status;
}
