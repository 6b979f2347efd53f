#include "run/launch.h"

#include "run/replay.h"
#include "run/run.h"
#include "run/stream_internal.h"

#include <string.h>

tt_launch *tt_launch_create(int inputs, int outputs, int words, const tt_step *end) {
  int sites = end ? end->depth : 0, slots = end ? end->slot_count : 0;
  size_t size = sizeof(tt_launch) + sizeof(tt_value *) * (size_t)(inputs + outputs) +
                sizeof(uint32_t) * (size_t)(words + sites) + (size_t)slots;
  tt_launch *launch = tt_malloc(size);
  if (!launch) return NULL;
  memset(launch, 0, size);
  launch->inputs = (tt_value **)(launch + 1);
  launch->outputs = launch->inputs + inputs;
  launch->words = (uint32_t *)(launch->outputs + outputs);
  launch->sites = launch->words + words;
  launch->live = (uint8_t *)(launch->sites + sites);
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
  tt_free(launch);
}

void tt_launch_destroy_list(tt_launch *first) {
  for (tt_launch *next; first; first = next) {
    next = first->next;
    tt_launch_destroy(first);
  }
}

/* -- Packed numbers: the same few come again and again -- */

enum { CACHE_SLOTS = 1024, CACHE_WORDS = 8 };

typedef struct cached_words {
  int count;
  uint32_t words[CACHE_WORDS];
  tt_buffer *buffer;
} cached_words;

struct tt_word_cache {
  tt_device *device;
  cached_words slots[CACHE_SLOTS];
};

tt_status tt_word_cache_create(tt_device *device, tt_word_cache **out) {
  tt_word_cache *cache = tt_calloc(1, sizeof *cache);
  if (!cache) return tt_out_of_memory();
  cache->device = device;
  *out = cache;
  return TT_SUCCESS;
}

void tt_word_cache_destroy(tt_word_cache *cache) {
  if (!cache) return;
  for (int i = 0; i < CACHE_SLOTS; i++)
    tt_buffer_destroy(tt_runtime_client(), cache->slots[i].buffer);
  tt_free(cache);
}

/* *owned is true when the caller destroys the buffer. */
static tt_status upload(tt_word_cache *cache, const uint32_t *words, int count, tt_buffer **out,
                        bool *owned) {
  int64_t n = count;
  tt_type type = tt_type_make(TT_U32, 1, &n);
  *owned = count > CACHE_WORDS;
  if (*owned) return tt_buffer_from_host(cache->device, &type, words, NULL, NULL, out);
  size_t size = sizeof *words * (size_t)count;
  cached_words *slot = &cache->slots[tt_hash_bytes(words, size, 0) % CACHE_SLOTS];
  if (slot->count != count || memcmp(slot->words, words, size) != 0) {
    tt_buffer_destroy(tt_runtime_client(), slot->buffer);
    slot->buffer = NULL;
    slot->count = 0;
    TT_TRY(tt_buffer_from_host(cache->device, &type, words, NULL, NULL, &slot->buffer));
    slot->count = count;
    memcpy(slot->words, words, size);
  }
  *out = slot->buffer;
  return TT_SUCCESS;
}

/* -- Running -- */

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

static tt_status failed_input(const tt_launch *launch) {
  for (int i = 0; i < launch->input_count; i++)
    if (tt_value_get_state(launch->inputs[i]) == TT_VALUE_FAILED)
      return tt_status_clone(launch->inputs[i]->error);
  return TT_SUCCESS;
}

/* Debug: the program's check flags follow its results. Destroys them also when `status` failed. */
static tt_status read_checks(tt_status status, const tt_program *program, tt_buffer *const *flags,
                             bool *violated) {
  tt_type type = tt_type_make(TT_BOOL, 0, NULL);
  for (int i = 0; i < program->check_count; i++) {
    bool flag = false;
    if (!status) status = tt_buffer_to_host(tt_runtime_client(), flags[i], &type, &flag, 1);
    if (!status && flag) {
      *violated = true;
      status = tt_error(program->check_codes[i], "%s", program->check_texts[i]);
    }
    tt_buffer_destroy(tt_runtime_client(), flags[i]);
  }
  return status;
}

static tt_status execute(tt_launch *launch, tt_stream *stream, scratch *s, tt_event **done) {
  const tt_program *program = launch->origin.program;
  int count = launch->input_count, keep_count = 0;
  for (int i = 0; i < count; i++) s->buffers[i] = launch->inputs[i]->buffer;
  bool owned = false;
  if (launch->word_count)
    TT_TRY(upload(stream->words, launch->words, launch->word_count, &s->buffers[count], &owned));
  int arguments = count + (launch->word_count ? 1 : 0);
  for (int i = 0; i < program->donor_count; i++)
    if (!tt_value_donatable(launch->inputs[program->donors[i]]))
      s->keep[keep_count++] = program->donors[i];
  tt_buffer **outputs = s->buffers + arguments;
  tt_status status = tt_execute(program->executable, stream->device, s->buffers, arguments, s->keep,
                                keep_count, outputs, done);
  if (owned) tt_buffer_destroy(tt_runtime_client(), s->buffers[count]);
  if (status) return status;
  tt_count_add(TT_COUNT_LAUNCHES, 1);
  if (launch->wait && done && *done) status = tt_event_await(tt_runtime_client(), *done);
  bool violated = false; /* then what was written in place can still be read, as on the CPU */
  status = read_checks(status, program, outputs + launch->output_count, &violated);
  for (int i = 0; i < launch->output_count; i++)
    if (!status || violated) tt_value_fulfil(launch->outputs[i], outputs[i]);
    else tt_buffer_destroy(tt_runtime_client(), outputs[i]);
  return status;
}

static tt_status run_program(tt_launch *launch, tt_stream *stream, tt_event **done) {
  scratch s;
  tt_program *program = launch->origin.program;
  tt_status status =
      scratch_init(&s, launch->input_count + 1 + launch->output_count + program->check_count,
                   program->donor_count);
  atomic_store_explicit(&stream->launcher_compiles, true, memory_order_relaxed);
  if (!status) status = tt_program_await(program);
  atomic_store_explicit(&stream->launcher_compiles, false, memory_order_relaxed);
  bool loaded = !status;
  int64_t start = tt_log_on(TT_LOG_LAUNCH) ? tt_now_ns() : 0;
  if (!status) status = execute(launch, stream, &s, done);
  if (start)
    tt_log(TT_LOG_LAUNCH, "%s: %d inputs, %d results, %.3f ms",
           launch->origin.end ? program->name : launch->origin.name, launch->input_count,
           launch->output_count, (double)(tt_now_ns() - start) / 1e6);
  if (loaded) tt_program_release(program);
  scratch_deinit(&s);
  return status;
}

tt_status tt_launch_run(tt_launch *launch, tt_stream *stream, tt_event **done) {
  tt_status status = failed_input(launch);
  bool reported = status != TT_SUCCESS;
  if (!status)
    status = launch->refused ? tt_status_clone(launch->refused) : run_program(launch, stream, done);
  if (status && launch->origin.end && tt_replay(launch, stream, &status)) return status;
  if (!status) return TT_SUCCESS;
  if (!reported) status = tt_launch_error(status, stream, &launch->origin, launch);
  for (int i = 0; i < launch->output_count; i++)
    if (tt_value_get_state(launch->outputs[i]) == TT_VALUE_PENDING)
      tt_value_fail(launch->outputs[i], tt_status_clone(status));
  if (!reported || launch->failure) return status;
  tt_status_release(status);
  return TT_SUCCESS;
}
