#include "stream/section.h"

#include "graph/explain.h"

#include <assert.h>
#include <string.h>

void tt_section_init(tt_section *section, tt_device *device) {
  *section = (tt_section){.device = device, .at = &device->trace.root};
}

void tt_section_empty(tt_section *section) {
  for (int i = 0; i < section->slot_count; i++) tt_value_release(section->slots[i]);
  section->slot_count = section->word_count = 0;
  section->at = &section->device->trace.root;
}

void tt_section_deinit(tt_section *section) {
  tt_section_empty(section);
  tt_free(section->slots);
  tt_free(section->is_input);
  tt_free(section->live);
  tt_free(section->sites);
  tt_free(section->words);
}

tt_status tt_section_reserve(tt_section *section, int slots, int steps, int words) {
  tt_section *s = section;
  size_t count = (size_t)slots;
  TT_TRY(tt_grow((void **)&s->slots, &s->slot_capacity, count, sizeof *s->slots));
  TT_TRY(tt_grow((void **)&s->is_input, &s->input_capacity, count, 1));
  TT_TRY(tt_grow((void **)&s->live, &s->live_capacity, count, 1));
  TT_TRY(tt_grow((void **)&s->sites, &s->site_capacity, (size_t)steps, sizeof *s->sites));
  return tt_grow((void **)&s->words, &s->word_capacity, (size_t)words, sizeof *s->words);
}

/* -- Graphs and programs -- */

static tt_status make_program(const tt_section *s, tt_want want, tt_live_set *live_set,
                              bool *fresh) {
  return tt_program_of_graph(s->device->programs, live_set->graph, want, &live_set->program, fresh);
}

static tt_status make_variant(tt_section *s, tt_want want, tt_live_set **made, bool *fresh) {
  TT_TRY(tt_trace_live_set(&s->device->trace, s->at, s->live, made));
  TT_TRY(make_program(s, want, *made, fresh));
  tt_trace_add(s->at, *made);
  return TT_SUCCESS;
}

tt_status tt_section_program(tt_section *section, tt_cut why, tt_want want, tt_live_set **out) {
  tt_section *s = section;
  tt_text text = TT_TEXT_INIT;
  bool fresh = false;
  if (*out) return make_program(s, want, *out, &fresh);
  tt_explain_chunk(s->at, s->live, s->sites, why, &text);
  tt_status status = make_variant(s, want, out, &fresh);
  bool comes = !status && (want != TT_WANT_FOUND || tt_program_is_coming((*out)->program));
  if (!status)
    tt_journal_keep(!comes ? "new chunk" : fresh ? "new program" : "known program", &text);
  else if (want == TT_WANT_KNOWN && text.data) status = tt_status_prefix(status, "%s", text.data);
  tt_text_deinit(&text);
  return status;
}

/* -- Launches -- */

/* What a section of one operator computes is that operator. */
static tt_origin make_origin(const tt_section *section, tt_live_set *live_set) {
  const tt_trace_node *end = section->at;
  return (tt_origin){.program = section->ordered ? NULL : live_set->program,
                     .name = end->step.call->name,
                     .site = section->sites[end->depth - 1],
                     .graph = end->depth > 1 || section->ordered ? live_set->graph : NULL,
                     .first_site = section->sites[0]};
}

static tt_status make_launch(const tt_section *section, tt_live_set *live_set, tt_want want,
                             tt_status refused, tt_launch **out) {
  const tt_graph *graph = live_set->graph;
  assert(graph->word_count == section->word_count && graph->slot_count == section->slot_count);
  tt_launch *launch = tt_launch_create(section->device, graph->input_count, graph->output_count,
                                       section->word_count, section->at->depth);
  if (!launch) return tt_join(refused, tt_out_of_memory());
  launch->origin = make_origin(section, live_set);
  launch->want = want;
  launch->orders = section->ordered ? live_set->orders : NULL;
  launch->refused = refused;
  memcpy(launch->sites, section->sites, sizeof *section->sites * (size_t)section->at->depth);
  for (int i = 0; i < graph->input_count; i++)
    launch->inputs[i] = tt_value_retain(section->slots[graph->inputs[i]]);
  for (int i = 0; i < graph->output_count; i++)
    launch->outputs[i] = tt_value_retain(section->slots[graph->outputs[i].slot]);
  if (section->word_count)
    memcpy(launch->words, section->words, sizeof *section->words * (size_t)section->word_count);
  *out = launch;
  return TT_SUCCESS;
}

bool tt_section_any_live(const tt_section *section) {
  return memchr(section->live, true, (size_t)section->slot_count) != NULL;
}

/* What was never computed is new also where nothing has to be compiled for it. */
static tt_status order(tt_section *s, tt_cut why, const tt_policy *policy, tt_live_set **found) {
  tt_trace *trace = &s->device->trace;
  if (*found && (*found)->orders) return TT_SUCCESS;
  s->ordered = !policy->known_only;
  if (!s->ordered) return TT_SUCCESS;
  if (!*found) {
    tt_text text = TT_TEXT_INIT;
    tt_explain_chunk(s->at, s->live, s->sites, why, &text);
    tt_journal_keep("new chunk", &text);
    TT_TRY(tt_trace_live_set(trace, s->at, s->live, found));
    tt_trace_add(s->at, *found);
  }
  return tt_trace_order(trace, *found);
}

tt_status tt_section_launch(tt_section *section, tt_live_set *live_set, tt_cut why,
                            const tt_policy *policy, tt_launch **out) {
  tt_section *s = section;
  tt_status refused = TT_SUCCESS;
  tt_want want = policy->known_only ? TT_WANT_KNOWN : TT_WANT_NOW;
  if (s->ordered) TT_TRY(order(s, why, policy, &live_set));
  if (s->ordered) return make_launch(s, live_set, want, TT_SUCCESS, out);
  if (!live_set || !live_set->program) refused = tt_section_program(s, why, want, &live_set);
  if (refused && (!live_set || s->at->depth == 1 || policy->known_only)) return refused;
  return make_launch(s, live_set, want, refused, out);
}
