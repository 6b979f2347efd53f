#include "pjrt/target.h"

#include <string.h>
#include <unistd.h>

/* XLA's CPU compiler drops NaN in minimum and maximum unless it is told not to. Its own defaults
 * take a fifth longer to compile for no faster programs; threads it need not start: ours compile
 * programs side by side. */
static void add_cpu_options(tt_compile_options *options) {
  static const char *const names[] = {"xla_cpu_enable_fast_min_max",
                                      "xla_backend_optimization_level",
                                      "xla_cpu_parallel_codegen_split_count"};
  static const char *const values[] = {"False", "1", "1"};
  options->override_names = names;
  options->override_values = values;
  options->override_count = sizeof names / sizeof *names;
}

/* XLA would run each matrix product with many settings to choose one, which takes seconds; the
 * library's own choice is what PyTorch takes on such devices. And it would leave out roundings to
 * half precision within a program. */
static void add_gpu_options(tt_compile_options *options) {
  static const char *const names[] = {"xla_gpu_autotune_level", "xla_gpu_enable_triton_gemm",
                                      "xla_allow_excess_precision"};
  static const char *const values[] = {"0", "False", "False"};
  options->override_names = names;
  options->override_values = values;
  options->override_count = sizeof names / sizeof *names;
}

static void know_gpu(tt_target *target) {
  target->xla_gpu = !strcmp(target->platform, "cuda") || !strcmp(target->platform, "rocm");
  if (target->xla_gpu) add_gpu_options(&target->options);
}

/* A plugin that computes in the host's memory names no limit of its own. */
static int64_t memory_of(const tt_pjrt_device *device, bool in_host) {
  int64_t in_use = 0, limit = 0, bytes = 0;
  tt_status_release(tt_pjrt_device_memory(device, &in_use, &limit));
  if (limit > 0 || !in_host) return limit;
  return tt_mul_i64(sysconf(_SC_PHYS_PAGES), sysconf(_SC_PAGE_SIZE), &bytes) ? bytes : 0;
}

void tt_target_init_client(tt_target *target, tt_plugin *plugin, tt_client *client) {
  *target = (tt_target){.plugin = plugin,
                        .client = client,
                        .platform = tt_client_platform(client),
                        .version = tt_client_platform_version(client),
                        .kind = tt_pjrt_device_kind(tt_client_device(client, 0)),
                        .device_count = tt_client_device_count(client),
                        .options = {.portable = true, .optimization_level = -1}};
  target->xla_cpu = strcmp(target->platform, "cpu") == 0;
  know_gpu(target);
  if (target->xla_cpu) add_cpu_options(&target->options);
  target->memory = memory_of(tt_client_device(client, 0), target->xla_cpu);
}

void tt_target_init_topology(tt_target *target, tt_plugin *plugin, tt_topology *topology,
                             const char *platform) {
  *target = (tt_target){.plugin = plugin,
                        .topology = topology,
                        .platform = platform,
                        .version = "",
                        .kind = "",
                        .device_count = tt_topology_device_count(topology),
                        .options = {.portable = true, .optimization_level = -1}};
  know_gpu(target);
}

tt_target tt_target_elsewhere(const tt_target *target) {
  tt_target elsewhere = *target;
  elsewhere.lapack = elsewhere.convolves = elsewhere.collectives = false;
  elsewhere.kernel_of = NULL;
  return elsewhere;
}

tt_status tt_target_compile(const tt_target *target, const char *code, size_t size,
                            tt_executable **out) {
  return target->client ? tt_compile(target->client, code, size, &target->options, out)
                        : tt_topology_compile(target->topology, code, size, &target->options, out);
}
