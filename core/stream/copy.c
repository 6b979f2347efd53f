/* Copies that queues make in their turn: to the host, from it, and from another device. */
#include "stream/host.h"
#include "stream/lent.h"
#include "stream/pending.h"
#include "stream/settle.h"
#include "stream/submit.h"

/* One copy. */
typedef struct copy {
  tt_job job;
  tt_device *device;         /* the queue's */
  tt_value *source, *target; /* one reference each; NULL: the host */
  void *data;                /* of the host */
  int64_t size;
  void (*release)(void *user);
  void *user;
  tt_lent lent;
  uint64_t after; /* the copy of the queue that must end first; 0: none */
} copy;

static void destroy(tt_job *job) {
  copy *c = (copy *)job;
  tt_lent_remove(&c->lent);
  tt_value_release(c->source);
  tt_value_release(c->target);
  if (c->release) c->release(c->user);
  tt_free(c);
}

static tt_status await_source(copy *c) {
  tt_value *source = c->source;
  while (tt_value_get_state(source) == TT_VALUE_PENDING)
    tt_status_release(tt_queue_await_submitted(source->queue, source->ticket));
  return tt_value_get_state(source) == TT_VALUE_FAILED ? tt_status_clone(source->error)
                                                       : TT_SUCCESS;
}

static tt_status explain(tt_job *job, tt_status status) {
  const copy *c = (copy *)job;
  return tt_status_prefix(status, !c->target   ? "a copy to the host"
                                  : !c->source ? "a copy from the host"
                                               : "a copy between devices");
}

/* With what `made` says; its `release`, if it has one, is also called where memory is out. */
static tt_status new_copy(const copy *made, copy **out) {
  *out = tt_malloc(sizeof **out);
  if (!*out && made->release) made->release(made->user);
  if (!*out) return tt_out_of_memory();
  **out = *made;
  return TT_SUCCESS;
}

/* The device's lock is held. */
static void push(tt_stream *stream, copy *c) {
  if (c->size) {
    bool written = !c->target;
    c->after = tt_lent_last(stream->queue, c->data, c->size, written);
    tt_lent_add(&c->lent, c->data, c->size, written, stream->queue,
                tt_queue_last(stream->queue) + 1);
  }
  tt_queue_push(stream->queue, &c->job);
}

/* Nobody interrupts a queue. */
static void await_order(copy *c) {
  tt_queue *queue = c->job.queue;
  while (c->after && !tt_queue_passed(queue, c->after))
    tt_status_release(tt_queue_await(queue, c->after));
}

/* The target's storage has its value from now on, and the copy its job. */
static tt_status push_to(tt_stream *stream, tt_storage *target, copy *c, const char *refusal) {
  tt_device *device = stream->device;
  tt_device_lock(device);
  if (target->value && tt_value_captured(target->value)) {
    tt_device_unlock(device);
    return tt_error(TT_FAILED_PRECONDITION, "%s", refusal);
  }
  tt_value *old = tt_storage_hold(target, tt_value_retain(c->target));
  c->target->queue = stream->queue;
  c->target->ticket = tt_queue_last(stream->queue) + 1;
  push(stream, c);
  tt_device_unlock(device);
  tt_value_release(old);
  return TT_SUCCESS;
}

/* Without a value, the target has the error. */
static tt_status run_to_target(copy *c, tt_status status) {
  if (!status) return TT_SUCCESS;
  status = tt_device_report_memory(c->device, explain(&c->job, status));
  if (tt_value_get_state(c->target) == TT_VALUE_PENDING)
    tt_value_fail(c->target, tt_status_clone(status));
  return status;
}

/* -- To the host -- */

static tt_status copy_out(copy *c, tt_event **end) {
  tt_event *own = NULL;
  tt_client *client = c->device->client;
  await_order(c);
  TT_TRY(tt_buffer_to_host_start(client, c->source->buffer, c->source->holding.type, c->data,
                                 c->size, &own));
  if (end) {
    *end = own;
    return TT_SUCCESS;
  }
  tt_status status = own ? tt_event_await(client, own) : TT_SUCCESS;
  tt_event_destroy(client, own);
  return status;
}

static tt_status run_to_host(tt_job *job, tt_event **end) {
  copy *c = (copy *)job;
  tt_status error = await_source(c);
  if (error) return tt_status_prefix(error, "a copy to the host of a tensor that has no value");
  return explain(job, copy_out(c, end));
}

/* A reference to the storage's value, which then has a job. */
static tt_status take_source(tt_storage *storage, const tt_policy *policy, tt_value **out) {
  tt_device *device = storage->device;
  tt_device_lock(device);
  tt_value *value = tt_value_retain(storage->value);
  tt_status status = value ? tt_value_launch(value, TT_CUT_SYNC, policy)
                           : tt_device_zeros(device, storage->type, 0, &value);
  tt_device_unlock(device);
  if (status) tt_value_release(value);
  else *out = value;
  return status;
}

tt_status tt_storage_read_later(tt_stream *stream, tt_storage *storage, void *data, int64_t size,
                                const tt_policy *policy, void (*release)(void *user), void *user) {
  static const tt_job_class to_host = {run_to_host, explain, destroy};
  const copy made = {.job = {.is = &to_host},
                     .device = stream->device,
                     .data = data,
                     .size = size,
                     .release = release,
                     .user = user};
  copy *c = NULL;
  tt_status settled = tt_storage_settle(stream, storage, policy, 0);
  if (settled && release) release(user);
  TT_TRY(settled);
  TT_TRY(new_copy(&made, &c));
  tt_observer_disturb();
  tt_guard_enter();
  tt_status status = take_source(storage, policy, &c->source);
  tt_guard_leave();
  if (status) {
    destroy(&c->job);
    return status;
  }
  tt_count_add(TT_COUNT_READS, 1);
  tt_device_lock(stream->device);
  push(stream, c);
  tt_device_unlock(stream->device);
  return TT_SUCCESS;
}

/* -- From the host -- */

/* Where memory is full, waits for what is under way, which may need it no longer. */
static tt_status lend(copy *c, tt_buffer **out) {
  tt_pjrt_device *raw = c->device->raw;
  const tt_type *type = c->target->holding.type;
  tt_status status = tt_buffer_from_host(raw, type, c->data, c->release, c->user, out);
  if (!tt_device_is_full(status) || !tt_queue_drain(c->job.queue)) return status;
  tt_status_release(status);
  return tt_buffer_from_host(raw, type, c->data, c->release, c->user, out);
}

static tt_status copy_in(copy *c, tt_event **end) {
  tt_client *client = c->device->client;
  tt_buffer *buffer = NULL;
  await_order(c);
  TT_TRY(lend(c, &buffer));
  c->release = NULL; /* the plugin's now */
  tt_value_fulfil(c->target, buffer);
  return end ? tt_buffer_ready_event(client, buffer, end) : tt_buffer_await(client, buffer);
}

static tt_status run_from_host(tt_job *job, tt_event **end) {
  copy *c = (copy *)job;
  return run_to_target(c, copy_in(c, end));
}

static tt_status write_later(tt_stream *stream, tt_storage *storage, const tt_type *type, copy *c,
                             const tt_policy *policy, uint32_t site) {
  const tt_type *interned = NULL;
  TT_TRY(tt_type_intern(type, &interned));
  if (!tt_type_bytes(interned, &c->size))
    return tt_error(TT_INVALID_ARGUMENT, "host to device: the tensor's type is malformed");
  c->job.bytes = c->size;
  TT_TRY(tt_stream_keep_pace(stream, c->size, false, policy));
  TT_TRY(tt_value_create(&stream->device->account, stream, interned, site, &c->target));
  return push_to(stream, storage, c, TT_WRITE_IN_CAPTURE);
}

tt_status tt_storage_write_later(tt_stream *stream, tt_storage *storage, const tt_type *type,
                                 const void *data, void (*release)(void *user), void *user,
                                 const tt_policy *policy, uint32_t site) {
  static const tt_job_class from_host = {run_from_host, explain, destroy};
  const copy made = {.job = {.is = &from_host},
                     .device = stream->device,
                     .data = (void *)data,
                     .release = release,
                     .user = user};
  copy *c = NULL;
  TT_TRY(new_copy(&made, &c));
  tt_observer_disturb();
  tt_guard_enter();
  tt_status status = write_later(stream, storage, type, c, policy, site);
  tt_guard_leave();
  if (status) destroy(&c->job);
  else tt_count_add(TT_COUNT_WRITES, 1);
  return status;
}

tt_status tt_stream_await_host(tt_stream *stream, const void *data, int64_t size, bool written) {
  uint64_t last = tt_lent_last(stream->queue, data, size, written);
  return last ? tt_queue_await(stream->queue, last) : TT_SUCCESS;
}

/* -- Between devices -- */

static tt_status copy_value(copy *c, tt_event **end) {
  tt_client *client = c->device->client;
  tt_buffer *buffer = NULL;
  TT_TRY(await_source(c));
  TT_TRY(tt_buffer_copy_to_device(client, c->source->buffer, c->device->raw, &buffer));
  tt_value_fulfil(c->target, buffer);
  tt_count_add(TT_COUNT_TRANSFERS, 1);
  return end ? tt_buffer_ready_event(client, buffer, end) : TT_SUCCESS;
}

static tt_status run_between(tt_job *job, tt_event **end) {
  copy *c = (copy *)job;
  return run_to_target(c, copy_value(c, end));
}

static tt_status transfer(tt_stream *stream, tt_storage *target, tt_storage *source, copy *c,
                          const tt_policy *policy, uint32_t site) {
  TT_TRY(take_source(source, policy, &c->source));
  const tt_type *type = c->source->holding.type;
  TT_TRY(tt_value_create(&stream->device->account, stream, type, site, &c->target));
  return push_to(stream, target, c,
                 "a tensor that a graph which is being captured has used cannot be copied to from "
                 "another device");
}

tt_status tt_storage_transfer(tt_stream *stream, tt_storage *target, tt_storage *source,
                              const tt_policy *policy, uint32_t site) {
  static const tt_job_class between = {run_between, explain, destroy};
  const copy made = {.job = {.is = &between}, .device = stream->device};
  copy *c = NULL;
  if (!tt_client_copies(stream->device->client))
    return tt_error(TT_UNIMPLEMENTED, "the plugin does not copy between devices");
  tt_stream *own = NULL;
  TT_TRY(tt_stream_get(source->device, 0, &own));
  TT_TRY(tt_storage_settle(own, source, policy, site));
  TT_TRY(new_copy(&made, &c));
  tt_observer_disturb();
  tt_guard_enter();
  tt_status status = transfer(stream, target, source, c, policy, site);
  tt_guard_leave();
  if (status) destroy(&c->job);
  return status;
}
