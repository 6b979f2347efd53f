#include "session/session.h"

#include "dist/dist.h"
#include "kernels/kernels.h"
#include "lapack/lapack.h"
#include "session/reclaim.h"

#include <string.h>

/* Whether programs may call what `offer` makes known; operators have other ways where not. */
static bool offers(const tt_session *session, tt_status (*offer)(tt_plugin *plugin)) {
  if (strcmp(tt_client_platform(session->client), "cpu") != 0) return false;
  tt_status status = offer(session->plugin);
  if (!status) return true;
  tt_log(TT_LOG_PLUGIN, "%s", tt_status_message(status));
  tt_status_release(status);
  return false;
}

static void offer_all(tt_session *session) {
  bool lapack = tt_lapack_bound() && strcmp(tt_env(TT_ENV_LAPACK), "off") != 0;
  session->target.lapack = lapack && offers(session, tt_lapack_offer);
  const tt_kernel_library *library = tt_kernels_bound();
  if (library && offers(session, tt_kernels_offer)) {
    session->target.convolves = strcmp(tt_env(TT_ENV_CONVOLUTIONS), "xla") != 0;
    if (strcmp(tt_env(TT_ENV_KERNELS), "xla") != 0) session->target.kernel_of = library->find;
  }
  session->target.collectives = offers(session, tt_dist_offer);
}

static tt_status open_devices(tt_session *session) {
  int count = tt_client_device_count(session->client);
  if (count > TT_SESSION_DEVICES) count = TT_SESSION_DEVICES;
  if (count < 1)
    return tt_error(TT_UNAVAILABLE, "the plugin %s has no device", tt_plugin_path(session->plugin));
  for (int i = 0; i < count; i++) {
    tt_stream *stream = NULL;
    TT_TRY(tt_device_create(session->client, i, session->programs, &session->devices[i]));
    session->devices[i]->calls = session->calls;
    session->device_count++;
    TT_TRY(tt_stream_get(session->devices[i], 0, &stream));
  }
  return TT_SUCCESS;
}

static tt_status open_session(tt_session *session, const char *path,
                              const tt_client_options *asked) {
  if (!path || !*path) path = tt_env(TT_ENV_PLUGIN);
  if (!*path)
    return tt_error(TT_NOT_FOUND,
                    "no PJRT plugin is named: set TORCH_TPU_PLUGIN to a plugin's path, or "
                    "install lammps-jax-pjrt-cpu (pip install --no-deps)");
  TT_TRY(tt_plugin_open(path, &session->plugin));
  tt_client_options options = asked ? *asked : (tt_client_options){0};
  if (!options.cpu_devices) options.cpu_devices = tt_env_int(TT_ENV_CPU_DEVICES);
  TT_TRY(tt_client_create(session->plugin, &options, &session->client));
  tt_target_init_client(&session->target, session->plugin, session->client);
  offer_all(session);
  TT_TRY(tt_program_table_create(&session->target, &session->programs));
  TT_TRY(tt_call_table_create(&session->calls));
  TT_TRY(tt_templates_create(session->calls, &session->templates));
  return open_devices(session);
}

/* What there is of it. */
static void close_session(tt_session *session) {
  for (int i = 0; i < session->device_count; i++) tt_device_abandon_captures(session->devices[i]);
  for (int i = 0; i < session->device_count; i++) tt_device_end_streams(session->devices[i]);
  for (int i = 0; i < session->device_count; i++) tt_device_destroy(session->devices[i]);
  tt_templates_destroy(session->templates);
  tt_program_table_destroy(session->programs);
  tt_call_table_destroy(session->calls);
  if (session->client) tt_client_destroy(session->client);
  tt_free(session);
}

tt_status tt_session_create(const char *path, const tt_client_options *options, tt_session **out) {
  tt_session *session = tt_calloc(1, sizeof *session);
  if (!session) return tt_out_of_memory();
  tt_status status = open_session(session, path, options);
  if (status) {
    close_session(session);
    return status;
  }
  tt_reclaim_start(
      &(tt_reclaimed){session->calls, session->programs, session->devices, session->device_count});
  *out = session;
  return TT_SUCCESS;
}

void tt_session_destroy(tt_session *session) {
  if (!session) return;
  tt_reclaim_stop(session->calls);
  close_session(session);
}

tt_status tt_session_sync(tt_session *session, const tt_policy *policy) {
  tt_status status = TT_SUCCESS;
  for (int i = 0; i < session->device_count; i++)
    status = tt_join(status, tt_device_sync(session->devices[i], policy));
  return status;
}
