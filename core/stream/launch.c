#include "stream/launch.h"

#include "stream/meeting.h"

#include <assert.h>
#include <string.h>

tt_launch *tt_launch_create(tt_device *device, int inputs, int outputs, int words, int sites) {
  assert(inputs >= 0 && outputs >= 0 && words >= 0 && sites >= 0);
  size_t size = sizeof(tt_launch) + sizeof(tt_value *) * (size_t)(inputs + outputs) +
                sizeof(uint32_t) * (size_t)(words + sites);
  tt_launch *launch = tt_malloc(size);
  if (!launch) return NULL;
  memset(launch, 0, size);
  launch->device = device;
  launch->inputs = (tt_value **)(launch + 1);
  launch->outputs = launch->inputs + inputs;
  launch->words = (uint32_t *)(launch->outputs + outputs);
  launch->sites = launch->words + words;
  launch->input_count = inputs;
  launch->output_count = outputs;
  launch->word_count = words;
  return launch;
}

void tt_launch_destroy(tt_launch *launch) {
  if (!launch) return;
  for (int i = 0; i < launch->input_count; i++) tt_value_release(launch->inputs[i]);
  for (int i = 0; i < launch->output_count; i++) tt_value_release(launch->outputs[i]);
  tt_status_release(launch->refused);
  if (launch->pinned) tt_program_unpin(launch->origin.program);
  tt_free(launch);
}

void tt_launch_destroy_list(tt_launch *first) {
  for (tt_launch *next; first; first = next) {
    next = first->next;
    tt_launch_destroy(first);
  }
}

/* -- Inputs of other queues -- */

/* A value's job was pushed before whatever uses it. A queue's thread cannot be interrupted. */
static void await_value(const tt_launch *launch, const tt_value *value) {
  if (tt_value_get_state(value) != TT_VALUE_PENDING) return;
  assert(value->queue && value->queue != launch->job.queue);
  (void)launch;
  while (tt_value_get_state(value) == TT_VALUE_PENDING)
    tt_status_release(tt_queue_await_submitted(value->queue, value->ticket));
}

/* Does anything depend on the value of input i? */
static bool reads(const tt_launch *launch, int i) {
  const tt_graph *graph = launch->origin.graph;
  if (launch->origin.program) return launch->origin.program->module.reads[i];
  if (!launch->orders) return true;
  for (int at = 0; at < graph->step_count; at++) {
    const tt_step *step = &graph->steps[at];
    for (int k = 0; k < step->call->input_count; k++)
      if (step->inputs[k] == graph->inputs[i] && step->call->reads[k]) return true;
  }
  return false;
}

static tt_status replace_failed(tt_launch *launch, int i) {
  tt_value *zeros = NULL, *failed = launch->inputs[i];
  if (reads(launch, i)) return tt_status_clone(failed->error);
  tt_status status =
      tt_device_make_zeros(launch->device, failed->holding.type, launch->origin.site, &zeros);
  if (status) {
    tt_value_release(zeros);
    return status;
  }
  launch->inputs[i] = zeros;
  tt_value_release(failed);
  return TT_SUCCESS;
}

tt_status tt_launch_check_inputs(tt_launch *launch) {
  tt_status status = TT_SUCCESS;
  for (int i = 0; i < launch->input_count; i++) await_value(launch, launch->inputs[i]);
  for (int i = 0; !status && i < launch->input_count; i++)
    if (tt_value_get_state(launch->inputs[i]) == TT_VALUE_FAILED)
      status = replace_failed(launch, i);
  return status;
}

/* -- Executing -- */

enum { LOCAL = 64 };

typedef struct scratch {
  tt_buffer **buffers; /* arguments, then outputs */
  int64_t *keep;
  tt_buffer *local_buffers[LOCAL];
  int64_t local_keep[LOCAL];
} scratch;

static tt_status scratch_init(scratch *s, int buffers, int keep) {
  s->buffers =
      buffers <= LOCAL ? s->local_buffers : tt_malloc(sizeof *s->buffers * (size_t)buffers);
  s->keep = keep <= LOCAL ? s->local_keep : tt_malloc(sizeof *s->keep * (size_t)keep);
  return s->buffers && s->keep ? TT_SUCCESS : tt_out_of_memory();
}

static void scratch_deinit(scratch *s) {
  if (s->buffers != s->local_buffers) tt_free(s->buffers);
  if (s->keep != s->local_keep) tt_free(s->keep);
}

/* Debug: the program's check flags follow its results. Destroys them also when `status` failed. */
static tt_status read_checks(tt_status status, const tt_launch *launch, tt_buffer *const *flags,
                             bool *violated) {
  const tt_module *module = &launch->origin.program->module;
  tt_client *client = launch->device->client;
  tt_type type = tt_type_make(TT_BOOL, 0, NULL);
  for (int i = 0; i < module->check_count; i++) {
    bool flag = false;
    if (!status) status = tt_buffer_to_host(client, flags[i], &type, &flag, 1);
    if (!status && flag) {
      *violated = true;
      status = tt_error(module->check_codes[i], "%s", module->check_texts[i]);
    }
    tt_buffer_destroy(client, flags[i]);
  }
  return status;
}

/* Inputs that the program would take and somebody else still needs. The job takes what memory its
 * results are not given by the others. */
static int find_kept(tt_launch *launch, int64_t *keep) {
  const tt_module *module = &launch->origin.program->module;
  int count = 0;
  launch->job.bytes = module->result_bytes;
  for (int i = 0; i < module->donor_count; i++) {
    const tt_value *donor = launch->inputs[module->donors[i]];
    if (tt_value_donatable(donor)) launch->job.bytes -= donor->holding.bytes;
    else keep[count++] = module->donors[i];
  }
  return count;
}

bool tt_launch_lost_inputs(const tt_launch *launch) {
  for (int i = 0; i < launch->input_count; i++)
    if (tt_value_get_state(launch->inputs[i]) == TT_VALUE_READY &&
        tt_buffer_deleted(launch->device->client, launch->inputs[i]->buffer))
      return true;
  return false;
}

static tt_status take_results(tt_launch *launch, tt_buffer *const *outputs, tt_event *end) {
  tt_client *client = launch->device->client;
  tt_status status = launch->wait && end ? tt_event_await(client, end) : TT_SUCCESS;
  bool violated = false; /* then what was written in place can still be read, as on the CPU */
  status = read_checks(status, launch, outputs + launch->output_count, &violated);
  for (int i = 0; i < launch->output_count; i++)
    if (!status || violated) tt_value_fulfil(launch->outputs[i], outputs[i]);
    else tt_buffer_destroy(client, outputs[i]);
  return status;
}

/* On several devices at once. Whether the plugin runs such a program before it returns, it does not
 * say. */
static tt_status start_with_others(const tt_launch *launch, const scratch *s, int arguments,
                                   int keep_count, tt_event **end) {
  tt_seat seat = {.device = launch->device->raw,
                  .site = launch->origin.site,
                  .arguments = s->buffers,
                  .count = arguments,
                  .keep = s->keep,
                  .keep_count = keep_count,
                  .outputs = s->buffers + arguments};
  TT_TRY(tt_meeting_execute(launch->origin.program, &seat));
  if (end) {
    *end = seat.end;
    return TT_SUCCESS;
  }
  tt_status status = seat.end ? tt_event_await(launch->device->client, seat.end) : TT_SUCCESS;
  tt_event_destroy(launch->device->client, seat.end);
  for (int i = 0; status && i < tt_executable_outputs(launch->origin.program->executable); i++)
    tt_buffer_destroy(launch->device->client, seat.outputs[i]);
  return status;
}

bool tt_launch_retries(const tt_launch *launch, tt_status status) {
  tt_queue *queue = launch->job.queue; /* NULL for an operator that is run again */
  return queue && tt_device_is_full(status) && tt_queue_drain(queue) &&
         !tt_launch_lost_inputs(launch);
}

/* The arguments are in s->buffers, and the outputs come behind them. */
static tt_status start(const tt_launch *launch, const scratch *s, int arguments, int keep_count,
                       tt_event **end) {
  tt_executable *executable = launch->origin.program->executable;
  for (bool again = false;; again = true) {
    tt_status status = tt_execute(executable, launch->device->raw, s->buffers, arguments, s->keep,
                                  keep_count, s->buffers + arguments, end);
    if (again || !tt_launch_retries(launch, status)) return status;
    tt_status_release(status);
  }
}

static tt_status execute(tt_launch *launch, scratch *s, tt_event **end) {
  tt_device *device = launch->device;
  int arguments = launch->input_count, key = 0;
  tt_buffer *words = NULL;
  for (int i = 0; i < launch->input_count; i++) s->buffers[i] = launch->inputs[i]->buffer;
  if (launch->word_count) {
    TT_TRY(tt_scalar_cache_get(device->scalars, launch->words, launch->word_count, &words, &key));
    s->buffers[arguments++] = words;
  }
  int keep_count = find_kept(launch, s->keep);
  bool alone = !launch->origin.program->module.joint.device_count;
  tt_status status = alone ? start(launch, s, arguments, keep_count, end)
                           : start_with_others(launch, s, arguments, keep_count, end);
  if (words) tt_scalar_cache_put(device->scalars, words, key);
  if (status) return status;
  tt_count_add(TT_COUNT_LAUNCHES, 1);
  return take_results(launch, s->buffers + arguments, end ? *end : NULL);
}

static tt_status await_program(tt_launch *launch) {
  tt_queue *queue = launch->job.queue;
  if (tt_program_is_ready(launch->origin.program)) return tt_program_await(launch->origin.program);
  int64_t start = tt_now_ns();
  if (queue) tt_queue_set_compiling(queue, true);
  tt_status status = tt_program_await(launch->origin.program);
  if (queue) tt_queue_set_compiling(queue, false);
  launch->waited_ns = tt_now_ns() - start;
  return status;
}

tt_status tt_launch_execute(tt_launch *launch, tt_event **end) {
  scratch s;
  const tt_module *module = &launch->origin.program->module;
  assert(launch->output_count == module->result_count);
  tt_status status =
      scratch_init(&s, launch->input_count + 1 + launch->output_count + module->check_count,
                   module->donor_count);
  if (!status) status = await_program(launch);
  bool loaded = !status;
  if (!status) status = execute(launch, &s, end);
  if (loaded) tt_program_release(launch->origin.program);
  scratch_deinit(&s);
  return status;
}
