#include "pjrt/internal.h"

tt_status tt_pjrt_device_init(tt_pjrt_device *device) {
  const PJRT_Api *api = device->client->api;
  TT_ARGS(Device_GetDescription, args, .device = device->raw);
  TT_TRY(TT_CALL(api, Device_GetDescription, &args));
  TT_ARGS(DeviceDescription_Id, id, .device_description = args.device_description);
  TT_ARGS(DeviceDescription_Kind, kind, .device_description = args.device_description);
  TT_ARGS(DeviceDescription_ToString, string, .device_description = args.device_description);
  TT_TRY(TT_CALL(api, DeviceDescription_Id, &id));
  TT_TRY(TT_CALL(api, DeviceDescription_Kind, &kind));
  TT_TRY(TT_CALL(api, DeviceDescription_ToString, &string));
  device->id = id.id;
  device->kind = tt_strndup(kind.device_kind, kind.device_kind_size);
  device->string = tt_strndup(string.to_string, string.to_string_size);
  return device->kind && device->string ? TT_SUCCESS : tt_out_of_memory();
}

void tt_pjrt_device_deinit(tt_pjrt_device *device) {
  tt_free(device->kind);
  tt_free(device->string);
}

const char *tt_pjrt_device_kind(const tt_pjrt_device *device) { return device->kind; }
const char *tt_pjrt_device_string(const tt_pjrt_device *device) { return device->string; }
int tt_pjrt_device_id(const tt_pjrt_device *device) { return device->id; }

tt_status tt_pjrt_device_memory(const tt_pjrt_device *device, int64_t *in_use, int64_t *limit) {
  const PJRT_Api *api = device->client->api;
  if (!TT_HAS(api, Device_MemoryStats)) return tt_pjrt_missing("Device_MemoryStats");
  TT_ARGS(Device_MemoryStats, args, .device = device->raw);
  TT_TRY(TT_CALL(api, Device_MemoryStats, &args));
  *in_use = args.bytes_in_use;
  *limit = args.bytes_limit_is_set ? args.bytes_limit : 0;
  return TT_SUCCESS;
}
