#include "export/runner.h"

#include "base/base.h"
#include "export/executable.h"

#include <string.h>

struct tt_runner {
  const tt_exported *exported;
  tt_plugin *plugin;
  tt_client *client;
  tt_target target;
  tt_pjrt_device *device;
  tt_executable *executable;
  tt_buffer **parameters, **results; /* NULL: no value yet */
  uint64_t seed, offset;
  bool loaded;
};

static tt_status open_plugin(tt_runner *runner, const tt_runner_options *options) {
  const tt_bytes *named = &runner->exported->plugin;
  const char *path = options->plugin ? options->plugin : tt_env(TT_ENV_PLUGIN);
  char *copy = *path ? tt_strndup(path, strlen(path)) : tt_strndup(named->data, named->size);
  if (!copy) return tt_out_of_memory();
  tt_status status = tt_plugin_open(copy, &runner->plugin);
  tt_free(copy);
  return status;
}

static tt_status open_device(tt_runner *runner, const tt_runner_options *options) {
  tt_client_options choice = {.cpu_devices = tt_env_int(TT_ENV_CPU_DEVICES)};
  TT_TRY(open_plugin(runner, options));
  TT_TRY(tt_client_create(runner->plugin, &choice, &runner->client));
  runner->device = tt_client_device(runner->client, options->device);
  if (!runner->device)
    return tt_error(TT_OUT_OF_RANGE, "there is no device %d; the plugin %s has %d", options->device,
                    tt_plugin_path(runner->plugin), tt_client_device_count(runner->client));
  tt_target_init_client(&runner->target, runner->plugin, runner->client);
  return TT_SUCCESS;
}

static tt_status set(tt_runner *runner, int port, const void *data) {
  tt_buffer *buffer = NULL;
  TT_TRY(tt_buffer_from_host(runner->device, &runner->exported->ports[port].type, data, NULL, NULL,
                             &buffer));
  tt_buffer_destroy(runner->client, runner->parameters[port]);
  runner->parameters[port] = buffer;
  return TT_SUCCESS;
}

static tt_status open(tt_runner *runner, const tt_runner_options *options) {
  const tt_exported *exported = runner->exported;
  runner->parameters = tt_calloc((size_t)exported->parameter_count + 1, sizeof(tt_buffer *));
  runner->results = tt_calloc((size_t)exported->output_count + 1, sizeof(tt_buffer *));
  if (!runner->parameters || !runner->results) return tt_out_of_memory();
  TT_TRY(open_device(runner, options));
  TT_TRY(tt_exported_executable(exported, &runner->target, &runner->executable, &runner->loaded));
  for (int i = 0; i < exported->parameter_count; i++)
    if (exported->ports[i].kind == TT_PORT_WEIGHT)
      TT_TRY(tt_status_prefix(set(runner, i, exported->ports[i].data), "weight '%s'",
                              exported->ports[i].name));
  return TT_SUCCESS;
}

tt_status tt_runner_create(const tt_exported *exported, const tt_runner_options *options,
                           tt_runner **out) {
  *out = NULL;
  tt_runner *runner = tt_calloc(1, sizeof *runner);
  if (!runner) return tt_out_of_memory();
  runner->exported = exported;
  tt_status status = open(runner, options);
  if (status) tt_runner_destroy(runner);
  else *out = runner;
  return status;
}

static void drop(tt_runner *runner, tt_buffer **buffers, int count) {
  for (int i = 0; buffers && i < count; i++) {
    tt_buffer_destroy(runner->client, buffers[i]);
    buffers[i] = NULL;
  }
}

void tt_runner_destroy(tt_runner *runner) {
  if (!runner) return;
  drop(runner, runner->parameters, runner->exported->parameter_count);
  drop(runner, runner->results, runner->exported->output_count);
  tt_executable_destroy(runner->executable);
  if (runner->client) tt_client_destroy(runner->client);
  tt_free(runner->parameters);
  tt_free(runner->results);
  tt_free(runner);
}

/* The port, if it is of this kind and `bytes` is its size. */
static tt_status check_port(const tt_runner *runner, int port, tt_port_kind kind, int64_t bytes) {
  const tt_exported *exported = runner->exported;
  int64_t expected = 0;
  if (port < 0 || port >= exported->parameter_count + exported->output_count ||
      exported->ports[port].kind != kind)
    return tt_error(TT_INVALID_ARGUMENT, "port %d is no %s of this program", port,
                    kind == TT_PORT_INPUT ? "input" : "output");
  if (tt_type_bytes(&exported->ports[port].type, &expected) && bytes == expected) return TT_SUCCESS;
  return tt_error(TT_INVALID_ARGUMENT, "'%s' has %lld bytes, not %lld", exported->ports[port].name,
                  (long long)expected, (long long)bytes);
}

tt_status tt_runner_set_input(tt_runner *runner, int port, const void *data, int64_t bytes) {
  TT_TRY(check_port(runner, port, TT_PORT_INPUT, bytes));
  return set(runner, port, data);
}

void tt_runner_seed(tt_runner *runner, uint64_t seed, uint64_t offset) {
  runner->seed = seed;
  runner->offset = offset;
}

static tt_status set_place(tt_runner *runner) {
  const tt_exported *exported = runner->exported;
  int last = exported->parameter_count - 1;
  if (last < 0 || exported->ports[last].kind != TT_PORT_RANDOM) return TT_SUCCESS;
  const uint64_t place[2] = {runner->seed, runner->offset};
  TT_TRY(set(runner, last, place));
  runner->offset += (uint64_t)exported->blocks;
  return TT_SUCCESS;
}

static tt_status await_results(tt_runner *runner) {
  tt_status status = TT_SUCCESS;
  for (int i = 0; i < runner->exported->output_count; i++)
    status = tt_join(status, tt_buffer_await(runner->client, runner->results[i]));
  return status;
}

tt_status tt_runner_run(tt_runner *runner) {
  const tt_exported *exported = runner->exported;
  for (int i = 0; i < exported->parameter_count; i++)
    if (!runner->parameters[i] && exported->ports[i].kind == TT_PORT_INPUT)
      return tt_error(TT_FAILED_PRECONDITION, "input '%s' has no value", exported->ports[i].name);
  TT_TRY(set_place(runner));
  drop(runner, runner->results, exported->output_count);
  TT_TRY(tt_execute(runner->executable, runner->device, runner->parameters,
                    exported->parameter_count, NULL, 0, runner->results, NULL));
  tt_status status = await_results(runner);
  if (status) drop(runner, runner->results, exported->output_count);
  return status;
}

tt_status tt_runner_get_output(tt_runner *runner, int port, void *data, int64_t bytes) {
  const tt_exported *exported = runner->exported;
  TT_TRY(check_port(runner, port, TT_PORT_OUTPUT, bytes));
  tt_buffer *result = runner->results[port - exported->parameter_count];
  if (!result)
    return tt_error(TT_FAILED_PRECONDITION, "output '%s' has no value: the program has not run",
                    exported->ports[port].name);
  return tt_buffer_to_host(runner->client, result, &exported->ports[port].type, data, bytes);
}

const tt_target *tt_runner_target(const tt_runner *runner) { return &runner->target; }
bool tt_runner_loaded(const tt_runner *runner) { return runner->loaded; }
