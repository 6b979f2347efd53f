#include "graph/build.h"

#include "call/lower.h"

#include <string.h>

/* What becomes of a result: nobody else sees it, it is returned, or it is written over an input. */
typedef enum fate { INNER, RETURNED, WRITTEN_OVER } fate;

typedef struct building {
  tt_hlo *h;
  const tt_graph *graph;
  const tt_target *target;
  fate *fates;     /* [slot_count] */
  tt_node **slots; /* [slot_count] */
  tt_node **inputs, **outputs, **results;
  tt_node *words;
  tt_checks checks;
} building;

static tt_status prepare(building *b) {
  tt_arena *arena = tt_hlo_arena(b->h);
  const tt_graph *graph = b->graph;
  size_t slots = (size_t)graph->slot_count + 1, most = 1;
  size_t results = (size_t)graph->output_count + TT_MAX_CHECKS;
  for (int i = 0; i < graph->step_count; i++) {
    const tt_call *call = graph->steps[i].call;
    size_t needed = (size_t)(call->input_count + call->spec.result_count) + 1;
    if (needed > most) most = needed;
  }
  b->fates = tt_arena_alloc(arena, sizeof(fate) * slots);
  b->slots = tt_arena_alloc(arena, sizeof(tt_node *) * slots);
  b->results = tt_arena_alloc(arena, sizeof(tt_node *) * results);
  b->inputs = tt_arena_alloc(arena, sizeof(tt_node *) * most);
  b->outputs = tt_arena_alloc(arena, sizeof(tt_node *) * most);
  if (!b->fates || !b->slots || !b->results || !b->inputs || !b->outputs) return tt_out_of_memory();
  for (int i = 0; i < graph->output_count; i++) {
    const tt_output *output = &graph->outputs[i];
    fate *its = &b->fates[output->slot];
    if (*its != WRITTEN_OVER) *its = output->over < 0 ? RETURNED : WRITTEN_OVER;
  }
  return TT_SUCCESS;
}

static void add_params(building *b) {
  const tt_graph *graph = b->graph;
  for (int i = 0; i < graph->input_count; i++)
    b->slots[graph->inputs[i]] = tt_hlo_param(b->h, graph->input_types[i]);
  b->words = tt_call_scalars_param(b->h, graph->word_count);
}

/* What a step made, as other steps and the caller are to find it. XLA's CPU compiler computes a
 * result that is also used once for each use, and lays a transposed one out anew for the caller. A
 * barrier keeps it to one; that it has one dim leaves one layout. But what is written over an input
 * keeps that one's dims, or else it would be computed elsewhere and copied there. Other compilers
 * make several results in one kernel, which a barrier would keep them from. */
static tt_node *shared(const building *b, tt_node *x, fate its) {
  if (b->graph->step_count == 1) return x;
  x = tt_hlo_seal(b->h, x);
  if (its == INNER || !b->target->xla_cpu) return x;
  if (its == WRITTEN_OVER) return tt_hlo_optimization_barrier(b->h, x);
  int64_t count = tt_type_numel(&x->type);
  tt_node *flat = tt_hlo_optimization_barrier(b->h, tt_hlo_reshape(b->h, x, 1, &count));
  return tt_hlo_reshape(b->h, flat, x->type.rank, x->type.dims);
}

static tt_status lower_step(building *b, const tt_step *step) {
  tt_call *call = step->call;
  for (int k = 0; k < call->input_count; k++) b->inputs[k] = b->slots[step->inputs[k]];
  tt_call_io io = {.inputs = b->inputs,
                   .words = b->words,
                   .word_at = step->word_at,
                   .outputs = b->outputs,
                   .checks = &b->checks};
  TT_TRY(tt_call_lower(call, b->target, b->h, &io));
  if (tt_hlo_failed(b->h))
    return TT_SUCCESS; /* tt_hlo_finish reports it; what follows lacks operands */
  for (int k = 0; k < call->output_count; k++) {
    int slot = step->first_output + k;
    b->slots[slot] = shared(b, b->outputs[k], b->fates[slot]);
  }
  return TT_SUCCESS;
}

static tt_status lower_steps(building *b) {
  for (int i = 0; i < b->graph->step_count && !tt_hlo_failed(b->h); i++)
    TT_TRY(lower_step(b, &b->graph->steps[i]));
  return TT_SUCCESS;
}

/* INT64_MAX where 64 bits do not count them. */
static int64_t result_bytes(const building *b) {
  int64_t total = 0, bytes = 0;
  for (int i = 0; i < b->graph->output_count; i++)
    if (!tt_type_bytes(&b->slots[b->graph->outputs[i].slot]->type, &bytes) ||
        !tt_add_i64(total, bytes, &total))
      return INT64_MAX;
  return total;
}

static tt_status add_results(building *b, tt_module *module) {
  const tt_graph *graph = b->graph;
  module->donors = tt_malloc(sizeof *module->donors * ((size_t)graph->output_count + 1));
  if (!module->donors) return tt_out_of_memory();
  for (int i = 0; i < graph->output_count; i++) {
    const tt_output *output = &graph->outputs[i];
    b->results[i] = b->slots[output->slot];
    if (output->over < 0) continue;
    tt_hlo_donate(b->h, output->over, i);
    int at = module->donor_count++;
    for (; at > 0 && module->donors[at - 1] > output->over; at--)
      module->donors[at] = module->donors[at - 1];
    module->donors[at] = output->over;
  }
  module->result_count = graph->output_count;
  module->result_bytes = result_bytes(b);
  module->largest = tt_hlo_largest(b->h);
  for (int i = 0; i < b->checks.count; i++)
    b->results[graph->output_count + i] = b->checks.flags[i];
  return TT_SUCCESS;
}

/* Programs are told apart by their text, so what a check says is part of it. */
static tt_status copy_checks(const tt_checks *checks, tt_module *module) {
  size_t count = (size_t)checks->count;
  if (count == 0) return TT_SUCCESS;
  module->check_texts = tt_calloc(count, sizeof(char *));
  module->check_codes = tt_calloc(count, sizeof(tt_code));
  if (!module->check_texts || !module->check_codes) return tt_out_of_memory();
  for (size_t i = 0; i < count; i++) {
    module->check_texts[i] = tt_strndup(checks->texts[i], strlen(checks->texts[i]));
    if (!module->check_texts[i]) return tt_out_of_memory();
    module->check_codes[i] = checks->codes[i];
    module->check_count++;
    tt_text_printf(&module->text, "// %d %s\n", (int)checks->codes[i], checks->texts[i]);
  }
  return tt_text_status(&module->text);
}

static tt_status name_module(const tt_graph *graph, tt_module *module) {
  tt_text name = TT_TEXT_INIT;
  const tt_call *first = graph->steps[0].call, *last = graph->steps[graph->step_count - 1].call;
  if (graph->step_count > 1)
    tt_text_printf(&name, "a chunk of %d operators, %s to ", graph->step_count, first->name);
  tt_text_printf(&name, "%s", last->name);
  module->name = name.data;
  return tt_text_status(&name);
}

static tt_status note_reads(const building *b, tt_module *module) {
  int count = b->graph->input_count;
  module->reads = tt_malloc((size_t)count + 1);
  if (!module->reads) return tt_out_of_memory();
  for (int i = 0; i < count; i++)
    module->reads[i] = tt_hlo_is_needed(b->slots[b->graph->inputs[i]]);
  return TT_SUCCESS;
}

static void name_devices(const tt_joint *joint, tt_text *text) {
  if (!joint->device_count) return;
  tt_text_add(text, TT_DEVICES_LINE, sizeof TT_DEVICES_LINE - 1);
  for (int i = 0; i < joint->device_count; i++)
    tt_text_printf(text, "%s%lld", i ? " " : "", (long long)joint->devices[i]);
  tt_text_printf(text, "\n%s%lld\n", TT_PARTY_LINE, (long long)joint->party);
}

/* The algorithm that cuDNN names first takes up to sixty times as long as its best one, which XLA
 * finds by timing them, in a tenth of a second. It has no device to time on for a topology. */
static void time_convolutions(const building *b, tt_module *module) {
  if (b->target->xla_gpu && b->target->client && tt_hlo_convolves(b->h))
    tt_text_printf(&module->text, "%sxla_gpu_autotune_level int 4\n", TT_OPTION_LINE);
}

static tt_status build(building *b, tt_module *module) {
  const tt_graph *graph = b->graph;
  TT_TRY(prepare(b));
  add_params(b);
  TT_TRY(lower_steps(b));
  if (!tt_hlo_failed(b->h)) TT_TRY(add_results(b, module));
  TT_TRY(name_module(graph, module));
  time_convolutions(b, module);
  if (graph->options) tt_text_add(&module->text, graph->options, strlen(graph->options));
  TT_TRY(tt_joint_of(graph, b->h, &module->joint));
  name_devices(&module->joint, &module->text);
  TT_TRY(copy_checks(&b->checks, module));
  TT_TRY(tt_hlo_finish(b->h, b->results, graph->output_count + b->checks.count, &module->text));
  return note_reads(b, module);
}

tt_status tt_graph_build(const tt_graph *graph, const tt_target *target, tt_module *out) {
  building b = {.graph = graph, .target = target};
  *out = (tt_module){.name = NULL};
  TT_TRY(tt_hlo_create(&b.h));
  if (target->xla_cpu) tt_hlo_choose_extremes(b.h);
  tt_status status = build(&b, out);
  tt_hlo_destroy(b.h);
  return status;
}

void tt_module_deinit(tt_module *module) {
  tt_text_deinit(&module->text);
  tt_joint_deinit(&module->joint);
  tt_free(module->donors);
  tt_free(module->reads);
  for (int i = 0; i < module->check_count; i++) tt_free(module->check_texts[i]);
  tt_free(module->check_texts);
  tt_free(module->check_codes);
  tt_free(module->name);
  *module = (tt_module){.name = NULL};
}
