/* Resizing a storage: the common prefix of its bytes, then zeros. */
#include "stream/capture.h"
#include "stream/host.h"
#include "stream/settle.h"

static const tt_op_row resize_row = {.name = "resize_storage",
                                     .cls = TT_VIEW,
                                     .lower = tt_lower_resize,
                                     .statics = "",
                                     .doc = "Grows or shrinks a storage."};

static tt_status make_call(tt_stream *stream, tt_call_table *calls, const tt_key *key,
                           const tt_storage *storage, const tt_type *type, tt_call **out) {
  tt_view old = {.dtype = type->dtype, .rank = 1, .strides = {1}};
  old.sizes[0] = tt_storage_bytes(storage) / tt_dtype_bytes(type->dtype);
  tt_arg arg = {.kind = TT_ARG_TENSOR};
  tt_call_tensor tensor = {.storage = storage->type, .view = old, .same_as = -1};
  tt_call_result result = {.target = -1, .view = tt_view_whole(type)};
  tt_call_spec spec = {.row = &resize_row,
                       .name = "resize_storage",
                       .args = &arg,
                       .arg_count = 1,
                       .tensors = &tensor,
                       .tensor_count = 1,
                       .result_type = type->dtype,
                       .results = &result,
                       .result_count = 1,
                       .meta_known = true};
  const tt_target *target = tt_program_table_target(stream->device->programs);
  return tt_call_create(calls, key, &spec, target, out);
}

static tt_status find_call(tt_stream *stream, tt_call_table *calls, const tt_storage *storage,
                           const tt_type *type, tt_call **out) {
  tt_key key;
  tt_key_init(&key);
  tt_key_u64(&key, (uint64_t)(uintptr_t)&resize_row);
  tt_key_u64(&key, (uint64_t)type->dims[0]);
  tt_key_tensor(&key, storage->type, storage->value != NULL, -1, true, type->dtype, 1, 0, NULL,
                NULL);
  *out = tt_call_find(calls, &key, NULL);
  tt_status status = *out ? TT_SUCCESS : make_call(stream, calls, &key, storage, type, out);
  tt_key_deinit(&key);
  return status;
}

static tt_status record(tt_stream *stream, tt_call_table *calls, tt_storage *storage,
                        const tt_type *type, const tt_policy *policy) {
  tt_call *call = NULL;
  tt_storage *resized = NULL;
  TT_TRY(tt_storage_settle(stream, storage, policy, 0));
  TT_TRY(tt_capture_touch(stream, storage, policy));
  TT_TRY(find_call(stream, calls, storage, type, &call));
  tt_operation operation = {.call = call, .tensors = &storage, .policy = policy};
  TT_TRY(tt_stream_record(stream, &operation, &resized));
  tt_storage_take(storage, resized);
  return TT_SUCCESS;
}

/* The lock is held. */
static tt_value *forget_value(tt_storage *storage, const tt_type *type) {
  tt_value *old = tt_storage_hold(storage, NULL);
  tt_storage_set_type(storage, type);
  return old;
}

static tt_status resize(tt_stream *stream, tt_call_table *calls, tt_storage *storage, int64_t bytes,
                        const tt_policy *policy) {
  tt_dtype dtype = storage->type->dtype;
  if (bytes % tt_dtype_bytes(dtype) != 0) dtype = TT_U8;
  int64_t count = bytes / tt_dtype_bytes(dtype);
  tt_type type = tt_type_make(dtype, 1, &count);
  const tt_type *interned = NULL;
  TT_TRY(tt_type_intern(&type, &interned));
  tt_observer *observer = tt_observer_current;
  if (storage->value && bytes && tt_storage_bytes(storage)) {
    if (observer) observer->disturbed(observer);
    return record(stream, calls, storage, interned, policy);
  }
  tt_device_lock(stream->device);
  tt_value *old = forget_value(storage, interned);
  tt_device_unlock(stream->device);
  tt_value_release(old);
  if (observer) observer->retyped(observer, storage);
  return TT_SUCCESS;
}

tt_status tt_storage_resize(tt_stream *stream, tt_call_table *calls, tt_storage *storage,
                            int64_t bytes, const tt_policy *policy) {
  if (bytes < 0)
    return tt_error(TT_INVALID_ARGUMENT, "a storage cannot have %lld bytes", (long long)bytes);
  tt_guard_enter();
  tt_status status = resize(stream, calls, storage, bytes, policy);
  tt_guard_leave();
  return status;
}
