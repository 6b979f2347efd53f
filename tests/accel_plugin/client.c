/* The client and its devices. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCEL_MAX_DEVICES 64

static int64_t number(const char *variable, int64_t otherwise) {
  const char *text = getenv(variable);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static PJRT_NamedValue inner_option(const char *name, int type) {
  return (PJRT_NamedValue){.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                           .name = name,
                           .name_size = strlen(name),
                           .type = type,
                           .value_size = 1};
}

/* The inner plugin computes on our threads. */
static PJRT_Error *create_inner(PJRT_Client *client, int64_t devices) {
  PJRT_NamedValue options[] = {inner_option("cpu_device_count", PJRT_NamedValue_kInt64),
                               inner_option("asynchronous", PJRT_NamedValue_kBool)};
  options[0].value.int64_value = devices;
  options[1].value.bool_value = false;
  ACCEL_ARGS(Client_Create, create, .create_options = options, .num_options = 2);
  PJRT_Error *error = ACCEL_INNER(Client_Create, &create);
  if (error) return error;
  client->inner = create.client;
  ACCEL_ARGS(Client_PlatformVersion, version, .client = client->inner);
  error = ACCEL_INNER(Client_PlatformVersion, &version);
  if (!error)
    (void)snprintf(client->version, sizeof client->version, "accel 1, computing with %.*s",
                   (int)version.platform_version_size, version.platform_version);
  return error;
}

static PJRT_Error *create_device(PJRT_Client *client, PJRT_Device *inner, PJRT_Device **out) {
  PJRT_Device *device = accel_alloc(1, sizeof *device);
  device->client = client;
  device->inner = inner;
  device->limit = number("TT_ACCEL_MEMORY", (int64_t)4 << 30);
  device->description.id = 100 + (int)client->device_count; /* ids are not indices */
  (void)snprintf(device->description.string, sizeof device->description.string, "AccelDevice(%zu)",
                 client->device_count);
  *out = device;
  PJRT_Error *error = NULL;
  for (int i = 0; i < ACCEL_LANES && !error; i++)
    error = accel_lane_init(&device->lanes[i], i == ACCEL_EXECUTE);
  return error;
}

/* The one of this process; the first one is the last process's. Of several processes the numbers
 * are the inner plugin's, which is told of them. */
static PJRT_Error *create_own_device(PJRT_Client *client, PJRT_Device *const *inner) {
  int place = (int)(client->span.nodes - 1 - client->span.node);
  client->devices = accel_alloc(1, sizeof *client->devices);
  client->device_count = 1;
  PJRT_Error *error = create_device(client, inner[place], &client->devices[0]);
  client->devices[0]->description.id = place;
  return error;
}

static PJRT_Error *create_devices(PJRT_Client *client) {
  ACCEL_ARGS(Client_AddressableDevices, args, .client = client->inner);
  PJRT_Error *error = ACCEL_INNER(Client_AddressableDevices, &args);
  if (error) return error;
  client->all_devices = args.num_addressable_devices;
  if (client->span.nodes > 1) return create_own_device(client, args.addressable_devices);
  client->devices = accel_alloc(args.num_addressable_devices, sizeof *client->devices);
  for (size_t i = 0; i < args.num_addressable_devices && !error; i++) {
    error = create_device(client, args.addressable_devices[i], &client->devices[i]);
    client->device_count++;
  }
  return error;
}

static void stop_lanes(PJRT_Client *client) {
  for (size_t i = 0; i < client->device_count; i++)
    for (int k = 0; k < ACCEL_LANES; k++) accel_lane_deinit(&client->devices[i]->lanes[k]);
}

static void destroy(PJRT_Client *client) {
  stop_lanes(client);
  for (size_t i = 0; i < client->device_count; i++) free(client->devices[i]);
  free(client->devices);
  if (client->inner) ACCEL_INNER_DESTROY(Client_Destroy, .client = client->inner);
  free(client);
}

static PJRT_Error *check_settings(int64_t devices) {
  if (devices < 1 || devices > ACCEL_MAX_DEVICES)
    return accel_error(TT_INVALID_ARGUMENT, "TT_ACCEL_DEVICES must be 1 to %d", ACCEL_MAX_DEVICES);
  if (!tt_accel_fail(getenv("TT_ACCEL_FAIL")))
    return accel_error(TT_INVALID_ARGUMENT, "TT_ACCEL_FAIL='%s' cannot be read; see accel.h",
                       getenv("TT_ACCEL_FAIL"));
  return NULL;
}

ACCEL(Client_Create) {
  ACCEL_ENTER(Client_Create);
  accel_span span;
  PJRT_Error *error = accel_span_read(args, &span);
  int64_t devices = !error && span.nodes > 1 ? span.nodes : number("TT_ACCEL_DEVICES", 1);
  if (!error) error = check_settings(devices);
  if (!error) error = accel_span_meet(&span);
  if (error) return error;
  accel_seed((uint64_t)number("TT_ACCEL_SEED", 0), number("TT_ACCEL_DELAY_US", 25));
  PJRT_Client *client = accel_alloc(1, sizeof *client);
  client->span = span;
  error = create_inner(client, devices);
  if (!error) error = create_devices(client);
  if (error) destroy(client);
  else args->client = client;
  return error;
}

/* What has begun ends first; what was forgotten would crash a real device's plugin. */
ACCEL(Client_Destroy) {
  ACCEL_ENTER(Client_Destroy);
  stop_lanes(args->client);
  int64_t holders = atomic_load(&args->client->holders);
  if (holders)
    return accel_error(TT_FAILED_PRECONDITION,
                       "Client_Destroy: %lld buffers and executables were not destroyed before",
                       (long long)holders);
  destroy(args->client);
  return NULL;
}

ACCEL(Client_PlatformName) {
  ACCEL_ENTER(Client_PlatformName);
  const char *name = getenv("TT_ACCEL_PLATFORM"); /* programs are lowered for the one named */
  args->platform_name = name ? name : "accel";
  args->platform_name_size = strlen(args->platform_name);
  return NULL;
}

ACCEL(Client_PlatformVersion) {
  ACCEL_ENTER(Client_PlatformVersion);
  args->platform_version = args->client->version;
  args->platform_version_size = strlen(args->client->version);
  return NULL;
}

ACCEL(Client_AddressableDevices) {
  ACCEL_ENTER(Client_AddressableDevices);
  args->addressable_devices = args->client->devices;
  args->num_addressable_devices = args->client->device_count;
  return NULL;
}

ACCEL(Client_Devices) {
  ACCEL_ENTER(Client_Devices);
  args->devices = args->client->devices; /* of which there are fewer where processes share them */
  args->num_devices = args->client->all_devices;
  return NULL;
}

/* -- Devices -- */

ACCEL(Device_GetDescription) {
  ACCEL_ENTER(Device_GetDescription);
  args->device_description = &args->device->description;
  return NULL;
}

ACCEL(DeviceDescription_Id) {
  ACCEL_ENTER(DeviceDescription_Id);
  args->id = args->device_description->id;
  return NULL;
}

ACCEL(DeviceDescription_Kind) {
  ACCEL_ENTER(DeviceDescription_Kind);
  args->device_kind = "accel v1 lite";
  args->device_kind_size = strlen(args->device_kind);
  return NULL;
}

ACCEL(DeviceDescription_ToString) {
  ACCEL_ENTER(DeviceDescription_ToString);
  args->to_string = args->device_description->string;
  args->to_string_size = strlen(args->to_string);
  return NULL;
}

ACCEL(Device_MemoryStats) {
  ACCEL_ENTER(Device_MemoryStats);
  accel_lock();
  args->bytes_in_use = args->device->in_use;
  args->bytes_limit = args->device->limit;
  args->peak_bytes_in_use = args->device->peak;
  args->num_allocs = args->device->allocations;
  args->largest_alloc_size = args->device->largest;
  accel_unlock();
  args->bytes_limit_is_set = args->peak_bytes_in_use_is_set = true;
  args->num_allocs_is_set = args->largest_alloc_size_is_set = true;
  return NULL;
}
