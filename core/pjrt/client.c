#include "pjrt/host_pages.h"
#include "pjrt/internal.h"

#include <string.h>

#define TT_MAX_CPU_DEVICES 1024

/* Asks for a client with the first `count` of the options. */
static tt_status client_try(tt_client *client, const PJRT_NamedValue *options, size_t count) {
  TT_ARGS(Client_Create, args, .create_options = count ? options : NULL, .num_options = count);
  if (client->board) tt_pjrt_offer_board(client->board, &args);
  TT_TRY(TT_CALL(client->api, Client_Create, &args));
  client->raw = args.client;
  return TT_SUCCESS;
}

static void client_close(tt_client *client) {
  if (!client->raw) return;
  TT_ARGS(Client_Destroy, args, .client = client->raw);
  TT_DESTROY(client->api, Client_Destroy, &args);
  client->raw = NULL;
}

static PJRT_NamedValue client_option(const char *name, int type) {
  return (PJRT_NamedValue){.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                           .name = name,
                           .name_size = strlen(name),
                           .type = type,
                           .value_size = 1};
}

/* Asks for a client with as many of the options as the plugin knows, from the first one on. `*sent`
 * tells how many it took. */
static tt_status client_try_most(tt_client *client, const PJRT_NamedValue *options, size_t count,
                                 size_t *sent) {
  for (*sent = count;; --*sent) {
    tt_status status = client_try(client, options, *sent);
    if (tt_status_code(status) != TT_INVALID_ARGUMENT || *sent == 0) return status;
    tt_status_release(status);
  }
}

/* Exchanges the client for one with the CPU plugin's options. */
static tt_status client_reopen(tt_client *client, int cpu_devices, size_t *sent) {
  PJRT_NamedValue options[2] = {client_option("cpu_device_count", PJRT_NamedValue_kInt64),
                                client_option("asynchronous", PJRT_NamedValue_kBool)};
  options[0].value.int64_value = cpu_devices;
  options[1].value.bool_value = false; /* waiting is done by threads of ours */
  client_close(client);
  return client_try_most(client, options, 2, sent);
}

/* A GPU's memory is taken as it is needed, since other processes share it: the plugin would take
 * three quarters at once. */
static tt_status client_open_gpu(tt_client *client, const tt_world *world) {
  PJRT_NamedValue grows = client_option("preallocate", PJRT_NamedValue_kBool);
  grows.value.bool_value = false;
  size_t sent = 0;
  if (!world) return client_try_most(client, &grows, 1, &sent);
  int64_t visible = world->visible;
  PJRT_NamedValue options[] = {client_option("node_id", PJRT_NamedValue_kInt64),
                               client_option("num_nodes", PJRT_NamedValue_kInt64), grows,
                               client_option("visible_devices", PJRT_NamedValue_kInt64List)};
  options[0].value.int64_value = world->node;
  options[1].value.int64_value = world->nodes;
  options[3].value.int64_array_value = &visible;
  return client_try(client, options, visible < 0 ? 3 : 4);
}

static tt_status client_names(tt_client *client) {
  TT_ARGS(Client_PlatformName, name, .client = client->raw);
  TT_ARGS(Client_PlatformVersion, version, .client = client->raw);
  TT_TRY(TT_CALL(client->api, Client_PlatformName, &name));
  TT_TRY(TT_CALL(client->api, Client_PlatformVersion, &version));
  client->platform = tt_strndup(name.platform_name, name.platform_name_size);
  client->platform_version = tt_strndup(version.platform_version, version.platform_version_size);
  return client->platform && client->platform_version ? TT_SUCCESS : tt_out_of_memory();
}

/* Of all processes. */
static tt_status client_count(tt_client *client) {
  client->all_devices = client->device_count;
  if (!TT_HAS(client->api, Client_Devices)) return TT_SUCCESS;
  TT_ARGS(Client_Devices, args, .client = client->raw);
  TT_TRY(TT_CALL(client->api, Client_Devices, &args));
  if (args.num_devices < INT32_MAX) client->all_devices = (int)args.num_devices;
  return TT_SUCCESS;
}

static tt_status client_devices(tt_client *client) {
  TT_ARGS(Client_AddressableDevices, args, .client = client->raw);
  TT_TRY(TT_CALL(client->api, Client_AddressableDevices, &args));
  size_t count = args.num_addressable_devices;
  if (count == 0 || count > INT32_MAX)
    return tt_error(TT_UNAVAILABLE, "the PJRT plugin found no device (platform '%s')",
                    client->platform);
  client->devices = tt_calloc(count, sizeof *client->devices);
  if (!client->devices) return tt_out_of_memory();
  client->device_count = (int)count;
  for (size_t i = 0; i < count; i++) {
    client->devices[i].client = client;
    client->devices[i].raw = args.addressable_devices[i];
    TT_TRY(tt_pjrt_device_init(&client->devices[i]));
  }
  return client_count(client);
}

/* Options go to plugins that are known to have them: what another would do with unknown options is
 * anybody's guess. Plugins of GPUs have an extension for their kernels; that a plugin is the CPU's
 * is known from a first client, which takes few milliseconds there. */
static tt_status client_open(tt_client *client, int64_t cpu_devices, const tt_world *world) {
  if (cpu_devices < 0 || cpu_devices > TT_MAX_CPU_DEVICES)
    return tt_error(TT_INVALID_ARGUMENT, "%lld CPU devices were asked for; %s must be 1 to %d",
                    (long long)cpu_devices, tt_env_name(TT_ENV_CPU_DEVICES), TT_MAX_CPU_DEVICES);
  bool gpu = tt_pjrt_extension(client->api, PJRT_Extension_Type_Gpu_Custom_Call) != NULL;
  TT_TRY(gpu ? client_open_gpu(client, world) : client_try(client, NULL, 0));
  TT_TRY(client_names(client));
  if (!strcmp(client->platform, "cpu")) {
    size_t sent = 0;
    void *code = NULL; /* ISO C has no cast from function to data pointers */
    memcpy(&code, &client->api->PJRT_Client_Create, sizeof code);
    tt_host_pages_tune(code);
    TT_TRY(client_reopen(client, (int)cpu_devices, &sent));
    client->host_memory = TT_HAS(client->api, Buffer_UnsafePointer);
    client->runs_inline = client->host_memory && sent == 2;
  }
  return client_devices(client);
}

tt_status tt_client_create(tt_plugin *plugin, const tt_client_options *options, tt_client **out) {
  *out = NULL;
  int64_t cpu_devices = options && options->cpu_devices ? options->cpu_devices : 1;
  const tt_world *world = options ? options->world : NULL;
  tt_client *client = tt_calloc(1, sizeof *client);
  if (!client) return tt_out_of_memory();
  client->api = plugin->api;
  client->board = world ? world->board : NULL;
  tt_status status = client_open(client, cpu_devices, world);
  if (status) {
    tt_client_destroy(client);
    return status;
  }
  tt_log(TT_LOG_PLUGIN, "platform %s, %d of %d devices, %s", client->platform, client->device_count,
         client->all_devices, client->platform_version);
  *out = client;
  return TT_SUCCESS;
}

void tt_client_destroy(tt_client *client) {
  if (!client) return;
  for (int i = 0; i < client->device_count; i++) tt_pjrt_device_deinit(&client->devices[i]);
  tt_free(client->devices);
  tt_free(client->platform);
  tt_free(client->platform_version);
  client_close(client);
  tt_free(client);
}

const char *tt_client_platform(const tt_client *client) { return client->platform; }
const char *tt_client_platform_version(const tt_client *client) { return client->platform_version; }
bool tt_client_host_memory(const tt_client *client) { return client->host_memory; }
bool tt_client_inline(const tt_client *client) { return client->runs_inline; }
bool tt_client_copies(const tt_client *client) { return TT_HAS(client->api, Buffer_CopyToDevice); }
int tt_client_device_count(const tt_client *client) { return client->device_count; }
bool tt_client_spans(const tt_client *client) { return client->all_devices > client->device_count; }

tt_pjrt_device *tt_client_device(const tt_client *client, int index) {
  return index >= 0 && index < client->device_count ? &client->devices[index] : NULL;
}
