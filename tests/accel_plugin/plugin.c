/* The table, and the plugin inside. */
#include "internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#ifndef TT_ACCEL_INNER_DEFAULT
#define TT_ACCEL_INNER_DEFAULT ""
#endif

const PJRT_Api *accel_inner;

static PJRT_Error *open_inner(void) {
  const char *path = getenv("TT_ACCEL_INNER");
  if (!path || !*path) path = TT_ACCEL_INNER_DEFAULT;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "GetPjrtApi") : NULL;
  if (!symbol) return accel_error(TT_NOT_FOUND, "TT_ACCEL_INNER names no PJRT plugin: '%s'", path);
  const PJRT_Api *(*get_api)(void) = NULL;
  memcpy((void *)&get_api, (const void *)&symbol, sizeof symbol);
  const PJRT_Api *api = get_api();
  ACCEL_ARGS(Plugin_Initialize, args, 0);
  accel_inner = api;
  return ACCEL_INNER(Plugin_Initialize, &args);
}

ACCEL(Plugin_Initialize) {
  ACCEL_ENTER(Plugin_Initialize);
  return accel_inner ? NULL : open_inner();
}

ACCEL(Plugin_Attributes) {
  ACCEL_ENTER(Plugin_Attributes);
  return ACCEL_INNER(Plugin_Attributes, args);
}

/* -- What it does not offer -- */

/* Of the slots that the library knows. */
#define ACCEL_REFUSED(X)                                                                           \
  X(Client_CreateUninitializedBuffer)                                                              \
  X(Buffer_UnsafePointer)                                                                          \
  X(TopologyDescription_Create)                                                                    \
  X(TopologyDescription_Destroy)                                                                   \
  X(TopologyDescription_GetDeviceDescriptions)                                                     \
  X(Compile)
#define REFUSE(slot)                                                                               \
  ACCEL(slot) {                                                                                    \
    (void)args;                                                                                    \
    return accel_error(TT_UNIMPLEMENTED, "%s: not on this device", #slot);                         \
  }
ACCEL_REFUSED(REFUSE)
#undef REFUSE

/* Of the others. */
static PJRT_Error *refuse(void *args) {
  (void)args;
  return accel_error(TT_UNIMPLEMENTED, "not on this device");
}

/* -- The table -- */

#define SKIP(slot)
#define CALL(slot) PJRT_Error *accel_##slot(PJRT_##slot##_Args *args);
#define VOID(slot) void accel_##slot(PJRT_##slot##_Args *args);
TT_PJRT_SLOTS(CALL, CALL, SKIP, VOID)
CALL(Buffer_IsOnCpu)
#undef CALL
#undef VOID

const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void) {
  static PJRT_Api api;
  if (api.struct_size) return &api;
  static PJRT_Extension_Base gpu = {sizeof gpu, PJRT_Extension_Type_Gpu_Custom_Call, NULL};
  const char *spans = getenv("TT_ACCEL_SPANS");
  if (spans && *spans) api.extension_start = &gpu;
  PJRT_Error *(*other)(void *) = refuse;
  PJRT_Error *(*is_on_cpu)(PJRT_Buffer_IsOnCpu_Args *) = accel_Buffer_IsOnCpu;
  api.pjrt_api_version =
      (PJRT_Api_Version){PJRT_Api_Version_STRUCT_SIZE, NULL, PJRT_API_MAJOR, PJRT_API_MINOR};
#define CALL(slot) api.PJRT_##slot = accel_##slot;
#define FREE(slot) memcpy(&api.PJRT_##slot, (const void *)&other, sizeof other);
  TT_PJRT_SLOTS(CALL, CALL, FREE, CALL)
#undef CALL
#undef FREE
  memcpy(&api.PJRT_Buffer_IsOnCpu, (const void *)&is_on_cpu, sizeof is_on_cpu);
  api.struct_size = sizeof api;
  return &api;
}
