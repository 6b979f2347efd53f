#include "run/stream.h"

#include "run/chunk.h"
#include "run/launch.h"
#include "run/run.h"
#include "run/value.h"

#include <pthread.h>
#include <string.h>

enum { QUEUE = 1024, FLIGHTS = 256, SPINS = 4000, MAX_ZEROS = 256 };

/* An asynchronous launch that may not have ended. */
typedef struct flight {
  tt_event *end;
  uint64_t ticket;
  const char *name;
  uint32_t site;
} flight;

struct tt_stream {
  tt_device *device;
  int index;
  pthread_mutex_t record_lock; /* guards storages, the open chunk, and the queue's head */
  tt_chunk chunk;
  tt_launch *queue[QUEUE];
  _Atomic uint64_t head, tail; /* launches recorded, launches ended */
  pthread_mutex_t sleep_lock;
  pthread_cond_t work, progress;
  atomic_bool launcher_sleeps;
  _Atomic uint64_t wake_at; /* the lowest tail that somebody sleeps for; UINT64_MAX: nobody */
  tt_status error;          /* first since the last synchronisation; guarded by sleep_lock */
  pthread_mutex_t flight_lock;
  flight flights[FLIGHTS]; /* in launch order; guarded by flight_lock, as the next two */
  uint64_t departed, landed;
  pthread_t thread;
  tt_word_cache *words; /* used by the launch thread alone */
  tt_intern zeros;      /* interned types to values full of zeros; guarded by record_lock */
  _Atomic int64_t allocated, peak, total, allocations, frees;
};

static void cpu_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static void remember(tt_stream *stream, tt_status error) {
  if (!error) return;
  pthread_mutex_lock(&stream->sleep_lock);
  if (!stream->error) stream->error = error;
  else tt_status_release(error);
  pthread_mutex_unlock(&stream->sleep_lock);
}

/* -- Asynchronous launches -- */

/* Takes the ends of the launches up to `ticket`, after waiting for them, and of later ones that
 * are known to have ended. flight_lock is held. */
static void land(tt_stream *stream, uint64_t ticket) {
  tt_client *client = tt_runtime_client();
  while (stream->landed < stream->departed) {
    flight *f = &stream->flights[stream->landed % FLIGHTS];
    if (f->ticket > ticket && !tt_event_ready(client, f->end)) break;
    tt_status status = tt_event_await(client, f->end);
    remember(stream, tt_launch_error(status, f->name, f->site));
    tt_event_destroy(client, f->end);
    stream->landed++;
  }
}

static void depart(tt_stream *stream, flight started) {
  pthread_mutex_lock(&stream->flight_lock);
  bool full = stream->departed - stream->landed == FLIGHTS;
  land(stream, full ? stream->flights[stream->landed % FLIGHTS].ticket : 0);
  stream->flights[stream->departed++ % FLIGHTS] = started;
  pthread_mutex_unlock(&stream->flight_lock);
}

/* -- The launch thread -- */

static void finish(tt_stream *stream, tt_launch *launch, tt_status status) {
  if (status && launch->failure) {
    *launch->failure = status;
    status = TT_SUCCESS;
  }
  tt_launch_destroy(launch);
  remember(stream, status);
  uint64_t tail = atomic_fetch_add(&stream->tail, 1) + 1;
  if (tail < atomic_load(&stream->wake_at)) return;
  pthread_mutex_lock(&stream->sleep_lock);
  atomic_store(&stream->wake_at, UINT64_MAX); /* who still has to wait says so again */
  pthread_cond_broadcast(&stream->progress);
  pthread_mutex_unlock(&stream->sleep_lock);
}

static void await_work(tt_stream *stream, uint64_t tail) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&stream->head, memory_order_acquire) != tail) return;
    cpu_relax();
  }
  pthread_mutex_lock(&stream->sleep_lock);
  atomic_store(&stream->launcher_sleeps, true);
  while (atomic_load(&stream->head) == tail) pthread_cond_wait(&stream->work, &stream->sleep_lock);
  atomic_store(&stream->launcher_sleeps, false);
  pthread_mutex_unlock(&stream->sleep_lock);
}

static void *launch_loop(void *user) {
  tt_stream *stream = user;
  bool inline_execution = tt_client_inline(tt_runtime_client());
  for (uint64_t tail = 0;; tail++) {
    await_work(stream, tail);
    tt_launch *launch = stream->queue[tail % QUEUE];
    if (!launch) return NULL; /* tt_stream_destroy */
    tt_event *done = NULL;
    tt_status status =
        tt_launch_run(launch, stream->device, stream->words, inline_execution ? NULL : &done);
    if (done && launch->failure) tt_event_destroy(tt_runtime_client(), done);
    else if (done) depart(stream, (flight){done, tail + 1, launch->name, launch->site});
    finish(stream, launch, status);
  }
}

static void release_zeros(tt_stream *stream) {
  for (size_t i = 0; i < stream->zeros.capacity; i++)
    if (stream->zeros.entries[i].key) tt_value_release(stream->zeros.entries[i].value);
  tt_intern_deinit(&stream->zeros);
}

static void destroy(tt_stream *stream) {
  release_zeros(stream);
  tt_chunk_deinit(&stream->chunk);
  tt_word_cache_destroy(stream->words);
  tt_status_release(stream->error);
  pthread_mutex_destroy(&stream->record_lock);
  pthread_mutex_destroy(&stream->sleep_lock);
  pthread_mutex_destroy(&stream->flight_lock);
  pthread_cond_destroy(&stream->work);
  pthread_cond_destroy(&stream->progress);
  tt_free(stream);
}

tt_status tt_stream_create(tt_device *device, int index, tt_stream **out) {
  tt_stream *stream = tt_calloc(1, sizeof *stream);
  if (!stream) return tt_out_of_memory();
  stream->device = device;
  stream->index = index;
  tt_chunk_init(&stream->chunk);
  atomic_init(&stream->wake_at, UINT64_MAX);
  pthread_mutex_init(&stream->record_lock, NULL);
  pthread_mutex_init(&stream->sleep_lock, NULL);
  pthread_mutex_init(&stream->flight_lock, NULL);
  pthread_cond_init(&stream->work, NULL);
  pthread_cond_init(&stream->progress, NULL);
  tt_status status = tt_word_cache_create(device, &stream->words);
  if (!status && pthread_create(&stream->thread, NULL, launch_loop, stream) != 0)
    status = tt_error(TT_RESOURCE_EXHAUSTED, "cannot start the launch thread of device %d", index);
  if (status) {
    destroy(stream);
    return status;
  }
  *out = stream;
  return TT_SUCCESS;
}

/* -- Waiting -- */

static bool was_launched(tt_stream *stream, uint64_t ticket) {
  return atomic_load_explicit(&stream->tail, memory_order_acquire) >= ticket;
}

bool tt_stream_passed(tt_stream *stream, uint64_t ticket) {
  if (!was_launched(stream, ticket)) return false;
  pthread_mutex_lock(&stream->flight_lock);
  land(stream, 0);
  bool passed = stream->landed == stream->departed ||
                stream->flights[stream->landed % FLIGHTS].ticket > ticket;
  pthread_mutex_unlock(&stream->flight_lock);
  return passed;
}

static tt_status flush(tt_stream *stream, tt_cut why);

/* The host waits here, whether for what is recorded last or for something older: which of the two
 * it is may change when chunks end elsewhere. record_lock is held. */
static void note_wait(tt_stream *stream) {
  if (tt_runtime_mode() == TT_MODE_FUSED) tt_cutter_stop(&stream->chunk.cutter);
}

uint64_t tt_stream_ticket(tt_stream *stream) {
  pthread_mutex_lock(&stream->record_lock);
  note_wait(stream);
  remember(stream, flush(stream, TT_CUT_SYNC));
  uint64_t ticket = atomic_load_explicit(&stream->head, memory_order_relaxed);
  pthread_mutex_unlock(&stream->record_lock);
  return ticket;
}

bool tt_stream_idle(tt_stream *stream) {
  return tt_stream_passed(stream, tt_stream_ticket(stream));
}

static void await_launch(tt_stream *stream, uint64_t ticket) {
  for (int i = 0; i < SPINS; i++) {
    if (was_launched(stream, ticket)) return;
    cpu_relax();
  }
  pthread_mutex_lock(&stream->sleep_lock);
  while (!was_launched(stream, ticket)) {
    if (ticket < atomic_load(&stream->wake_at)) atomic_store(&stream->wake_at, ticket);
    if (atomic_load(&stream->tail) >= ticket) break;
    pthread_cond_wait(&stream->progress, &stream->sleep_lock);
  }
  pthread_mutex_unlock(&stream->sleep_lock);
}

void tt_stream_wait(tt_stream *stream, uint64_t ticket) {
  await_launch(stream, ticket);
  pthread_mutex_lock(&stream->flight_lock);
  land(stream, ticket);
  pthread_mutex_unlock(&stream->flight_lock);
}

tt_status tt_stream_sync(tt_stream *stream) {
  tt_count_add(TT_COUNT_SYNCS, 1);
  tt_stream_wait(stream, tt_stream_ticket(stream));
  pthread_mutex_lock(&stream->sleep_lock);
  tt_status status = stream->error;
  stream->error = TT_SUCCESS;
  pthread_mutex_unlock(&stream->sleep_lock);
  return status;
}

int tt_stream_device_index(const tt_stream *stream) { return stream->index; }

/* -- Recording -- */

static void push(tt_stream *stream, tt_launch *launch) {
  uint64_t head = atomic_load_explicit(&stream->head, memory_order_relaxed);
  if (head - atomic_load_explicit(&stream->tail, memory_order_acquire) >= QUEUE)
    await_launch(stream, head - QUEUE / 2);
  stream->queue[head % QUEUE] = launch;
  atomic_store(&stream->head, head + 1);
  if (!atomic_load(&stream->launcher_sleeps)) return;
  pthread_mutex_lock(&stream->sleep_lock);
  pthread_cond_signal(&stream->work);
  pthread_mutex_unlock(&stream->sleep_lock);
}

void tt_stream_destroy(tt_stream *stream) {
  if (!stream) return;
  tt_stream_wait(stream, tt_stream_ticket(stream));
  pthread_mutex_lock(&stream->record_lock);
  push(stream, NULL);
  pthread_mutex_unlock(&stream->record_lock);
  (void)pthread_join(stream->thread, NULL);
  destroy(stream);
}

/* Ends the open chunk and sends it off; fails when it stays open, for want of a program that must
 * not be compiled. record_lock is held. */
static tt_status flush(tt_stream *stream, tt_cut why) {
  tt_launch *launch = NULL;
  tt_status status = tt_chunk_close(&stream->chunk, why, &launch);
  if (!tt_chunk_empty(&stream->chunk)) return status;
  remember(stream, status);
  if (launch) push(stream, launch);
  return TT_SUCCESS;
}

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

enum { LOCAL = 32 };

/* Everything that can fail: pending outputs and new storages. */
static tt_status make_outputs(recording *r, tt_storage **results) {
  int output = 0;
  for (int k = 0; k < r->call->result_count; k++) {
    const tt_call_result *result = &r->call->results[k];
    if (!result->defined) continue;
    TT_TRY(tt_value_create(r->stream, result->storage, &r->outputs[output]));
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

static void write_targets(const recording *r) {
  int output = 0;
  for (int k = 0; k < r->call->result_count; k++) {
    const tt_call_result *result = &r->call->results[k];
    if (!result->defined) continue;
    tt_value *value = r->outputs[output++];
    if (result->target < 0) continue;
    tt_storage *storage = r->tensors[result->target];
    tt_value *old = storage->value;
    storage->value = tt_value_retain(value);
    storage->type = result->storage;
    tt_value_release(old);
  }
}

/* Strict and Debug: a launch of its own. */
static tt_status record_launch(const recording *r, tt_status *failure) {
  tt_program *program = NULL;
  TT_TRY(flush(r->stream, TT_CUT_MODE));
  TT_TRY(tt_call_program(r->call, &program));
  tt_launch *launch =
      tt_launch_create(r->call->input_count, r->call->output_count, r->call->word_count);
  if (!launch) return tt_out_of_memory();
  launch->program = program;
  launch->name = r->call->name;
  launch->site = r->site;
  launch->failure = failure;
  for (int i = 0; i < launch->input_count; i++) launch->inputs[i] = tt_value_retain(r->inputs[i]);
  for (int i = 0; i < launch->output_count; i++)
    launch->outputs[i] = tt_value_retain(r->outputs[i]);
  if (launch->word_count)
    memcpy(launch->words, r->words, sizeof *r->words * (size_t)launch->word_count);
  write_targets(r);
  push(r->stream, launch);
  return TT_SUCCESS;
}

static tt_status record_fused(const recording *r) {
  tt_chunk *chunk = &r->stream->chunk;
  if (chunk->due) TT_TRY(flush(r->stream, chunk->due));
  TT_TRY(tt_chunk_add(chunk, r->call, r->inputs, r->outputs, r->words, r->site));
  write_targets(r);
  tt_chunk_added(chunk);
  return TT_SUCCESS;
}

/* A ready value of the stream's own; MAX_ZEROS bound what such values hold. */
static tt_status zeros_of(tt_stream *stream, const tt_type *type, tt_value **out) {
  int64_t bytes = 0;
  tt_buffer *buffer = NULL;
  *out = tt_intern_find(&stream->zeros, &type, sizeof type);
  if (*out) return TT_SUCCESS;
  if (stream->zeros.count >= MAX_ZEROS) release_zeros(stream);
  void *data = tt_type_bytes(type, &bytes) ? tt_calloc((size_t)bytes + 1, 1) : NULL;
  if (!data) return tt_out_of_memory();
  tt_status status = tt_value_create(stream, type, out);
  if (!status) status = tt_buffer_from_host(stream->device, type, data, NULL, NULL, &buffer);
  tt_free(data);
  if (!status) {
    tt_value_fulfil(*out, buffer);
    status = tt_intern_add(&stream->zeros, &type, sizeof type, *out);
  }
  if (status) tt_value_release(*out);
  return status;
}

static tt_status record_zeros(tt_stream *stream, tt_call *call, tt_storage *const *tensors,
                              tt_storage **results) {
  const tt_call_result *result = &call->results[0];
  tt_value *value = NULL;
  recording r = {.stream = stream, .call = call, .tensors = tensors, .outputs = &value};
  results[0] = NULL;
  if (result->target < 0) TT_TRY(tt_storage_create(stream, result->storage, &results[0]));
  pthread_mutex_lock(&stream->record_lock);
  tt_status status = zeros_of(stream, result->storage, &value);
  if (!status && result->target < 0) results[0]->value = tt_value_retain(value);
  else if (!status) write_targets(&r);
  pthread_mutex_unlock(&stream->record_lock);
  if (!status || !results[0]) return status;
  tt_storage_destroy(results[0]);
  results[0] = NULL;
  return status;
}

tt_status tt_stream_record(tt_stream *stream, tt_call *call, tt_storage *const *tensors,
                           const uint32_t *words, uint32_t site, tt_storage **results) {
  tt_mode mode = tt_runtime_mode();
  if (call->zeros) return record_zeros(stream, call, tensors, results);
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
  if (!status && mode == TT_MODE_DEBUG) await_launch(stream, ticket);
  status = tt_join(status, failure);
  for (int i = 0; i < call->output_count; i++) tt_value_release(r.outputs[i]);
  if (r.inputs != local) tt_free(r.inputs);
  for (int k = 0; status && k < call->result_count; k++) {
    tt_storage_destroy(results[k]);
    results[k] = NULL;
  }
  return status;
}

/* -- Host access -- */

tt_status tt_storage_write(tt_storage *storage, const tt_type *type, const void *data) {
  tt_stream *stream = storage->stream;
  const tt_type *interned = NULL;
  tt_value *value = NULL;
  tt_buffer *buffer = NULL;
  TT_TRY(tt_type_intern(type, &interned));
  TT_TRY(tt_value_create(stream, interned, &value));
  tt_status status = tt_buffer_from_host(stream->device, type, data, NULL, NULL, &buffer);
  if (status) {
    tt_value_release(value);
    return status;
  }
  tt_value_fulfil(value, buffer);
  tt_count_add(TT_COUNT_WRITES, 1);
  pthread_mutex_lock(&stream->record_lock);
  tt_value *old = storage->value;
  storage->value = value;
  storage->type = interned;
  pthread_mutex_unlock(&stream->record_lock);
  tt_value_release(old);
  return TT_SUCCESS;
}

/* What a reader of a failed value is told. If the stream still has to report that error, naming
 * the operator, this reports it. */
static tt_status failure_of(tt_stream *stream, tt_status error, uint64_t ticket) {
  tt_stream_wait(stream, ticket);
  pthread_mutex_lock(&stream->sleep_lock);
  if (strstr(tt_status_message(stream->error), tt_status_message(error))) {
    tt_status_release(error);
    error = stream->error;
    stream->error = TT_SUCCESS;
  }
  pthread_mutex_unlock(&stream->sleep_lock);
  return error;
}

tt_status tt_storage_read(tt_storage *storage, void *data, int64_t size) {
  tt_stream *stream = storage->stream;
  pthread_mutex_lock(&stream->record_lock);
  tt_value *value = tt_value_retain(storage->value);
  const tt_type *type = storage->type;
  bool open = value && value->chunk == stream->chunk.id;
  note_wait(stream);
  tt_status status = open ? flush(stream, TT_CUT_READ) : TT_SUCCESS;
  uint64_t ticket = atomic_load_explicit(&stream->head, memory_order_relaxed);
  pthread_mutex_unlock(&stream->record_lock);
  tt_count_add(TT_COUNT_READS, 1);
  if (status) {
    tt_value_release(value);
    return status;
  }
  if (!value) {
    memset(data, 0, (size_t)size);
    return TT_SUCCESS;
  }
  if (tt_value_get_state(value) == TT_VALUE_PENDING) await_launch(stream, ticket);
  if (tt_value_get_state(value) == TT_VALUE_FAILED) status = tt_status_clone(value->error);
  else status = tt_buffer_to_host(tt_runtime_client(), value->buffer, type, data, size);
  tt_value_release(value);
  return status ? failure_of(stream, status, ticket) : TT_SUCCESS;
}

int64_t tt_storage_bytes(const tt_storage *storage) {
  int64_t bytes = 0;
  return tt_type_bytes(storage->type, &bytes) ? bytes : 0;
}

/* -- Memory -- */

void tt_stream_account(tt_stream *stream, int64_t bytes, bool freed) {
  if (freed) {
    atomic_fetch_sub(&stream->allocated, bytes);
    atomic_fetch_add(&stream->frees, 1);
    return;
  }
  int64_t now = atomic_fetch_add(&stream->allocated, bytes) + bytes;
  atomic_fetch_add(&stream->allocations, 1);
  atomic_fetch_add(&stream->total, bytes);
  int64_t peak = atomic_load(&stream->peak);
  while (now > peak && !atomic_compare_exchange_weak(&stream->peak, &peak, now)) {
  }
}

void tt_stream_memory(tt_stream *stream, tt_memory *out) {
  *out = (tt_memory){.allocated = atomic_load(&stream->allocated),
                     .peak = atomic_load(&stream->peak),
                     .total_allocated = atomic_load(&stream->total),
                     .allocations = atomic_load(&stream->allocations),
                     .frees = atomic_load(&stream->frees)};
  int64_t in_use = 0;
  tt_status_release(tt_device_memory(stream->device, &in_use, &out->limit));
}

void tt_stream_memory_reset_peak(tt_stream *stream) {
  atomic_store(&stream->peak, atomic_load(&stream->allocated));
}

void tt_stream_memory_reset_totals(tt_stream *stream) {
  atomic_store(&stream->total, 0);
  atomic_store(&stream->allocations, 0);
  atomic_store(&stream->frees, 0);
}
