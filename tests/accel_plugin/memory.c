#include "internal.h"

#include <stdlib.h>

#define ACCEL_BLOCK 512 /* bytes that are allocated together */

int64_t accel_dense_bytes(const tt_type *type) {
  int64_t bytes = -1;
  switch ((int)type->dtype) {
#define X(name, number, mlir, size, kind)                                                          \
  case number:                                                                                     \
    bytes = size;                                                                                  \
    break;
    TT_DTYPES(X)
#undef X
  default:
    return -1;
  }
  for (int i = 0; i < type->rank; i++)
    if (type->dims[i] < 0 || __builtin_mul_overflow(bytes, type->dims[i], &bytes)) return -1;
  return bytes;
}

int64_t accel_device_bytes(const tt_type *type) {
  return (accel_dense_bytes(type) + ACCEL_BLOCK - 1) / ACCEL_BLOCK * ACCEL_BLOCK;
}

PJRT_Error *accel_memory_take(PJRT_Device *device, int64_t bytes) {
  accel_did(ACCEL_ALLOC);
  PJRT_Error *fault = accel_fault(ACCEL_ALLOC, false);
  if (fault) return fault;
  if (bytes > device->limit - device->in_use)
    return accel_error(TT_RESOURCE_EXHAUSTED,
                       "Out of memory allocating %lld bytes on %s: %lld of %lld are in use",
                       (long long)bytes, device->description.string, (long long)device->in_use,
                       (long long)device->limit);
  device->in_use += bytes;
  device->allocations++;
  if (device->in_use > device->peak) device->peak = device->in_use;
  if (bytes > device->largest) device->largest = bytes;
  return NULL;
}

void accel_memory_give(PJRT_Device *device, int64_t bytes) { device->in_use -= bytes; }

accel_value *accel_value_create(PJRT_Device *device, const tt_type *type, accel_moment *ready) {
  accel_value *value = accel_alloc(1, sizeof *value);
  *value = (accel_value){.refs = 1,
                         .device = device,
                         .type = *type,
                         .bytes = accel_device_bytes(type),
                         .ready = accel_moment_retain(ready)};
  atomic_fetch_add(&device->client->holders, 1);
  return value;
}

accel_value *accel_value_retain(accel_value *value) {
  value->refs++;
  return value;
}

void accel_value_release(accel_value *value) {
  if (!value || --value->refs) return;
  if (value->inner) ACCEL_INNER_DESTROY(Buffer_Destroy, .buffer = value->inner);
  accel_memory_give(value->device, value->bytes);
  accel_moment_release(value->ready);
  atomic_fetch_sub(&value->device->client->holders, 1);
  free(value);
}
