#include "run/section.h"

#include "run/explain.h"

#include <limits.h>
#include <string.h>

void tt_section_init(tt_section *section, tt_trace *trace) {
  *section = (tt_section){.trace = trace, .at = &trace->root};
}

void tt_section_empty(tt_section *section) {
  for (int i = 0; i < section->slot_count; i++) tt_value_release(section->slots[i]);
  section->slot_count = section->word_count = 0;
  section->at = &section->trace->root;
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

tt_status tt_section_program(tt_section *section, tt_cut why, bool later, tt_program **out) {
  tt_section *s = section;
  tt_text text = TT_TEXT_INIT;
  bool fresh = false;
  tt_explain_chunk(s->at, s->live, s->sites, why, &text);
  tt_status status = tt_trace_program(s->trace, s->at, s->live, s->is_input, later, out, &fresh);
  if (!status) tt_explain_keep(fresh ? "new program" : "known program", &text);
  else if (tt_programs_forbidden() && text.data) status = tt_status_prefix(status, "%s", text.data);
  tt_text_deinit(&text);
  return status;
}

/* What a section of one operator computes is that operator. */
static tt_origin make_origin(const tt_section *section, tt_program *program) {
  const tt_step *end = section->at;
  return (tt_origin){.program = program,
                     .name = end->call->name,
                     .site = section->sites[end->depth - 1],
                     .end = end->depth > 1 ? end : NULL,
                     .first_site = section->sites[0]};
}

static tt_status make_launch(const tt_section *section, tt_program *program, tt_status refused,
                             tt_launch **out) {
  int inputs = 0, outputs = 0;
  for (int i = 0; i < section->slot_count; i++) {
    inputs += section->is_input[i];
    outputs += section->live[i];
  }
  tt_launch *launch = tt_launch_create(inputs, outputs, section->word_count, section->at);
  if (!launch) return tt_join(refused, tt_out_of_memory());
  launch->origin = make_origin(section, program);
  launch->refused = refused;
  memcpy(launch->live, section->live, (size_t)section->slot_count);
  memcpy(launch->sites, section->sites, sizeof *section->sites * (size_t)section->at->depth);
  inputs = outputs = 0;
  for (int i = 0; i < section->slot_count; i++) {
    tt_value *value = section->slots[i];
    if (section->is_input[i]) launch->inputs[inputs++] = tt_value_retain(value);
    if (section->live[i]) launch->outputs[outputs++] = tt_value_retain(value);
  }
  if (section->word_count)
    memcpy(launch->words, section->words, sizeof *section->words * (size_t)section->word_count);
  *out = launch;
  return TT_SUCCESS;
}

bool tt_section_any_live(const tt_section *section) {
  return memchr(section->live, true, (size_t)section->slot_count) != NULL;
}

tt_status tt_section_launch(tt_section *section, tt_program *program, tt_cut why, tt_launch **out) {
  tt_section *s = section;
  tt_status refused = TT_SUCCESS;
  *out = NULL;
  if (!tt_section_any_live(s)) return TT_SUCCESS;
  if (!program) program = tt_trace_find(s->at, s->live, false);
  if (!program) refused = tt_section_program(s, why, false, &program);
  if (refused && (s->at->depth == 1 || tt_programs_forbidden())) return refused;
  if (s->at->met < INT_MAX) s->at->met++;
  return make_launch(s, program, refused, out);
}
