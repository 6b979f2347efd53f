#include "pjrt/internal.h"

#include <string.h>

struct tt_topology {
  const PJRT_Api *api;
  PJRT_TopologyDescription *raw;
  int device_count;
};

static tt_status topology_check(const PJRT_Api *api) {
  if (!TT_HAS(api, TopologyDescription_Create))
    return tt_pjrt_missing("TopologyDescription_Create");
  if (!TT_HAS(api, TopologyDescription_Destroy))
    return tt_pjrt_missing("TopologyDescription_Destroy");
  if (!TT_HAS(api, TopologyDescription_GetDeviceDescriptions))
    return tt_pjrt_missing("TopologyDescription_GetDeviceDescriptions");
  return TT_HAS(api, Compile) ? TT_SUCCESS : tt_pjrt_missing("Compile");
}

static tt_status topology_init(tt_topology *topology, const char *name) {
  TT_ARGS(TopologyDescription_Create, create, .topology_name = name,
          .topology_name_size = strlen(name));
  TT_TRY(TT_CALL(topology->api, TopologyDescription_Create, &create));
  topology->raw = create.topology;
  TT_ARGS(TopologyDescription_GetDeviceDescriptions, args, .topology = topology->raw);
  TT_TRY(TT_CALL(topology->api, TopologyDescription_GetDeviceDescriptions, &args));
  if (args.num_descriptions > INT32_MAX)
    return tt_error(TT_INTERNAL, "the plugin says that topology '%s' has %zu devices", name,
                    args.num_descriptions);
  topology->device_count = (int)args.num_descriptions;
  return TT_SUCCESS;
}

tt_status tt_topology_create(tt_plugin *plugin, const char *name, tt_topology **out) {
  *out = NULL;
  TT_TRY(topology_check(plugin->api));
  tt_topology *topology = tt_calloc(1, sizeof *topology);
  if (!topology) return tt_out_of_memory();
  topology->api = plugin->api;
  tt_status status = topology_init(topology, name);
  if (status) {
    tt_topology_destroy(topology);
    return tt_status_prefix(status, "topology '%s'", name);
  }
  *out = topology;
  return TT_SUCCESS;
}

void tt_topology_destroy(tt_topology *topology) {
  if (!topology) return;
  if (topology->raw) {
    TT_ARGS(TopologyDescription_Destroy, args, .topology = topology->raw);
    TT_DESTROY(topology->api, TopologyDescription_Destroy, &args);
  }
  tt_free(topology);
}

int tt_topology_device_count(const tt_topology *topology) { return topology->device_count; }

tt_status tt_topology_compile(tt_topology *topology, const char *code, size_t size,
                              const tt_compile_options *options, tt_executable **out) {
  *out = NULL;
  PJRT_Program program;
  tt_text bytes = TT_TEXT_INIT;
  tt_status status = tt_pjrt_program(code, size, options, &program, &bytes);
  TT_ARGS(Compile, args, .topology = topology->raw, .program = &program,
          .compile_options = bytes.data, .compile_options_size = bytes.size);
  if (!status) status = TT_CALL(topology->api, Compile, &args);
  tt_text_deinit(&bytes);
  if (status) return status;
  return tt_executable_wrap(topology->api, NULL, NULL, args.executable, out);
}
