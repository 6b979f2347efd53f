/* Recording: a call's values are made pending, its targets are changed, its launch is queued. */
#include "run/run.h"
#include "run/stream_internal.h"

#include <string.h>

/* One operator on its way: its values, and the storages that they change. */
typedef struct recording {
  tt_stream *stream;
  tt_call *call;
  tt_storage *const *tensors;
  const uint32_t *words;
  uint32_t site;
  tt_value **inputs;  /* borrowed from their storages */
  tt_value **outputs; /* one reference each */
} recording;

enum { LOCAL = 32, MAX_ZEROS = 256 };

/* Everything that can fail: pending outputs and new storages. */
static tt_status make_outputs(recording *r, tt_storage **results) {
  int output = 0;
  for (int k = 0; k < r->call->result_count; k++) {
    const tt_call_result *result = &r->call->results[k];
    if (!result->defined) continue;
    TT_TRY(tt_value_create(r->stream, result->storage, r->site, &r->outputs[output]));
    if (result->target < 0) {
      TT_TRY(tt_storage_create(r->stream, result->storage, &results[k]));
      results[k]->value = tt_value_retain(r->outputs[output]);
    }
    output++;
  }
  return TT_SUCCESS;
}

static tt_status find_inputs(recording *r) {
  for (int i = 0; i < r->call->input_count; i++) {
    r->inputs[i] = r->tensors[r->call->inputs[i]]->value;
    if (!r->inputs[i])
      return tt_error(TT_INTERNAL, "%s: a tensor was freed while it was used", r->call->name);
  }
  return TT_SUCCESS;
}

/* Takes a reference of its own. */
static void set_value(tt_storage *storage, const tt_type *type, tt_value *value) {
  tt_value *old = storage->value;
  storage->value = tt_value_retain(value);
  if (storage->type != type) tt_storage_set_type(storage, type);
  tt_value_release(old);
}

static void write_targets(const recording *r) {
  int output = 0;
  for (int k = 0; k < r->call->result_count; k++) {
    const tt_call_result *result = &r->call->results[k];
    if (!result->defined) continue;
    tt_value *value = r->outputs[output++];
    if (result->target >= 0) set_value(r->tensors[result->target], result->storage, value);
  }
}

/* Strict and Debug: a launch of its own. */
static tt_status record_launch(const recording *r, tt_status *failure) {
  tt_program *program = NULL;
  TT_TRY(tt_stream_flush(r->stream, TT_CUT_MODE));
  TT_TRY(tt_call_program(r->call, &program));
  tt_launch *launch =
      tt_launch_create(r->call->input_count, r->call->output_count, r->call->word_count, NULL);
  if (!launch) return tt_out_of_memory();
  launch->origin = (tt_origin){.program = program, .name = r->call->name, .site = r->site};
  launch->failure = failure;
  launch->wait = failure != NULL;
  for (int i = 0; i < launch->input_count; i++) launch->inputs[i] = tt_value_retain(r->inputs[i]);
  for (int i = 0; i < launch->output_count; i++)
    launch->outputs[i] = tt_value_retain(r->outputs[i]);
  if (launch->word_count)
    memcpy(launch->words, r->words, sizeof *r->words * (size_t)launch->word_count);
  write_targets(r);
  tt_stream_push(r->stream, launch);
  return TT_SUCCESS;
}

/* Are more than the last few launches under way, and not for want of a program? */
static bool is_behind(tt_stream *stream) {
  uint64_t head = atomic_load_explicit(&stream->head, memory_order_relaxed);
  if (head <= 4 || atomic_load_explicit(&stream->launcher_compiles, memory_order_relaxed))
    return false;
  return !tt_stream_passed(stream, head - 4);
}

static tt_status record_fused(const recording *r) {
  tt_chunk *chunk = &r->stream->chunk;
  if (chunk->due && !tt_chunk_goes_on(chunk, is_behind(r->stream)))
    TT_TRY(tt_stream_flush(r->stream, chunk->due));
  TT_TRY(tt_chunk_add(chunk, r->call, r->inputs, r->outputs, r->words, r->site));
  write_targets(r);
  return TT_SUCCESS;
}

/* -- Zeros: values that are kept, without programs -- */

void tt_stream_release_zeros(tt_stream *stream) {
  for (size_t i = 0; i < stream->zeros.capacity; i++)
    if (stream->zeros.entries[i].key) tt_value_release(stream->zeros.entries[i].value);
  tt_intern_deinit(&stream->zeros);
}

void tt_stream_empty_cache(tt_stream *stream) {
  pthread_mutex_lock(&stream->record_lock);
  tt_stream_release_zeros(stream);
  pthread_mutex_unlock(&stream->record_lock);
}

/* A ready value of the stream's own; MAX_ZEROS bound what such values hold. */
static tt_status keep_zeros(tt_stream *stream, const tt_type *type, uint32_t site, tt_value **out) {
  int64_t bytes = 0;
  tt_buffer *buffer = NULL;
  *out = tt_intern_find(&stream->zeros, &type, sizeof type);
  if (*out) return TT_SUCCESS;
  if (stream->zeros.count >= MAX_ZEROS) tt_stream_release_zeros(stream);
  void *data = tt_type_bytes(type, &bytes) ? tt_calloc((size_t)bytes + 1, 1) : NULL;
  if (!data) return tt_out_of_memory();
  tt_status status = tt_value_create(stream, type, site, out);
  if (!status) status = tt_buffer_from_host(stream->device, type, data, NULL, NULL, &buffer);
  tt_free(data);
  status = tt_report_memory(status, stream);
  if (!status) {
    tt_value_fulfil(*out, buffer);
    status = tt_intern_add(&stream->zeros, &type, sizeof type, *out);
  }
  if (status) tt_value_release(*out);
  return status;
}

/* Each time a value of its own: that two storages hold zeros must not shape a chunk. */
static tt_status zeros_of(tt_stream *stream, const tt_type *type, uint32_t site, tt_value **out) {
  tt_value *kept = NULL;
  TT_TRY(keep_zeros(stream, type, site, &kept));
  return tt_value_borrow(kept, site, out);
}

static tt_status record_zeros(tt_stream *stream, tt_call *call, tt_storage *const *tensors,
                              uint32_t site, tt_storage **results) {
  const tt_call_result *result = &call->results[0];
  tt_value *value = NULL;
  results[0] = NULL;
  if (result->target < 0) TT_TRY(tt_storage_create(stream, result->storage, &results[0]));
  pthread_mutex_lock(&stream->record_lock);
  tt_status status = zeros_of(stream, result->storage, site, &value);
  if (!status)
    set_value(result->target < 0 ? results[0] : tensors[result->target], result->storage, value);
  pthread_mutex_unlock(&stream->record_lock);
  tt_value_release(value);
  if (!status || !results[0]) return status;
  tt_storage_destroy(results[0]);
  results[0] = NULL;
  return status;
}

static tt_status record_call(tt_stream *stream, tt_call *call, tt_storage *const *tensors,
                             const uint32_t *words, uint32_t site, tt_storage **results) {
  tt_mode mode = tt_runtime_mode();
  tt_status failure = TT_SUCCESS;
  tt_value *local[LOCAL];
  int values = call->input_count + call->output_count;
  recording r = {stream, call, tensors, words, site, local, NULL};
  for (int k = 0; k < call->result_count; k++) results[k] = NULL;
  if (values > LOCAL) r.inputs = tt_malloc(sizeof *r.inputs * (size_t)values);
  if (!r.inputs) return tt_out_of_memory();
  r.outputs = r.inputs + call->input_count;
  memset(r.outputs, 0, sizeof *r.outputs * (size_t)call->output_count);
  tt_status status = make_outputs(&r, results);
  pthread_mutex_lock(&stream->record_lock);
  if (!status) status = find_inputs(&r);
  if (!status && mode == TT_MODE_FUSED) status = record_fused(&r);
  else if (!status) status = record_launch(&r, mode == TT_MODE_DEBUG ? &failure : NULL);
  uint64_t ticket = atomic_load_explicit(&stream->head, memory_order_relaxed);
  pthread_mutex_unlock(&stream->record_lock);
  if (!status && mode == TT_MODE_DEBUG) tt_stream_await(stream, ticket);
  status = tt_join(status, failure);
  for (int i = 0; i < call->output_count; i++) tt_value_release(r.outputs[i]);
  if (r.inputs != local) tt_free(r.inputs);
  for (int k = 0; status && k < call->result_count; k++) {
    tt_storage_destroy(results[k]);
    results[k] = NULL;
  }
  return status;
}

tt_status tt_stream_record(tt_stream *stream, tt_call *call, tt_storage *const *tensors,
                           const uint32_t *words, uint32_t site, tt_storage **results) {
  tt_status status = call->zeros ? record_zeros(stream, call, tensors, site, results)
                                 : record_call(stream, call, tensors, words, site, results);
  if (!status) tt_template_note_call(call, tensors, words, results);
  return status;
}
