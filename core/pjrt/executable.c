#include "pjrt/compile_options.h"
#include "pjrt/internal.h"

#include <string.h>

/* -- Making one -- */

tt_status tt_pjrt_program(const char *code, size_t size, const tt_compile_options *options,
                          PJRT_Program *program, tt_text *options_out) {
  if (!code || !size)
    return tt_error(TT_INVALID_ARGUMENT, "compile: the program is empty; give a StableHLO module");
  *program = (PJRT_Program){.struct_size = PJRT_Program_STRUCT_SIZE,
                            .code = (char *)code,
                            .code_size = size,
                            .format = "mlir",
                            .format_size = strlen("mlir")};
  TT_TRY(tt_compile_options_write(options, options_out));
  return tt_compile_options_read(code, size, options_out);
}

static tt_status executable_init(tt_executable *executable) {
  const PJRT_Api *api = executable->api;
  if (!executable->compiled) {
    TT_ARGS(LoadedExecutable_GetExecutable, get, .loaded_executable = executable->loaded);
    TT_TRY(TT_CALL(api, LoadedExecutable_GetExecutable, &get));
    executable->compiled = get.executable;
  }
  TT_ARGS(Executable_NumOutputs, args, .executable = executable->compiled);
  TT_TRY(TT_CALL(api, Executable_NumOutputs, &args));
  if (args.num_outputs > INT32_MAX)
    return tt_error(TT_INTERNAL, "the plugin says that a program has %zu outputs",
                    args.num_outputs);
  executable->outputs = (int)args.num_outputs;
  return TT_SUCCESS;
}

tt_status tt_executable_wrap(const PJRT_Api *api, tt_client *client, PJRT_LoadedExecutable *loaded,
                             PJRT_Executable *compiled, tt_executable **out) {
  *out = NULL;
  tt_executable local = {.api = api, .client = client, .loaded = loaded, .compiled = compiled};
  tt_executable *executable = tt_malloc(sizeof *executable);
  tt_status status = executable ? executable_init(&local) : tt_out_of_memory();
  if (status) {
    tt_free(executable);
    if (local.compiled) {
      TT_ARGS(Executable_Destroy, args, .executable = local.compiled);
      TT_DESTROY(api, Executable_Destroy, &args);
    }
    if (local.loaded) {
      TT_ARGS(LoadedExecutable_Destroy, args, .executable = local.loaded);
      TT_DESTROY(api, LoadedExecutable_Destroy, &args);
    }
    return status;
  }
  *executable = local;
  *out = executable;
  return TT_SUCCESS;
}

tt_status tt_compile(tt_client *client, const char *code, size_t size,
                     const tt_compile_options *options, tt_executable **out) {
  *out = NULL;
  PJRT_Program program;
  tt_text bytes = TT_TEXT_INIT;
  tt_status status = tt_pjrt_program(code, size, options, &program, &bytes);
  TT_ARGS(Client_Compile, args, .client = client->raw, .program = &program,
          .compile_options = bytes.data, .compile_options_size = bytes.size);
  if (!status) status = TT_CALL(client->api, Client_Compile, &args);
  tt_text_deinit(&bytes);
  if (status) return status;
  return tt_executable_wrap(client->api, client, args.executable, NULL, out);
}

tt_status tt_executable_load(tt_client *client, const void *data, size_t size,
                             tt_executable **out) {
  *out = NULL;
  const PJRT_Api *api = client->api;
  if (!data || !size) return tt_error(TT_INVALID_ARGUMENT, "load: the stored program is empty");
  if (!TT_HAS(api, Executable_DeserializeAndLoad))
    return tt_pjrt_missing("Executable_DeserializeAndLoad");
  TT_ARGS(Executable_DeserializeAndLoad, args, .client = client->raw, .serialized_executable = data,
          .serialized_executable_size = size);
  TT_TRY(TT_CALL(api, Executable_DeserializeAndLoad, &args));
  return tt_executable_wrap(api, client, args.loaded_executable, NULL, out);
}

void tt_executable_destroy(tt_executable *executable) {
  if (!executable) return;
  const PJRT_Api *api = executable->api;
  TT_ARGS(Executable_Destroy, compiled, .executable = executable->compiled);
  TT_DESTROY(api, Executable_Destroy, &compiled);
  if (executable->loaded) {
    TT_ARGS(LoadedExecutable_Destroy, loaded, .executable = executable->loaded);
    TT_DESTROY(api, LoadedExecutable_Destroy, &loaded);
  }
  tt_free(executable);
}

/* -- Asking it -- */

int tt_executable_outputs(const tt_executable *executable) { return executable->outputs; }

tt_status tt_executable_serialize(tt_executable *executable, void **data, size_t *size) {
  *data = NULL;
  *size = 0;
  const PJRT_Api *api = executable->api;
  if (!TT_HAS(api, Executable_Serialize)) return tt_pjrt_missing("Executable_Serialize");
  TT_ARGS(Executable_Serialize, args, .executable = executable->compiled);
  TT_TRY(TT_CALL(api, Executable_Serialize, &args));
  *data = tt_malloc(args.serialized_bytes_size);
  if (*data) {
    memcpy(*data, args.serialized_bytes, args.serialized_bytes_size);
    *size = args.serialized_bytes_size;
  }
  if (args.serialized_executable_deleter)
    args.serialized_executable_deleter(args.serialized_executable);
  return *data ? TT_SUCCESS : tt_out_of_memory();
}

tt_status tt_executable_memory(tt_executable *executable, tt_program_memory *out) {
  *out = (tt_program_memory){0};
  const PJRT_Api *api = executable->api;
  if (!TT_HAS(api, Executable_GetCompiledMemoryStats))
    return tt_pjrt_missing("Executable_GetCompiledMemoryStats");
  TT_ARGS(Executable_GetCompiledMemoryStats, args, .executable = executable->compiled);
  TT_TRY(TT_CALL(api, Executable_GetCompiledMemoryStats, &args));
  *out = (tt_program_memory){.arguments = args.argument_size_in_bytes,
                             .outputs = args.output_size_in_bytes,
                             .aliased = args.alias_size_in_bytes,
                             .temporaries = args.temp_size_in_bytes,
                             .code = args.generated_code_size_in_bytes};
  return TT_SUCCESS;
}

tt_status tt_executable_optimized(tt_executable *executable, tt_text *out) {
  const PJRT_Api *api = executable->api;
  if (!TT_HAS(api, Executable_OptimizedProgram))
    return tt_pjrt_missing("Executable_OptimizedProgram");
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE};
  TT_ARGS(Executable_OptimizedProgram, args, .executable = executable->compiled,
          .program = &program);
  TT_TRY(TT_CALL(api, Executable_OptimizedProgram, &args)); /* tells the size */
  program.code = tt_malloc(program.code_size + 1);
  if (!program.code) return tt_out_of_memory();
  tt_status status = TT_CALL(api, Executable_OptimizedProgram, &args);
  if (!status) tt_text_add(out, program.code, program.code_size);
  tt_free(program.code);
  return tt_join(status, tt_text_status(out));
}

static double property(const PJRT_Executable_GetCostAnalysis_Args *args, const char *name) {
  size_t size = strlen(name);
  for (size_t i = 0; i < args->num_properties; i++) {
    const PJRT_NamedValue *value = &args->properties[i];
    if (value->type == PJRT_NamedValue_kFloat && value->name_size == size &&
        memcmp(value->name, name, size) == 0)
      return (double)value->value.float_value;
  }
  return -1;
}

tt_status tt_executable_bytes(tt_executable *executable, double *bytes) {
  const PJRT_Api *api = executable->api;
  *bytes = -1;
  if (!TT_HAS(api, Executable_GetCostAnalysis))
    return tt_pjrt_missing("Executable_GetCostAnalysis");
  TT_ARGS(Executable_GetCostAnalysis, args, .executable = executable->compiled);
  TT_TRY(TT_CALL(api, Executable_GetCostAnalysis, &args));
  *bytes = property(&args, "bytes accessed");
  return TT_SUCCESS;
}

static tt_pjrt_device *find_device(const tt_client *client, const PJRT_Device *raw) {
  for (int i = 0; i < client->device_count; i++)
    if (client->devices[i].raw == raw) return &client->devices[i];
  return NULL;
}

tt_status tt_executable_devices(tt_executable *executable, tt_pjrt_device **out, int capacity,
                                int *count) {
  *count = 0;
  const PJRT_Api *api = executable->api;
  if (!executable->loaded) return TT_SUCCESS;
  if (!TT_HAS(api, LoadedExecutable_AddressableDevices))
    return tt_pjrt_missing("LoadedExecutable_AddressableDevices");
  TT_ARGS(LoadedExecutable_AddressableDevices, args, .executable = executable->loaded);
  TT_TRY(TT_CALL(api, LoadedExecutable_AddressableDevices, &args));
  if (args.num_addressable_devices > (size_t)executable->client->device_count)
    return tt_error(TT_INTERNAL, "the plugin says that a program runs on %zu devices of %d",
                    args.num_addressable_devices, executable->client->device_count);
  *count = (int)args.num_addressable_devices;
  for (int i = 0; i < *count && i < capacity; i++)
    out[i] = find_device(executable->client, args.addressable_devices[i]);
  return TT_SUCCESS;
}

/* -- Running it -- */

/* `done` has room for an event of each device, or is NULL. */
static tt_status execute(tt_executable *executable, int devices, tt_pjrt_device *device,
                         tt_buffer *const *const *arguments, int count, const int64_t *keep,
                         int keep_count, tt_buffer **const *outputs, tt_event **done) {
  if (!executable->loaded)
    return tt_error(TT_FAILED_PRECONDITION,
                    "execute: the program was compiled for a topology; compile it for a client");
  PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE,
                                 .non_donatable_input_indices = keep,
                                 .num_non_donatable_input_indices = (size_t)keep_count};
  TT_ARGS(LoadedExecutable_Execute, args, .executable = executable->loaded, .options = &options,
          .argument_lists = arguments, .num_devices = (size_t)devices, .num_args = (size_t)count,
          .output_lists = outputs, .device_complete_events = done,
          .execute_device = device ? device->raw : NULL);
  tt_status status = TT_CALL(executable->api, LoadedExecutable_Execute, &args);
  for (int d = 0; status && d < devices; d++)
    for (int i = 0; i < executable->outputs; i++) outputs[d][i] = NULL;
  return status;
}

tt_status tt_execute(tt_executable *executable, tt_pjrt_device *device, tt_buffer *const *arguments,
                     int count, const int64_t *keep, int keep_count, tt_buffer **outputs,
                     tt_event **done) {
  if (done) *done = NULL;
  return execute(executable, 1, device, &arguments, count, keep, keep_count, &outputs, done);
}

tt_status tt_execute_all(tt_executable *executable, int devices, tt_buffer *const *const *arguments,
                         int count, const int64_t *keep, int keep_count, tt_buffer **const *outputs,
                         tt_event **done) {
  for (int d = 0; done && d < devices; d++) done[d] = NULL;
  return execute(executable, devices, NULL, arguments, count, keep, keep_count, outputs, done);
}
