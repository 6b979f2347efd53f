#include "run/call.h"

#include "run/call_internal.h"
#include "run/explain.h"
#include "run/forget.h"
#include "run/program.h"
#include "run/run.h"

#include <pthread.h>
#include <string.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static tt_intern table = TT_INTERN_INIT;
static uint64_t epoch; /* under the lock: how often the table was emptied */

tt_call *tt_call_find(const tt_key *key) {
  if (key->failed) return NULL;
  pthread_rwlock_rdlock(&lock);
  tt_call *call = tt_intern_find(&table, key->data, key->size);
  pthread_rwlock_unlock(&lock);
  return call;
}

int64_t tt_call_table_size(void) {
  pthread_rwlock_rdlock(&lock);
  int64_t count = (int64_t)table.count;
  pthread_rwlock_unlock(&lock);
  return count;
}

/* -- One call as a program of its own -- */

typedef struct alone {
  tt_hlo *h;
  tt_node **inputs, **outputs;
  int *overwrites;
  tt_checks checks;
} alone;

static tt_status lower_alone(tt_call *call, bool learn, alone *a) {
  tt_arena *arena = tt_hlo_arena(a->h);
  size_t outputs = (size_t)call->spec.result_count + TT_MAX_CHECKS;
  a->inputs = tt_arena_alloc(arena, sizeof(tt_node *) * ((size_t)call->input_count + 1));
  a->outputs = tt_arena_alloc(arena, sizeof(tt_node *) * outputs);
  a->overwrites = tt_arena_alloc(arena, sizeof(int) * outputs);
  if (!a->inputs || !a->outputs || !a->overwrites) return tt_out_of_memory();
  for (int i = 0; i < call->input_count; i++)
    a->inputs[i] = tt_hlo_param(a->h, call->spec.tensors[call->inputs[i]].storage);
  int64_t words = call->word_count;
  tt_type type = tt_type_make(TT_U32, 1, &words);
  tt_call_io io = {.inputs = a->inputs,
                   .words = words ? tt_hlo_param(a->h, &type) : NULL,
                   .outputs = a->outputs,
                   .overwrites = a->overwrites,
                   .checks = &a->checks};
  return tt_call_lower(call, learn, a->h, &io);
}

/* An input is donated to the first output that replaces it. */
static tt_status donate(tt_call *call, alone *a, tt_program *program) {
  program->donors = tt_malloc(sizeof *program->donors * ((size_t)call->output_count + 1));
  if (!program->donors) return tt_out_of_memory();
  for (int k = 0; k < call->output_count; k++) {
    bool first = a->overwrites[k] >= 0;
    for (int i = 0; i < k; i++) first = first && a->overwrites[i] != a->overwrites[k];
    if (!first) continue;
    tt_hlo_donate(a->h, a->overwrites[k], k);
    program->donors[program->donor_count++] = a->overwrites[k];
  }
  return TT_SUCCESS;
}

static tt_status copy_checks(const tt_checks *checks, tt_program *program) {
  size_t count = (size_t)checks->count;
  if (count == 0) return TT_SUCCESS;
  program->check_texts = tt_calloc(count, sizeof(char *));
  program->check_codes = tt_calloc(count, sizeof(tt_code));
  if (!program->check_texts || !program->check_codes) return tt_out_of_memory();
  for (size_t i = 0; i < count; i++) {
    program->check_texts[i] = tt_strndup(checks->texts[i], strlen(checks->texts[i]));
    if (!program->check_texts[i]) return tt_out_of_memory();
    program->check_codes[i] = checks->codes[i];
    program->check_count++;
    /* Programs are told apart by their text, so what a check says is part of it. */
    tt_text_printf(&program->text, "// %d %s\n", (int)checks->codes[i], checks->texts[i]);
  }
  return tt_text_status(&program->text);
}

static tt_status build(tt_call *call, bool learn, tt_program *program) {
  alone a = {0};
  TT_TRY(tt_hlo_create(&a.h));
  program->name = tt_strndup(call->name, strlen(call->name));
  tt_status status = program->name ? lower_alone(call, learn, &a) : tt_out_of_memory();
  if (!status && !tt_hlo_failed(a.h)) status = donate(call, &a, program);
  if (!status) status = copy_checks(&a.checks, program);
  for (int i = 0; i < a.checks.count; i++) a.outputs[call->output_count + i] = a.checks.flags[i];
  program->result_count = call->output_count;
  if (!status)
    status = tt_hlo_finish(a.h, a.outputs, call->output_count + a.checks.count, &program->text);
  tt_hlo_destroy(a.h);
  return status;
}

static tt_status start(tt_program *program, tt_call *call, tt_program **out) {
  TT_TRY(tt_program_intern(program, out));
  __atomic_store_n(&call->program, *out, __ATOMIC_RELEASE);
  return TT_SUCCESS;
}

tt_status tt_call_program(tt_call *call, tt_program **out) {
  *out = __atomic_load_n(&call->program, __ATOMIC_ACQUIRE);
  if (*out) return TT_SUCCESS;
  tt_program program = {0};
  tt_status status = build(call, false, &program);
  if (!status) status = start(&program, call, out);
  tt_program_deinit(&program);
  return status;
}

/* -- Making calls -- */

static void destroy(tt_call *call) {
  if (!call) return;
  tt_arena_deinit(&call->arena);
  tt_free(call);
}

static tt_status fill(tt_call *call, const tt_call_spec *spec) {
  TT_TRY(tt_spec_copy(&call->arena, spec, &call->spec));
  call->name = call->spec.name;
  call->row = spec->row;
  call->result_count = spec->result_count;
  call->results =
      tt_arena_alloc(&call->arena, sizeof *call->results * ((size_t)spec->result_count + 1));
  call->inputs =
      tt_arena_alloc(&call->arena, sizeof *call->inputs * ((size_t)spec->tensor_count + 1));
  if (!call->results || !call->inputs) return tt_out_of_memory();
  for (int i = 0; i < spec->tensor_count; i++)
    if (!spec->tensors[i].undefined && spec->tensors[i].same_as < 0)
      call->inputs[call->input_count++] = i;
  for (int i = 0; i < spec->number_count; i++)
    call->word_count += tt_number_words(spec->numbers[i]);
  tt_program program = {0};
  tt_status status = build(call, true, &program);
  call->hash = status ? 0 : tt_hash_bytes(program.text.data, program.text.size, 0);
  if (!status && !call->zeros && tt_runtime_mode() != TT_MODE_FUSED) {
    tt_program *compiled = NULL;
    status = start(&program, call, &compiled);
  }
  tt_program_deinit(&program);
  return status;
}

tt_status tt_call_create(const tt_key *key, const tt_call_spec *spec, tt_call **out) {
  if (key->failed) return tt_out_of_memory();
  tt_call *call = tt_calloc(1, sizeof *call);
  if (!call) return tt_out_of_memory();
  tt_text why = TT_TEXT_INIT;
  tt_explain_call(spec, &why);
  tt_status status = fill(call, spec);
  if (status) {
    if (tt_programs_forbidden() && why.data) status = tt_annotate(status, "%s", why.data);
    tt_text_deinit(&why);
    destroy(call);
    return status;
  }
  pthread_rwlock_wrlock(&lock);
  tt_call *other = tt_intern_find(&table, key->data, key->size);
  if (!other) status = tt_intern_add(&table, key->data, key->size, call);
  pthread_rwlock_unlock(&lock);
  if (other || status) {
    destroy(call);
    tt_text_deinit(&why);
  } else {
    tt_explain_learn(call);
    tt_explain_keep("new call", &why);
  }
  if (status) return status;
  *out = other ? other : call;
  tt_count_add(TT_COUNT_CALLS_NEW, other ? 0 : 1);
  if (!other) tt_forget_note(TT_GROWN_CALLS, 1);
  return TT_SUCCESS;
}

/* -- Forgetting them -- */

void tt_call_lock(void) { pthread_rwlock_wrlock(&lock); }
void tt_call_unlock(void) { pthread_rwlock_unlock(&lock); }

void tt_call_forget(void) {
  tt_explain_reset();
  for (size_t i = 0; i < table.capacity; i++)
    if (table.entries[i].key) destroy(table.entries[i].value);
  tt_intern_deinit(&table);
  table = (tt_intern)TT_INTERN_INIT;
  epoch++;
}

uint64_t tt_call_epoch(void) {
  pthread_rwlock_rdlock(&lock);
  uint64_t now = epoch;
  pthread_rwlock_unlock(&lock);
  return now;
}

void tt_call_shutdown(void) {
  tt_call_lock();
  tt_call_forget();
  tt_call_unlock();
}
