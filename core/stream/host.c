/* The host's access to storages. */
#include "run/forget.h"
#include "run/run.h"
#include "run/stream_internal.h"

#include <string.h>

static tt_status write(tt_storage *storage, const tt_type *type, const void *data, uint32_t site) {
  tt_stream *stream = storage->stream;
  const tt_type *interned = NULL;
  tt_template_spoil();
  tt_value *value = NULL;
  tt_buffer *buffer = NULL;
  TT_TRY(tt_type_intern(type, &interned));
  TT_TRY(tt_value_create(stream, interned, site, &value));
  tt_status status = tt_buffer_from_host(stream->device, type, data, NULL, NULL, &buffer);
  if (status) {
    tt_value_release(value);
    return tt_report_memory(status, stream);
  }
  tt_value_fulfil(value, buffer);
  tt_count_add(TT_COUNT_WRITES, 1);
  pthread_mutex_lock(&stream->record_lock);
  tt_value *old = storage->value;
  storage->value = value;
  tt_storage_set_type(storage, interned);
  pthread_mutex_unlock(&stream->record_lock);
  tt_value_release(old);
  return TT_SUCCESS;
}

tt_status tt_storage_write(tt_storage *storage, const tt_type *type, const void *data,
                           uint32_t site) {
  tt_hold_enter();
  tt_status status = write(storage, type, data, site);
  tt_hold_leave();
  return status;
}

/* What a reader of a failed value is told. If the stream still has to report that error, naming
 * the operator, this reports it. */
static tt_status failure_of(tt_stream *stream, tt_status error, uint64_t ticket) {
  tt_stream_wait(stream, ticket);
  pthread_mutex_lock(&stream->sleep_lock);
  if (strstr(tt_status_message(stream->error), tt_status_message(error))) {
    tt_status_release(error);
    error = stream->error;
    stream->error = TT_SUCCESS;
  }
  pthread_mutex_unlock(&stream->sleep_lock);
  return error;
}

static tt_status read(tt_storage *storage, void *data, int64_t size) {
  tt_stream *stream = storage->stream;
  tt_template_spoil();
  pthread_mutex_lock(&stream->record_lock);
  tt_value *value = tt_value_retain(storage->value);
  const tt_type *type = storage->type;
  bool open = value && value->chunk == stream->chunk.id;
  tt_stream_note_wait(stream);
  tt_status status = open ? tt_stream_flush(stream, TT_CUT_READ) : TT_SUCCESS;
  uint64_t ticket = atomic_load_explicit(&stream->head, memory_order_relaxed);
  pthread_mutex_unlock(&stream->record_lock);
  tt_count_add(TT_COUNT_READS, 1);
  if (status) {
    tt_value_release(value);
    return status;
  }
  if (!value) {
    memset(data, 0, (size_t)size);
    return TT_SUCCESS;
  }
  if (tt_value_get_state(value) == TT_VALUE_PENDING) tt_stream_await(stream, ticket);
  if (tt_value_get_state(value) == TT_VALUE_FAILED) status = tt_status_clone(value->error);
  else status = tt_buffer_to_host(tt_runtime_client(), value->buffer, type, data, size);
  tt_value_release(value);
  return status ? failure_of(stream, status, ticket) : TT_SUCCESS;
}

tt_status tt_storage_read(tt_storage *storage, void *data, int64_t size) {
  tt_hold_enter();
  tt_status status = read(storage, data, size);
  tt_hold_leave();
  return status;
}

int64_t tt_storage_bytes(const tt_storage *storage) {
  int64_t bytes = 0;
  return tt_type_bytes(storage->type, &bytes) ? bytes : 0;
}
