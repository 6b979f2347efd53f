/* Programs: compiled, stored, loaded. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static PJRT_Device *device_of_inner(const PJRT_Client *client, const PJRT_Device *inner) {
  for (size_t i = 0; i < client->device_count; i++)
    if (client->devices[i]->inner == inner) return client->devices[i];
  return NULL;
}

static PJRT_Error *get_inner(PJRT_LoadedExecutable *inner, PJRT_Executable **out) {
  ACCEL_ARGS(LoadedExecutable_GetExecutable, args, .loaded_executable = inner);
  PJRT_Error *error = ACCEL_INNER(LoadedExecutable_GetExecutable, &args);
  *out = args.executable;
  return error;
}

/* Of one that is compiled for some devices of all processes; none of a portable one. */
static PJRT_Error *ask_places(PJRT_LoadedExecutable *loaded, PJRT_Device *const *inner,
                              size_t count) {
  PJRT_Device *own = loaded->client->devices[0];
  loaded->devices = accel_alloc(1, sizeof *loaded->devices);
  loaded->places = accel_alloc(count, sizeof *loaded->places);
  for (size_t i = 0; i < count; i++) {
    ACCEL_ARGS(Device_GetDescription, device, .device = inner[i]);
    PJRT_Error *error = ACCEL_INNER(Device_GetDescription, &device);
    ACCEL_ARGS(DeviceDescription_Id, id, .device_description = device.device_description);
    if (!error) error = ACCEL_INNER(DeviceDescription_Id, &id);
    if (error) return error;
    loaded->set |= UINT64_C(1) << (id.id % 64);
    loaded->places[i] = inner[i];
    if (inner[i] != own->inner) continue;
    loaded->place = i;
    loaded->devices[0] = own;
    loaded->device_count = 1;
  }
  loaded->place_count = count > 1 ? count : 0;
  return NULL;
}

static PJRT_Error *ask_inner(PJRT_LoadedExecutable *loaded) {
  PJRT_Executable *inner = NULL;
  PJRT_Error *error = get_inner(loaded->inner, &inner);
  if (error) return error;
  error = accel_program_complete(loaded->program, inner);
  ACCEL_INNER_DESTROY(Executable_Destroy, .executable = inner);
  ACCEL_ARGS(LoadedExecutable_AddressableDevices, args, .executable = loaded->inner);
  if (!error) error = ACCEL_INNER(LoadedExecutable_AddressableDevices, &args);
  if (error) return error;
  if (loaded->client->span.nodes > 1)
    return ask_places(loaded, args.addressable_devices, args.num_addressable_devices);
  loaded->device_count = args.num_addressable_devices;
  loaded->devices = accel_alloc(loaded->device_count, sizeof *loaded->devices);
  for (size_t i = 0; i < loaded->device_count; i++)
    loaded->devices[i] = device_of_inner(loaded->client, args.addressable_devices[i]);
  return NULL;
}

/* Consumes `inner` and `program`, also on failure. */
static PJRT_Error *load(PJRT_Client *client, PJRT_LoadedExecutable *inner, accel_program *program,
                        PJRT_LoadedExecutable **out) {
  PJRT_LoadedExecutable *loaded = accel_alloc(1, sizeof *loaded);
  *loaded = (PJRT_LoadedExecutable){.refs = 1, .inner = inner, .client = client};
  loaded->program = program;
  atomic_fetch_add(&client->holders, 1);
  PJRT_Error *error = ask_inner(loaded);
  if (!error) {
    atomic_fetch_add(&accel_live, 1);
    *out = loaded;
    return NULL;
  }
  accel_lock();
  accel_loaded_release(loaded);
  accel_unlock();
  return error;
}

void accel_loaded_release(PJRT_LoadedExecutable *executable) {
  if (--executable->refs) return;
  ACCEL_INNER_DESTROY(LoadedExecutable_Destroy, .executable = executable->inner);
  accel_program_release(executable->program);
  atomic_fetch_sub(&executable->client->holders, 1);
  free(executable->devices);
  free(executable->places);
  free(executable);
}

/* The inner plugin's compile: its compiler drops NaN in minimum and maximum, unlike StableHLO and
 * any device but the CPU, unless an option of its own tells it not to. */
static PJRT_Error *compile_inner(PJRT_Client_Compile_Args *args) {
  static const char keeps_nan[] = "\x3a\x21\x0a\x1bxla_cpu_enable_fast_min_max\x12\x02\x10\0";
  size_t own = sizeof keeps_nan - 1, size = own + args->compile_options_size;
  char *options = accel_alloc(1, size);
  memcpy(options, keeps_nan, own);
  memcpy(options + own, args->compile_options, args->compile_options_size);
  args->compile_options = options;
  args->compile_options_size = size;
  PJRT_Error *error = ACCEL_INNER(Client_Compile, args);
  free(options);
  return error;
}

ACCEL(Client_Compile) {
  ACCEL_ENTER(Client_Compile);
  accel_did(ACCEL_COMPILE);
  PJRT_Error *error = accel_fault(ACCEL_COMPILE, false);
  if (!error && !args->compile_options_size)
    error = accel_error(TT_INVALID_ARGUMENT, "Compile: no compile options");
  if (!error) error = accel_options_check(args->compile_options, args->compile_options_size);
  accel_program *program = NULL;
  if (!error) error = accel_program_parse(args->program->code, args->program->code_size, &program);
  if (error) return error;
  PJRT_Client_Compile_Args inner = *args;
  inner.client = args->client->inner;
  error = compile_inner(&inner);
  if (!error) return load(args->client, inner.executable, program, &args->executable);
  accel_lock();
  accel_program_release(program);
  accel_unlock();
  return error;
}

ACCEL(LoadedExecutable_Destroy) {
  ACCEL_ENTER(LoadedExecutable_Destroy);
  accel_lock();
  accel_loaded_release(args->executable);
  accel_unlock();
  atomic_fetch_sub(&accel_live, 1);
  return NULL;
}

ACCEL(LoadedExecutable_AddressableDevices) {
  ACCEL_ENTER(LoadedExecutable_AddressableDevices);
  args->addressable_devices = args->executable->devices;
  args->num_addressable_devices = args->executable->device_count;
  return NULL;
}

/* -- On no device -- */

ACCEL(LoadedExecutable_GetExecutable) {
  ACCEL_ENTER(LoadedExecutable_GetExecutable);
  PJRT_Executable *inner = NULL;
  PJRT_Error *error = get_inner(args->loaded_executable->inner, &inner);
  if (error) return error;
  args->executable = accel_alloc(1, sizeof *args->executable);
  args->executable->inner = inner;
  accel_lock();
  args->executable->program = args->loaded_executable->program;
  args->executable->program->refs++;
  accel_unlock();
  atomic_fetch_add(&accel_live, 1);
  return NULL;
}

ACCEL(Executable_Destroy) {
  ACCEL_ENTER(Executable_Destroy);
  ACCEL_INNER_DESTROY(Executable_Destroy, .executable = args->executable->inner);
  accel_lock();
  accel_program_release(args->executable->program);
  accel_unlock();
  free(args->executable);
  atomic_fetch_sub(&accel_live, 1);
  return NULL;
}

ACCEL(Executable_NumOutputs) {
  ACCEL_ENTER(Executable_NumOutputs);
  args->num_outputs = (size_t)args->executable->program->outputs;
  return NULL;
}

/* What the inner plugin says of a program is said of ours. */
#define ACCEL_SAYS(slot)                                                                           \
  ACCEL(slot) {                                                                                    \
    ACCEL_ENTER(slot);                                                                             \
    PJRT_##slot##_Args inner = *args;                                                              \
    inner.executable = args->executable->inner;                                                    \
    PJRT_Error *error = ACCEL_INNER(slot, &inner);                                                 \
    if (error) return error;                                                                       \
    inner.executable = args->executable;                                                           \
    *args = inner;                                                                                 \
    return NULL;                                                                                   \
  }
ACCEL_SAYS(Executable_GetCompiledMemoryStats)
ACCEL_SAYS(Executable_GetCostAnalysis)

ACCEL(Executable_OptimizedProgram) {
  ACCEL_ENTER(Executable_OptimizedProgram);
  PJRT_Executable_OptimizedProgram_Args inner = *args;
  inner.executable = args->executable->inner;
  return ACCEL_INNER(Executable_OptimizedProgram, &inner);
}

/* -- Stored: a head, what was read from the text, and the inner plugin's bytes -- */

static const char magic[8] = "accel 1";

struct PJRT_SerializedExecutable {
  char *bytes;
};

static void delete_serialized(PJRT_SerializedExecutable *serialized) {
  free(serialized->bytes);
  free(serialized);
  atomic_fetch_sub(&accel_live, 1);
}

static void put(char **at, const void *data, size_t size) {
  if (size) memcpy(*at, data, size);
  *at += size;
}

ACCEL(Executable_Serialize) {
  ACCEL_ENTER(Executable_Serialize);
  const accel_program *program = args->executable->program;
  ACCEL_ARGS(Executable_Serialize, inner, .executable = args->executable->inner);
  PJRT_Error *error = ACCEL_INNER(Executable_Serialize, &inner);
  if (error) return error;
  int32_t count = program->arguments;
  size_t donates = (size_t)count * sizeof *program->donates;
  PJRT_SerializedExecutable *serialized = accel_alloc(1, sizeof *serialized);
  args->serialized_bytes_size = sizeof magic + sizeof count + donates + inner.serialized_bytes_size;
  serialized->bytes = accel_alloc(1, args->serialized_bytes_size);
  char *at = serialized->bytes;
  put(&at, magic, sizeof magic);
  put(&at, &count, sizeof count);
  put(&at, program->donates, donates);
  put(&at, inner.serialized_bytes, inner.serialized_bytes_size);
  inner.serialized_executable_deleter(inner.serialized_executable);
  atomic_fetch_add(&accel_live, 1);
  args->serialized_bytes = serialized->bytes;
  args->serialized_executable = serialized;
  args->serialized_executable_deleter = delete_serialized;
  return NULL;
}

ACCEL(Executable_DeserializeAndLoad) {
  ACCEL_ENTER(Executable_DeserializeAndLoad);
  const char *at = args->serialized_executable;
  size_t left = args->serialized_executable_size;
  int32_t count = 0;
  if (left < sizeof magic + sizeof count || memcmp(at, magic, sizeof magic) != 0)
    return accel_error(TT_INVALID_ARGUMENT, "DeserializeAndLoad: not a program of this plugin");
  memcpy(&count, at + sizeof magic, sizeof count);
  at += sizeof magic + sizeof count;
  left -= sizeof magic + sizeof count;
  if (count < 0 || (size_t)count > left)
    return accel_error(TT_INVALID_ARGUMENT, "DeserializeAndLoad: the program is cut off");
  PJRT_Executable_DeserializeAndLoad_Args inner = *args;
  inner.client = args->client->inner;
  inner.serialized_executable = at + count;
  inner.serialized_executable_size = left - (size_t)count;
  PJRT_Error *error = ACCEL_INNER(Executable_DeserializeAndLoad, &inner);
  if (error) return error;
  accel_program *program = accel_alloc(1, sizeof *program);
  program->refs = 1;
  program->arguments = count;
  program->donates = accel_alloc((size_t)count, sizeof *program->donates);
  for (int i = 0; i < count; i++) program->donates[i] = at[i];
  return load(args->client, inner.loaded_executable, program, &args->loaded_executable);
}
