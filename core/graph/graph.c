#include "graph/graph.h"

#include <assert.h>
#include <string.h>

/* -- What is an input, what an output -- */

typedef struct making {
  tt_arena *arena;
  const uint8_t *live;
  bool *made;     /* [slot_count] a step's result */
  bool *read;     /* [slot_count] by a step */
  int *source_of; /* [slot_count] the input whose storage the value stands in, or -1 */
  int *inputs;
  const tt_type **types;
  tt_output *outputs;
  tt_graph *graph;
} making;

static bool is_input(const making *m, int slot) { return m->read[slot] && !m->made[slot]; }

static tt_status prepare(making *m) {
  size_t slots = (size_t)m->graph->slot_count + 1;
  m->made = tt_arena_alloc(m->arena, slots * sizeof *m->made);
  m->read = tt_arena_alloc(m->arena, slots * sizeof *m->read);
  m->source_of = tt_arena_alloc(m->arena, slots * sizeof *m->source_of);
  if (!m->made || !m->read || !m->source_of) return tt_out_of_memory();
  int outputs = 0;
  for (int i = 0; i < m->graph->step_count; i++) {
    const tt_step *step = &m->graph->steps[i];
    for (int k = 0; k < step->call->input_count; k++) m->read[step->inputs[k]] = true;
    for (int k = 0; k < step->call->output_count; k++) {
      assert(step->first_output + k < m->graph->slot_count);
      m->made[step->first_output + k] = true;
      outputs += m->live[step->first_output + k];
    }
  }
  for (int slot = 0; slot < m->graph->slot_count; slot++)
    m->graph->input_count += is_input(m, slot);
  size_t inputs = (size_t)m->graph->input_count + 1;
  m->inputs = tt_arena_alloc(m->arena, inputs * sizeof *m->inputs);
  m->types = tt_arena_alloc(m->arena, inputs * sizeof *m->types);
  m->outputs = tt_arena_alloc(m->arena, ((size_t)outputs + 1) * sizeof *m->outputs);
  return m->inputs && m->types && m->outputs ? TT_SUCCESS : tt_out_of_memory();
}

static void number_inputs(making *m) {
  int count = 0;
  for (int slot = 0; slot < m->graph->slot_count; slot++) {
    m->source_of[slot] = is_input(m, slot) ? count : -1;
    if (is_input(m, slot)) m->inputs[count++] = slot;
  }
}

/* An input's type is what its first reader says; a result that replaces a value stands in the same
 * storage as that. */
static void follow_steps(making *m) {
  for (int i = 0; i < m->graph->step_count; i++) {
    const tt_step *step = &m->graph->steps[i];
    const tt_call *call = step->call;
    for (int k = 0; k < call->input_count; k++) {
      int slot = step->inputs[k], input = m->made[slot] ? -1 : m->source_of[slot];
      if (input >= 0 && !m->types[input])
        m->types[input] = call->spec.tensors[call->inputs[k]].storage;
    }
    int slot = step->first_output;
    for (int k = 0; k < call->result_count; k++) {
      const tt_call_result *result = &call->results[k];
      if (!result->defined) continue;
      m->source_of[slot++] = result->over < 0 ? -1 : m->source_of[step->inputs[result->over]];
    }
  }
}

/* An input is given to the first output that stands in its storage. */
static void name_outputs(making *m) {
  tt_graph *graph = m->graph;
  for (int slot = 0; slot < graph->slot_count; slot++) {
    if (!m->made[slot] || !m->live[slot]) continue;
    int over = m->source_of[slot];
    for (int i = 0; i < graph->output_count; i++)
      if (m->outputs[i].over == over) over = -1;
    m->outputs[graph->output_count++] = (tt_output){.slot = slot, .over = over};
  }
}

tt_status tt_graph_create(tt_arena *arena, const tt_step *steps, int step_count, int slot_count,
                          const uint8_t *live, tt_graph **out) {
  assert(step_count > 0);
  tt_graph *graph = tt_arena_alloc(arena, sizeof *graph);
  if (!graph) return tt_out_of_memory();
  const tt_step *last = &steps[step_count - 1];
  *graph = (tt_graph){.step_count = step_count,
                      .slot_count = slot_count,
                      .steps = steps,
                      .word_count = last->word_at + last->call->word_count};
  making m = {.arena = arena, .live = live, .graph = graph};
  TT_TRY(prepare(&m));
  number_inputs(&m);
  follow_steps(&m);
  name_outputs(&m);
  graph->inputs = m.inputs;
  graph->input_types = m.types;
  graph->outputs = m.outputs;
  *out = graph;
  return TT_SUCCESS;
}

tt_status tt_graph_of_call(tt_arena *arena, tt_call *call, tt_graph **out) {
  size_t slots = (size_t)call->input_count + (size_t)call->output_count;
  tt_step *step = tt_arena_alloc(arena, sizeof *step);
  int *inputs = tt_arena_alloc(arena, sizeof *inputs * ((size_t)call->input_count + 1));
  uint8_t *live = tt_arena_alloc(arena, slots + 1);
  if (!step || !inputs || !live) return tt_out_of_memory();
  for (int i = 0; i < call->input_count; i++) inputs[i] = i;
  memset(live, 1, slots);
  *step = (tt_step){.call = call, .inputs = inputs, .first_output = call->input_count};
  return tt_graph_create(arena, step, 1, (int)slots, live, out);
}

/* -- Asking -- */

void tt_graph_uses(const tt_graph *graph, int *last_use, bool *needed) {
  for (int slot = 0; slot < graph->slot_count; slot++) last_use[slot] = -1;
  for (int i = 0; i < graph->output_count; i++)
    last_use[graph->outputs[i].slot] = graph->step_count; /* for the moment */
  for (int i = graph->step_count - 1; i >= 0; i--) {
    const tt_step *step = &graph->steps[i];
    needed[i] = false;
    for (int k = 0; k < step->call->output_count; k++)
      needed[i] |= last_use[step->first_output + k] >= 0;
    for (int k = 0; needed[i] && k < step->call->input_count; k++)
      if (last_use[step->inputs[k]] < 0 || last_use[step->inputs[k]] == graph->step_count)
        last_use[step->inputs[k]] = i;
  }
  for (int slot = 0; slot < graph->slot_count; slot++)
    if (last_use[slot] == graph->step_count) last_use[slot] = -1;
}

static bool equal_steps(const tt_step *a, const tt_step *b) {
  size_t inputs = sizeof *a->inputs * (size_t)a->call->input_count;
  return a->call == b->call && a->first_output == b->first_output && a->word_at == b->word_at &&
         (inputs == 0 || memcmp(a->inputs, b->inputs, inputs) == 0);
}

bool tt_graph_equal(const tt_graph *a, const tt_graph *b) {
  if (a->step_count != b->step_count || a->slot_count != b->slot_count ||
      a->input_count != b->input_count || a->output_count != b->output_count)
    return false;
  for (int i = 0; i < a->step_count; i++)
    if (!equal_steps(&a->steps[i], &b->steps[i])) return false;
  for (int i = 0; i < a->output_count; i++)
    if (a->outputs[i].slot != b->outputs[i].slot || a->outputs[i].over != b->outputs[i].over)
      return false;
  return true;
}

const tt_type *tt_step_result_type(const tt_step *step, int output) {
  for (int k = 0; k < step->call->result_count; k++)
    if (step->call->results[k].defined && output-- == 0) return step->call->results[k].storage;
  return NULL;
}

/* -- Scalars -- */

static void put_u64(uint32_t *words, uint64_t value) {
  words[0] = (uint32_t)value;
  words[1] = (uint32_t)(value >> 32);
}

void tt_graph_fill_words(const tt_graph *graph, const uint32_t *inputs,
                         const tt_philox_place *streams, uint32_t *words) {
  if (graph->scalar_count == 0 && graph->word_count)
    memcpy(words, inputs, sizeof *words * (size_t)graph->word_count);
  for (int i = 0; i < graph->scalar_count; i++) {
    const tt_scalar *scalar = &graph->scalars[i];
    uint32_t *at = words + scalar->at;
    switch (scalar->kind) {
    case TT_SCALAR_INPUT:
      memcpy(at, inputs + scalar->input, sizeof *at * (size_t)scalar->count);
      break;
    case TT_SCALAR_CONSTANT:
      memcpy(at, scalar->words, sizeof *at * (size_t)scalar->count);
      break;
    case TT_SCALAR_PHILOX:
      assert(scalar->count == 4);
      put_u64(at, streams[scalar->stream].seed);
      put_u64(at + 2, streams[scalar->stream].offset + (uint64_t)scalar->block);
      break;
    }
  }
}
