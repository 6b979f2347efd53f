#include "run/chunk.h"

#include "run/explain.h"
#include "run/run.h"

#include <string.h>

static uint64_t next_id(void) {
  static _Atomic uint64_t last;
  return atomic_fetch_add(&last, 1) + 1;
}

void tt_chunk_init(tt_chunk *chunk) {
  *chunk = (tt_chunk){.id = next_id()};
  tt_trace_init(&chunk->trace);
  chunk->at = &chunk->trace.root;
}

static void empty(tt_chunk *chunk) {
  for (int i = 0; i < chunk->slot_count; i++) tt_value_release(chunk->slots[i]);
  chunk->slot_count = chunk->word_count = 0;
  chunk->bytes = 0;
  chunk->id = next_id();
  chunk->at = &chunk->trace.root;
  chunk->due = TT_CUT_NONE;
}

void tt_chunk_deinit(tt_chunk *chunk) {
  empty(chunk);
  tt_free(chunk->slots);
  tt_free(chunk->is_input);
  tt_free(chunk->live);
  tt_free(chunk->sites);
  tt_free(chunk->words);
  tt_trace_deinit(&chunk->trace);
}

static tt_status reserve(tt_chunk *chunk, const tt_call *call) {
  size_t slots = (size_t)(chunk->slot_count + call->input_count + call->output_count);
  TT_TRY(tt_grow((void **)&chunk->slots, &chunk->slot_capacity, slots, sizeof *chunk->slots));
  TT_TRY(tt_grow((void **)&chunk->is_input, &chunk->input_capacity, slots, 1));
  TT_TRY(tt_grow((void **)&chunk->live, &chunk->live_capacity, slots, 1));
  TT_TRY(tt_grow((void **)&chunk->sites, &chunk->site_capacity, (size_t)chunk->at->depth + 1,
                 sizeof *chunk->sites));
  size_t words = (size_t)(chunk->word_count + call->word_count);
  return tt_grow((void **)&chunk->words, &chunk->word_capacity, words, sizeof *chunk->words);
}

static int add_slot(tt_chunk *chunk, tt_value *value, bool is_input) {
  int slot = chunk->slot_count++;
  value->chunk = chunk->id;
  value->slot = slot;
  chunk->slots[slot] = tt_value_retain(value);
  chunk->is_input[slot] = is_input;
  return slot;
}

enum { LOCAL = 64 };

tt_status tt_chunk_add(tt_chunk *chunk, tt_call *call, tt_value *const *inputs,
                       tt_value *const *outputs, const uint32_t *words, uint32_t site) {
  TT_TRY(reserve(chunk, call));
  int local[LOCAL], before = chunk->slot_count;
  int *slots =
      call->input_count <= LOCAL ? local : tt_malloc(sizeof *slots * (size_t)call->input_count);
  if (!slots) return tt_out_of_memory();
  for (int i = 0; i < call->input_count; i++)
    slots[i] = inputs[i]->chunk == chunk->id ? inputs[i]->slot : add_slot(chunk, inputs[i], true);
  tt_step *step = NULL;
  tt_status status = tt_trace_step(&chunk->trace, chunk->at, call, slots, chunk->slot_count, &step);
  if (slots != local) tt_free(slots);
  if (status) {
    while (chunk->slot_count > before) {
      tt_value *value = chunk->slots[--chunk->slot_count];
      value->chunk = 0;
      tt_value_release(value);
    }
    return status;
  }
  for (int k = 0; k < call->output_count; k++) {
    int64_t bytes = 0;
    add_slot(chunk, outputs[k], false);
    if (tt_type_bytes(outputs[k]->type, &bytes)) chunk->bytes += bytes;
  }
  if (call->word_count)
    memcpy(chunk->words + chunk->word_count, words, sizeof *words * (size_t)call->word_count);
  chunk->word_count += call->word_count;
  chunk->sites[step->depth - 1] = site;
  chunk->at = step;
  chunk->due = tt_cutter_add(&chunk->cutter, call->hash, step->depth, chunk->bytes);
  return TT_SUCCESS;
}

/* Results that somebody besides the chunk still holds. */
static int mark_live(tt_chunk *chunk) {
  int count = 0;
  for (int i = 0; i < chunk->slot_count; i++) {
    chunk->live[i] = !chunk->is_input[i] && !tt_value_unique(chunk->slots[i]);
    count += chunk->live[i];
  }
  return count;
}

void tt_chunk_added(tt_chunk *chunk) {
  if (chunk->due == TT_CUT_STOP) (void)mark_live(chunk);
}

static tt_status new_program(tt_chunk *chunk, tt_cut why, tt_program **out) {
  tt_text text = TT_TEXT_INIT;
  bool fresh = false;
  tt_explain_chunk(chunk->at, chunk->live, chunk->sites, why, &text);
  tt_status status =
      tt_trace_program(&chunk->trace, chunk->at, chunk->live, chunk->is_input, out, &fresh);
  if (!status) tt_explain_keep(fresh ? "new program" : "known program", &text);
  else if (tt_programs_forbidden() && text.data) status = tt_annotate(status, "%s", text.data);
  tt_text_deinit(&text);
  return status;
}

/* What a chunk of one operator computes is that operator. */
static tt_origin make_origin(const tt_chunk *chunk, tt_program *program) {
  const tt_step *end = chunk->at;
  return (tt_origin){.program = program,
                     .name = end->call->name,
                     .site = chunk->sites[end->depth - 1],
                     .end = end->depth > 1 ? end : NULL,
                     .first_site = chunk->sites[0]};
}

static tt_status make_launch(tt_chunk *chunk, tt_cut why, tt_launch **out) {
  tt_program *program = tt_trace_find(chunk->at, chunk->live);
  tt_status refused = program ? TT_SUCCESS : new_program(chunk, why, &program);
  if (refused && (chunk->at->depth == 1 || tt_programs_forbidden())) return refused;
  int inputs = 0, outputs = 0;
  for (int i = 0; i < chunk->slot_count; i++) {
    inputs += chunk->is_input[i];
    outputs += chunk->live[i];
  }
  tt_launch *launch = tt_launch_create(inputs, outputs, chunk->word_count, chunk->at);
  if (!launch) return tt_join(refused, tt_out_of_memory());
  launch->origin = make_origin(chunk, program);
  launch->refused = refused;
  memcpy(launch->live, chunk->live, (size_t)chunk->slot_count);
  memcpy(launch->sites, chunk->sites, sizeof *chunk->sites * (size_t)chunk->at->depth);
  inputs = outputs = 0;
  for (int i = 0; i < chunk->slot_count; i++) {
    if (chunk->is_input[i]) launch->inputs[inputs++] = tt_value_retain(chunk->slots[i]);
    if (chunk->live[i]) launch->outputs[outputs++] = tt_value_retain(chunk->slots[i]);
  }
  if (chunk->word_count)
    memcpy(launch->words, chunk->words, sizeof *chunk->words * (size_t)chunk->word_count);
  *out = launch;
  return TT_SUCCESS;
}

static void count_cut(tt_cut why) {
  static const tt_counter counters[] = {
      [TT_CUT_NONE] = TT_COUNT_CUTS_MODE,        [TT_CUT_CONTENT] = TT_COUNT_CUTS_CONTENT,
      [TT_CUT_STOP] = TT_COUNT_CUTS_CONTENT,     [TT_CUT_LENGTH] = TT_COUNT_CUTS_LENGTH,
      [TT_CUT_BYTES] = TT_COUNT_CUTS_BYTES,      [TT_CUT_READ] = TT_COUNT_CUTS_READ,
      [TT_CUT_SYNC] = TT_COUNT_CUTS_SYNCHRONISE, [TT_CUT_MODE] = TT_COUNT_CUTS_MODE};
  tt_count_add(counters[why], 1);
}

static bool any_live(tt_chunk *chunk, tt_cut why) {
  if (why != TT_CUT_STOP) return mark_live(chunk) > 0;
  return memchr(chunk->live, true, (size_t)chunk->slot_count) != NULL;
}

tt_status tt_chunk_close(tt_chunk *chunk, tt_cut why, tt_launch **out) {
  *out = NULL;
  if (tt_chunk_empty(chunk)) return TT_SUCCESS;
  tt_status status = any_live(chunk, why) ? make_launch(chunk, why, out) : TT_SUCCESS;
  if (tt_status_code(status) == TT_FAILED_PRECONDITION && tt_programs_forbidden()) return status;
  for (int i = 0; status && i < chunk->slot_count; i++)
    if (!chunk->is_input[i]) tt_value_fail(chunk->slots[i], tt_status_clone(status));
  count_cut(why);
  tt_count_chunk(chunk->at->depth);
  empty(chunk);
  return status;
}
