#include "internal.h"

#include <stdlib.h>

PJRT_Buffer *accel_buffer_create(accel_value *value) {
  PJRT_Buffer *buffer = accel_alloc(1, sizeof *buffer);
  buffer->value = value;
  atomic_fetch_add(&accel_live, 1);
  return buffer;
}

PJRT_Error *accel_buffer_check(const PJRT_Buffer *buffer) {
  return buffer->value ? NULL
                       : accel_error(TT_INVALID_ARGUMENT, "Buffer has been deleted or donated.");
}

ACCEL(Buffer_Destroy) {
  ACCEL_ENTER(Buffer_Destroy);
  accel_lock();
  accel_value_release(args->buffer->value);
  accel_unlock();
  free(args->buffer);
  atomic_fetch_sub(&accel_live, 1);
  return NULL;
}

ACCEL(Buffer_IsDeleted) {
  ACCEL_ENTER(Buffer_IsDeleted);
  accel_lock();
  args->is_deleted = !args->buffer->value;
  accel_unlock();
  return NULL;
}

ACCEL(Buffer_IsOnCpu) {
  ACCEL_ENTER(Buffer_IsOnCpu);
  args->is_on_cpu = false;
  return NULL;
}

ACCEL(Buffer_OnDeviceSizeInBytes) {
  ACCEL_ENTER(Buffer_OnDeviceSizeInBytes);
  accel_lock();
  PJRT_Error *error = accel_buffer_check(args->buffer);
  if (!error) args->on_device_size_in_bytes = (size_t)args->buffer->value->bytes;
  accel_unlock();
  return error;
}

ACCEL(Buffer_ReadyEvent) {
  ACCEL_ENTER(Buffer_ReadyEvent);
  accel_lock();
  PJRT_Error *error = accel_buffer_check(args->buffer);
  if (!error) args->event = accel_event_create(args->buffer->value->ready);
  accel_unlock();
  return error;
}
