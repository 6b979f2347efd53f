#include "stream/template.h"

#include "stream/capture.h"
#include "stream/capturing.h"
#include "stream/recorder.h"

typedef struct running {
  const tt_template *t;
  tt_stream *stream;
  const tt_policy *policy;
  uint32_t site;
  tt_arena arena;
  uint32_t *words;
  tt_value **slots;    /* [slot_count] one reference each, while somebody needs them */
  tt_value **operands; /* of one step, as the next */
  tt_storage **targets;
} running;

static tt_status prepare(running *r, tt_philox_place place) {
  const tt_graph *graph = &r->t->graph;
  size_t most = 1;
  for (int i = 0; i < graph->step_count; i++) {
    const tt_call *call = graph->steps[i].call;
    size_t count = (size_t)(call->input_count + call->output_count) + 1;
    if (count > most) most = count;
  }
  r->words = tt_arena_alloc(&r->arena, sizeof *r->words * ((size_t)graph->word_count + 1));
  r->slots = tt_arena_alloc(&r->arena, sizeof *r->slots * ((size_t)graph->slot_count + 1));
  r->operands = tt_arena_alloc(&r->arena, sizeof *r->operands * most);
  r->targets = tt_arena_alloc(&r->arena, sizeof *r->targets * most);
  if (!r->words || !r->slots || !r->operands || !r->targets) return tt_out_of_memory();
  if (graph->word_count) tt_graph_fill_words(graph, NULL, &place, r->words);
  return TT_SUCCESS;
}

static tt_status take_args(running *r, tt_storage *const *storages) {
  tt_status status = TT_SUCCESS;
  tt_device_lock(r->stream->device);
  for (int i = 0; i < r->t->arg_count && !status; i++) {
    int slot = r->t->arg_slots[i];
    if (slot == TT_UNWRITTEN || r->slots[slot]) continue;
    r->slots[slot] = tt_value_retain(storages[i]->value);
    if (!r->slots[slot]) status = tt_error(TT_INTERNAL, "a tensor was freed while it was used");
  }
  tt_device_unlock(r->stream->device);
  return status;
}

static bool is_held(const tt_template *t, int slot) {
  for (int i = 0; i < t->graph.output_count; i++)
    if (t->graph.outputs[i].slot == slot) return true;
  return false;
}

/* What a random step draws. */
static tt_draw draw_of(const tt_graph *graph, const tt_step *step) {
  int at = step->word_at + step->call->word_count - 4;
  for (int i = 0; i < graph->scalar_count; i++)
    if (graph->scalars[i].at == at) return (tt_draw){.blocks = graph->scalars[i].blocks};
  return (tt_draw){.blocks = 0};
}

/* A value that nobody reads any more is given away, so that it may be donated. */
static void take_operands(running *r, int at) {
  const tt_step *step = &r->t->graph.steps[at];
  for (int i = 0; i < step->call->input_count; i++)
    r->operands[i] = tt_value_retain(r->slots[step->inputs[i]]);
  for (int i = 0; i < step->call->input_count; i++) {
    int slot = step->inputs[i];
    if (r->t->last_use[slot] != at || is_held(r->t, slot)) continue;
    tt_value_release(r->slots[slot]);
    r->slots[slot] = NULL;
  }
}

/* An argument that is written holds its last value as soon as that is recorded. */
static void find_targets(running *r, const tt_step *step, tt_storage *const *storages) {
  for (int k = 0; k < step->call->output_count; k++) {
    r->targets[k] = NULL;
    for (int i = 0; i < r->t->arg_count; i++)
      if (r->t->held[i].slot == step->first_output + k) r->targets[k] = storages[i];
  }
}

static tt_status run_step(running *r, int at, tt_storage *const *storages) {
  const tt_step *step = &r->t->graph.steps[at];
  tt_call *call = step->call;
  tt_value **outputs = r->operands + call->input_count;
  bool random = call->row->cls == TT_RANDOM;
  const tt_draw draw = random ? draw_of(&r->t->graph, step) : (tt_draw){.blocks = 0};
  tt_operation op = {.call = call,
                     .scalars = r->words + step->word_at,
                     .draw = random ? &draw : NULL,
                     .policy = r->policy,
                     .site = r->site};
  take_operands(r, at);
  find_targets(r, step, storages);
  TT_TRY(tt_stream_record_values(r->stream, &op, r->operands, r->targets, outputs));
  for (int k = 0; k < call->output_count; k++) r->slots[step->first_output + k] = outputs[k];
  return TT_SUCCESS;
}

/* The lock is held. *old: what the storage held, which is the caller's. */
static tt_status hold(running *r, int i, tt_storage **storage, tt_value **old) {
  const tt_held *end = &r->t->held[i];
  if (!*storage) {
    TT_TRY(tt_storage_create(r->stream->device, end->type, storage));
    (*storage)->born = tt_stream_captured(r->stream);
  }
  if (end->slot == TT_UNWRITTEN || (*storage)->value == r->slots[end->slot]) return TT_SUCCESS;
  if (r->stream->capture) TT_TRY(tt_capture_keep(r->stream, *storage));
  *old = tt_storage_hold(*storage, tt_value_retain(r->slots[end->slot]));
  return TT_SUCCESS;
}

static tt_status hold_all(running *r, tt_storage **storages) {
  tt_status status = TT_SUCCESS;
  for (int i = 0; i < r->t->held_count && !status; i++) {
    tt_value *old = NULL;
    tt_device_lock(r->stream->device);
    status = hold(r, i, &storages[i], &old);
    tt_device_unlock(r->stream->device);
    tt_value_release(old);
  }
  return status;
}

tt_status tt_template_run(const tt_template *t, tt_stream *stream, tt_storage **storages,
                          tt_philox_place place, const tt_policy *policy, uint32_t site) {
  running r = {.t = t, .stream = stream, .policy = policy, .site = site};
  tt_status status = prepare(&r, place);
  if (!status) status = take_args(&r, storages);
  for (int i = 0; i < t->graph.step_count && !status; i++)
    if (t->needed[i]) status = run_step(&r, i, storages);
  if (!status) status = hold_all(&r, storages);
  if (!status) tt_notes_adopt(t, storages);
  for (int slot = 0; r.slots && slot < t->graph.slot_count; slot++) tt_value_release(r.slots[slot]);
  tt_arena_deinit(&r.arena);
  return status;
}
