#include "stream/parts.h"

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
void tt_parts_divide(tt_parts *p, const int *ends, int count, bool as_recorded) {
  int number = count - 1;
  for (tt_trace_node *node = p->whole->at; node->parent; node = node->parent) {
    const tt_step *step = &node->step;
    int at = node->depth - 1;
    while (number > 0 && at < ends[number - 1]) number--;
    p->number[at] = number;
    p->needed[at] = as_recorded;
    for (int k = 0; k < step->call->output_count; k++)
      p->needed[at] |=
          p->whole->live[step->first_output + k] || p->reader[step->first_output + k] >= 0;
    for (int i = 0; p->needed[at] && i < step->call->input_count; i++)
      if (p->reader[step->inputs[i]] < number) p->reader[step->inputs[i]] = number;
  }
}

tt_status tt_parts_init(tt_parts *parts, const tt_section *whole) {
  *parts = (tt_parts){.whole = whole};
  TT_TRY(allocate(parts));
  for (int i = 0; i < whole->slot_count; i++) parts->reader[i] = parts->slot_of[i] = -1;
  for (tt_trace_node *node = whole->at; node->parent; node = node->parent)
    parts->path[node->depth - 1] = node;
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

/* NULL: the operator itself is meant. */
static const tt_element *element_of(const tt_step *step, int number) {
  return number == TT_PARTS_WHOLE ? NULL : &step->call->elements[number];
}

static int input_of(const tt_step *step, const tt_element *element, int i) {
  return step->inputs[element ? element->inputs[i] : i];
}

/* The operator's step in the part, where slots are numbered as in a chunk of its own. */
static tt_status follow(tt_parts *p, int at, int number, tt_section *part) {
  const tt_step *step = &p->path[at]->step;
  const tt_element *element = element_of(step, number);
  tt_call *call = element ? element->call : step->call;
  int words = call->word_count, first_output = step->first_output + (element ? number : 0);
  TT_TRY(tt_section_reserve(part, part->slot_count + call->input_count + call->output_count,
                            part->at->depth + 1, part->word_count + words));
  for (int i = 0; i < call->input_count; i++)
    p->slots[i] = slot_in(p, input_of(step, element, i), part);
  TT_TRY(
      tt_trace_step(&part->device->trace, part->at, call, p->slots, part->slot_count, &part->at));
  part->sites[part->at->depth - 1] = p->whole->sites[at];
  for (int i = 0; i < words; i++)
    part->words[part->word_count++] =
        p->whole->words[step->word_at + (element ? element->words[i] : i)];
  for (int k = 0; k < call->output_count; k++) {
    int made = slot_in(p, first_output + k, part);
    part->is_input[made] = false;
    part->live[made] = outlives(p, first_output + k, p->number[at]);
  }
  return TT_SUCCESS;
}

/* What the part has put there is taken back, for the next one. */
static void forget_slots(tt_parts *p, int first, int last, int number) {
  for (int at = first; at <= last; at++) {
    const tt_step *step = &p->path[at]->step;
    const tt_element *element = p->needed[at] ? element_of(step, number) : NULL;
    const tt_call *call = element ? element->call : step->call;
    int first_output = step->first_output + (element ? number : 0);
    for (int i = 0; i < call->input_count; i++) p->slot_of[input_of(step, element, i)] = -1;
    for (int k = 0; k < call->output_count; k++) p->slot_of[first_output + k] = -1;
  }
}

tt_status tt_parts_cut(tt_parts *parts, int first, int last, int number, tt_section *out) {
  tt_status status = TT_SUCCESS;
  for (int at = first; at <= last && !status; at++)
    if (parts->needed[at]) status = follow(parts, at, number, out);
  forget_slots(parts, first, last, number);
  return status;
}

/* -- Elements -- */

/* A program for each kind of element must be worth it: one for all costs as many kernels. */
static int count_elements(tt_call *call) {
  enum { ALIKE = 3 };
  const tt_element *elements = NULL;
  tt_status status = tt_call_elements(call, &elements);
  tt_status_release(status); /* it will do as a whole */
  return elements && ALIKE * call->element_kinds <= call->output_count ? call->output_count : 0;
}

/* Does it read nothing of operators from `first` on but what they made of the same element? */
static bool keeps_to_itself(const tt_parts *p, int first, int at, int number) {
  const tt_step *step = &p->path[at]->step;
  const tt_element *element = element_of(step, number);
  for (int i = 0; i < element->call->input_count; i++) {
    int slot = input_of(step, element, i);
    for (int maker = first; maker < at; maker++) {
      const tt_step *made = &p->path[maker]->step;
      bool makes =
          slot >= made->first_output && slot < made->first_output + made->call->output_count;
      if (makes && slot != made->first_output + number) return false;
    }
  }
  return true;
}

int tt_parts_elements(const tt_parts *parts, int first, int last) {
  int count = count_elements(parts->path[first]->step.call);
  for (int at = first; at <= last && count; at++) {
    if (!parts->needed[at]) continue;
    if (count_elements(parts->path[at]->step.call) != count) return 0;
    for (int number = 0; number < count; number++)
      if (!keeps_to_itself(parts, first, at, number)) return 0;
  }
  return count;
}
