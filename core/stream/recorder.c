/* Recording: a call's values are made pending, its targets are changed, its launch is queued. */
#include "stream/recorder.h"

#include "call/bounded.h"
#include "stream/capture.h"
#include "stream/capturing.h"
#include "stream/pending.h"
#include "stream/submit.h"
#include "stream/tiers.h"

#include <string.h>

/* One operator on its way. */
typedef struct recording {
  tt_stream *stream;
  const tt_operation *op;
  const tt_call *call;
  tt_value **inputs;    /* borrowed from their storages, or: */
  bool owns_inputs;     /* one reference each, which the launch takes */
  tt_value **outputs;   /* one reference each */
  tt_storage **targets; /* [output_count] who holds the outputs from now on; NULL: nobody yet */
} recording;

enum { LOCAL = 32 };

/* -- Values -- */

/* Of the call's k-th result. */
static tt_status make_output(const recording *r, int k, tt_value **out) {
  const tt_call_result *result = &r->call->results[k];
  tt_account *account = &r->stream->device->account;
  TT_TRY(tt_value_create(account, r->stream, result->storage, r->op->site, out));
  if (!result->length_count) return TT_SUCCESS;
  tt_reach reach = tt_call_result_reach(result, r->op->scalars);
  return tt_value_set_reach(*out, &reach);
}

static tt_status new_storage(tt_stream *stream, const tt_type *type, tt_storage **out) {
  TT_TRY(tt_storage_create(stream->device, type, out));
  (*out)->born = tt_stream_captured(stream);
  return TT_SUCCESS;
}

/* Everything that can fail: pending outputs and new storages, of which `results` receives those
 * that the call makes. */
static tt_status make_outputs(recording *r, tt_storage **results) {
  int output = 0;
  for (int k = 0; k < r->call->result_count; k++) {
    const tt_call_result *result = &r->call->results[k];
    if (!result->defined) continue;
    TT_TRY(make_output(r, k, &r->outputs[output]));
    const tt_value *made = r->outputs[output];
    const tt_type *type = tt_value_is_bounded(made) ? made->exact : result->storage;
    if (result->target < 0) TT_TRY(new_storage(r->stream, type, &results[k]));
    r->targets[output++] = result->target < 0 ? results[k] : r->op->tensors[result->target];
  }
  return TT_SUCCESS;
}

static tt_status find_inputs(recording *r) {
  for (int i = 0; i < r->call->input_count; i++) {
    r->inputs[i] = r->op->tensors[r->call->inputs[i]]->value;
    if (!r->inputs[i] || r->inputs[i]->holding.type != r->call->input_types[i])
      return tt_error(TT_ABORTED, "%s: another thread resized or freed a tensor while it was used",
                      r->call->name);
  }
  return TT_SUCCESS;
}

/* What was recorded in other chunks than this one is launched before it is used here. */
static tt_status launch_inputs(const recording *r, uint64_t chunk) {
  for (int i = 0; i < r->call->input_count; i++)
    if (r->inputs[i]->section != chunk)
      TT_TRY(tt_value_launch(r->inputs[i], TT_CUT_SYNC, r->op->policy));
  return TT_SUCCESS;
}

/* Before anything is launched: what is overwritten may be donated once only the launch holds it. */
static void write_targets(const recording *r) {
  for (int i = 0; i < r->call->output_count; i++) {
    tt_storage *storage = r->targets[i];
    if (!storage) continue;
    tt_value_release(tt_storage_hold(storage, tt_value_retain(r->outputs[i])));
  }
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
  tt_chunk *own = tt_lane_own(&r->stream->lanes, r->op->policy);
  if (own) TT_TRY(tt_stream_flush_chunk(r->stream, own, TT_CUT_MODE, r->op->policy));
  TT_TRY(launch_inputs(r, 0));
  TT_TRY(find_program(r, &program));
  tt_launch *launch = tt_launch_create(r->stream->device, r->call->input_count,
                                       r->call->output_count, r->call->word_count, 0);
  if (!launch) return tt_out_of_memory();
  launch->origin = (tt_origin){.program = program, .name = r->call->name, .site = r->op->site};
  launch->job.outcome = tt_outcome_retain(outcome);
  launch->wait = outcome != NULL;
  for (int i = 0; i < launch->input_count; i++) {
    launch->inputs[i] = r->owns_inputs ? r->inputs[i] : tt_value_retain(r->inputs[i]);
    if (r->owns_inputs) r->inputs[i] = NULL;
  }
  for (int i = 0; i < launch->output_count; i++)
    launch->outputs[i] = tt_value_retain(r->outputs[i]);
  if (launch->word_count)
    memcpy(launch->words, r->op->scalars, sizeof *launch->words * (size_t)launch->word_count);
  write_targets(r);
  tt_submit(r->stream->queue, launch);
  return TT_SUCCESS;
}

/* -- Fused: part of an open chunk -- */

/* Are more than the last few launches under way, and not for want of a program? */
static bool is_behind(tt_queue *queue) {
  uint64_t last = tt_queue_last(queue);
  if (last <= 4 || tt_queue_compiling(queue)) return false;
  return !tt_queue_passed(queue, last - 4);
}

static tt_status record_fused(const recording *r) {
  tt_chunk *chunk = NULL;
  const tt_policy *policy = r->op->policy;
  TT_TRY(tt_lane_for(&r->stream->lanes, policy, r->inputs, r->call->input_count, &chunk));
  TT_TRY(launch_inputs(r, chunk->id));
  if (chunk->due && !tt_chunk_goes_on(chunk, r->call, policy, is_behind(r->stream->queue)))
    TT_TRY(tt_stream_flush_chunk(r->stream, chunk, chunk->due, policy));
  TT_TRY(tt_chunk_add(chunk, r->op->call, r->inputs, r->outputs, r->op->scalars, r->op->site));
  tt_tiers_foresee(r->stream->device, r->op->call, policy);
  write_targets(r);
  return TT_SUCCESS;
}

/* -- Zeros need no program -- */

static tt_status record_zeros(const recording *r) {
  tt_value_release(r->outputs[0]);
  r->outputs[0] = NULL;
  TT_TRY(
      tt_device_zeros(r->stream->device, r->call->results[0].storage, r->op->site, &r->outputs[0]));
  write_targets(r);
  return TT_SUCCESS;
}

/* -- Captured -- */

static tt_status record_captured(const recording *r) {
  for (int i = 0; i < r->call->output_count; i++)
    if (r->targets[i]) TT_TRY(tt_capture_keep(r->stream, r->targets[i]));
  TT_TRY(tt_capture_record(r->stream, r->op, r->inputs, r->outputs));
  write_targets(r);
  return TT_SUCCESS;
}

/* -- All of it -- */

/* The lock is held. */
static tt_status record_locked(const recording *r, tt_outcome *outcome) {
  bool captured = r->stream->capture && !r->op->apart;
  bool fused = r->op->policy->mode == TT_MODE_FUSED && !r->stream->capture;
  if (captured) return record_captured(r);
  if (r->call->zeros) return record_zeros(r);
  return fused ? record_fused(r) : record_launch(r, outcome);
}

static tt_status record(recording *r, tt_outcome *outcome) {
  tt_queue *queue = r->stream->queue;
  tt_device_lock(r->stream->device);
  tt_status status = r->owns_inputs ? TT_SUCCESS : find_inputs(r);
  if (!status) status = record_locked(r, outcome);
  uint64_t ticket = tt_queue_last(queue);
  tt_device_unlock(r->stream->device);
  if (!status && outcome) status = tt_queue_await_submitted(queue, ticket);
  return status ? status : tt_outcome_take(outcome);
}

/* In Debug mode the launch is waited for and its error returned. */
static tt_status record_by_mode(recording *r) {
  TT_TRY(tt_queue_await_room(r->stream->queue));
  if (r->op->policy->mode != TT_MODE_DEBUG) return record(r, NULL);
  tt_outcome *outcome = tt_outcome_create();
  tt_status status = outcome ? record(r, outcome) : tt_out_of_memory();
  tt_outcome_release(outcome);
  return status;
}

tt_status tt_stream_record(tt_stream *stream, const tt_operation *operation, tt_storage **results) {
  tt_call *call = operation->call;
  tt_value *values[LOCAL];
  tt_storage *targets[LOCAL];
  recording r = {.stream = stream, .op = operation, .call = call, .inputs = values};
  size_t inputs = (size_t)call->input_count, outputs = (size_t)call->output_count;
  bool large = inputs + outputs > LOCAL;
  for (int k = 0; k < call->result_count; k++) results[k] = NULL;
  if (large) r.inputs = tt_malloc(sizeof(void *) * (inputs + 2 * outputs));
  if (!r.inputs) return tt_out_of_memory();
  r.outputs = r.inputs + inputs;
  r.targets = large ? (tt_storage **)(r.outputs + outputs) : targets;
  memset(r.outputs, 0, sizeof *r.outputs * outputs);
  tt_status status = make_outputs(&r, results);
  if (!status) status = record_by_mode(&r);
  for (size_t i = 0; i < outputs; i++) tt_value_release(r.outputs[i]);
  if (large) tt_free(r.inputs);
  for (int k = 0; status && k < call->result_count; k++) {
    tt_storage_release(results[k]);
    results[k] = NULL;
  }
  if (!status && tt_observer_current)
    tt_observer_current->called(tt_observer_current, operation, results);
  return status;
}

static tt_status record_values(recording *r) {
  int output = 0;
  for (int k = 0; k < r->call->result_count; k++)
    if (r->call->results[k].defined) TT_TRY(make_output(r, k, &r->outputs[output++]));
  return record_by_mode(r);
}

tt_status tt_stream_record_values(tt_stream *stream, const tt_operation *operation,
                                  tt_value **inputs, tt_storage **targets, tt_value **outputs) {
  recording r = {.stream = stream,
                 .op = operation,
                 .call = operation->call,
                 .inputs = inputs,
                 .owns_inputs = true,
                 .outputs = outputs,
                 .targets = targets};
  for (int i = 0; i < r.call->output_count; i++) outputs[i] = NULL;
  tt_status status = record_values(&r);
  for (int i = 0; i < r.call->input_count; i++) tt_value_release(inputs[i]);
  for (int i = 0; status && i < r.call->output_count; i++) {
    tt_value_release(outputs[i]);
    outputs[i] = NULL;
  }
  return status;
}
