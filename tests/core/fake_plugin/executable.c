/* Executables. Running one checks its arguments, takes the donated ones, and makes zeros. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static atomic_int_fast64_t fake_launch_count, fake_launch_fails_in, fake_donated;

void tt_fake_fail_launch(int64_t nth) { atomic_store(&fake_launch_fails_in, nth); }
int64_t tt_fake_launches(void) { return atomic_load(&fake_launch_count); }
int64_t tt_fake_donations(void) { return atomic_load(&fake_donated); }

/* -- Programs that fail -- */

static const char *failing_word; /* these three under the lock */
static int failing_times, failing_when;

void tt_fake_fail_programs(const char *word, int times, int when) {
  fake_lock();
  failing_word = word;
  failing_times = times;
  failing_when = when;
  fake_unlock();
}

/* Under the lock. */
static PJRT_Error *fail_program(const fake_program *program, int when) {
  int count = 0;
  if (when != failing_when) return NULL;
  const char *at = program->text, *end = program->text + program->size;
  size_t size = strlen(failing_word);
  for (; (at = memmem(at, (size_t)(end - at), failing_word, size)); at += size) count++;
  if (count < failing_times) return NULL;
  return fake_error(TT_INTERNAL, "injected failure of a program with %s", failing_word);
}

/* -- Programs that take long to compile -- */

static _Atomic(const char *) held_word;
static atomic_int held;

void tt_fake_hold_programs(const char *word) { atomic_store(&held_word, word); }
int tt_fake_held(void) { return atomic_load(&held); }

static void hold(const fake_program *program) {
  const char *word = NULL;
  atomic_fetch_add(&held, 1);
  while ((word = atomic_load(&held_word)) &&
         memmem(program->text, program->size, word, strlen(word)))
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  atomic_fetch_sub(&held, 1);
}

/* -- Compiling -- */

static PJRT_LoadedExecutable *load(fake_program *program) {
  PJRT_LoadedExecutable *executable = fake_alloc(sizeof *executable);
  executable->program = program;
  atomic_fetch_add(&fake_live, 1);
  return executable;
}

static PJRT_Error *compile(const PJRT_Program *program, size_t options_size, fake_program **out) {
  if (program->format_size != 4 || memcmp(program->format, "mlir", 4) != 0)
    return fake_error(TT_INVALID_ARGUMENT, "unknown program format");
  if (!options_size) return fake_error(TT_INVALID_ARGUMENT, "empty compile options");
  return fake_program_parse(program->code, program->code_size, out);
}

FAKE(Client_Compile) {
  FAKE_ENTER(Client_Compile);
  fake_program *program = NULL;
  PJRT_Error *error = compile(args->program, args->compile_options_size, &program);
  if (error) return error;
  if (atomic_load(&held_word)) hold(program);
  fake_lock();
  error = fail_program(program, TT_FAKE_COMPILE);
  if (error) fake_program_release(program);
  fake_unlock();
  if (!error) args->executable = load(program);
  return error;
}

FAKE(Compile) {
  FAKE_ENTER(Compile);
  fake_program *program = NULL;
  PJRT_Error *error = compile(args->program, args->compile_options_size, &program);
  if (error) return error;
  args->executable = fake_alloc(sizeof *args->executable);
  args->executable->program = program;
  atomic_fetch_add(&fake_live, 1);
  return NULL;
}

FAKE(Executable_DeserializeAndLoad) {
  FAKE_ENTER(Executable_DeserializeAndLoad);
  fake_program *program = NULL;
  PJRT_Error *error =
      fake_program_parse(args->serialized_executable, args->serialized_executable_size, &program);
  if (!error) args->loaded_executable = load(program);
  return error;
}

FAKE(LoadedExecutable_GetExecutable) {
  FAKE_ENTER(LoadedExecutable_GetExecutable);
  args->executable = fake_alloc(sizeof *args->executable);
  args->executable->program = args->loaded_executable->program;
  fake_lock();
  args->executable->program->refs++;
  fake_unlock();
  atomic_fetch_add(&fake_live, 1);
  return NULL;
}

static void drop(fake_program *program, void *executable) {
  fake_lock();
  fake_program_release(program);
  fake_unlock();
  free(executable);
  atomic_fetch_sub(&fake_live, 1);
}

FAKE(LoadedExecutable_Destroy) {
  drop(args->executable->program, args->executable);
  FAKE_ENTER(LoadedExecutable_Destroy);
  return NULL;
}

FAKE(Executable_Destroy) {
  drop(args->executable->program, args->executable);
  FAKE_ENTER(Executable_Destroy);
  return NULL;
}

/* -- Asking -- */

FAKE(Executable_NumOutputs) {
  FAKE_ENTER(Executable_NumOutputs);
  args->num_outputs = (size_t)args->executable->program->result_count;
  return NULL;
}

static int64_t sum_bytes(const fake_type *types, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += types[i].bytes;
  return bytes;
}

FAKE(Executable_GetCompiledMemoryStats) {
  FAKE_ENTER(Executable_GetCompiledMemoryStats);
  const fake_program *program = args->executable->program;
  args->argument_size_in_bytes = sum_bytes(program->arguments, program->argument_count);
  args->output_size_in_bytes = sum_bytes(program->results, program->result_count);
  args->generated_code_size_in_bytes = (int64_t)program->size;
  for (int i = 0; i < program->argument_count; i++)
    if (program->arguments[i].donates_to >= 0)
      args->alias_size_in_bytes += program->arguments[i].bytes;
  return NULL;
}

FAKE(Executable_GetCostAnalysis) {
  FAKE_ENTER(Executable_GetCostAnalysis);
  static const PJRT_NamedValue values[] = {{PJRT_NamedValue_STRUCT_SIZE,
                                            NULL,
                                            "optimal_seconds",
                                            15,
                                            PJRT_NamedValue_kFloat,
                                            {.float_value = -3},
                                            1},
                                           {PJRT_NamedValue_STRUCT_SIZE,
                                            NULL,
                                            "bytes accessed",
                                            14,
                                            PJRT_NamedValue_kFloat,
                                            {.float_value = 12},
                                            1}};
  args->properties = values;
  args->num_properties = sizeof values / sizeof *values;
  return NULL;
}

/* "Optimised" is its own text. */
FAKE(Executable_OptimizedProgram) {
  FAKE_ENTER(Executable_OptimizedProgram);
  const fake_program *program = args->executable->program;
  if (args->program->code) memcpy(args->program->code, program->text, program->size);
  args->program->code_size = program->size;
  return NULL;
}

/* A fake program is portable: it has no devices of its own. */
FAKE(LoadedExecutable_AddressableDevices) {
  FAKE_ENTER(LoadedExecutable_AddressableDevices);
  args->num_addressable_devices = 0;
  return NULL;
}

/* What was serialized: the text itself, copied, so that a forgotten deleter is a leak. */
struct PJRT_SerializedExecutable {
  char *text;
};

static void delete_serialized(PJRT_SerializedExecutable *serialized) {
  free(serialized->text);
  free(serialized);
  atomic_fetch_sub(&fake_live, 1);
}

FAKE(Executable_Serialize) {
  FAKE_ENTER(Executable_Serialize);
  const fake_program *program = args->executable->program;
  if (memmem(program->text, program->size, "unserializable", 14))
    return fake_error(TT_UNIMPLEMENTED, "the program is unserializable");
  PJRT_SerializedExecutable *serialized = fake_alloc(sizeof *serialized);
  serialized->text = fake_alloc(program->size);
  memcpy(serialized->text, program->text, program->size);
  atomic_fetch_add(&fake_live, 1);
  args->serialized_bytes = serialized->text;
  args->serialized_bytes_size = program->size;
  args->serialized_executable = serialized;
  args->serialized_executable_deleter = delete_serialized;
  return NULL;
}

/* -- Running -- */

static bool kept(const PJRT_ExecuteOptions *options, int index) {
  for (size_t i = 0; i < options->num_non_donatable_input_indices; i++)
    if (options->non_donatable_input_indices[i] == index) return true;
  return false;
}

static bool donated(const PJRT_LoadedExecutable_Execute_Args *args, int index) {
  return args->executable->program->arguments[index].donates_to >= 0 && !kept(args->options, index);
}

static PJRT_Error *check_argument(const PJRT_LoadedExecutable_Execute_Args *args, int index) {
  const fake_type *type = &args->executable->program->arguments[index];
  PJRT_Buffer *const *list = args->argument_lists[0];
  const PJRT_Buffer *buffer = list[index];
  if (!buffer->memory)
    return fake_error(TT_INVALID_ARGUMENT, "Buffer has been deleted or donated.");
  if (args->execute_device && buffer->device != args->execute_device)
    return fake_error(TT_INVALID_ARGUMENT, "argument %d is on another device", index);
  bool same = buffer->type.dtype == type->dtype && buffer->type.rank == type->rank;
  for (int i = 0; same && i < type->rank; i++) same = buffer->type.dims[i] == type->dims[i];
  if (!same) return fake_error(TT_INVALID_ARGUMENT, "argument %d is of another type", index);
  if (!donated(args, index)) return NULL;
  for (size_t i = 0; i < args->num_args; i++)
    if ((int)i != index && list[i] == buffer)
      return fake_error(TT_INVALID_ARGUMENT, "Attempt to donate the same buffer twice");
  return NULL;
}

static PJRT_Error *check_call(const PJRT_LoadedExecutable_Execute_Args *args) {
  const fake_program *program = args->executable->program;
  if (args->num_devices != 1) return fake_error(TT_UNIMPLEMENTED, "one device a launch");
  if (args->options->struct_size < PJRT_ExecuteOptions_STRUCT_SIZE)
    return fake_error(TT_INVALID_ARGUMENT, "PJRT_ExecuteOptions is too small");
  if (!args->execute_device) return fake_error(TT_INVALID_ARGUMENT, "no execute_device");
  if ((int)args->num_args != program->argument_count)
    return fake_error(TT_INVALID_ARGUMENT, "%zu arguments, expected %d", args->num_args,
                      program->argument_count);
  PJRT_Error *error = NULL;
  for (int i = 0; i < program->argument_count && !error; i++) error = check_argument(args, i);
  return error;
}

/* A program fails when an argument did, or when a test said so. */
static const char *launch_failure(const PJRT_LoadedExecutable_Execute_Args *args) {
  if (atomic_load(&fake_launch_fails_in) > 0 && atomic_fetch_sub(&fake_launch_fails_in, 1) == 1)
    return "injected asynchronous failure";
  for (size_t i = 0; i < args->num_args; i++)
    if (args->argument_lists[0][i]->moment->failure)
      return args->argument_lists[0][i]->moment->failure;
  return NULL;
}

static void donate(PJRT_LoadedExecutable_Execute_Args *args) {
  for (int i = 0; i < args->executable->program->argument_count; i++) {
    if (!donated(args, i)) continue;
    fake_buffer_free_memory(args->argument_lists[0][i]);
    atomic_fetch_add(&fake_donated, 1);
  }
}

static PJRT_Error *launch(PJRT_LoadedExecutable_Execute_Args *args, fake_moment *moment) {
  const fake_program *program = args->executable->program;
  PJRT_Buffer **outputs = args->output_lists[0];
  for (int i = 0; i < program->result_count; i++) {
    PJRT_Error *error =
        fake_buffer_create(args->execute_device, &program->results[i], moment, &outputs[i]);
    if (!error) continue;
    while (i-- > 0) {
      fake_buffer_free_memory(outputs[i]);
      fake_moment_release(moment);
      free(outputs[i]);
      atomic_fetch_sub(&fake_live, 1);
    }
    return error;
  }
  donate(args);
  if (args->device_complete_events) args->device_complete_events[0] = fake_event_create(moment);
  return NULL;
}

FAKE(LoadedExecutable_Execute) {
  FAKE_ENTER(LoadedExecutable_Execute);
  atomic_fetch_add(&fake_launch_count, 1);
  fake_lock();
  PJRT_Error *error = check_call(args);
  if (!error) error = fail_program(args->executable->program, TT_FAKE_EXECUTE);
  if (!error) {
    error = fail_program(args->executable->program, TT_FAKE_EXECUTE_DONATED);
    if (error) donate(args);
  }
  if (!error) {
    fake_moment *moment = fake_moment_create(launch_failure(args));
    error = launch(args, moment);
    fake_moment_release(moment);
  }
  fake_unlock();
  return error;
}
