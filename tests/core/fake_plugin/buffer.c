/* Buffers: pages without access, unlocked only while a call of this plugin copies. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

bool fake_type_finish(fake_type *type) {
  switch (type->dtype) {
#define X(name, number, mlir, size, kind)                                                          \
  case number:                                                                                     \
    type->bytes = size;                                                                            \
    break;
    TT_DTYPES(X)
#undef X
  default:
    return false;
  }
  for (int i = 0; i < type->rank; i++)
    if (__builtin_mul_overflow(type->bytes, type->dims[i], &type->bytes)) return false;
  return type->bytes >= 0;
}

PJRT_Error *fake_buffer_create(PJRT_Device *device, const fake_type *type, fake_moment *moment,
                               PJRT_Buffer **out) {
  if (type->bytes > device->bytes_limit - device->bytes_in_use)
    return fake_error(TT_RESOURCE_EXHAUSTED, "Out of memory allocating %lld bytes",
                      (long long)type->bytes);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t mapped = ((size_t)type->bytes / page + 1) * page;
  void *memory = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fake_error(TT_RESOURCE_EXHAUSTED, "mmap failed");
  PJRT_Buffer *buffer = fake_alloc(sizeof *buffer);
  *buffer = (PJRT_Buffer){*type, device, memory, mapped, moment};
  moment->refs++;
  device->bytes_in_use += type->bytes;
  atomic_fetch_add(&fake_live, 1);
  *out = buffer;
  return NULL;
}

void fake_buffer_free_memory(PJRT_Buffer *buffer) {
  if (!buffer->memory) return;
  (void)munmap(buffer->memory, buffer->mapped);
  buffer->memory = NULL;
  buffer->device->bytes_in_use -= buffer->type.bytes;
}

static PJRT_Error *check_alive(const PJRT_Buffer *buffer) {
  return buffer->memory ? NULL
                        : fake_error(TT_INVALID_ARGUMENT, "Buffer has been deleted or donated.");
}

static void unlock(PJRT_Buffer *buffer) {
  if (mprotect(buffer->memory, buffer->mapped, PROT_READ | PROT_WRITE) != 0) abort();
}

static void lock_again(PJRT_Buffer *buffer) {
  if (mprotect(buffer->memory, buffer->mapped, PROT_NONE) != 0) abort();
}

static PJRT_Error *type_of(int dtype, const int64_t *dims, size_t rank, fake_type *out) {
  *out = (fake_type){.dtype = dtype, .rank = (int)rank, .donates_to = -1};
  if (rank > TT_MAX_RANK) return fake_error(TT_UNIMPLEMENTED, "too many dims");
  for (size_t i = 0; i < rank; i++) out->dims[i] = dims[i];
  return fake_type_finish(out) ? NULL : fake_error(TT_INVALID_ARGUMENT, "unknown element type");
}

FAKE(Client_CreateUninitializedBuffer) {
  FAKE_ENTER(Client_CreateUninitializedBuffer);
  fake_type type;
  if (args->shape_layout || args->memory)
    return fake_error(TT_UNIMPLEMENTED, "CreateUninitializedBuffer: layout, memory");
  PJRT_Error *error =
      type_of(args->shape_element_type, args->shape_dims, args->shape_num_dims, &type);
  if (error) return error;
  fake_lock();
  fake_moment *moment = fake_moment_create(NULL);
  error = fake_buffer_create(args->device, &type, moment, &args->buffer);
  fake_moment_release(moment);
  fake_unlock();
  return error;
}

FAKE(Client_BufferFromHostBuffer) {
  FAKE_ENTER(Client_BufferFromHostBuffer);
  fake_type type;
  if (args->byte_strides || args->device_layout || args->memory)
    return fake_error(TT_UNIMPLEMENTED, "BufferFromHostBuffer: strides, layout, memory");
  PJRT_Error *error = type_of(args->type, args->dims, args->num_dims, &type);
  if (error) return error;
  fake_lock();
  fake_moment *moment = fake_moment_create(NULL);
  error = fake_buffer_create(args->device, &type, moment, &args->buffer);
  if (!error) {
    unlock(args->buffer);
    memcpy(args->buffer->memory, args->data, (size_t)type.bytes);
    lock_again(args->buffer);
    args->done_with_host_buffer = fake_event_create(moment);
  }
  fake_moment_release(moment);
  fake_unlock();
  return error;
}

FAKE(Buffer_Destroy) {
  fake_lock();
  fake_buffer_free_memory(args->buffer);
  fake_moment_release(args->buffer->moment);
  fake_unlock();
  free(args->buffer);
  atomic_fetch_sub(&fake_live, 1);
  FAKE_ENTER(Buffer_Destroy);
  return NULL;
}

FAKE(Buffer_OnDeviceSizeInBytes) {
  FAKE_ENTER(Buffer_OnDeviceSizeInBytes);
  args->on_device_size_in_bytes = (size_t)args->buffer->type.bytes;
  return NULL;
}

FAKE(Buffer_CopyToDevice) {
  FAKE_ENTER(Buffer_CopyToDevice);
  PJRT_Buffer *source = args->buffer;
  fake_lock();
  PJRT_Error *error = check_alive(source);
  if (!error && source->device == args->dst_device)
    error = fake_error(TT_INVALID_ARGUMENT, "CopyToDevice: the buffer is already on that device");
  if (!error) {
    fake_moment *moment = fake_moment_create(source->moment->failure);
    error = fake_buffer_create(args->dst_device, &source->type, moment, &args->dst_buffer);
    fake_moment_release(moment);
  }
  if (!error) {
    unlock(source);
    unlock(args->dst_buffer);
    memcpy(args->dst_buffer->memory, source->memory, (size_t)source->type.bytes);
    lock_again(source);
    lock_again(args->dst_buffer);
  }
  fake_unlock();
  return error;
}

/* Like a TPU, whose own layout is not row-major: without a layout there is no telling the order. */
static PJRT_Error *check_row_major(const PJRT_Buffer_MemoryLayout *layout, int rank) {
  bool fine = layout && layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled &&
              layout->tiled.num_tiles == 0 && layout->tiled.minor_to_major_size == (size_t)rank;
  for (int i = 0; fine && i < rank; i++) fine = layout->tiled.minor_to_major[i] == rank - 1 - i;
  return fine ? NULL : fake_error(TT_UNIMPLEMENTED, "ToHostBuffer: only a row-major host_layout");
}

FAKE(Buffer_ToHostBuffer) {
  FAKE_ENTER(Buffer_ToHostBuffer);
  PJRT_Buffer *source = args->src;
  fake_lock();
  PJRT_Error *error = check_alive(source);
  if (!error) error = check_row_major(args->host_layout, source->type.rank);
  if (!error && args->dst && args->dst_size < (size_t)source->type.bytes)
    error = fake_error(TT_INVALID_ARGUMENT, "ToHostBuffer: %zu bytes are too few", args->dst_size);
  if (!error && !args->dst) args->dst_size = (size_t)source->type.bytes;
  if (!error && args->dst) {
    unlock(source);
    memcpy(args->dst, source->memory, (size_t)source->type.bytes);
    lock_again(source);
    fake_moment *moment = fake_moment_create(source->moment->failure);
    args->event = fake_event_create(moment);
    fake_moment_release(moment);
  }
  fake_unlock();
  return error;
}

FAKE(Buffer_IsDeleted) {
  FAKE_ENTER(Buffer_IsDeleted);
  fake_lock();
  args->is_deleted = !args->buffer->memory;
  fake_unlock();
  return NULL;
}

FAKE(Buffer_ReadyEvent) {
  FAKE_ENTER(Buffer_ReadyEvent);
  fake_lock();
  PJRT_Error *error = check_alive(args->buffer);
  if (!error) args->event = fake_event_create(args->buffer->moment);
  fake_unlock();
  return error;
}

FAKE(Buffer_UnsafePointer) {
  FAKE_ENTER(Buffer_UnsafePointer);
  fake_lock();
  PJRT_Error *error = check_alive(args->buffer);
  args->buffer_pointer = (uintptr_t)args->buffer->memory;
  fake_unlock();
  return error;
}
