/* Executions. The call checks, takes memory, and donates; a lane computes. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct accel_launch {
  accel_task task;
  PJRT_LoadedExecutable *executable;
  PJRT_Device *device; /* the one that was asked for, or NULL: those of the executable */
  int devices, inputs, outputs;
  accel_value **arguments, **results; /* of all devices, one after the other */
  bool *donated;                      /* for each argument */
  int64_t *keep;
  size_t keep_count;
  accel_moment *ended;
  PJRT_Error *error; /* that it shall end with */
  int64_t number;    /* of one that several processes make */
} accel_launch;

static PJRT_Device *device_of(const PJRT_LoadedExecutable_Execute_Args *args, size_t index) {
  return args->execute_device ? args->execute_device : args->executable->devices[index];
}

/* -- On a lane -- */

/* A donated argument must not be overwritten under a copy that still reads it. */
static bool launch_ready(const accel_task *task) {
  const accel_launch *launch = (const accel_launch *)task;
  for (int i = 0; i < launch->devices * launch->inputs; i++) {
    const accel_value *value = launch->arguments[i];
    if (!value->ready->over) return false;
    if (launch->donated[i % launch->inputs] && value->readers) return false;
  }
  return true;
}

static PJRT_Error *argument_error(const accel_launch *launch) {
  for (int i = 0; i < launch->devices * launch->inputs; i++)
    if (launch->arguments[i]->ready->error)
      return accel_error_copy(launch->arguments[i]->ready->error);
  return NULL;
}

static PJRT_Error *await_all(PJRT_Event **events, int count) {
  PJRT_Error *first = NULL;
  for (int i = 0; i < count; i++) {
    ACCEL_ARGS(Event_Await, await, .event = events[i]);
    PJRT_Error *error = ACCEL_INNER(Event_Await, &await);
    ACCEL_INNER_DESTROY(Event_Destroy, .event = events[i]);
    if (first) accel_error_free(error);
    else first = error;
  }
  return first;
}

/* What the inner plugin takes and gives: of all devices, one after the other. */
typedef struct accel_lists {
  size_t devices, inputs, outputs;
  PJRT_Buffer **in, **out;
} accel_lists;

static PJRT_Error *execute_inner(const accel_launch *launch, const accel_lists *lists) {
  PJRT_Buffer ***each = accel_alloc(2 * lists->devices, sizeof *each);
  PJRT_Event **events = accel_alloc(lists->devices, sizeof *events);
  for (size_t d = 0; d < lists->devices; d++) {
    each[d] = lists->in + d * lists->inputs;
    each[lists->devices + d] = lists->out + d * lists->outputs;
  }
  PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE,
                                 .non_donatable_input_indices = launch->keep,
                                 .num_non_donatable_input_indices = launch->keep_count};
  ACCEL_ARGS(LoadedExecutable_Execute, args, .executable = launch->executable->inner,
             .options = &options, .argument_lists = (PJRT_Buffer *const *const *)each,
             .num_devices = lists->devices, .num_args = lists->inputs,
             .output_lists = each + lists->devices, .device_complete_events = events,
             .execute_device = launch->device ? launch->device->inner : NULL);
  PJRT_Error *error = ACCEL_INNER(LoadedExecutable_Execute, &args);
  if (!error) error = await_all(events, (int)lists->devices);
  free(each);
  free(events);
  return error;
}

static void destroy_inner(PJRT_Buffer *const *buffers, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (buffers[i]) ACCEL_INNER_DESTROY(Buffer_Destroy, .buffer = buffers[i]);
}

/* Of the other processes' devices; this one's values have theirs. */
static void destroy_others(const accel_lists *lists, size_t place) {
  for (size_t d = 0; d < lists->devices; d++) {
    if (d == place) continue;
    destroy_inner(lists->in + d * lists->inputs, lists->inputs);
    destroy_inner(lists->out + d * lists->outputs, lists->outputs);
  }
}

static PJRT_Error *compute(accel_launch *launch) {
  const PJRT_LoadedExecutable *executable = launch->executable;
  bool spans = executable->place_count > 0;
  size_t own = spans ? executable->place : 0, devices = (size_t)launch->devices;
  accel_lists lists = {.devices = spans ? executable->place_count : devices,
                       .inputs = (size_t)launch->inputs,
                       .outputs = (size_t)launch->outputs};
  lists.in = accel_alloc(lists.devices * lists.inputs, sizeof *lists.in);
  lists.out = accel_alloc(lists.devices * lists.outputs, sizeof *lists.out);
  for (size_t i = 0; i < devices * lists.inputs; i++)
    lists.in[own * lists.inputs + i] = launch->arguments[i]->inner;
  PJRT_Error *error = NULL;
  if (spans)
    error = accel_span_arguments(executable, launch->number, launch->arguments, launch->inputs,
                                 lists.in);
  if (!error) error = execute_inner(launch, &lists);
  for (size_t i = 0; i < devices * lists.outputs && !error; i++)
    launch->results[i]->inner = lists.out[own * lists.outputs + i];
  if (spans) destroy_others(&lists, own);
  free(lists.in);
  free(lists.out);
  return error;
}

static void launch_deinit(accel_launch *launch) {
  accel_lock();
  for (int i = 0; i < launch->devices * launch->inputs; i++)
    accel_value_release(launch->arguments[i]);
  for (int i = 0; i < launch->devices * launch->outputs; i++)
    accel_value_release(launch->results[i]);
  accel_moment_release(launch->ended);
  accel_loaded_release(launch->executable);
  accel_unlock();
  free(launch->arguments);
  free(launch->results);
  free(launch->donated);
  free(launch->keep);
}

/* Arguments are let go before anybody learns that it ended: their memory is then free. */
static void launch_run(accel_task *task) {
  accel_launch *launch = (accel_launch *)task;
  accel_lock();
  PJRT_Error *error = launch->error ? launch->error : argument_error(launch);
  accel_moment *ended = accel_moment_retain(launch->ended);
  accel_unlock();
  if (!error) error = compute(launch);
  launch_deinit(launch);
  accel_moment_end(ended, error);
  accel_lock();
  accel_moment_release(ended);
  accel_unlock();
}

/* -- In the call, under the lock -- */

static bool donated(const PJRT_LoadedExecutable_Execute_Args *args, size_t index) {
  const PJRT_ExecuteOptions *options = args->options;
  for (size_t i = 0; i < options->num_non_donatable_input_indices; i++)
    if (options->non_donatable_input_indices[i] == (int64_t)index) return false;
  return args->executable->program->donates[index];
}

static PJRT_Error *check_argument(const PJRT_LoadedExecutable_Execute_Args *args, size_t device,
                                  size_t index) {
  PJRT_Buffer *const *list = args->argument_lists[device];
  PJRT_Error *error = accel_buffer_check(list[index]);
  if (error) return error;
  if (list[index]->value->device != device_of(args, device))
    return accel_error(TT_INVALID_ARGUMENT, "Execute: argument %zu is on %s, not on %s", index,
                       list[index]->value->device->description.string,
                       device_of(args, device)->description.string);
  if (!donated(args, index)) return NULL;
  for (size_t i = 0; i < args->num_args; i++)
    if (i != index && list[i] == list[index])
      return accel_error(TT_INVALID_ARGUMENT,
                         "Attempt to donate the same buffer twice: arguments %zu and %zu", index,
                         i);
  return NULL;
}

static PJRT_Error *check_call(const PJRT_LoadedExecutable_Execute_Args *args) {
  const PJRT_ExecuteOptions *options = args->options;
  size_t devices = args->execute_device ? 1 : args->executable->device_count;
  int inputs = args->executable->program->arguments;
  if (options->struct_size < PJRT_ExecuteOptions_STRUCT_SIZE)
    return accel_error(TT_INVALID_ARGUMENT, "Execute: options of %zu bytes", options->struct_size);
  if (options->num_send_ops || options->num_recv_ops || options->context)
    return accel_error(TT_UNIMPLEMENTED, "Execute: callbacks and contexts");
  if (args->num_devices != devices || !devices)
    return accel_error(TT_INVALID_ARGUMENT, "Execute: %zu devices, expected %zu", args->num_devices,
                       devices);
  if (args->num_args != (size_t)inputs)
    return accel_error(TT_INVALID_ARGUMENT, "Execute: %zu arguments, expected %d", args->num_args,
                       inputs);
  PJRT_Error *error = NULL;
  for (size_t d = 0; d < devices && !error; d++)
    for (size_t i = 0; i < args->num_args && !error; i++) error = check_argument(args, d, i);
  return error;
}

/* What donated arguments hold, on one device. */
static int64_t donated_bytes(const PJRT_LoadedExecutable_Execute_Args *args, size_t device) {
  int64_t bytes = 0;
  for (size_t i = 0; i < args->num_args; i++)
    if (donated(args, i)) bytes += args->argument_lists[device][i]->value->bytes;
  return bytes;
}

/* Exchanges the memory of donated arguments for that of the results, on all devices or on none. */
static PJRT_Error *take_memory(const PJRT_LoadedExecutable_Execute_Args *args) {
  const accel_program *program = args->executable->program;
  int64_t bytes = 0;
  PJRT_Error *error = NULL;
  for (int i = 0; i < program->outputs; i++) bytes += accel_device_bytes(&program->types[i]);
  size_t d = 0;
  for (; d < args->num_devices && !error; d++) {
    accel_memory_give(device_of(args, d), donated_bytes(args, d));
    error = accel_memory_take(device_of(args, d), bytes);
    if (error) device_of(args, d)->in_use += donated_bytes(args, d);
  }
  if (!error) return NULL;
  for (d--; d-- > 0;) {
    accel_memory_give(device_of(args, d), bytes);
    device_of(args, d)->in_use += donated_bytes(args, d);
  }
  return error;
}

static void launch_arguments(accel_launch *launch, const PJRT_LoadedExecutable_Execute_Args *args) {
  launch->arguments = accel_alloc(args->num_devices * args->num_args, sizeof(accel_value *));
  launch->donated = accel_alloc(args->num_args, sizeof *launch->donated);
  for (size_t i = 0; i < args->num_args; i++) launch->donated[i] = donated(args, i);
  for (size_t d = 0; d < args->num_devices; d++)
    for (size_t i = 0; i < args->num_args; i++) {
      PJRT_Buffer *buffer = args->argument_lists[d][i];
      launch->arguments[d * args->num_args + i] = accel_value_retain(buffer->value);
      if (!launch->donated[i]) continue;
      buffer->value->bytes = 0;
      accel_value_release(buffer->value);
      buffer->value = NULL;
    }
}

static void launch_results(accel_launch *launch, const PJRT_LoadedExecutable_Execute_Args *args) {
  const accel_program *program = args->executable->program;
  size_t outputs = (size_t)program->outputs;
  launch->results = accel_alloc(args->num_devices * outputs, sizeof(accel_value *));
  for (size_t d = 0; d < args->num_devices; d++) {
    for (size_t i = 0; i < outputs; i++) {
      accel_value *value =
          accel_value_create(device_of(args, d), &program->types[i], launch->ended);
      launch->results[d * outputs + i] = accel_value_retain(value);
      args->output_lists[d][i] = accel_buffer_create(value);
    }
    if (args->device_complete_events)
      args->device_complete_events[d] = accel_event_create(launch->ended);
  }
}

static void launch(const PJRT_LoadedExecutable_Execute_Args *args) {
  accel_launch *launch = accel_alloc(1, sizeof *launch);
  *launch =
      (accel_launch){.task = {.ready = launch_ready, .run = launch_run, .delay = accel_delay()},
                     .executable = args->executable,
                     .device = args->execute_device,
                     .devices = (int)args->num_devices,
                     .inputs = (int)args->num_args,
                     .outputs = args->executable->program->outputs,
                     .keep_count = args->options->num_non_donatable_input_indices,
                     .ended = accel_moment_create(),
                     .error = accel_fault(ACCEL_EXECUTE, true)};
  args->executable->refs++;
  if (args->executable->place_count) launch->number = accel_span_number(args->executable);
  launch->keep = accel_alloc(launch->keep_count, sizeof *launch->keep);
  for (size_t i = 0; i < launch->keep_count; i++)
    launch->keep[i] = args->options->non_donatable_input_indices[i];
  launch_arguments(launch, args);
  launch_results(launch, args);
  accel_lane **lanes = accel_alloc(args->num_devices, sizeof(accel_lane *));
  for (size_t d = 0; d < args->num_devices; d++)
    lanes[d] = &device_of(args, d)->lanes[ACCEL_EXECUTE];
  accel_lane_add(lanes, launch->devices, &launch->task);
  free(lanes);
}

ACCEL(LoadedExecutable_Execute) {
  ACCEL_ENTER(LoadedExecutable_Execute);
  accel_lock();
  PJRT_Error *error = check_call(args);
  if (!error) error = accel_fault(ACCEL_EXECUTE, false);
  if (!error) error = take_memory(args);
  if (!error) {
    launch(args);
    accel_did(ACCEL_EXECUTE);
  }
  accel_unlock();
  return error;
}
