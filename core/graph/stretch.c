#include "graph/stretch.h"

#include <string.h>

typedef struct dividing {
  tt_arena *arena;
  const tt_graph *graph;
  const tt_repeat_limits *limits;
  int count;          /* of steps that are needed */
  int *kept;          /* [count] which they are */
  const void **calls; /* [count] theirs */
  int64_t *weights;   /* [count + 1] bytes of those before each */
  int64_t *across;    /* [count + 1] bytes that a cut before each would make a buffer of */
  int *last;          /* [slot_count] the step, of those kept, that reads it last; or `count` */
  int *slot_of;       /* [slot_count] in the stretch that is being made, or -1 */
  tt_stretch *made;   /* [TT_MOST_STRETCHES] */
  int made_count, room;
} dividing;

static const tt_step *step_at(const dividing *d, int i) { return &d->graph->steps[d->kept[i]]; }

/* -- What is known of the steps -- */

static tt_status allocate(dividing *d) {
  size_t steps = (size_t)d->graph->step_count + 1, slots = (size_t)d->graph->slot_count + 1;
  d->kept = tt_arena_alloc(d->arena, steps * sizeof *d->kept);
  d->calls = tt_arena_alloc(d->arena, steps * sizeof *d->calls);
  d->weights = tt_arena_alloc(d->arena, steps * sizeof *d->weights);
  d->across = tt_arena_alloc(d->arena, steps * sizeof *d->across);
  d->last = tt_arena_alloc(d->arena, slots * sizeof *d->last);
  d->slot_of = tt_arena_alloc(d->arena, slots * sizeof *d->slot_of);
  d->made = tt_arena_alloc(d->arena, TT_MOST_STRETCHES * sizeof *d->made);
  bool all = d->kept && d->calls && d->weights && d->across && d->last && d->slot_of && d->made;
  return all ? TT_SUCCESS : tt_out_of_memory();
}

static tt_status find_kept(dividing *d) {
  size_t steps = (size_t)d->graph->step_count;
  bool *needed = tt_arena_alloc(d->arena, steps);
  if (!needed) return tt_out_of_memory();
  tt_graph_uses(d->graph, d->last, needed);
  for (int i = 0; i < d->graph->step_count; i++)
    if (needed[i]) d->kept[d->count++] = i;
  for (int slot = 0; slot < d->graph->slot_count; slot++) d->last[slot] = d->slot_of[slot] = -1;
  for (int i = 0; i < d->count; i++) {
    const tt_step *step = step_at(d, i);
    d->calls[i] = step->call;
    for (int k = 0; k < step->call->input_count; k++) d->last[step->inputs[k]] = i;
  }
  for (int i = 0; i < d->graph->output_count; i++) d->last[d->graph->outputs[i].slot] = d->count;
  return TT_SUCCESS;
}

/* As good as all where 64 bits do not count them. */
static int64_t bytes_of(const tt_type *type) {
  static const int64_t most = INT64_C(1) << 40;
  int64_t bytes = 0;
  return tt_type_bytes(type, &bytes) && bytes < most ? bytes : most;
}

static void weigh(dividing *d) {
  for (int i = 0; i < d->count; i++) {
    const tt_step *step = step_at(d, i);
    int64_t bytes = 0;
    for (int k = 0; k < step->call->input_count; k++) bytes += bytes_of(step->call->input_types[k]);
    for (int k = 0; k < step->call->output_count; k++) {
      int64_t made = bytes_of(tt_step_result_type(step, k));
      int last = d->last[step->first_output + k];
      bytes += made;
      if (last <= i || last == d->count) continue;
      d->across[i + 1] += made;
      d->across[last + 1] -= made;
    }
    d->weights[i + 1] = d->weights[i] + bytes;
  }
  for (int i = 1; i <= d->count; i++) d->across[i] += d->across[i - 1];
}

/* -- Making one -- */

typedef struct stretch {
  tt_step *steps;
  int *slots, *words;
  uint8_t *live;
  int step_count, slot_count, word_count;
} stretch;

static tt_status reserve(const dividing *d, int begin, int end, stretch *s) {
  size_t slots = 1, words = 1;
  for (int i = begin; i < end; i++) {
    const tt_call *call = step_at(d, i)->call;
    slots += (size_t)call->input_count + (size_t)call->output_count;
    words += (size_t)call->word_count;
  }
  s->steps = tt_arena_alloc(d->arena, (size_t)(end - begin) * sizeof *s->steps);
  s->slots = tt_arena_alloc(d->arena, slots * sizeof *s->slots);
  s->live = tt_arena_alloc(d->arena, slots);
  s->words = tt_arena_alloc(d->arena, words * sizeof *s->words);
  return s->steps && s->slots && s->live && s->words ? TT_SUCCESS : tt_out_of_memory();
}

static int slot_in(dividing *d, int slot, stretch *s) {
  if (d->slot_of[slot] >= 0) return d->slot_of[slot];
  s->slots[s->slot_count] = slot;
  return d->slot_of[slot] = s->slot_count++;
}

static tt_status add_step(dividing *d, const tt_step *step, int end, stretch *s) {
  const tt_call *call = step->call;
  int *inputs = tt_arena_alloc(d->arena, sizeof *inputs * ((size_t)call->input_count + 1));
  if (!inputs) return tt_out_of_memory();
  for (int i = 0; i < call->input_count; i++) inputs[i] = slot_in(d, step->inputs[i], s);
  s->steps[s->step_count++] = (tt_step){.call = step->call,
                                        .inputs = inputs,
                                        .first_output = s->slot_count,
                                        .word_at = s->word_count};
  for (int k = 0; k < call->output_count; k++) {
    int slot = step->first_output + k;
    s->live[slot_in(d, slot, s)] = d->last[slot] >= end;
  }
  for (int i = 0; i < call->word_count; i++) s->words[s->word_count++] = step->word_at + i;
  return TT_SUCCESS;
}

static tt_status make_stretch(dividing *d, int begin, int end, tt_stretch *out) {
  stretch s = {.steps = NULL};
  tt_graph *graph = NULL;
  TT_TRY(reserve(d, begin, end, &s));
  tt_status status = TT_SUCCESS;
  for (int i = begin; i < end && !status; i++) status = add_step(d, step_at(d, i), end, &s);
  for (int i = 0; i < s.slot_count; i++) d->slot_of[s.slots[i]] = -1;
  if (!status)
    status = tt_graph_create(d->arena, s.steps, s.step_count, s.slot_count, s.live, &graph);
  if (!status) graph->options = d->graph->options;
  out->graph = graph;
  out->slots = s.slots;
  out->words = s.words;
  return status;
}

/* -- Dividing -- */

/* Between a period's items, where the least crosses the cuts: a layer's end, where that is. */
static int best_begin(const dividing *d, const tt_repeat *repeat, int first) {
  int best = first;
  int64_t least = INT64_MAX;
  for (int begin = first; begin <= first + repeat->slack; begin++) {
    int64_t bytes = 0;
    for (int i = 0; i <= repeat->count; i++) bytes += d->across[begin + i * repeat->period] >> 10;
    if (bytes < least) {
      least = bytes;
      best = begin;
    }
  }
  return best;
}

static int count_different(const tt_stretch *made, int count) {
  int different = 0;
  for (int i = 0; i < count; i++) {
    int k = 0;
    while (k < i && !tt_graph_equal(made[k].graph, made[i].graph)) k++;
    different += k == i;
  }
  return different;
}

/* The repetition of steps begin to end that is divided, with its stretches. *count 0: none is. */
static tt_status find_equal(dividing *d, int begin, int end, tt_repeat *found, tt_stretch **made) {
  *found = tt_repeat_find(d->calls + begin, d->weights + begin, end - begin, d->limits);
  int count = found->count;
  if (!count) return TT_SUCCESS;
  found->first = best_begin(d, found, begin + found->first);
  found->count = 0;
  if (count + 1 > d->room) return TT_SUCCESS;
  *made = tt_arena_alloc(d->arena, sizeof **made * (size_t)count);
  if (!*made) return tt_out_of_memory();
  for (int i = 0; i < count; i++) {
    int from = found->first + i * found->period;
    TT_TRY(make_stretch(d, from, from + found->period, &(*made)[i]));
  }
  if (count - count_different(*made, count) >= d->limits->count - 1) found->count = count;
  return TT_SUCCESS;
}

/* What lies before and behind a repetition may have others. */
static tt_status divide(dividing *d, int begin, int end) {
  tt_repeat found = {.count = 0};
  tt_stretch *made = NULL;
  if (begin == end) return TT_SUCCESS;
  TT_TRY(find_equal(d, begin, end, &found, &made));
  if (!found.count) return make_stretch(d, begin, end, &d->made[d->made_count++]);
  d->room -= found.count + 1; /* and what is left before it */
  TT_TRY(divide(d, begin, found.first));
  memcpy(d->made + d->made_count, made, sizeof *made * (size_t)found.count);
  d->made_count += found.count;
  return divide(d, found.first + found.count * found.period, end);
}

static tt_status divide_at_repetitions(tt_arena *arena, const tt_graph *graph,
                                       const tt_repeat_limits *limits, tt_stretch **out,
                                       int *count) {
  dividing d = {.arena = arena, .graph = graph, .limits = limits, .room = TT_MOST_STRETCHES - 1};
  TT_TRY(allocate(&d));
  TT_TRY(find_kept(&d));
  weigh(&d);
  TT_TRY(divide(&d, 0, d.count));
  *out = d.made;
  *count = d.made_count;
  return TT_SUCCESS;
}

/* `count` numbers from 0 on. */
static int *count_up(tt_arena *arena, int count) {
  int *numbers = tt_arena_alloc(arena, sizeof *numbers * ((size_t)count + 1));
  for (int i = 0; numbers && i < count; i++) numbers[i] = i;
  return numbers;
}

static tt_status keep_whole(tt_arena *arena, const tt_graph *graph, tt_stretch **out, int *count) {
  tt_stretch *whole = tt_arena_alloc(arena, sizeof *whole);
  int *slots = count_up(arena, graph->slot_count), *words = count_up(arena, graph->word_count);
  if (!whole || !slots || !words) return tt_out_of_memory();
  *whole = (tt_stretch){.graph = graph, .slots = slots, .words = words};
  *out = whole;
  *count = 1;
  return TT_SUCCESS;
}

tt_status tt_graph_divide(tt_arena *arena, const tt_graph *graph, const tt_repeat_limits *limits,
                          tt_stretch **out, int *count) {
  *count = 0;
  if (limits) TT_TRY(divide_at_repetitions(arena, graph, limits, out, count));
  return *count > 1 ? TT_SUCCESS : keep_whole(arena, graph, out, count);
}
