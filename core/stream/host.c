#include "stream/host.h"

#include "stream/pending.h"

#include <assert.h>
#include <string.h>

/* -- Writing -- */

/* The lock is held. The old value is the caller's. */
static tt_value *exchange(tt_storage *storage, const tt_type *type, tt_value *value) {
  tt_value *old = storage->value;
  storage->value = value;
  tt_storage_set_type(storage, type);
  return old;
}

static tt_status make_buffer(tt_stream *stream, const tt_type *type, const void *data,
                             const tt_policy *policy, tt_buffer **out) {
  tt_pjrt_device *raw = stream->device->raw;
  tt_status status = tt_buffer_from_host(raw, type, data, NULL, NULL, out);
  if (!tt_device_is_full(status)) return status;
  tt_status waited = tt_stream_drain(stream, policy);
  if (waited) return tt_join(status, waited);
  tt_status_release(status);
  return tt_buffer_from_host(raw, type, data, NULL, NULL, out);
}

static tt_status write(tt_stream *stream, tt_storage *storage, const tt_type *type,
                       const void *data, const tt_policy *policy, uint32_t site) {
  tt_device *device = storage->device;
  const tt_type *interned = NULL;
  tt_value *value = NULL;
  tt_buffer *buffer = NULL;
  int64_t bytes = 0;
  TT_TRY(tt_type_intern(type, &interned));
  (void)tt_type_bytes(interned, &bytes);
  TT_TRY(tt_value_create(&device->account, NULL, interned, site, &value));
  tt_status status = tt_stream_keep_pace(stream, bytes, true, policy);
  if (!status) status = make_buffer(stream, type, data, policy, &buffer);
  if (status) {
    tt_value_release(value);
    return tt_device_report_memory(device, status);
  }
  tt_value_fulfil(value, buffer);
  tt_count_add(TT_COUNT_WRITES, 1);
  tt_device_lock(device);
  bool captured = storage->value && tt_value_captured(storage->value);
  tt_value *old = captured ? value : exchange(storage, interned, value);
  tt_device_unlock(device);
  tt_value_release(old);
  return captured ? tt_error(TT_FAILED_PRECONDITION, TT_WRITE_IN_CAPTURE) : TT_SUCCESS;
}

tt_status tt_storage_write(tt_stream *stream, tt_storage *storage, const tt_type *type,
                           const void *data, const tt_policy *policy, uint32_t site) {
  assert(stream->device == storage->device);
  tt_observer_disturb();
  tt_guard_enter();
  tt_status status = write(stream, storage, type, data, policy, site);
  tt_guard_leave();
  return status;
}

/* -- Reading -- */

/* A reference to the storage's value (NULL: never written), which then has a job. */
static tt_status take_value(tt_storage *storage, const tt_policy *policy, tt_value **out) {
  tt_device *device = storage->device;
  tt_device_lock(device);
  tt_value *value = tt_value_retain(storage->value);
  if (value && value->stream) tt_lanes_note_wait(&value->stream->lanes, policy);
  tt_status status = value ? tt_value_launch(value, TT_CUT_READ, policy) : TT_SUCCESS;
  tt_device_unlock(device);
  if (status) tt_value_release(value);
  else *out = value;
  return status;
}

/* When its job was submitted, that has told its error, too; a chunk without a job, its stream. */
static tt_status await_value(tt_value *value) {
  tt_queue *queue = value->queue ? value->queue : value->stream ? value->stream->queue : NULL;
  if (tt_value_get_state(value) != TT_VALUE_READY && value->queue)
    TT_TRY(tt_queue_await_submitted(value->queue, value->ticket));
  if (tt_value_get_state(value) != TT_VALUE_FAILED) return TT_SUCCESS;
  tt_status error = tt_status_clone(value->error);
  return queue ? tt_queue_tell_error(queue, error) : error;
}

/* Where the plugin is still computing it, the wait for that can be interrupted. */
static tt_status await_buffer(tt_client *client, tt_buffer *buffer) {
  tt_event *ready = NULL;
  if (tt_client_inline(client)) return TT_SUCCESS;
  TT_TRY(tt_buffer_ready_event(client, buffer, &ready));
  tt_status status = tt_event_wait(client, ready);
  tt_event_destroy(client, ready);
  return status;
}

static tt_status copy_out(tt_value *value, char *data, int64_t size) {
  tt_client *client = value->account->client;
  const tt_type *type = value->holding.type;
  int64_t own = 0;
  bool short_of = tt_type_bytes(type, &own) && own < size;
  TT_TRY(await_buffer(client, value->buffer));
  if (short_of) memset(data + own, 0, (size_t)(size - own));
  return tt_buffer_to_host(client, value->buffer, type, data, short_of ? own : size);
}

/* An asynchronous error is told better by the job that failed. */
static tt_status read_value(tt_value *value, void *data, int64_t size) {
  TT_TRY(await_value(value));
  tt_status status = copy_out(value, data, size);
  if (!status || !value->queue || tt_status_code(status) == TT_CANCELLED) return status;
  tt_status_release(tt_queue_await(value->queue, value->ticket));
  tt_status told = tt_queue_take_error(value->queue);
  if (!told) return status;
  tt_status_release(status);
  return told;
}

tt_status tt_storage_read(tt_storage *storage, void *data, int64_t size, const tt_policy *policy) {
  tt_value *value = NULL;
  tt_observer_disturb();
  tt_guard_enter();
  tt_status status = take_value(storage, policy, &value);
  tt_count_add(TT_COUNT_READS, 1);
  if (!status && value) status = read_value(value, data, size);
  else if (!status) memset(data, 0, (size_t)size);
  tt_value_release(value);
  tt_guard_leave();
  return status;
}
