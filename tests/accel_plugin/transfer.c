/* Copies to a device, from it, and between devices. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define ACCEL_GARBAGE 0xA5

typedef struct accel_copy {
  accel_task task;
  accel_value *source, *target; /* NULL at the host's end */
  const void *data;             /* to read */
  void *staged;                 /* the same, when it is ours to free */
  void *out;                    /* to write */
  size_t size;
  accel_moment *read, *ended; /* the host's data was read; all is done. NULL: nobody asks */
  PJRT_Error *error;          /* that it shall end with */
} accel_copy;

/* -- Copying, on a lane -- */

static bool always_ready(const accel_task *task) {
  (void)task;
  return true;
}

static bool source_ready(const accel_task *task) {
  return ((const accel_copy *)task)->source->ready->over;
}

static PJRT_Error *upload(accel_copy *copy) {
  accel_value *target = copy->target;
  ACCEL_ARGS(Client_BufferFromHostBuffer, args, .client = target->device->client->inner,
             .data = copy->data, .type = (int)target->type.dtype, .dims = target->type.dims,
             .num_dims = (size_t)target->type.rank,
             .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
             .device = target->device->inner);
  PJRT_Error *error = ACCEL_INNER(Client_BufferFromHostBuffer, &args);
  if (error) return error;
  if (args.done_with_host_buffer)
    ACCEL_INNER_DESTROY(Event_Destroy, .event = args.done_with_host_buffer);
  target->inner = args.buffer; /* nobody looks before it is ready */
  return NULL;
}

static PJRT_Error *download(accel_copy *copy) {
  ACCEL_ARGS(Buffer_UnsafePointer, args, .buffer = copy->source->inner);
  PJRT_Error *error = ACCEL_INNER(Buffer_UnsafePointer, &args);
  if (!error && copy->size) memcpy(copy->out, (const void *)args.buffer_pointer, copy->size);
  return error;
}

static PJRT_Error *await_inner(PJRT_Buffer *inner) {
  ACCEL_ARGS(Buffer_ReadyEvent, ready, .buffer = inner);
  PJRT_Error *error = ACCEL_INNER(Buffer_ReadyEvent, &ready);
  if (error) return error;
  ACCEL_ARGS(Event_Await, await, .event = ready.event);
  error = ACCEL_INNER(Event_Await, &await);
  ACCEL_INNER_DESTROY(Event_Destroy, .event = ready.event);
  return error;
}

static PJRT_Error *move(accel_copy *copy) {
  ACCEL_ARGS(Buffer_CopyToDevice, args, .buffer = copy->source->inner,
             .dst_device = copy->target->device->inner);
  PJRT_Error *error = ACCEL_INNER(Buffer_CopyToDevice, &args);
  if (error) return error;
  copy->target->inner = args.dst_buffer;
  return await_inner(args.dst_buffer);
}

static void run_copy(accel_task *task) {
  accel_copy *copy = (accel_copy *)task;
  PJRT_Error *error = copy->error;
  if (!error && copy->source) error = accel_error_copy(copy->source->ready->error);
  if (!error) error = !copy->source ? upload(copy) : !copy->target ? download(copy) : move(copy);
  free(copy->staged);
  accel_lock();
  if (copy->source) {
    copy->source->readers--;
    accel_value_release(copy->source);
  }
  accel_unlock();
  if (copy->read) accel_moment_end(copy->read, NULL);
  accel_moment_end(copy->ended, error);
  accel_lock();
  if (copy->read) accel_moment_release(copy->read);
  accel_moment_release(copy->ended);
  accel_value_release(copy->target);
  accel_unlock();
}

/* Under the lock. Takes over the reference to `ended`. */
static accel_copy *copy_create(accel_act act, accel_value *source, accel_value *target,
                               accel_moment *ended) {
  accel_copy *copy = accel_alloc(1, sizeof *copy);
  copy->task = (accel_task){
      .ready = source ? source_ready : always_ready, .run = run_copy, .delay = accel_delay()};
  if (source) {
    copy->source = accel_value_retain(source);
    source->readers++;
  }
  if (target) copy->target = accel_value_retain(target);
  copy->ended = ended;
  copy->error = accel_fault(act, true);
  accel_did(act);
  return copy;
}

static void copy_start(accel_copy *copy, accel_act act, PJRT_Device *device) {
  accel_lane *lane = &device->lanes[act];
  accel_lane_add(&lane, 1, &copy->task);
}

/* Under the lock: the target's memory and handle. */
static PJRT_Error *target_create(PJRT_Device *device, const tt_type *type, accel_moment *ready,
                                 PJRT_Buffer **out) {
  PJRT_Error *error = accel_memory_take(device, accel_device_bytes(type));
  if (!error) *out = accel_buffer_create(accel_value_create(device, type, ready));
  return error;
}

/* -- The host's data to a device -- */

static PJRT_Error *check_upload(const PJRT_Client_BufferFromHostBuffer_Args *args, tt_type *type) {
  if (args->byte_strides || args->memory || args->device_layout || !args->device)
    return accel_error(TT_UNIMPLEMENTED,
                       "BufferFromHostBuffer: only row-major data to a device's own memory");
  if (args->num_dims > TT_MAX_RANK)
    return accel_error(TT_INVALID_ARGUMENT, "BufferFromHostBuffer: rank %zu", args->num_dims);
  *type = (tt_type){.dtype = (tt_dtype)args->type, .rank = (int)args->num_dims};
  for (int i = 0; i < type->rank; i++) type->dims[i] = args->dims[i];
  if (accel_dense_bytes(type) < 0)
    return accel_error(TT_INVALID_ARGUMENT, "BufferFromHostBuffer: element type %d or dimensions",
                       args->type);
  return NULL;
}

/* Only data that may change after the call is copied now; all other is read when its time comes,
 * also where the caller would allow an alias. NULL: nothing was copied. */
static void *stage(const PJRT_Client_BufferFromHostBuffer_Args *args, size_t size) {
  if (args->host_buffer_semantics != PJRT_HostBufferSemantics_kImmutableOnlyDuringCall) return NULL;
  void *staged = accel_alloc(1, size);
  if (size) memcpy(staged, args->data, size);
  return staged;
}

ACCEL(Client_BufferFromHostBuffer) {
  ACCEL_ENTER(Client_BufferFromHostBuffer);
  tt_type type;
  PJRT_Error *error = check_upload(args, &type);
  if (!error) error = accel_fault(ACCEL_H2D, false);
  if (error) return error;
  void *staged = stage(args, (size_t)accel_dense_bytes(&type));
  accel_moment *ready = accel_moment_create();
  accel_lock();
  error = target_create(args->device, &type, ready, &args->buffer);
  if (error) {
    accel_moment_release(ready);
    free(staged);
  } else {
    accel_copy *copy = copy_create(ACCEL_H2D, NULL, args->buffer->value, ready);
    copy->staged = staged;
    copy->data = staged ? staged : args->data;
    copy->read = accel_moment_create();
    args->done_with_host_buffer = accel_event_create(copy->read);
    copy_start(copy, ACCEL_H2D, args->device);
  }
  accel_unlock();
  return error;
}

/* -- A device's value to the host -- */

/* Like a device whose own layout is tiled: without a layout there is no telling the order. */
static PJRT_Error *check_row_major(const PJRT_Buffer_MemoryLayout *layout, int rank) {
  bool fine = layout && layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled &&
              layout->tiled.num_tiles == 0 && layout->tiled.minor_to_major_size == (size_t)rank;
  for (int i = 0; fine && i < rank; i++) fine = layout->tiled.minor_to_major[i] == rank - 1 - i;
  return fine ? NULL : accel_error(TT_UNIMPLEMENTED, "ToHostBuffer: only a row-major host_layout");
}

static PJRT_Error *check_download(PJRT_Buffer_ToHostBuffer_Args *args, size_t *size) {
  PJRT_Error *error = accel_buffer_check(args->src);
  if (error) return error;
  const tt_type *type = &args->src->value->type;
  *size = (size_t)accel_dense_bytes(type);
  error = check_row_major(args->host_layout, type->rank);
  if (!error && args->dst && args->dst_size < *size)
    error = accel_error(TT_INVALID_ARGUMENT, "ToHostBuffer: %zu bytes, expected %zu",
                        args->dst_size, *size);
  return error;
}

ACCEL(Buffer_ToHostBuffer) {
  ACCEL_ENTER(Buffer_ToHostBuffer);
  size_t size = 0;
  accel_lock();
  PJRT_Error *error = check_download(args, &size);
  if (!error && args->dst) error = accel_fault(ACCEL_D2H, false);
  if (!error && !args->dst) args->dst_size = size;
  if (!error && args->dst) {
    accel_value *source = args->src->value;
    accel_copy *copy = copy_create(ACCEL_D2H, source, NULL, accel_moment_create());
    memset(args->dst, ACCEL_GARBAGE, size);
    copy->out = args->dst;
    copy->size = size;
    args->event = accel_event_create(copy->ended);
    copy_start(copy, ACCEL_D2H, source->device);
  }
  accel_unlock();
  return error;
}

/* -- Between devices -- */

ACCEL(Buffer_CopyToDevice) {
  ACCEL_ENTER(Buffer_CopyToDevice);
  accel_lock();
  PJRT_Error *error = accel_buffer_check(args->buffer);
  if (!error && args->buffer->value->device == args->dst_device)
    error = accel_error(TT_INVALID_ARGUMENT, "CopyToDevice: the buffer is already on %s",
                        args->dst_device->description.string);
  if (!error && args->buffer->value->device->client != args->dst_device->client)
    error = accel_error(TT_UNIMPLEMENTED, "CopyToDevice: the device is of another client");
  if (!error) error = accel_fault(ACCEL_D2D, false);
  if (!error) {
    accel_value *source = args->buffer->value;
    accel_moment *ready = accel_moment_create();
    error = target_create(args->dst_device, &source->type, ready, &args->dst_buffer);
    if (error) accel_moment_release(ready);
    else
      copy_start(copy_create(ACCEL_D2D, source, args->dst_buffer->value, ready), ACCEL_D2D,
                 args->dst_device);
  }
  accel_unlock();
  return error;
}
