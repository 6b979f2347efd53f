#include "run/trace.h"

#include "run/call_internal.h"
#include "run/forget.h"
#include "run/run.h"

#include <string.h>

/* A program with more results than needed will do if these are few, and in any case when there are
 * MAX_VARIANTS. */
enum { MAX_VARIANTS = 4, FEW_BYTES = 1 << 16, SLOTS_A_STEP = 64 };

void tt_trace_init(tt_trace *trace) { *trace = (tt_trace){0}; }

void tt_trace_deinit(tt_trace *trace) {
  tt_arena_deinit(&trace->arena);
  *trace = (tt_trace){0};
}

tt_status tt_trace_step(tt_trace *trace, tt_step *at, tt_call *call, const int *inputs,
                        int first_output, tt_step **out) {
  size_t size = sizeof *inputs * (size_t)call->input_count;
  for (tt_step **link = &at->children; *link; link = &(*link)->sibling) {
    tt_step *step = *link;
    if (step->call != call || memcmp(step->inputs, inputs, size) != 0) continue;
    *link = step->sibling; /* the latest comes first: it is the likeliest */
    step->sibling = at->children;
    at->children = step;
    *out = step;
    return TT_SUCCESS;
  }
  tt_step *step = tt_arena_alloc(&trace->arena, sizeof *step);
  int *slots = tt_arena_alloc(&trace->arena, size + sizeof *slots);
  if (!step || !slots) return tt_out_of_memory();
  memcpy(slots, inputs, size);
  *step = (tt_step){.parent = at,
                    .sibling = at->children,
                    .call = call,
                    .inputs = slots,
                    .depth = at->depth + 1,
                    .first_output = first_output,
                    .slot_count = first_output + call->output_count};
  step->word_at = at->call ? at->word_at + at->call->word_count : 0;
  at->children = step;
  trace->step_count++;
  tt_forget_note(TT_GROWN_STEPS, 1);
  *out = step;
  return TT_SUCCESS;
}

/* -- Programs -- */

typedef struct building {
  tt_hlo *h;
  const uint8_t *live; /* [slot_count] */
  tt_step **path;      /* [depth] */
  tt_node **slots;     /* [slot_count] */
  int *param_of; /* [slot_count] the parameter whose storage the slot's value replaces, or -1 */
  const tt_type **param_types;
  tt_node **inputs, **outputs, **results;
  int *overwrites;
  tt_node *words;
  tt_checks checks;
} building;

static tt_status prepare(building *b, const tt_step *end) {
  tt_arena *arena = tt_hlo_arena(b->h);
  size_t slots = (size_t)end->slot_count + TT_MAX_CHECKS + 1, most = 1;
  b->path = tt_arena_alloc(arena, sizeof *b->path * ((size_t)end->depth + 1));
  if (!b->path) return tt_out_of_memory();
  for (const tt_step *step = end; step->call; step = step->parent) {
    b->path[step->depth - 1] = (tt_step *)(uintptr_t)step;
    size_t needed = (size_t)(step->call->input_count + step->call->spec.result_count) + 1;
    if (needed > most) most = needed;
  }
  b->slots = tt_arena_alloc(arena, sizeof(tt_node *) * slots);
  b->results = tt_arena_alloc(arena, sizeof(tt_node *) * slots);
  b->param_of = tt_arena_alloc(arena, sizeof(int) * slots);
  b->param_types = tt_arena_alloc(arena, sizeof(tt_type *) * slots);
  b->inputs = tt_arena_alloc(arena, sizeof(tt_node *) * most);
  b->outputs = tt_arena_alloc(arena, sizeof(tt_node *) * most);
  b->overwrites = tt_arena_alloc(arena, sizeof(int) * most);
  bool made = b->slots && b->results && b->param_of && b->param_types && b->inputs && b->outputs &&
              b->overwrites;
  return made ? TT_SUCCESS : tt_out_of_memory();
}

/* Parameters in slot order; an input's type is what its first reader says. */
static void add_params(building *b, const tt_step *end, const uint8_t *is_input) {
  for (int i = 0; i < end->depth; i++) {
    const tt_step *step = b->path[i];
    for (int k = 0; k < step->call->input_count; k++) {
      int slot = step->inputs[k];
      if (is_input[slot] && !b->param_types[slot])
        b->param_types[slot] = step->call->spec.tensors[step->call->inputs[k]].storage;
    }
  }
  int params = 0;
  for (int slot = 0; slot < end->slot_count; slot++) {
    b->param_of[slot] = -1;
    if (!is_input[slot]) continue;
    b->slots[slot] = tt_hlo_param(b->h, b->param_types[slot]);
    b->param_of[slot] = params++;
  }
  int64_t words = end->word_at + end->call->word_count;
  tt_type type = tt_type_make(TT_U32, 1, &words);
  if (words) b->words = tt_hlo_param(b->h, &type);
}

/* XLA's CPU compiler computes a result that is also used once for each use, and lays a transposed
 * one out anew for the caller. A barrier keeps it to one; that it has one dim leaves one layout.
 * Other compilers make several results in one kernel, which a barrier would keep them from. */
static tt_node *write_out(tt_hlo *h, tt_node *x) {
  int64_t count = tt_type_numel(&x->type);
  if (!tt_runtime_is_cpu()) return x;
  tt_node *flat = tt_hlo_optimization_barrier(h, tt_hlo_reshape(h, x, 1, &count));
  return tt_hlo_reshape(h, flat, x->type.rank, x->type.dims);
}

static tt_status lower_step(building *b, const tt_step *step) {
  tt_call *call = step->call;
  for (int k = 0; k < call->input_count; k++) b->inputs[k] = b->slots[step->inputs[k]];
  tt_call_io io = {.inputs = b->inputs,
                   .words = b->words,
                   .word_at = step->word_at,
                   .outputs = b->outputs,
                   .overwrites = b->overwrites,
                   .checks = &b->checks};
  TT_TRY(tt_call_lower(call, false, b->h, &io));
  if (tt_hlo_failed(b->h))
    return TT_SUCCESS; /* tt_hlo_finish reports it; what follows lacks operands */
  for (int k = 0; k < call->output_count; k++) {
    int slot = step->first_output + k, over = b->overwrites[k];
    b->slots[slot] = b->live[slot] ? write_out(b->h, b->outputs[k]) : b->outputs[k];
    b->param_of[slot] = over >= 0 ? b->param_of[step->inputs[over]] : -1;
  }
  return TT_SUCCESS;
}

/* A parameter is donated to the last result that stands in its storage. */
static tt_status add_results(building *b, const tt_step *end, const uint8_t *live,
                             tt_program *program, int *count) {
  program->donors = tt_malloc(sizeof *program->donors * ((size_t)end->slot_count + 1));
  if (!program->donors) return tt_out_of_memory();
  for (int slot = 0; slot < end->slot_count; slot++) {
    if (!live[slot]) continue;
    int param = b->param_of[slot], result = (*count)++;
    b->results[result] = b->slots[slot];
    bool donated = param < 0;
    for (int i = 0; i < program->donor_count; i++) donated |= program->donors[i] == param;
    if (donated) continue;
    tt_hlo_donate(b->h, param, result);
    program->donors[program->donor_count++] = param;
  }
  return TT_SUCCESS;
}

static tt_status name_program(const building *b, const tt_step *end, tt_program *program) {
  tt_text name = TT_TEXT_INIT;
  if (end->depth > 1)
    tt_text_printf(&name, "a chunk of %d operators, %s to ", end->depth, b->path[0]->call->name);
  tt_text_printf(&name, "%s", end->call->name);
  program->name = name.data;
  return tt_text_status(&name);
}

static tt_status build(const tt_step *end, const uint8_t *live, const uint8_t *is_input,
                       tt_program *program) {
  building b = {.live = live};
  int count = 0;
  TT_TRY(tt_hlo_create(&b.h));
  tt_status status = prepare(&b, end);
  if (!status) add_params(&b, end, is_input);
  for (int i = 0; i < end->depth && !status && !tt_hlo_failed(b.h); i++)
    status = lower_step(&b, b.path[i]);
  if (!status && !tt_hlo_failed(b.h)) status = add_results(&b, end, live, program, &count);
  if (!status) status = name_program(&b, end, program);
  program->result_count = count;
  if (!status) status = tt_hlo_finish(b.h, b.results, count, &program->text);
  tt_hlo_destroy(b.h);
  return status;
}

static bool covers(const uint8_t *live, const uint8_t *needed, int count) {
  for (int i = 0; i < count; i++)
    if (needed[i] && !live[i]) return false;
  return true;
}

/* Are the results that nobody needs small, compared with the others? */
static bool wastes_little(const tt_step *end, const uint8_t *live, const uint8_t *needed) {
  int64_t used = 0, wasted = 0;
  for (const tt_step *step = end; step->call; step = step->parent) {
    int slot = step->first_output;
    for (int k = 0; k < step->call->result_count; k++) {
      const tt_call_result *result = &step->call->results[k];
      int64_t bytes = 0;
      if (!result->defined) continue;
      if (live[slot] && tt_type_bytes(result->storage, &bytes))
        *(needed[slot] ? &used : &wasted) += bytes;
      slot++;
    }
  }
  return wasted <= used / 2 + FEW_BYTES;
}

tt_program *tt_trace_find(const tt_step *end, uint8_t *live, bool any) {
  size_t size = (size_t)end->slot_count;
  int count = 0;
  tt_variant *wider = NULL, *close = NULL;
  for (tt_variant *v = end->variants; v; v = v->next, count++) {
    if (memcmp(v->live, live, size) == 0) return v->program;
    if (!covers(v->live, live, end->slot_count)) continue;
    wider = v;
    if (!close && wastes_little(end, v->live, live)) close = v;
  }
  tt_variant *found = close ? close : any || count >= MAX_VARIANTS ? wider : NULL;
  if (found) memcpy(live, found->live, size);
  return found ? found->program : NULL;
}

/* When the same path keeps ending with other results alive, the next program returns them all. */
static void widen(const tt_step *end, uint8_t *live) {
  int count = 0;
  for (const tt_variant *v = end->variants; v; v = v->next) count++;
  if (count < MAX_VARIANTS) return;
  for (const tt_variant *v = end->variants; v; v = v->next)
    for (int i = 0; i < end->slot_count; i++) live[i] |= v->live[i];
}

tt_status tt_trace_program(tt_trace *trace, tt_step *end, uint8_t *live, const uint8_t *is_input,
                           bool later, tt_program **out, bool *fresh) {
  widen(end, live);
  tt_program program = {0};
  tt_status status = build(end, live, is_input, &program);
  tt_variant *variant = status ? NULL : tt_arena_alloc(&trace->arena, sizeof *variant);
  uint8_t *kept = variant ? tt_arena_copy(&trace->arena, live, (size_t)end->slot_count) : NULL;
  if (!status && !kept) status = tt_out_of_memory();
  if (!status)
    status = (later ? tt_program_intern_later : tt_program_intern)(&program, &variant->program);
  *fresh = !program.text.data; /* it went into the table */
  tt_program_deinit(&program);
  if (status) return status;
  tt_forget_note(TT_GROWN_STEPS, 1 + end->slot_count / SLOTS_A_STEP);
  variant->live = kept;
  variant->next = end->variants;
  end->variants = variant;
  *out = variant->program;
  return TT_SUCCESS;
}
