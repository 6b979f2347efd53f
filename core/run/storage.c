#include "run/storage.h"

#include "run/forget.h"
#include "run/run.h"
#include "run/template.h"
#include "run/value.h"

tt_status tt_storage_create(tt_stream *stream, const tt_type *type, tt_storage **out) {
  tt_storage *storage = tt_malloc(sizeof *storage);
  if (!storage) return tt_out_of_memory();
  *storage = (tt_storage){.stream = stream};
  tt_storage_set_type(storage, type);
  *out = storage;
  return TT_SUCCESS;
}

void tt_storage_destroy(tt_storage *storage) {
  if (!storage) return;
  tt_template_note_free(storage);
  tt_value_release(storage->value);
  tt_storage_set_type(storage, NULL);
  tt_free(storage);
}

/* -- Resizing: the common prefix of the bytes, then zeros -- */

static const tt_op_row resize_row = {.name = "resize_storage",
                                     .cls = TT_VIEW,
                                     .lower = tt_lower_resize,
                                     .statics = "",
                                     .doc = "Grows or shrinks a storage."};

static tt_status resize_call(const tt_storage *storage, const tt_type *type, tt_call **out) {
  tt_key key;
  tt_key_init(&key);
  tt_key_u64(&key, (uint64_t)(uintptr_t)&resize_row);
  tt_key_u64(&key, (uint64_t)type->dims[0]);
  tt_key_tensor(&key, storage, -1, true, type->dtype, 1, 0, NULL, NULL);
  *out = tt_call_find(&key);
  if (*out) return tt_key_deinit(&key), TT_SUCCESS;
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
                       .common = type->dtype,
                       .results = &result,
                       .result_count = 1,
                       .promised = true};
  tt_status status = tt_call_create(&key, &spec, out);
  tt_key_deinit(&key);
  return status;
}

static tt_status resize(tt_storage *storage, int64_t bytes) {
  tt_dtype dtype = storage->type->dtype;
  if (bytes % tt_dtype_bytes(dtype) != 0) dtype = TT_U8;
  int64_t count = bytes / tt_dtype_bytes(dtype);
  tt_type type = tt_type_make(dtype, 1, &count);
  const tt_type *interned = NULL;
  TT_TRY(tt_type_intern(&type, &interned));
  if (!storage->value || bytes == 0 || tt_storage_bytes(storage) == 0) {
    tt_value_release(storage->value);
    storage->value = NULL;
    tt_storage_set_type(storage, interned);
    tt_template_note_type(storage);
    return TT_SUCCESS;
  }
  tt_template_spoil();
  tt_call *call = NULL;
  TT_TRY(resize_call(storage, interned, &call));
  tt_storage *resized = NULL;
  TT_TRY(tt_stream_record(storage->stream, call, &storage, NULL, 0, &resized));
  tt_value *old = storage->value;
  storage->value = resized->value;
  tt_storage_set_type(storage, resized->type);
  resized->value = old;
  tt_storage_destroy(resized);
  return TT_SUCCESS;
}

tt_status tt_storage_resize(tt_storage *storage, int64_t bytes) {
  if (bytes < 0)
    return tt_error(TT_INVALID_ARGUMENT, "a storage cannot have %lld bytes", (long long)bytes);
  tt_hold_enter();
  tt_status status = resize(storage, bytes);
  tt_hold_leave();
  return status;
}
