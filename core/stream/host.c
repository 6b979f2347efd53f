#include "stream/host.h"

#include "call/bounded.h"
#include "stream/pending.h"

#include <assert.h>
#include <string.h>

/* -- Writing -- */

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

/* Of what is uploaded again and again, the dim whose size changes; -1: there is none. What is
 * written over keeps its size. */
static int changing_dim(const tt_stream *stream, const tt_storage *storage, const tt_type *type,
                        const tt_policy *policy) {
  tt_call_table *calls = stream->device->calls;
  bool exact = policy->mode == TT_MODE_DEBUG || policy->deterministic || stream->capture;
  if (!calls || exact || policy->keeps_sizes || (storage->value && !storage->bounded)) return -1;
  return tt_growing_upload(tt_call_table_growing(calls), type);
}

/* The bytes of a bounded value that count, in rows: a row is what lies together. */
typedef struct rows {
  const tt_type *type;
  tt_type exact;
  int last; /* of its bounded dims: all behind it is one row */
  int64_t count, bytes, all;
} rows;

static rows rows_of(const tt_type *bounded, const tt_reach *reach) {
  const tt_along *along = tt_type_along(bounded);
  rows r = {.type = bounded, .exact = tt_bounded_exact(bounded, reach), .count = 1};
  r.last = along->dims[along->count - 1];
  r.bytes = tt_dtype_bytes(bounded->dtype);
  r.all = tt_type_held_bytes(bounded);
  for (int i = 0; i < bounded->rank; i++) *(i < r.last ? &r.count : &r.bytes) *= r.exact.dims[i];
  return r;
}

/* Where row i begins, with padding. */
static int64_t row_at(const rows *r, int64_t i) {
  int64_t at = 0, width = tt_dtype_bytes(r->type->dtype);
  for (int d = r->type->rank - 1; d >= 0; d--) {
    if (d < r->last) {
      at += i % r->exact.dims[d] * width;
      i /= r->exact.dims[d];
    }
    width *= r->type->dims[d];
  }
  return at;
}

/* The bytes with zeros for padding; the caller frees them. */
static tt_status pad(const tt_type *bounded, const tt_reach *reach, const char *data, char **out) {
  rows r = rows_of(bounded, reach);
  int64_t all = 0;
  *out = tt_type_bytes(bounded, &all) ? tt_calloc(1, (size_t)all) : NULL;
  if (!*out) return tt_out_of_memory();
  for (int64_t i = 0; i < r.count; i++)
    memcpy(*out + row_at(&r, i), data + i * r.bytes, (size_t)r.bytes);
  return TT_SUCCESS;
}

/* What is given to the device: the data as they are, or with padding. */
typedef struct upload {
  const tt_type *type, *held; /* interned */
  const void *data;
  char *padded; /* NULL: none */
  tt_reach reach;
} upload;

/* Along that dim it is given room for more; -1: none. */
static tt_status prepare(upload *up, const tt_type *type, int along) {
  TT_TRY(tt_type_intern(type, &up->type));
  up->held = up->type;
  if (along < 0) return TT_SUCCESS;
  tt_type wide = *up->type;
  const tt_type *bounded = NULL;
  wide.dims[along] = tt_bound_of(type->dims[along]);
  tt_along dim = tt_along_one(along);
  TT_TRY(tt_type_intern_bounded(&wide, &dim, &bounded));
  if (tt_type_unwelcome(bounded, type->dims[along])) return TT_SUCCESS;
  up->held = bounded;
  up->reach = tt_reach_one(type->dims[along]);
  TT_TRY(pad(up->held, &up->reach, up->data, &up->padded));
  up->data = up->padded;
  return TT_SUCCESS;
}

static tt_status make_value(tt_stream *stream, const upload *up, const tt_policy *policy,
                            uint32_t site, tt_value **out) {
  tt_buffer *buffer = NULL;
  int64_t bytes = 0;
  (void)tt_type_bytes(up->held, &bytes);
  TT_TRY(tt_value_create(&stream->device->account, NULL, up->held, site, out));
  tt_status status = TT_SUCCESS;
  if (up->padded) status = tt_value_set_reach(*out, &up->reach);
  if (!status) status = tt_stream_keep_pace(stream, bytes, true, policy);
  if (!status) status = make_buffer(stream, up->held, up->data, policy, &buffer);
  if (!status) return tt_value_fulfil(*out, buffer), TT_SUCCESS;
  tt_value_release(*out);
  return tt_device_report_memory(stream->device, status);
}

static tt_status write(tt_stream *stream, tt_storage *storage, const tt_type *type,
                       const void *data, const tt_policy *policy, uint32_t site) {
  tt_device *device = storage->device;
  tt_value *value = NULL;
  upload up = {.data = data};
  tt_status status = prepare(&up, type, changing_dim(stream, storage, type, policy));
  if (!status) status = make_value(stream, &up, policy, site, &value);
  tt_free(up.padded);
  TT_TRY(status);
  tt_count_add(TT_COUNT_WRITES, 1);
  tt_device_lock(device);
  bool captured = storage->value && tt_value_captured(storage->value);
  tt_value *old = captured ? value : tt_storage_hold(storage, value);
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

/* Of a bounded value what counts. */
static tt_status copy_rows(tt_value *value, char *data, int64_t size) {
  const tt_type *type = value->holding.type;
  rows r = rows_of(type, &value->reach);
  char *all = tt_malloc((size_t)r.all);
  if (!all) return tt_out_of_memory();
  tt_status status = tt_buffer_to_host(value->account->client, value->buffer, type, all, r.all);
  for (int64_t i = 0; i < r.count && !status && size > 0; i++, size -= r.bytes)
    memcpy(data + i * r.bytes, all + row_at(&r, i), (size_t)(size < r.bytes ? size : r.bytes));
  tt_free(all);
  return status;
}

static tt_status copy_out(tt_value *value, char *data, int64_t size) {
  tt_client *client = value->account->client;
  const tt_type *type = value->holding.type;
  int64_t own = 0;
  bool short_of =
      tt_type_bytes(tt_value_is_bounded(value) ? value->exact : type, &own) && own < size;
  TT_TRY(await_buffer(client, value->buffer));
  if (short_of) memset(data + own, 0, (size_t)(size - own));
  if (tt_value_is_bounded(value)) return copy_rows(value, data, short_of ? own : size);
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
