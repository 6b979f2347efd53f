#include "graph/trace.h"

#include <assert.h>
#include <string.h>

/* A graph with more outputs than needed will do if these are few, and in any case when there are
 * MAX_LIVE_SETS. */
enum { MAX_LIVE_SETS = 4, FEW_BYTES = 1 << 16, SLOTS_A_NODE = 64 };

void tt_trace_init(tt_trace *trace) { *trace = (tt_trace){0}; }

void tt_trace_deinit(tt_trace *trace) {
  tt_arena_deinit(&trace->arena);
  *trace = (tt_trace){0};
}

tt_status tt_trace_step(tt_trace *trace, tt_trace_node *at, tt_call *call, const int *inputs,
                        int first_output, tt_trace_node **out) {
  size_t size = sizeof *inputs * (size_t)call->input_count;
  for (tt_trace_node **link = &at->children; *link; link = &(*link)->sibling) {
    tt_trace_node *node = *link;
    if (node->step.call != call || memcmp(node->step.inputs, inputs, size) != 0) continue;
    *link = node->sibling; /* the latest comes first: it is the likeliest */
    node->sibling = at->children;
    at->children = node;
    *out = node;
    return TT_SUCCESS;
  }
  tt_trace_node *node = tt_arena_alloc(&trace->arena, sizeof *node);
  int *slots = tt_arena_alloc(&trace->arena, size + sizeof *slots);
  if (!node || !slots) return tt_out_of_memory();
  memcpy(slots, inputs, size);
  const tt_step *before = &at->step;
  int word_at = before->call ? before->word_at + before->call->word_count : 0;
  *node = (tt_trace_node){.parent = at,
                          .sibling = at->children,
                          .step = {call, slots, first_output, word_at},
                          .depth = at->depth + 1,
                          .slot_count = first_output + call->output_count};
  assert(node->slot_count >= at->slot_count);
  at->children = node;
  trace->node_count++;
  tt_growth_note(TT_GROWTH_NODES, 1);
  *out = node;
  return TT_SUCCESS;
}

/* -- Graphs -- */

static bool covers(const uint8_t *live, const uint8_t *needed, int count) {
  for (int i = 0; i < count; i++)
    if (needed[i] && !live[i]) return false;
  return true;
}

/* Are the results that nobody needs small, compared with the others? */
static bool wastes_little(const tt_trace_node *end, const uint8_t *live, const uint8_t *needed) {
  int64_t used = 0, wasted = 0;
  for (const tt_trace_node *node = end; node->parent; node = node->parent) {
    int slot = node->step.first_output;
    for (int k = 0; k < node->step.call->result_count; k++) {
      const tt_call_result *result = &node->step.call->results[k];
      if (!result->defined) continue;
      int64_t bytes = tt_type_held_bytes(result->storage);
      if (live[slot]) *(needed[slot] ? &used : &wasted) += bytes;
      slot++;
    }
  }
  return wasted <= used / 2 + FEW_BYTES;
}

tt_live_set *tt_trace_find(const tt_trace_node *end, const uint8_t *live, bool any) {
  size_t size = (size_t)end->slot_count;
  int count = 0;
  tt_live_set *wider = NULL, *close = NULL;
  for (tt_live_set *v = end->live_sets; v; v = v->next, count++) {
    if (memcmp(v->live, live, size) == 0) return v;
    if (!covers(v->live, live, end->slot_count)) continue;
    wider = v;
    if (!close && wastes_little(end, v->live, live)) close = v;
  }
  return close ? close : any || count >= MAX_LIVE_SETS ? wider : NULL;
}

/* When the same path keeps ending with other results alive, the next graph has them all as outputs.
 */
static void widen(const tt_trace_node *end, uint8_t *live) {
  int count = 0;
  for (const tt_live_set *v = end->live_sets; v; v = v->next) count++;
  if (count < MAX_LIVE_SETS) return;
  for (const tt_live_set *v = end->live_sets; v; v = v->next)
    for (int i = 0; i < end->slot_count; i++) live[i] |= v->live[i];
}

/* All graphs of a path have the same steps. */
static const tt_step *steps_of(tt_trace *trace, const tt_trace_node *end) {
  if (end->live_sets) return end->live_sets->graph->steps;
  tt_step *steps = tt_arena_alloc(&trace->arena, sizeof *steps * (size_t)end->depth);
  for (const tt_trace_node *node = end; steps && node->parent; node = node->parent)
    steps[node->depth - 1] = node->step;
  return steps;
}

tt_status tt_trace_live_set(tt_trace *trace, tt_trace_node *end, const uint8_t *live,
                            tt_live_set **out) {
  assert(end->depth > 0);
  const tt_step *steps = steps_of(trace, end);
  tt_live_set *live_set = tt_arena_alloc(&trace->arena, sizeof *live_set);
  uint8_t *kept = tt_arena_copy(&trace->arena, live, (size_t)end->slot_count);
  if (!steps || !live_set || !kept) return tt_out_of_memory();
  widen(end, kept);
  live_set->live = kept;
  *out = live_set;
  return tt_graph_create(&trace->arena, steps, end->depth, end->slot_count, kept, &live_set->graph);
}

void tt_trace_add(tt_trace_node *end, tt_live_set *live_set) {
  assert(!live_set->next);
  tt_growth_note(TT_GROWTH_NODES, 1 + (end->slot_count + end->depth) / SLOTS_A_NODE);
  live_set->next = end->live_sets;
  end->live_sets = live_set;
}

tt_status tt_trace_order(tt_trace *trace, tt_live_set *live_set) {
  tt_orders *orders = tt_arena_alloc(&trace->arena, sizeof *orders);
  if (!orders) return tt_out_of_memory();
  TT_TRY(tt_graph_order(live_set->graph, &trace->arena, orders));
  live_set->orders = orders;
  return TT_SUCCESS;
}
