#include "stream/tiers.h"

#include "stream/parts.h"
#include "stream/tier.h"

#include <limits.h>
#include <string.h>

enum { LONGEST_RUN = 32, MOST_ELEMENTS = 1024 };

/* -- Pieces -- */

/* Does the run that begins after `first` go on with this operator? Operators that recur begin the
 * next iteration of something. */
static bool goes_on(const tt_trace_node *first, const tt_trace_node *last, const tt_call *call) {
  const tt_op_row *row = call->row, *before = last->step.call->row;
  if (!tt_op_is_light(row) || !tt_op_is_light(before)) return false;
  if ((row->cls == TT_FOREACH) != (before->cls == TT_FOREACH)) return false;
  if (last->depth - first->depth >= LONGEST_RUN) return false;
  for (const tt_trace_node *node = last; node != first; node = node->parent)
    if (node->step.call == call) return false;
  return true;
}

/* Returns how many pieces the section has, and where each ends. ends: [section->at->depth] */
static int find_ends(const tt_section *section, tt_tier tier, const tt_trace_node **path,
                     int *ends) {
  int count = 0, depth = section->at->depth;
  const tt_trace_node *first = &section->device->trace.root;
  for (const tt_trace_node *node = section->at; node->parent; node = node->parent)
    path[node->depth - 1] = node;
  for (int i = 1; i < depth; i++) {
    if (tier != TT_TIER_OPERATORS && goes_on(first, path[i - 1], path[i]->step.call)) continue;
    ends[count++] = i;
    first = path[i - 1];
  }
  ends[count++] = depth;
  return count;
}

/* An operator alone, with all its results, so that it has one program wherever it stands. */
static tt_status launch_alone(const tt_parts *parts, int at, tt_want want, tt_launch **out) {
  const tt_section *whole = parts->whole;
  const tt_step *step = &parts->path[at]->step;
  tt_call *call = step->call;
  tt_program *program = NULL;
  TT_TRY(tt_program_of_call(whole->device->programs, call, want, &program));
  tt_launch *launch =
      tt_launch_create(whole->device, call->input_count, call->output_count, call->word_count, 0);
  if (!launch) return tt_out_of_memory();
  launch->origin = (tt_origin){.program = program, .name = call->name, .site = whole->sites[at]};
  for (int i = 0; i < call->input_count; i++)
    launch->inputs[i] = tt_value_retain(whole->slots[step->inputs[i]]);
  for (int k = 0; k < call->output_count; k++)
    launch->outputs[k] = tt_value_retain(whole->slots[step->first_output + k]);
  if (call->word_count)
    memcpy(launch->words, whole->words + step->word_at,
           sizeof *launch->words * (size_t)call->word_count);
  tt_count_add(TT_COUNT_TIER_OPERATORS, 1);
  *out = launch;
  return TT_SUCCESS;
}

/* Of a run, or of one element of what it does. */
static tt_status launch_cut(tt_section *run, tt_status status, tt_cut why, const tt_policy *policy,
                            tt_launch **out) {
  if (!status && tt_section_any_live(run))
    status = tt_section_launch(run, tt_trace_find(run->at, run->live, false), why, policy, out);
  tt_section_deinit(run);
  return status;
}

static tt_status launch_run(tt_parts *parts, int first, int last, tt_cut why,
                            const tt_policy *policy, tt_launch **out) {
  tt_section run;
  tt_section_init(&run, parts->whole->device);
  return launch_cut(&run, tt_parts_cut(parts, first, last, &run), why, policy, out);
}

static tt_status launch_elements(tt_parts *parts, int first, int last, int count, tt_cut why,
                                 const tt_policy *policy, tt_launch **out) {
  tt_status status = TT_SUCCESS;
  for (int number = 0; number < count && !status; number++) {
    tt_section run;
    tt_section_init(&run, parts->whole->device);
    status = tt_parts_cut_element(parts, first, last, number, &run);
    status = launch_cut(&run, status, why, policy, out);
    if (*out) out = &(*out)->next;
  }
  return status;
}

/* Operators of the piece that somebody needs: how many, and which are the first and the last. */
static int find_needed(const tt_parts *parts, int *first, int *last) {
  int count = 0, begin = *first, end = *last;
  for (int at = begin; at <= end; at++) {
    if (!parts->needed[at]) continue;
    if (count++ == 0) *first = at;
    *last = at;
  }
  return count;
}

/* *room: how many elements may still be launched one by one. */
static tt_status launch_piece(tt_parts *parts, int first, int last, int *room, tt_cut why,
                              const tt_policy *policy, tt_launch **out) {
  int needed = find_needed(parts, &first, &last);
  if (!needed) return TT_SUCCESS;
  int elements = *room ? tt_parts_elements(parts, first, last) : 0;
  bool apart = elements && elements <= *room;
  if (needed > 1 || apart) tt_count_add(TT_COUNT_TIER_PIECES, needed);
  if (apart) {
    *room -= elements;
    return launch_elements(parts, first, last, elements, why, policy, out);
  }
  if (needed > 1) return launch_run(parts, first, last, why, policy, out);
  return launch_alone(parts, first, policy->known_only ? TT_WANT_KNOWN : TT_WANT_NOW, out);
}

static tt_status launch_pieces(tt_parts *parts, tt_tier tier, const int *ends, int count,
                               tt_cut why, const tt_policy *policy, tt_launch **out) {
  int room = tier == TT_TIER_OPERATORS ? 0 : MOST_ELEMENTS;
  for (int i = 0, begin = 0; i < count; begin = ends[i++]) {
    TT_TRY(launch_piece(parts, begin, ends[i] - 1, &room, why, policy, out));
    while (*out) out = &(*out)->next;
  }
  return TT_SUCCESS;
}

static tt_status launch_apart(const tt_section *section, tt_tier tier, const int *ends, int count,
                              tt_cut why, const tt_policy *policy, tt_launch **out) {
  tt_parts parts;
  tt_status status = tt_parts_init(&parts, section, ends, count, false);
  if (!status) status = launch_pieces(&parts, tier, ends, count, why, policy, out);
  tt_parts_deinit(&parts);
  if (!status) return TT_SUCCESS;
  tt_launch_destroy_list(*out);
  *out = NULL;
  return status;
}

/* -- The section's own program -- */

/* The live set whose program is there, or soon will be; NULL: there is none. One that comes again
 * is compiled from then on, if no cache folder had it. */
static tt_live_set *find_own(tt_section *section, bool any, tt_cut why, const tt_policy *policy) {
  tt_live_set *found = tt_trace_find(section->at, section->live, any);
  tt_status status = TT_SUCCESS;
  if (found)
    (void)tt_program_poll(found->program, policy->known_only ? TT_WANT_KNOWN : TT_WANT_BACKGROUND);
  else
    status = tt_section_program(section, why, policy->known_only ? TT_WANT_KNOWN : TT_WANT_FOUND,
                                &found);
  bool comes = !status && tt_program_is_coming(found->program);
  tt_status_release(status); /* what is said of the pieces will do */
  return comes ? found : NULL;
}

static tt_status launch_by_tier(tt_section *section, bool any, tt_cut why, const tt_policy *policy,
                                int *ends, tt_launch **out) {
  tt_tier tier = tt_tier_chosen(policy);
  int depth = section->at->depth, count = 1;
  const tt_trace_node **path = (const tt_trace_node **)(ends + depth + depth % 2);
  if (tier != TT_TIER_CHUNKS) count = find_ends(section, tier, path, ends);
  tt_live_set *own = NULL;
  if (count == 1) own = tt_trace_find(section->at, section->live, any);
  else if (tier == TT_TIER_AUTO) own = find_own(section, any, why, policy);
  if (count > 1 && !own) return launch_apart(section, tier, ends, count, why, policy, out);
  tt_count_add(TT_COUNT_TIER_CHUNKS, depth);
  return tt_section_launch(section, own, why, policy, out);
}

tt_status tt_tiers_launch(tt_section *section, bool any, tt_cut why, const tt_policy *policy,
                          tt_launch **out) {
  size_t depth = (size_t)section->at->depth;
  *out = NULL;
  if (!tt_section_any_live(section)) return TT_SUCCESS;
  if (section->at->met < INT_MAX) section->at->met++;
  int *ends = tt_malloc(depth * (2 * sizeof *ends + sizeof(tt_trace_node *)) + sizeof *ends * 2);
  if (!ends) return tt_out_of_memory();
  tt_status status = launch_by_tier(section, any, why, policy, ends, out);
  tt_free(ends);
  return status;
}
