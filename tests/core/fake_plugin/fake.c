/* The table, errors, failure injection, client, devices, topologies. */
#include "internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_MAX_DEVICES 64

atomic_int_fast64_t fake_live;
static atomic_int_fast64_t fake_calls, fake_fail_in;
static pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;

void fake_lock(void) { (void)pthread_mutex_lock(&fake_mutex); }
void fake_unlock(void) { (void)pthread_mutex_unlock(&fake_mutex); }

void *fake_alloc(size_t size) {
  void *memory = calloc(1, size ? size : 1);
  if (!memory) abort();
  return memory;
}

/* -- For tests -- */

void tt_fake_fail_at(int64_t nth) { atomic_store(&fake_fail_in, nth); }
bool tt_fake_failed(void) { return atomic_load(&fake_fail_in) <= 0; }
int64_t tt_fake_live_objects(void) { return atomic_load(&fake_live); }
int64_t tt_fake_calls(void) { return atomic_load(&fake_calls); }

/* -- Errors -- */

PJRT_Error *fake_error(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  PJRT_Error *error = fake_alloc(sizeof *error + 256);
  error->code = code;
  (void)vsnprintf(error->text, 256, format, args);
  va_end(args);
  atomic_fetch_add(&fake_live, 1);
  return error;
}

PJRT_Error *fake_enter(size_t size, size_t needed, const char *slot) {
  atomic_fetch_add(&fake_calls, 1);
  if (size < needed)
    return fake_error(TT_INVALID_ARGUMENT, "%s: struct_size %zu, expected %zu", slot, size, needed);
  if (atomic_load(&fake_fail_in) > 0 && atomic_fetch_sub(&fake_fail_in, 1) == 1)
    return fake_error(TT_INTERNAL, "injected failure in %s", slot);
  return NULL;
}

static void fake_Error_Destroy(PJRT_Error_Destroy_Args *args) {
  if (args->error) atomic_fetch_sub(&fake_live, 1);
  free(args->error);
}

static void fake_Error_Message(PJRT_Error_Message_Args *args) {
  args->message = args->error->text;
  args->message_size = strlen(args->error->text);
}

FAKE(Error_GetCode) {
  FAKE_ENTER(Error_GetCode);
  args->code = args->error->code;
  return NULL;
}

/* -- Plugin -- */

FAKE(Plugin_Initialize) {
  FAKE_ENTER(Plugin_Initialize);
  return NULL;
}

FAKE(Plugin_Attributes) {
  FAKE_ENTER(Plugin_Attributes);
  static const int64_t version[3] = {1, 20, 0};
  static const PJRT_NamedValue attributes[] = {
      {PJRT_NamedValue_STRUCT_SIZE,
       NULL,
       "xla_version",
       11,
       PJRT_NamedValue_kInt64,
       {.int64_value = 2},
       1},
      {PJRT_NamedValue_STRUCT_SIZE,
       NULL,
       "stablehlo_current_version",
       25,
       PJRT_NamedValue_kInt64List,
       {.int64_array_value = version},
       3},
      {PJRT_NamedValue_STRUCT_SIZE,
       NULL,
       "words",
       5,
       PJRT_NamedValue_kString,
       {.string_value = "fake"},
       4},
  };
  args->attributes = attributes;
  args->num_attributes = sizeof attributes / sizeof attributes[0];
  return NULL;
}

/* -- Client and devices -- */

static int64_t fake_number(const char *variable, int64_t otherwise) {
  const char *text = getenv(variable);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static void fake_describe(PJRT_DeviceDescription *description, size_t index) {
  description->id = 100 + (int)index; /* ids are not indices */
  (void)snprintf(description->string, sizeof description->string, "FakeDevice(%zu)", index);
}

/* Only as "cpu" it knows an option, and just one. */
static PJRT_Error *fake_read_options(const PJRT_Client_Create_Args *args, const char *platform,
                                     int64_t *count) {
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *option = &args->create_options[i];
    bool known = option->name_size == 16 && !memcmp(option->name, "cpu_device_count", 16);
    if (strcmp(platform, "cpu") != 0 || !known || option->type != PJRT_NamedValue_kInt64)
      return fake_error(TT_INVALID_ARGUMENT, "Unexpected option %.*s", (int)option->name_size,
                        option->name);
    *count = option->value.int64_value;
  }
  return NULL;
}

FAKE(Client_Create) {
  FAKE_ENTER(Client_Create);
  const char *platform = getenv("TT_FAKE_PLATFORM");
  if (!platform || !*platform) platform = "fake";
  int64_t count = fake_number("TT_FAKE_DEVICES", 1);
  PJRT_Error *error = fake_read_options(args, platform, &count);
  if (error) return error;
  if (count < 0 || count > FAKE_MAX_DEVICES)
    return fake_error(TT_INVALID_ARGUMENT, "%lld devices are too many", (long long)count);
  PJRT_Client *client = fake_alloc(sizeof *client);
  (void)snprintf(client->platform, sizeof client->platform, "%s", platform);
  client->device_count = (size_t)count;
  client->devices = fake_alloc((size_t)count * sizeof *client->devices);
  for (size_t i = 0; i < client->device_count; i++) {
    client->devices[i] = fake_alloc(sizeof *client->devices[i]);
    client->devices[i]->bytes_limit = fake_number("TT_FAKE_MEMORY", (int64_t)1 << 30);
    fake_describe(&client->devices[i]->description, i);
  }
  args->client = client;
  return NULL;
}

FAKE(Client_Destroy) {
  for (size_t i = 0; i < args->client->device_count; i++) free(args->client->devices[i]);
  free(args->client->devices);
  free(args->client);
  FAKE_ENTER(Client_Destroy);
  return NULL;
}

FAKE(Client_PlatformName) {
  FAKE_ENTER(Client_PlatformName);
  args->platform_name = args->client->platform;
  args->platform_name_size = strlen(args->platform_name);
  return NULL;
}

FAKE(Client_PlatformVersion) {
  FAKE_ENTER(Client_PlatformVersion);
  args->platform_version = "fake 1.0";
  args->platform_version_size = 8;
  return NULL;
}

FAKE(Client_AddressableDevices) {
  FAKE_ENTER(Client_AddressableDevices);
  args->addressable_devices = args->client->devices;
  args->num_addressable_devices = args->client->device_count;
  return NULL;
}

FAKE(Client_Devices) {
  FAKE_ENTER(Client_Devices);
  args->devices = args->client->devices;
  args->num_devices = args->client->device_count;
  return NULL;
}

FAKE(Device_GetDescription) {
  FAKE_ENTER(Device_GetDescription);
  args->device_description = &args->device->description;
  return NULL;
}

FAKE(DeviceDescription_Id) {
  FAKE_ENTER(DeviceDescription_Id);
  args->id = args->device_description->id;
  return NULL;
}

FAKE(DeviceDescription_Kind) {
  FAKE_ENTER(DeviceDescription_Kind);
  args->device_kind = "fake chip and more"; /* only the size says where it ends */
  args->device_kind_size = 9;
  return NULL;
}

FAKE(DeviceDescription_ToString) {
  FAKE_ENTER(DeviceDescription_ToString);
  args->to_string = args->device_description->string;
  args->to_string_size = strlen(args->to_string);
  return NULL;
}

FAKE(Device_MemoryStats) {
  FAKE_ENTER(Device_MemoryStats);
  fake_lock();
  args->bytes_in_use = args->device->bytes_in_use;
  args->bytes_limit = args->device->bytes_limit;
  args->bytes_limit_is_set = true;
  fake_unlock();
  return NULL;
}

/* -- Topologies, named "fake:8" -- */

FAKE(TopologyDescription_Create) {
  FAKE_ENTER(TopologyDescription_Create);
  char name[32] = "";
  if (args->topology_name_size < sizeof name)
    memcpy(name, args->topology_name, args->topology_name_size);
  int count = 0;
  if (sscanf(name, "fake:%d", &count) != 1 || count < 1 || count > FAKE_MAX_DEVICES)
    return fake_error(TT_INVALID_ARGUMENT, "Unknown topology '%s'", name);
  PJRT_TopologyDescription *topology = fake_alloc(sizeof *topology);
  topology->device_count = (size_t)count;
  topology->devices = fake_alloc(topology->device_count * sizeof *topology->devices);
  for (size_t i = 0; i < topology->device_count; i++) {
    topology->devices[i] = fake_alloc(sizeof *topology->devices[i]);
    fake_describe(topology->devices[i], i);
  }
  args->topology = topology;
  atomic_fetch_add(&fake_live, 1);
  return NULL;
}

FAKE(TopologyDescription_Destroy) {
  for (size_t i = 0; i < args->topology->device_count; i++) free(args->topology->devices[i]);
  free(args->topology->devices);
  free(args->topology);
  atomic_fetch_sub(&fake_live, 1);
  FAKE_ENTER(TopologyDescription_Destroy);
  return NULL;
}

FAKE(TopologyDescription_GetDeviceDescriptions) {
  FAKE_ENTER(TopologyDescription_GetDeviceDescriptions);
  args->descriptions = args->topology->devices;
  args->num_descriptions = args->topology->device_count;
  return NULL;
}

/* -- The table -- */

#define CALL(slot) PJRT_Error *fake_##slot(PJRT_##slot##_Args *args);
#define SKIP(slot)
TT_PJRT_SLOTS(CALL, CALL, SKIP, SKIP)
#undef CALL

static void fake_fill(PJRT_Api *api) {
  *api = (PJRT_Api){.struct_size = sizeof *api};
  api->pjrt_api_version =
      (PJRT_Api_Version){PJRT_Api_Version_STRUCT_SIZE, NULL, PJRT_API_MAJOR, PJRT_API_MINOR};
#define CALL(slot) api->PJRT_##slot = fake_##slot;
  TT_PJRT_SLOTS(CALL, CALL, SKIP, CALL)
#undef CALL
}

/* A good plugin of long ago: the table is shorter and nothing optional is there. */
static const PJRT_Api *fake_old_table(void) {
  static PJRT_Api old;
  if (old.struct_size) return &old;
  fake_fill(&old);
#define DROP(slot) old.PJRT_##slot = NULL;
  TT_PJRT_SLOTS(SKIP, DROP, SKIP, SKIP)
#undef DROP
  old.struct_size = offsetof(PJRT_Api, PJRT_Executable_GetCompiledMemoryStats);
  return &old;
}

const PJRT_Api *GetPjrtApi(void);
const PJRT_Api *GetPjrtApi(void) {
  static PJRT_Api good, broken;
  const char *fault = getenv("TT_FAKE_BREAK");
  if (!fault || !*fault) {
    if (!good.struct_size) fake_fill(&good);
    return &good;
  }
  if (!strcmp(fault, "null")) return NULL;
  fake_fill(&broken);
  if (!strcmp(fault, "tiny")) broken.struct_size = sizeof(size_t);
  if (!strcmp(fault, "short"))
    broken.struct_size = offsetof(PJRT_Api, PJRT_LoadedExecutable_Execute);
  if (!strcmp(fault, "major")) broken.pjrt_api_version.major_version = PJRT_API_MAJOR + 1;
  if (!strcmp(fault, "slot")) broken.PJRT_Buffer_ReadyEvent = NULL;
  return strcmp(fault, "old") != 0 ? &broken : fake_old_table();
}
