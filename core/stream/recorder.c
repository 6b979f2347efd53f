/* Recording: a call's values are made pending, its targets are changed, its launch is queued. */
#include "stream/capture.h"
#include "stream/stream.h"
#include "stream/submit.h"

#include <string.h>

/* One operator on its way. */
typedef struct recording {
  tt_stream *stream;
  const tt_operation *op;
  const tt_call *call;
  tt_value **inputs;  /* borrowed from their storages */
  tt_value **outputs; /* one reference each */
} recording;

enum { LOCAL = 32 };

/* -- Values -- */

/* Everything that can fail: pending outputs and new storages. */
static tt_status make_outputs(recording *r, tt_storage **results) {
  int output = 0;
  for (int k = 0; k < r->call->result_count; k++) {
    const tt_call_result *result = &r->call->results[k];
    if (!result->defined) continue;
    TT_TRY(tt_value_create(&r->stream->device->account, r->stream, result->storage, r->op->site,
                           &r->outputs[output++]));
    if (results && result->target < 0)
      TT_TRY(tt_storage_create(r->stream->device, result->storage, &results[k]));
  }
  return TT_SUCCESS;
}

static tt_status find_inputs(recording *r) {
  for (int i = 0; i < r->call->input_count; i++) {
    r->inputs[i] = r->op->tensors[r->call->inputs[i]]->value;
    if (!r->inputs[i])
      return tt_error(TT_INTERNAL, "%s: a tensor was freed while it was used", r->call->name);
  }
  return TT_SUCCESS;
}

/* What other streams recorded is launched before it is used here. */
static tt_status launch_inputs(const recording *r) {
  for (int i = 0; i < r->call->input_count; i++)
    if (r->inputs[i]->section != r->stream->chunk.id)
      TT_TRY(tt_value_launch(r->inputs[i], TT_CUT_SYNC, r->op->policy));
  return TT_SUCCESS;
}

/* Takes a reference of its own. */
static void set_value(tt_storage *storage, const tt_type *type, tt_value *value) {
  tt_value *old = storage->value;
  storage->value = tt_value_retain(value);
  if (storage->type != type) tt_storage_set_type(storage, type);
  tt_value_release(old);
}

static tt_status write_results(const recording *r, tt_storage *const *results) {
  int output = 0;
  for (int k = 0; k < r->call->result_count; k++) {
    const tt_call_result *result = &r->call->results[k];
    if (!result->defined) continue;
    tt_storage *storage = result->target < 0 ? results[k] : r->op->tensors[result->target];
    if (r->stream->capture) TT_TRY(tt_capture_keep(r->stream, storage));
    set_value(storage, result->storage, r->outputs[output++]);
  }
  return TT_SUCCESS;
}

/* -- Strict and Debug: a launch of its own -- */

static tt_status find_program(const recording *r, tt_program **out) {
  bool known_only = r->op->policy->known_only;
  tt_status status = tt_program_of_call(r->stream->device->programs, r->op->call,
                                        known_only ? TT_WANT_KNOWN : TT_WANT_NOW, out);
  return known_only ? tt_status_prefix(status, "%s", r->call->why) : status;
}

static tt_status record_launch(const recording *r, tt_outcome *outcome) {
  tt_program *program = NULL;
  TT_TRY(tt_stream_flush(r->stream, TT_CUT_MODE, r->op->policy));
  TT_TRY(find_program(r, &program));
  tt_launch *launch = tt_launch_create(r->stream->device, r->call->input_count,
                                       r->call->output_count, r->call->word_count, 0);
  if (!launch) return tt_out_of_memory();
  launch->origin = (tt_origin){.program = program, .name = r->call->name, .site = r->op->site};
  launch->job.outcome = tt_outcome_retain(outcome);
  launch->wait = outcome != NULL;
  for (int i = 0; i < launch->input_count; i++) launch->inputs[i] = tt_value_retain(r->inputs[i]);
  for (int i = 0; i < launch->output_count; i++)
    launch->outputs[i] = tt_value_retain(r->outputs[i]);
  if (launch->word_count)
    memcpy(launch->words, r->op->words, sizeof *launch->words * (size_t)launch->word_count);
  tt_submit(r->stream->queue, launch);
  return TT_SUCCESS;
}

/* -- Fused: part of the open chunk -- */

/* Are more than the last few launches under way, and not for want of a program? */
static bool is_behind(tt_queue *queue) {
  uint64_t last = tt_queue_last(queue);
  if (last <= 4 || tt_queue_compiling(queue)) return false;
  return !tt_queue_passed(queue, last - 4);
}

static tt_status record_fused(const recording *r) {
  tt_chunk *chunk = &r->stream->chunk;
  const tt_policy *policy = r->op->policy;
  if (chunk->due && !tt_chunk_goes_on(chunk, policy, is_behind(r->stream->queue)))
    TT_TRY(tt_stream_flush(r->stream, chunk->due, policy));
  return tt_chunk_add(chunk, r->op->call, r->inputs, r->outputs, r->op->words, r->op->site);
}

/* -- Zeros need no program -- */

static tt_status record_zeros(const recording *r) {
  tt_value_release(r->outputs[0]);
  r->outputs[0] = NULL;
  return tt_device_zeros(r->stream->device, r->call->results[0].storage, r->op->site,
                         &r->outputs[0]);
}

/* -- All of it -- */

/* The lock is held. */
static tt_status record_locked(const recording *r, tt_outcome *outcome) {
  if (r->stream->capture) return tt_capture_record(r->stream, r->op, r->inputs, r->outputs);
  if (r->call->zeros) return record_zeros(r);
  TT_TRY(launch_inputs(r));
  return r->op->policy->mode == TT_MODE_FUSED ? record_fused(r) : record_launch(r, outcome);
}

/* `results` NULL: the inputs are given, and storages do not change. */
static tt_status record(recording *r, tt_outcome *outcome, tt_storage **results) {
  tt_queue *queue = r->stream->queue;
  tt_status status = make_outputs(r, results);
  tt_device_lock(r->stream->device);
  if (!status && results) status = find_inputs(r);
  if (!status) status = record_locked(r, outcome);
  if (!status && results) status = write_results(r, results);
  uint64_t ticket = tt_queue_last(queue);
  tt_device_unlock(r->stream->device);
  if (!status && outcome) status = tt_queue_await_submitted(queue, ticket);
  return status ? status : tt_outcome_take(outcome);
}

/* In Debug mode the launch is waited for and its error returned. */
static tt_status record_by_mode(recording *r, tt_storage **results) {
  TT_TRY(tt_queue_await_room(r->stream->queue));
  if (r->op->policy->mode != TT_MODE_DEBUG) return record(r, NULL, results);
  tt_outcome *outcome = tt_outcome_create();
  tt_status status = outcome ? record(r, outcome, results) : tt_out_of_memory();
  tt_outcome_release(outcome);
  return status;
}

tt_status tt_stream_record(tt_stream *stream, const tt_operation *operation, tt_storage **results) {
  tt_call *call = operation->call;
  tt_value *local[LOCAL];
  int values = call->input_count + call->output_count;
  recording r = {.stream = stream, .op = operation, .call = call, .inputs = local};
  for (int k = 0; k < call->result_count; k++) results[k] = NULL;
  if (values > LOCAL) r.inputs = tt_malloc(sizeof *r.inputs * (size_t)values);
  if (!r.inputs) return tt_out_of_memory();
  r.outputs = r.inputs + call->input_count;
  memset(r.outputs, 0, sizeof *r.outputs * (size_t)call->output_count);
  tt_status status = record_by_mode(&r, results);
  for (int i = 0; i < call->output_count; i++) tt_value_release(r.outputs[i]);
  if (r.inputs != local) tt_free(r.inputs);
  for (int k = 0; status && k < call->result_count; k++) {
    tt_storage_release(results[k]);
    results[k] = NULL;
  }
  if (!status && tt_observer_current)
    tt_observer_current->called(tt_observer_current, operation, results);
  return status;
}

tt_status tt_stream_record_values(tt_stream *stream, const tt_operation *operation,
                                  tt_value *const *inputs, tt_value **outputs) {
  recording r = {.stream = stream,
                 .op = operation,
                 .call = operation->call,
                 .inputs = (tt_value **)(uintptr_t)inputs,
                 .outputs = outputs};
  for (int i = 0; i < r.call->output_count; i++) outputs[i] = NULL;
  tt_status status = record_by_mode(&r, NULL);
  for (int i = 0; status && i < r.call->output_count; i++) {
    tt_value_release(outputs[i]);
    outputs[i] = NULL;
  }
  return status;
}
