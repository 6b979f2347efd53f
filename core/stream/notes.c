#include "stream/notes.h"

#include <string.h>

enum { MAX_STEPS = 4096 };

/* A storage while notes are taken. */
typedef struct known {
  const tt_storage *storage; /* NULL: freed */
  tt_held is;
} known;

/* What one thread writes down. */
typedef struct notes {
  tt_observer observer;
  tt_template *t;
  known *known;
  tt_step *steps;
  size_t known_capacity, step_capacity, scalar_capacity;
  int known_count;
  bool invalid;
  tt_status error;
} notes;

static _Thread_local notes *current;

/* -- Storages -- */

static int find(const notes *n, const tt_storage *storage) {
  for (int i = n->known_count - 1; i >= 0; i--)
    if (n->known[i].storage == storage) return i;
  return -1;
}

static void add_known(notes *n, const tt_storage *storage, int slot) {
  size_t count = (size_t)n->known_count + 1;
  if (!n->error)
    n->error = tt_grow((void **)&n->known, &n->known_capacity, count, sizeof *n->known);
  if (!n->error) n->known[n->known_count++] = (known){storage, {slot, storage->type}};
}

static void on_disturbed(tt_observer *observer) { ((notes *)observer)->invalid = true; }

static void on_created(tt_observer *observer, const tt_storage *storage) {
  add_known((notes *)observer, storage, TT_UNWRITTEN);
}

static void on_retyped(tt_observer *observer, const tt_storage *storage) {
  notes *n = (notes *)observer;
  int at = find(n, storage);
  if (at < 0) return;
  n->invalid |= at < n->t->arg_count;
  n->known[at].is = (tt_held){TT_UNWRITTEN, storage->type};
}

static void on_freed(tt_observer *observer, const tt_storage *storage) {
  notes *n = (notes *)observer;
  int at = find(n, storage);
  if (at < 0) return;
  n->invalid |= at < n->t->arg_count; /* it was not to be freed */
  n->known[at].storage = NULL;
}

/* -- Steps -- */

static tt_status add_scalar(notes *n, tt_scalar scalar) {
  tt_template *t = n->t;
  TT_TRY(tt_grow((void **)&t->scalars, &n->scalar_capacity, (size_t)t->graph.scalar_count + 1,
                 sizeof scalar));
  t->scalars[t->graph.scalar_count++] = scalar;
  return TT_SUCCESS;
}

static tt_status add_step(notes *n, tt_call *call, const int *inputs, int word_at) {
  tt_graph *graph = &n->t->graph;
  TT_TRY(tt_grow((void **)&n->steps, &n->step_capacity, (size_t)graph->step_count + 1,
                 sizeof *n->steps));
  n->steps[graph->step_count++] = (tt_step){call, inputs, graph->slot_count, word_at};
  return TT_SUCCESS;
}

static tt_status note_words(notes *n, const tt_operation *op) {
  tt_graph *graph = &n->t->graph;
  int count = op->call->word_count, drawn = op->draw ? 4 : 0;
  for (int i = 0; i < count - drawn; i++)
    TT_TRY(add_scalar(n, (tt_scalar){.kind = TT_SCALAR_CONSTANT,
                                     .at = graph->word_count + i,
                                     .count = 1,
                                     .words = {op->scalars[i]}}));
  if (!drawn) return TT_SUCCESS;
  TT_TRY(add_scalar(n, (tt_scalar){.kind = TT_SCALAR_PHILOX,
                                   .at = graph->word_count + count - drawn,
                                   .count = drawn,
                                   .block = n->t->blocks,
                                   .blocks = op->draw->blocks}));
  n->t->blocks += op->draw->blocks;
  return TT_SUCCESS;
}

/* The slots of its inputs; a storage from elsewhere spoils the notes: the key does not know it. */
static tt_status note_inputs(notes *n, const tt_operation *op, int **out) {
  const tt_call *call = op->call;
  int *slots = tt_arena_alloc(&n->t->arena, sizeof *slots * ((size_t)call->input_count + 1));
  if (!slots) return tt_out_of_memory();
  for (int i = 0; i < call->input_count; i++) {
    int at = find(n, op->tensors[call->inputs[i]]);
    slots[i] = at < 0 ? TT_UNWRITTEN : n->known[at].is.slot;
    n->invalid |= slots[i] == TT_UNWRITTEN;
  }
  *out = slots;
  return TT_SUCCESS;
}

static void note_results(notes *n, const tt_operation *op, tt_storage *const *results) {
  const tt_call *call = op->call;
  for (int k = 0; k < call->result_count; k++) {
    const tt_call_result *result = &call->results[k];
    if (!result->defined) continue;
    int slot = n->t->graph.slot_count++;
    if (result->target < 0) {
      add_known(n, results[k], slot);
      continue;
    }
    int at = find(n, op->tensors[result->target]);
    n->invalid |= at < 0;
    if (at >= 0) n->known[at].is = (tt_held){slot, result->storage};
  }
}

static tt_status note(notes *n, const tt_operation *op, tt_storage *const *results) {
  int *inputs = NULL;
  tt_graph *graph = &n->t->graph;
  TT_TRY(note_inputs(n, op, &inputs));
  TT_TRY(note_words(n, op));
  TT_TRY(add_step(n, op->call, inputs, graph->word_count));
  graph->word_count += op->call->word_count;
  note_results(n, op, results);
  return TT_SUCCESS;
}

static void on_called(tt_observer *observer, const tt_operation *op, tt_storage *const *results) {
  notes *n = (notes *)observer;
  n->invalid |= n->t->graph.step_count >= MAX_STEPS || (op->draw && op->draw->generator);
  if (!n->invalid && !n->error) n->error = note(n, op, results);
}

/* -- A template that was run meanwhile -- */

static tt_status adopt_scalars(notes *n, const tt_template *t) {
  for (int i = 0; i < t->graph.scalar_count; i++) {
    tt_scalar scalar = t->graph.scalars[i];
    scalar.at += n->t->graph.word_count;
    if (scalar.kind == TT_SCALAR_PHILOX) scalar.block += n->t->blocks;
    TT_TRY(add_scalar(n, scalar));
  }
  n->t->blocks += t->blocks;
  return TT_SUCCESS;
}

/* places[slot] becomes the notes' slot for each of the template's. */
static tt_status adopt_steps(notes *n, const tt_template *t, int *places) {
  tt_graph *graph = &n->t->graph;
  for (int i = 0; i < t->graph.step_count; i++) {
    const tt_step *step = &t->graph.steps[i];
    const tt_call *call = step->call;
    int *inputs = tt_arena_alloc(&n->t->arena, sizeof *inputs * ((size_t)call->input_count + 1));
    if (!inputs) return tt_out_of_memory();
    for (int k = 0; k < call->input_count; k++) inputs[k] = places[step->inputs[k]];
    TT_TRY(add_step(n, step->call, inputs, graph->word_count + step->word_at));
    for (int k = 0; k < call->output_count; k++)
      places[step->first_output + k] = graph->slot_count++;
  }
  graph->word_count += t->graph.word_count;
  return TT_SUCCESS;
}

static void adopt_storages(notes *n, const tt_template *t, tt_storage *const *storages,
                           const int *places) {
  for (int i = 0; i < t->held_count; i++) {
    int slot = t->held[i].slot == TT_UNWRITTEN ? TT_UNWRITTEN : places[t->held[i].slot];
    int at = i < t->arg_count ? find(n, storages[i]) : -1;
    if (i >= t->arg_count) add_known(n, storages[i], slot);
    else if (at >= 0) n->known[at].is = (tt_held){slot, t->held[i].type};
  }
}

static tt_status adopt(notes *n, const tt_template *t, tt_storage *const *storages, int *places) {
  n->invalid |= n->t->graph.step_count + t->graph.step_count > MAX_STEPS;
  for (int i = 0; i < t->arg_count; i++) {
    int at = find(n, storages[i]);
    n->invalid |= at < 0;
    if (at >= 0 && t->arg_slots[i] != TT_UNWRITTEN) places[t->arg_slots[i]] = n->known[at].is.slot;
  }
  if (n->invalid) return TT_SUCCESS;
  TT_TRY(adopt_scalars(n, t));
  TT_TRY(adopt_steps(n, t, places));
  adopt_storages(n, t, storages, places);
  return TT_SUCCESS;
}

void tt_notes_adopt(const tt_template *t, tt_storage *const *storages) {
  notes *n = current;
  tt_arena arena = TT_ARENA_INIT;
  if (!n || n->error) return;
  int *places = tt_arena_alloc(&arena, sizeof *places * ((size_t)t->graph.slot_count + 1));
  n->error = places ? adopt(n, t, storages, places) : tt_out_of_memory();
  tt_arena_deinit(&arena);
}

/* -- Beginning -- */

static void add_args(notes *n, tt_storage *const *args, int count) {
  tt_template *t = n->t;
  t->arg_count = count;
  t->arg_slots = tt_arena_alloc(&t->arena, sizeof *t->arg_slots * ((size_t)count + 1));
  if (!t->arg_slots) n->error = tt_out_of_memory();
  for (int i = 0; i < count && !n->error; i++) {
    int before = find(n, args[i]);
    if (before >= 0) t->arg_slots[i] = n->known[before].is.slot;
    else t->arg_slots[i] = args[i]->value ? t->graph.slot_count++ : TT_UNWRITTEN;
    add_known(n, args[i], t->arg_slots[i]);
  }
}

tt_status tt_template_begin(tt_call_table *calls, tt_storage *const *args, int count) {
  if (current) return tt_error(TT_FAILED_PRECONDITION, "this thread takes notes already");
  notes *n = tt_calloc(1, sizeof *n);
  if (n) n->t = tt_calloc(1, sizeof *n->t);
  if (!n || !n->t) {
    tt_free(n);
    return tt_out_of_memory();
  }
  n->t->refs = 1;
  n->observer = (tt_observer){on_called, on_created, on_freed, on_retyped, on_disturbed};
  add_args(n, args, count);
  tt_guard_enter(); /* until the notes end */
  n->t->epoch = tt_call_table_epoch(calls);
  current = n;
  tt_observer_current = &n->observer;
  return TT_SUCCESS;
}

/* -- Ending -- */

/* A result that is an argument has its number; others are held behind the arguments. */
static tt_status hold_results(notes *n, tt_storage *const *results, int count, int *slots) {
  tt_template *t = n->t;
  t->held_count = t->arg_count;
  t->held = tt_arena_alloc(&t->arena, sizeof *t->held * (size_t)(t->arg_count + count + 1));
  if (!t->held) return tt_out_of_memory();
  for (int i = 0; i < t->arg_count; i++) t->held[i] = n->known[find(n, n->known[i].storage)].is;
  for (int i = 0; i < count; i++) {
    int at = find(n, results[i]), before = 0;
    n->invalid |= at < 0;
    if (at < 0) continue;
    while (before < i && results[before] != results[i]) before++;
    slots[i] = at < t->arg_count ? at : before < i ? slots[before] : t->held_count;
    if (slots[i] == t->held_count) t->held[t->held_count++] = n->known[at].is;
  }
  return TT_SUCCESS;
}

static tt_status make_graph(notes *n) {
  tt_template *t = n->t;
  size_t steps = (size_t)t->graph.step_count, slots = (size_t)t->graph.slot_count;
  tt_step *kept = tt_arena_alloc(&t->arena, sizeof *kept * (steps + 1));
  t->needed = tt_arena_alloc(&t->arena, steps + 1);
  tt_output *outputs = tt_arena_alloc(&t->arena, sizeof *outputs * ((size_t)t->held_count + 1));
  t->last_use = tt_arena_alloc(&t->arena, sizeof *t->last_use * (slots + 1));
  if (!kept || !t->needed || !outputs || !t->last_use) return tt_out_of_memory();
  if (steps) memcpy(kept, n->steps, steps * sizeof *kept);
  for (int i = 0; i < t->held_count; i++)
    if (t->held[i].slot != TT_UNWRITTEN)
      outputs[t->graph.output_count++] =
          (tt_output){t->held[i].slot, i < t->arg_count ? t->arg_slots[i] : -1};
  t->graph.steps = kept;
  t->graph.outputs = outputs;
  t->graph.scalars = t->scalars;
  tt_graph_uses(&t->graph, t->last_use, t->needed);
  return TT_SUCCESS;
}

tt_status tt_template_end(tt_storage *const *results, int count, int *slots, tt_template **out) {
  notes *n = current;
  current = NULL;
  tt_observer_current = NULL;
  *out = NULL;
  if (!n) return tt_error(TT_FAILED_PRECONDITION, "this thread takes no notes");
  tt_status status = n->error;
  if (!status && !n->invalid) status = hold_results(n, results, count, slots);
  if (!status && !n->invalid) status = make_graph(n);
  if (status || n->invalid) tt_template_release(n->t);
  else *out = n->t;
  tt_free(n->steps);
  tt_free(n->known);
  tt_free(n);
  tt_guard_leave();
  return status;
}
