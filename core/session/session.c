#include "base/intern.h"
#include "lapack/lapack.h"
#include "run/program.h"
#include "run/run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEVICES = 127, MAX_SITES = 65536 }; /* DeviceIndex is an int8 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_plugin *plugin;
static tt_client *client;
static tt_stream *streams[MAX_DEVICES];
static atomic_int device_count;
static atomic_int mode = TT_MODE_STRICT;
static atomic_bool deterministic;
static bool has_lapack; /* set before device_count */

/* Not on every platform, nor in every plugin; operators have other ways there. */
static bool offer_lapack(void) {
  bool wanted = strcmp(tt_env(TT_ENV_LAPACK), "off") != 0;
  if (!wanted || !tt_lapack_bound() || !tt_runtime_is_cpu()) return false;
  tt_status status = tt_lapack_offer(plugin);
  if (!status) return true;
  tt_log(TT_LOG_PLUGIN, "%s", tt_status_message(status));
  tt_status_release(status);
  return false;
}

static tt_status open_locked(const char *path) {
  if (!path || !*path) path = tt_env(TT_ENV_PLUGIN);
  if (!*path)
    return tt_error(TT_NOT_FOUND,
                    "no PJRT plugin is named: set TORCH_TPU_PLUGIN to a plugin's path, or "
                    "install lammps-jax-pjrt-cpu (pip install --no-deps)");
  if (!plugin) TT_TRY(tt_plugin_open(path, &plugin));
  tt_client_options options = {.cpu_devices = (int)tt_env_int(TT_ENV_CPU_DEVICES)};
  if (!client) TT_TRY(tt_client_create(plugin, &options, &client));
  has_lapack = offer_lapack();
  int count = tt_client_device_count(client);
  if (count > MAX_DEVICES) count = MAX_DEVICES;
  if (count < 1) return tt_error(TT_UNAVAILABLE, "the plugin %s has no device", path);
  for (int i = 0; i < count; i++)
    if (!streams[i]) TT_TRY(tt_stream_create(tt_client_device(client, i), i, &streams[i]));
  atomic_store_explicit(&device_count, count, memory_order_release);
  return TT_SUCCESS;
}

tt_status tt_runtime_init(const char *path) {
  if (tt_runtime_ready()) return TT_SUCCESS;
  pthread_mutex_lock(&lock);
  tt_status status = tt_runtime_ready() ? TT_SUCCESS : open_locked(path);
  pthread_mutex_unlock(&lock);
  return status;
}

void tt_runtime_end(void) {
  tt_program_end();
  for (int i = 0; i < tt_runtime_device_count(); i++)
    tt_stream_wait(streams[i], tt_stream_ticket(streams[i]));
}

void tt_runtime_shutdown(void) {
  pthread_mutex_lock(&lock);
  atomic_store(&device_count, 0);
  for (int i = 0; i < MAX_DEVICES; i++) {
    tt_stream_destroy(streams[i]);
    streams[i] = NULL;
  }
  tt_call_shutdown();
  tt_program_shutdown();
  tt_client_destroy(client);
  client = NULL;
  plugin = NULL;
  pthread_mutex_unlock(&lock);
}

bool tt_runtime_ready(void) { return tt_runtime_device_count() > 0; }
tt_client *tt_runtime_client(void) { return client; }
tt_plugin *tt_runtime_plugin(void) { return plugin; }
bool tt_runtime_is_cpu(void) { return client && strcmp(tt_client_platform(client), "cpu") == 0; }
bool tt_runtime_has_lapack(void) { return has_lapack; }

int tt_runtime_device_count(void) {
  return atomic_load_explicit(&device_count, memory_order_acquire);
}

tt_stream *tt_runtime_stream(int index) {
  return index >= 0 && index < tt_runtime_device_count() ? streams[index] : NULL;
}

tt_status tt_runtime_sync(void) {
  tt_status status = TT_SUCCESS;
  for (int i = 0; i < tt_runtime_device_count(); i++)
    status = tt_join(status, tt_stream_sync(streams[i]));
  return status;
}

tt_mode tt_runtime_mode(void) { return (tt_mode)atomic_load_explicit(&mode, memory_order_relaxed); }

bool tt_runtime_deterministic(void) {
  return atomic_load_explicit(&deterministic, memory_order_relaxed);
}

void tt_runtime_set_deterministic(bool value) { atomic_store(&deterministic, value); }

tt_status tt_runtime_set_mode(tt_mode value) {
  if (value != TT_MODE_DEBUG && value != TT_MODE_STRICT && value != TT_MODE_FUSED)
    return tt_error(TT_VALUE, "eager mode %d does not exist", (int)value);
  atomic_store(&mode, value);
  return TT_SUCCESS;
}

