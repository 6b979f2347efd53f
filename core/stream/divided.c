#include "stream/divided.h"

#include "graph/stretch.h"

/* -- How often, and of how much, a repetition must be -- */

static const tt_repeat_limits wanted = {.count = 2, .different = 2};
/* A launch must not show beside what it computes, nor be spared a compiler that had little to do.
 * One takes 20 us on a CPU, where 8 MiB take a millisecond at least; elsewhere memory is faster. */
static const tt_repeat_limits worthwhile = {.count = 4, .different = 8, .weight = 8 << 20};
static const tt_repeat_limits worthwhile_on_accelerators = {
    .count = 4, .different = 8, .weight = 256 << 20};

static const tt_repeat_limits *limits_of(tt_repeats how, const tt_target *target) {
  if (how == TT_REPEATS_WHOLE) return NULL;
  if (how == TT_REPEATS_DIVIDED) return &wanted;
  return target->xla_cpu ? &worthwhile : &worthwhile_on_accelerators;
}

/* -- Making it -- */

static int value_at(tt_divided *d, int slot, int *value_of) {
  if (value_of[slot] < 0) value_of[slot] = d->value_count++;
  return value_of[slot];
}

static tt_status make_part(tt_divided *d, tt_arena *arena, const tt_stretch *stretch, int *value_of,
                           tt_divided_part *part) {
  const tt_graph *graph = stretch->graph;
  int *inputs = tt_arena_alloc(arena, sizeof *inputs * ((size_t)graph->input_count + 1));
  int *outputs = tt_arena_alloc(arena, sizeof *outputs * ((size_t)graph->output_count + 1));
  part->words = tt_arena_copy(arena, stretch->words, sizeof(int) * (size_t)graph->word_count + 1);
  if (!inputs || !outputs || !part->words) return tt_out_of_memory();
  for (int i = 0; i < graph->input_count; i++)
    inputs[i] = value_at(d, stretch->slots[graph->inputs[i]], value_of);
  for (int i = 0; i < graph->output_count; i++)
    outputs[i] = value_at(d, stretch->slots[graph->outputs[i].slot], value_of);
  part->inputs = inputs;
  part->outputs = outputs;
  part->input_count = graph->input_count;
  part->output_count = graph->output_count;
  part->word_count = graph->word_count;
  return TT_SUCCESS;
}

/* That of an equal stretch before, whose text is not made twice. */
static tt_status find_program(tt_divided *d, const tt_stretch *stretches,
                              tt_program_table *programs, tt_want want) {
  const tt_graph *graph = stretches[d->part_count].graph;
  int at = d->part_count, same = 0;
  tt_program **program = &d->parts[at].program;
  bool fresh = false;
  while (same < at && !tt_graph_equal(stretches[same].graph, graph)) same++;
  if (same < at) tt_program_pin(*program = d->parts[same].program);
  else TT_TRY(tt_program_pin_graph(programs, graph, want, program, &fresh));
  d->known &= !fresh;
  return TT_SUCCESS;
}

/* Of what is made, and its users know by number. */
static tt_status keep_types(tt_divided *d, tt_arena *arena, const tt_graph *graph,
                            const int *value_of) {
  d->types = tt_arena_alloc(arena, sizeof *d->types * ((size_t)d->value_count + 1));
  if (!d->types) return tt_out_of_memory();
  for (int i = 0; i < graph->step_count; i++) {
    const tt_step *step = &graph->steps[i];
    for (int k = 0; k < step->call->output_count; k++) {
      int value = value_of[step->first_output + k];
      if (value >= 0) d->types[value] = *tt_step_result_type(step, k);
    }
  }
  return TT_SUCCESS;
}

tt_status tt_divided_init(tt_divided *divided, tt_arena *arena, tt_program_table *programs,
                          const tt_graph *graph, const tt_policy *policy, tt_arena *scratch,
                          int **value_of) {
  tt_divided *d = divided;
  tt_want want = policy->text_only    ? TT_WANT_TEXT
                 : policy->known_only ? TT_WANT_KNOWN
                                      : TT_WANT_NOW;
  const tt_target *target = tt_program_table_target(programs);
  tt_stretch *stretches = NULL;
  int count = 0, *values = tt_arena_alloc(scratch, sizeof *values * (size_t)graph->slot_count + 1);
  *d = (tt_divided){.known = true};
  if (!values) return tt_out_of_memory();
  TT_TRY(tt_graph_divide(scratch, graph, limits_of(policy->repeats, target), &stretches, &count));
  d->parts = tt_arena_alloc(arena, sizeof *d->parts * (size_t)count);
  if (!d->parts) return tt_out_of_memory();
  for (int slot = 0; slot < graph->slot_count; slot++) values[slot] = -1;
  for (int i = 0; i < graph->input_count; i++) (void)value_at(d, graph->inputs[i], values);
  for (; d->part_count < count; d->part_count++) {
    tt_divided_part *part = &d->parts[d->part_count];
    TT_TRY(make_part(d, arena, &stretches[d->part_count], values, part));
    TT_TRY(find_program(d, stretches, programs, want));
  }
  *value_of = values;
  return keep_types(d, arena, graph, values);
}

tt_status tt_divided_of_program(tt_divided *divided, tt_arena *arena, tt_program *program,
                                const tt_divided_part *counts) {
  int values = counts->input_count + counts->output_count;
  int *numbers = tt_arena_alloc(arena, sizeof *numbers * ((size_t)values + 1));
  int *words = tt_arena_alloc(arena, sizeof *words * ((size_t)counts->word_count + 1));
  *divided = (tt_divided){.value_count = values};
  divided->types = tt_arena_alloc(arena, sizeof *divided->types * ((size_t)values + 1));
  divided->parts = tt_arena_alloc(arena, sizeof *divided->parts);
  if (!numbers || !words || !divided->types || !divided->parts) return tt_out_of_memory();
  for (int i = 0; i < values; i++) numbers[i] = i;
  for (int i = 0; i < counts->word_count; i++) words[i] = i;
  divided->parts[0] = *counts;
  divided->parts[0].program = program;
  divided->parts[0].inputs = numbers;
  divided->parts[0].outputs = numbers + counts->input_count;
  divided->parts[0].words = words;
  divided->part_count = 1;
  tt_program_pin(program);
  return TT_SUCCESS;
}

void tt_divided_deinit(tt_divided *divided) {
  for (int i = 0; i < divided->part_count; i++) tt_program_unpin(divided->parts[i].program);
}

/* -- Launching it -- */

static tt_launch *make_launch(const tt_divided_part *part, tt_device *device, const uint32_t *words,
                              const tt_origin *origin) {
  tt_launch *launch =
      tt_launch_create(device, part->input_count, part->output_count, part->word_count, 0);
  if (!launch) return NULL;
  launch->origin = *origin;
  launch->origin.program = part->program;
  launch->pinned = true;
  tt_program_pin(part->program);
  for (int i = 0; i < part->word_count; i++) launch->words[i] = words[part->words[i]];
  return launch;
}

tt_status tt_divided_launches(const tt_divided *divided, tt_device *device, const uint32_t *words,
                              const tt_origin *origin, tt_launch **out) {
  tt_launch *first = NULL, **next = &first;
  for (int i = 0; i < divided->part_count; i++) {
    *next = make_launch(&divided->parts[i], device, words, origin);
    if (*next) {
      next = &(*next)->next;
      continue;
    }
    tt_launch_destroy_list(first);
    return tt_out_of_memory();
  }
  *out = first;
  return TT_SUCCESS;
}

void tt_divided_bind(const tt_divided *divided, tt_value *const *values, tt_launch *first) {
  tt_launch *launch = first;
  for (int i = 0; i < divided->part_count; i++, launch = launch->next) {
    const tt_divided_part *part = &divided->parts[i];
    for (int k = 0; k < part->input_count; k++)
      launch->inputs[k] = tt_value_retain(values[part->inputs[k]]);
    for (int k = 0; k < part->output_count; k++)
      launch->outputs[k] = tt_value_retain(values[part->outputs[k]]);
  }
}
