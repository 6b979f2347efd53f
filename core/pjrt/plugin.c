#include "pjrt/internal.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TT_MAX_PLUGIN_MESSAGE ((size_t)32 << 10)

static pthread_mutex_t tt_plugins_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_plugin *tt_plugins; /* never closed: their threads outlive any point where we could */

/* -- Errors -- */

tt_status tt_pjrt_error_status(const PJRT_Api *api, PJRT_Error *error, const char *slot) {
  TT_ARGS(Error_GetCode, code, .error = error);
  TT_ARGS(Error_Message, text, .error = error);
  TT_ARGS(Error_Destroy, destroy, .error = error);
  PJRT_Error *second = api->PJRT_Error_GetCode(&code);
  if (second) {
    TT_ARGS(Error_Destroy, destroy_second, .error = second);
    api->PJRT_Error_Destroy(&destroy_second);
    code.code = TT_UNKNOWN;
  }
  api->PJRT_Error_Message(&text);
  bool known = code.code >= TT_CANCELLED && code.code <= TT_UNAUTHENTICATED;
  size_t size =
      text.message_size < TT_MAX_PLUGIN_MESSAGE ? text.message_size : TT_MAX_PLUGIN_MESSAGE;
  while (size && isspace((unsigned char)text.message[size - 1])) size--;
  tt_status status = tt_error(known ? (tt_code)code.code : TT_UNKNOWN, "PJRT_%s: %.*s", slot,
                              (int)size, size ? text.message : "");
  api->PJRT_Error_Destroy(&destroy);
  return tt_status_from(status, TT_FROM_PLUGIN);
}

void tt_pjrt_drop(const PJRT_Api *api, PJRT_Error *error, const char *slot) {
  tt_status status = tt_pjrt_status(api, error, slot);
  if (!status) return;
  tt_log(TT_LOG_PLUGIN, "%s", tt_status_message(status));
  tt_status_release(status);
}

tt_status tt_pjrt_missing(const char *slot) {
  return tt_error(TT_UNIMPLEMENTED, "the plugin does not offer PJRT_%s; use a newer plugin", slot);
}

/* -- Opening -- */

typedef const PJRT_Api *(*tt_get_api)(void);

static tt_status plugin_load(const char *path, tt_get_api *out) {
  if (strchr(path, '/') && access(path, R_OK) != 0)
    return tt_error(TT_NOT_FOUND,
                    "cannot read the PJRT plugin '%s' (%s); set %s to a plugin's path", path,
                    strerror(errno), tt_env_name(TT_ENV_PLUGIN));
  if (!tt_log_on(TT_LOG_PLUGIN)) (void)setenv("TF_CPP_MIN_LOG_LEVEL", "2", 0);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    bool absent = !strchr(path, '/');
    return tt_error(absent ? TT_NOT_FOUND : TT_FAILED_PRECONDITION,
                    "cannot load the PJRT plugin '%s' (%s); set %s to a plugin for this machine",
                    path, why ? why : "no reason given", tt_env_name(TT_ENV_PLUGIN));
  }
  void *symbol = dlsym(library, "GetPjrtApi");
  if (!symbol) {
    dlclose(library);
    return tt_error(TT_FAILED_PRECONDITION,
                    "'%s' is not a PJRT plugin (it has no GetPjrtApi); set %s to one", path,
                    tt_env_name(TT_ENV_PLUGIN));
  }
  /* ISO C has no cast from data to function pointers. */
  memcpy((void *)out, (const void *)&symbol, sizeof symbol);
  return TT_SUCCESS;
}

/* The first slot that is needed and not there. */
static const char *plugin_missing_slot(const PJRT_Api *api) {
#define NEED(slot)                                                                                 \
  if (!TT_HAS(api, slot)) return "PJRT_" #slot;
#define SKIP(slot)
  TT_PJRT_SLOTS(NEED, SKIP, SKIP, NEED)
#undef NEED
#undef SKIP
  return NULL;
}

static tt_status plugin_check(const char *path, const PJRT_Api *api) {
  if (!api)
    return tt_error(TT_FAILED_PRECONDITION,
                    "the PJRT plugin '%s' returned no function table; install it again", path);
  if (api->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy))
    return tt_error(TT_FAILED_PRECONDITION,
                    "the PJRT plugin '%s' has a broken function table (%zu bytes); install another "
                    "version of it",
                    path, api->struct_size);
  int major = api->pjrt_api_version.major_version;
  if (major != PJRT_API_MAJOR)
    return tt_error(
        TT_FAILED_PRECONDITION,
        "the PJRT plugin '%s' has API version %d.%d, but only %d.x can be used; install "
        "a version of the plugin with API %d.x",
        path, major, api->pjrt_api_version.minor_version, PJRT_API_MAJOR, PJRT_API_MAJOR);
  const char *slot = plugin_missing_slot(api);
  if (slot)
    return tt_error(TT_FAILED_PRECONDITION,
                    "the PJRT plugin '%s' (API %d.%d) lacks %s; install a newer version of it",
                    path, major, api->pjrt_api_version.minor_version, slot);
  return TT_SUCCESS;
}

static tt_status plugin_init(tt_plugin *plugin) {
  TT_ARGS(Plugin_Initialize, initialize, 0);
  TT_TRY(TT_CALL(plugin->api, Plugin_Initialize, &initialize));
  if (!TT_HAS(plugin->api, Plugin_Attributes)) return TT_SUCCESS;
  TT_ARGS(Plugin_Attributes, attributes, 0);
  TT_TRY(TT_CALL(plugin->api, Plugin_Attributes, &attributes));
  plugin->attributes = attributes.attributes;
  plugin->attribute_count = attributes.num_attributes;
  return TT_SUCCESS;
}

static tt_status plugin_add(const char *path, const PJRT_Api *api, tt_plugin **out) {
  for (tt_plugin *plugin = tt_plugins; plugin; plugin = plugin->next)
    if (plugin->api == api) {
      *out = plugin;
      return TT_SUCCESS;
    }
  tt_plugin *plugin = tt_calloc(1, sizeof *plugin);
  char *copy = tt_strndup(path, strlen(path));
  tt_status status = plugin && copy ? TT_SUCCESS : tt_out_of_memory();
  if (!status) {
    *plugin = (tt_plugin){.api = api, .path = copy};
    status = plugin_init(plugin);
  }
  if (status) {
    tt_free(copy);
    tt_free(plugin);
    return tt_status_prefix(status, "the PJRT plugin '%s' does not start", path);
  }
  plugin->next = tt_plugins;
  tt_plugins = plugin;
  *out = plugin;
  tt_log(TT_LOG_PLUGIN, "opened %s, PJRT API %d.%d", path, api->pjrt_api_version.major_version,
         api->pjrt_api_version.minor_version);
  return TT_SUCCESS;
}

tt_status tt_plugin_open(const char *path, tt_plugin **out) {
  *out = NULL;
  if (!path || !path[0])
    return tt_error(TT_INVALID_ARGUMENT, "the path of the PJRT plugin is empty; set %s",
                    tt_env_name(TT_ENV_PLUGIN));
  tt_get_api get_api = NULL;
  (void)pthread_mutex_lock(&tt_plugins_lock);
  tt_status status = plugin_load(path, &get_api);
  const PJRT_Api *api = status ? NULL : get_api();
  if (!status) status = plugin_check(path, api);
  if (!status) status = plugin_add(path, api, out);
  (void)pthread_mutex_unlock(&tt_plugins_lock);
  return status;
}

void tt_plugin_version(const tt_plugin *plugin, int *major, int *minor) {
  *major = plugin->api->pjrt_api_version.major_version;
  *minor = plugin->api->pjrt_api_version.minor_version;
}

const PJRT_Extension_Base *tt_pjrt_extension(const PJRT_Api *api, int type) {
  const PJRT_Extension_Base *one = api->extension_start;
  while (one && one->type != type) one = one->next;
  return one;
}

bool tt_plugin_attribute(const tt_plugin *plugin, const char *name, int64_t values[3]) {
  size_t size = strlen(name);
  for (size_t i = 0; i < plugin->attribute_count; i++) {
    const PJRT_NamedValue *value = &plugin->attributes[i];
    if (value->name_size != size || memcmp(value->name, name, size) != 0) continue;
    bool list = value->type == PJRT_NamedValue_kInt64List;
    if (!list && value->type != PJRT_NamedValue_kInt64) return false;
    const int64_t *numbers = list ? value->value.int64_array_value : &value->value.int64_value;
    size_t count = list ? value->value_size : 1;
    for (size_t k = 0; k < 3; k++) values[k] = k < count ? numbers[k] : 0;
    return true;
  }
  return false;
}

const char *tt_plugin_path(const tt_plugin *plugin) { return plugin->path; }
