#include "stream/parts.h"

#include <string.h>

static tt_status allocate(tt_parts *p) {
  size_t slots = (size_t)p->whole->slot_count, depth = (size_t)p->whole->at->depth;
  size_t most = 1;
  for (tt_trace_node *node = p->whole->at; node->parent; node = node->parent)
    if ((size_t)node->step.call->input_count > most) most = (size_t)node->step.call->input_count;
  p->path = tt_malloc(sizeof(tt_trace_node *) * depth);
  p->needed = tt_calloc(depth, sizeof *p->needed);
  p->number = tt_malloc(sizeof *p->number * depth);
  p->reader = tt_malloc(sizeof *p->reader * slots);
  p->slot_of = tt_malloc(sizeof *p->slot_of * slots);
  p->slots = tt_malloc(sizeof *p->slots * most);
  bool all = p->path && p->needed && p->number && p->reader && p->slot_of && p->slots;
  return all ? TT_SUCCESS : tt_out_of_memory();
}

/* From the last operator to the first, whose readers are known by then. */
static void find_readers(tt_parts *p, const int *ends, int count, bool as_recorded) {
  int number = count - 1;
  for (tt_trace_node *node = p->whole->at; node->parent; node = node->parent) {
    const tt_step *step = &node->step;
    int at = node->depth - 1;
    while (number > 0 && at < ends[number - 1]) number--;
    p->path[at] = node;
    p->number[at] = number;
    p->needed[at] = as_recorded;
    for (int k = 0; k < step->call->output_count; k++)
      p->needed[at] |=
          p->whole->live[step->first_output + k] || p->reader[step->first_output + k] >= 0;
    for (int i = 0; p->needed[at] && i < step->call->input_count; i++)
      if (p->reader[step->inputs[i]] < number) p->reader[step->inputs[i]] = number;
  }
}

tt_status tt_parts_init(tt_parts *parts, const tt_section *whole, const int *ends, int count,
                        bool as_recorded) {
  *parts = (tt_parts){.whole = whole};
  TT_TRY(allocate(parts));
  for (int i = 0; i < whole->slot_count; i++) parts->reader[i] = parts->slot_of[i] = -1;
  find_readers(parts, ends, count, as_recorded);
  return TT_SUCCESS;
}

void tt_parts_deinit(tt_parts *parts) {
  tt_free(parts->path);
  tt_free(parts->needed);
  tt_free(parts->number);
  tt_free(parts->reader);
  tt_free(parts->slot_of);
  tt_free(parts->slots);
}

/* Does somebody besides its part need a result of the section? */
static bool outlives(const tt_parts *parts, int slot, int number) {
  return parts->whole->live[slot] || parts->reader[slot] > number;
}

static int slot_in(tt_parts *p, int slot, tt_section *part) {
  const tt_section *whole = p->whole;
  if (p->slot_of[slot] >= 0) return p->slot_of[slot];
  int at = p->slot_of[slot] = part->slot_count++;
  part->slots[at] = tt_value_retain(whole->slots[slot]);
  part->is_input[at] = true;
  part->live[at] = false;
  return at;
}

/* The operator's step in the part, where slots are numbered as in a chunk of its own. */
static tt_status follow(tt_parts *p, int at, tt_section *part) {
  const tt_step *step = &p->path[at]->step;
  const tt_call *call = step->call;
  int words = call->word_count;
  TT_TRY(tt_section_reserve(part, part->slot_count + call->input_count + call->output_count,
                            part->at->depth + 1, part->word_count + words));
  for (int i = 0; i < call->input_count; i++) p->slots[i] = slot_in(p, step->inputs[i], part);
  TT_TRY(tt_trace_step(&part->device->trace, part->at, step->call, p->slots, part->slot_count,
                       &part->at));
  part->sites[part->at->depth - 1] = p->whole->sites[at];
  if (words)
    memcpy(part->words + part->word_count, p->whole->words + step->word_at,
           sizeof *part->words * (size_t)words);
  part->word_count += words;
  for (int k = 0; k < call->output_count; k++) {
    int slot = step->first_output + k, made = slot_in(p, slot, part);
    part->is_input[made] = false;
    part->live[made] = outlives(p, slot, p->number[at]);
  }
  return TT_SUCCESS;
}

/* What the part has put there is taken back, for the next one. */
static void forget_slots(tt_parts *p, int first, int last) {
  for (int at = first; at <= last; at++) {
    const tt_step *step = &p->path[at]->step;
    for (int i = 0; i < step->call->input_count; i++) p->slot_of[step->inputs[i]] = -1;
    for (int k = 0; k < step->call->output_count; k++) p->slot_of[step->first_output + k] = -1;
  }
}

tt_status tt_parts_cut(tt_parts *parts, int first, int last, tt_section *out) {
  tt_status status = TT_SUCCESS;
  for (int at = first; at <= last && !status; at++)
    if (parts->needed[at]) status = follow(parts, at, out);
  forget_slots(parts, first, last);
  return status;
}
