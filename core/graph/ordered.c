#include "graph/ordered.h"

#include "call/ordered.h"

typedef struct ordering {
  const tt_graph *graph;
  tt_arena *arena;
  tt_orders *out;
  int64_t *bytes, *homes; /* the slots' */
  tt_order *orders;       /* [out->count] */
  /* Of the graph's: */
  bool *needed;  /* [step_count] */
  bool *kept;    /* [slot_count] inputs and outputs, whose memory is nobody's to take */
  int *last_use; /* [slot_count] the last step that reads it, or -1 */
  int *number;   /* [slot_count] among the call's slots, or -1 */
} ordering;

static tt_status allocate(ordering *o) {
  tt_arena *arena = o->arena;
  size_t steps = (size_t)o->graph->step_count, slots = (size_t)o->graph->slot_count + 1;
  o->out->bytes = o->bytes = tt_arena_alloc(arena, slots * sizeof *o->bytes);
  o->out->homes = o->homes = tt_arena_alloc(arena, slots * sizeof *o->homes);
  o->orders = tt_arena_alloc(arena, steps * sizeof *o->orders);
  o->needed = tt_arena_alloc(arena, steps * sizeof *o->needed);
  o->kept = tt_arena_alloc(arena, slots * sizeof *o->kept);
  o->last_use = tt_arena_alloc(arena, slots * sizeof *o->last_use);
  o->number = tt_arena_alloc(arena, slots * sizeof *o->number);
  bool all = o->bytes && o->homes && o->orders && o->needed && o->kept && o->last_use && o->number;
  return all ? TT_SUCCESS : tt_out_of_memory();
}

/* -- Slots -- */

static tt_status add_slot(ordering *o, int slot, const tt_type *type) {
  int at = o->number[slot] = o->out->slot_count++;
  o->homes[at] = -1;
  if (tt_type_bytes(type, &o->bytes[at])) return TT_SUCCESS;
  return tt_error(TT_INVALID_ARGUMENT, "a storage has more bytes than 64 bits count");
}

/* What a view of a storage is written through is made also where nobody needs it. */
static tt_status add_results(ordering *o, const tt_step *step) {
  for (int k = 0, slot = step->first_output; k < step->call->result_count; k++) {
    const tt_call_result *result = &step->call->results[k];
    if (!result->defined) continue;
    if (result->target >= 0 || o->kept[slot] || o->last_use[slot] >= 0)
      TT_TRY(add_slot(o, slot, result->storage));
    slot++;
  }
  return TT_SUCCESS;
}

static tt_status add_slots(ordering *o) {
  const tt_graph *graph = o->graph;
  tt_graph_uses(graph, o->last_use, o->needed);
  for (int slot = 0; slot < graph->slot_count; slot++) o->number[slot] = -1;
  for (int i = 0; i < graph->input_count; i++) {
    o->kept[graph->inputs[i]] = true;
    TT_TRY(add_slot(o, graph->inputs[i], graph->input_types[i]));
  }
  o->out->input_count = graph->input_count;
  for (int i = 0; i < graph->output_count; i++) o->kept[graph->outputs[i].slot] = true;
  for (int i = 0; i < graph->step_count; i++)
    if (o->needed[i]) TT_TRY(add_results(o, &graph->steps[i]));
  for (int i = 0; i < graph->output_count; i++) o->homes[o->number[graph->outputs[i].slot]] = i;
  return TT_SUCCESS;
}

/* -- Orders -- */

static bool is_made_by(const tt_step *step, int slot) {
  return slot >= step->first_output && slot < step->first_output + step->call->output_count;
}

/* What the step, number `at`, is the last to need. */
static tt_status add_drops(ordering *o, const tt_step *step, int at, tt_order *order) {
  const tt_call *call = step->call;
  size_t most = (size_t)call->input_count + (size_t)call->output_count + 1;
  int64_t *drops = tt_arena_alloc(o->arena, most * sizeof *drops);
  if (!drops) return tt_out_of_memory();
  for (int k = 0; k < call->input_count; k++) {
    int slot = step->inputs[k];
    if (!o->kept[slot] && o->last_use[slot] == at) drops[order->drop_count++] = o->number[slot];
  }
  for (int slot = step->first_output; is_made_by(step, slot); slot++)
    if (!o->kept[slot] && o->last_use[slot] < 0 && o->number[slot] >= 0)
      drops[order->drop_count++] = o->number[slot];
  order->drops = drops;
  return TT_SUCCESS;
}

static tt_status order_step(ordering *o, int at, tt_order *out) {
  const tt_step *step = &o->graph->steps[at];
  const tt_call *call = step->call;
  int *inputs = tt_arena_alloc(o->arena, sizeof *inputs * ((size_t)call->input_count + 1));
  int *outputs = tt_arena_alloc(o->arena, sizeof *outputs * ((size_t)call->output_count + 1));
  if (!inputs || !outputs) return tt_out_of_memory();
  for (int k = 0; k < call->input_count; k++) inputs[k] = o->number[step->inputs[k]];
  for (int k = 0; k < call->output_count; k++) outputs[k] = o->number[step->first_output + k];
  tt_call_places places = {.inputs = inputs, .outputs = outputs, .word_at = step->word_at};
  TT_TRY(tt_call_order(call, &places, o->arena, out));
  out->step = at;
  return add_drops(o, step, at, out);
}

static tt_status add_orders(ordering *o) {
  for (int i = 0; i < o->graph->step_count; i++) {
    if (!o->needed[i]) continue;
    tt_order *order = &o->orders[o->out->count++];
    TT_TRY(order_step(o, i, order));
    if (order->cost > o->out->cost) o->out->cost = order->cost;
  }
  return TT_SUCCESS;
}

/* -- What is written in place -- */

/* One value may be what two storages of a call hold. */
static bool only_sees(const tt_step *step, int64_t number, const ordering *o) {
  int count = 0;
  for (int k = 0; k < step->call->input_count; k++) count += o->number[step->inputs[k]] == number;
  return count == 1;
}

static bool drops(const tt_order *order, int64_t slot) {
  for (int i = 0; i < order->drop_count; i++)
    if (order->drops[i] == slot) return true;
  return false;
}

/* From the last order to the first, so that what ends as an output is computed where that is. */
static tt_status write_in_place(ordering *o) {
  for (int i = o->out->count - 1; i >= 0; i--) {
    tt_order *order = &o->orders[i];
    tt_order_write *writes =
        tt_arena_copy(o->arena, order->writes, sizeof *writes * (size_t)order->write_count);
    if (!writes) return tt_out_of_memory();
    for (int k = 0; k < order->write_count; k++) {
      int64_t before = writes[k].before;
      writes[k].takes = before >= 0 && drops(order, before) &&
                        o->bytes[before] == o->bytes[writes[k].slot] &&
                        only_sees(&o->graph->steps[order->step], before, o);
      if (writes[k].takes) o->homes[before] = o->homes[writes[k].slot];
    }
    order->writes = writes;
  }
  return TT_SUCCESS;
}

tt_status tt_graph_order(const tt_graph *graph, tt_arena *arena, tt_orders *out) {
  ordering o = {.graph = graph, .arena = arena, .out = out};
  *out = (tt_orders){.count = 0};
  TT_TRY(allocate(&o));
  out->all = o.orders;
  TT_TRY(add_slots(&o));
  TT_TRY(add_orders(&o));
  return write_in_place(&o);
}
