#include "pjrt/ffi.h"

#include "pjrt/ffi_abi.h"
#include "pjrt/internal.h"

#include <fenv.h>
#include <string.h>

static tt_dtype dtype_of(int code) {
  static const tt_dtype dtypes[] = {
      [XLA_FFI_DataType_PRED] = TT_BOOL,
      [XLA_FFI_DataType_S8] = TT_I8,
      [XLA_FFI_DataType_S16] = TT_I16,
      [XLA_FFI_DataType_S32] = TT_I32,
      [XLA_FFI_DataType_S64] = TT_I64,
      [XLA_FFI_DataType_U8] = TT_U8,
      [XLA_FFI_DataType_U16] = TT_U16,
      [XLA_FFI_DataType_U32] = TT_U32,
      [XLA_FFI_DataType_U64] = TT_U64,
      [XLA_FFI_DataType_F16] = TT_F16,
      [XLA_FFI_DataType_F32] = TT_F32,
      [XLA_FFI_DataType_F64] = TT_F64,
      [XLA_FFI_DataType_C64] = TT_C64,
      [XLA_FFI_DataType_BF16] = TT_BF16,
      [XLA_FFI_DataType_C128] = TT_C128,
      [XLA_FFI_DataType_F8E5M2] = TT_F8E5M2,
      [XLA_FFI_DataType_F8E4M3FN] = TT_F8E4M3FN,
      [XLA_FFI_DataType_F8E5M2FNUZ] = TT_F8E5M2FNUZ,
      [XLA_FFI_DataType_F8E4M3FNUZ] = TT_F8E4M3FNUZ,
  };
  bool known = code >= 0 && (size_t)code < sizeof dtypes / sizeof *dtypes;
  return known ? dtypes[code] : TT_INVALID;
}

static tt_status read_array(const XLA_FFI_Buffer *buffer, tt_ffi_array *out) {
  *out = (tt_ffi_array){.type = {.dtype = dtype_of(buffer->dtype)}, .data = buffer->data};
  if (out->type.dtype == TT_INVALID)
    return tt_error(TT_INVALID_ARGUMENT,
                    "a host function got an array of XLA's type %d, which none "
                    "of ours takes",
                    buffer->dtype);
  if (buffer->rank < 0 || buffer->rank > TT_MAX_RANK)
    return tt_error(TT_INVALID_ARGUMENT,
                    "a host function got an array of %lld dims; at most %d "
                    "are possible",
                    (long long)buffer->rank, TT_MAX_RANK);
  out->type.rank = (int)buffer->rank;
  for (int i = 0; i < out->type.rank; i++) out->type.dims[i] = buffer->dims[i];
  return TT_SUCCESS;
}

static tt_status read_arrays(int64_t count, const int *types, int wanted, void **buffers,
                             tt_ffi_array *out) {
  for (int i = 0; i < count; i++) {
    if (types[i] != wanted)
      return tt_error(TT_INVALID_ARGUMENT, "argument %d of a host function is no array", i);
    TT_TRY(read_array(buffers[i], &out[i]));
  }
  return TT_SUCCESS;
}

static tt_status read_call(const tt_ffi_frame *frame, tt_ffi_array *arrays, tt_ffi_call *call) {
  *call = (tt_ffi_call){.frame = frame,
                        .operand_count = (int)frame->args.size,
                        .result_count = (int)frame->rets.size,
                        .operands = arrays,
                        .results = arrays + frame->args.size};
  TT_TRY(read_arrays(frame->args.size, frame->args.types, XLA_FFI_ArgType_BUFFER, frame->args.args,
                     call->operands));
  return read_arrays(frame->rets.size, frame->rets.types, XLA_FFI_RetType_BUFFER, frame->rets.rets,
                     call->results);
}

static tt_status run_body(const tt_ffi_call *call, tt_ffi_body body) {
  fenv_t environment; /* XLA's threads flush denormal numbers to zero */
  (void)fegetenv(&environment);
  (void)fesetenv(FE_DFL_ENV);
  tt_status status = body(call);
  (void)fesetenv(&environment);
  return status;
}

static tt_status run(const tt_ffi_frame *frame, tt_ffi_body body) {
  tt_ffi_call call;
  tt_ffi_array few[8], *arrays = few; /* what most calls have */
  size_t size = 0, count = (size_t)frame->args.size + (size_t)frame->rets.size;
  if (!tt_mul_size(count, sizeof *arrays, &size)) return tt_out_of_memory();
  if (size > sizeof few && !(arrays = tt_malloc(size))) return tt_out_of_memory();
  tt_status status = read_call(frame, arrays, &call);
  if (!status) status = run_body(&call, body);
  if (arrays != few) tt_free(arrays);
  return status;
}

static bool asks_for_metadata(const tt_ffi_frame *frame) {
  const PJRT_Extension_Base *first = frame->extension_start;
  return first && first->type == XLA_FFI_Extension_Metadata;
}

static void tell_metadata(const tt_ffi_frame *frame) {
  const XLA_FFI_Metadata_Extension *extension = (const void *)frame->extension_start;
  extension->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  extension->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
}

tt_ffi_error *tt_ffi_run(tt_ffi_frame *frame, tt_ffi_body body) {
  if (asks_for_metadata(frame)) return tell_metadata(frame), NULL;
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return NULL;
  tt_status status = run(frame, body);
  if (!status) return NULL;
  tt_code code = tt_status_code(status);
  XLA_FFI_Error_Create_Args args = {
      .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
      .message = tt_status_message(status),
      .errc = code >= TT_CANCELLED && code <= TT_UNAUTHENTICATED ? (int)code : TT_INTERNAL};
  tt_ffi_error *error = frame->api->XLA_FFI_Error_Create(&args);
  tt_status_release(status);
  return error;
}

/* What the config has by this name, of this type; NULL if it has nothing. */
static const void *attribute(const tt_ffi_call *call, const char *name, int type) {
  const XLA_FFI_Attrs *attrs = &call->frame->attrs;
  size_t size = strlen(name);
  for (int64_t i = 0; i < attrs->size; i++) {
    if (attrs->names[i]->len != size || memcmp(attrs->names[i]->ptr, name, size) != 0) continue;
    return attrs->types[i] == type ? attrs->attrs[i] : NULL;
  }
  return NULL;
}

int64_t tt_ffi_int(const tt_ffi_call *call, const char *name) {
  const XLA_FFI_Scalar *scalar = attribute(call, name, XLA_FFI_AttrType_SCALAR);
  bool is_int = scalar && scalar->dtype == XLA_FFI_DataType_S64;
  return is_int ? *(const int64_t *)scalar->value : 0;
}

const int64_t *tt_ffi_all_ints(const tt_ffi_call *call, const char *name, int *count) {
  const XLA_FFI_Array *array = attribute(call, name, XLA_FFI_AttrType_ARRAY);
  bool are = array && array->dtype == XLA_FFI_DataType_S64 && array->size <= INT32_MAX;
  *count = are ? (int)array->size : 0;
  return are ? array->data : NULL;
}

const int64_t *tt_ffi_ints(const tt_ffi_call *call, const char *name, int count) {
  int found = 0;
  const int64_t *ints = tt_ffi_all_ints(call, name, &found);
  return found == count ? ints : NULL;
}

static const PJRT_FFI_Extension *extension_of(const PJRT_Api *api) {
  const PJRT_Extension_Base *one = tt_pjrt_extension(api, PJRT_Extension_Type_FFI);
  return one && one->struct_size >= sizeof(PJRT_FFI_Extension) ? (const void *)one : NULL;
}

tt_status tt_plugin_register(tt_plugin *plugin, const char *target, const char *platform,
                             tt_ffi_handler handler) {
  const PJRT_FFI_Extension *extension = extension_of(plugin->api);
  if (!extension || !extension->register_handler) return tt_pjrt_missing("FFI_Register_Handler");
  PJRT_FFI_Register_Handler_Args args = {.struct_size = PJRT_FFI_Register_Handler_Args_STRUCT_SIZE,
                                         .target_name = target,
                                         .target_name_size = strlen(target),
                                         .platform_name = platform,
                                         .platform_name_size = strlen(platform)};
  /* ISO C has no cast from function to data pointers. */
  memcpy((void *)&args.handler, (const void *)&handler, sizeof handler);
  return tt_pjrt_status(plugin->api, extension->register_handler(&args), "FFI_Register_Handler");
}
