#include "stream/tiers.h"

#include "call/ordered.h"
#include "stream/parts.h"
#include "stream/tier.h"

#include <limits.h>
#include <string.h>

/* OFTEN: in the background a program takes the compiler up to a second, and what has come so many
 * times will come again. */
enum { LONGEST_RUN = 32, MOST_ELEMENTS = 1024, OFTEN = 4 };

/* -- Pieces -- */

/* Was what the step reads first made before the run that begins after `first`? */
static bool reads_from_before(const tt_section *whole, const tt_trace_node *first,
                              const tt_step *step) {
  if (!step->call->input_count) return false;
  return step->inputs[0] < first->slot_count || whole->is_input[step->inputs[0]];
}

/* Does the run that begins after `first` go on with this operator? Operators that recur begin the
 * next iteration of something, but for those on lists that recur on another list: an optimizer
 * does the same to its parameters and to its averages. A list of another length is of another
 * group of parameters. */
static bool goes_on(const tt_section *whole, const tt_trace_node *first, const tt_trace_node *last,
                    const tt_step *next) {
  const tt_op_row *row = next->call->row, *before = last->step.call->row;
  bool lists = row->cls == TT_FOREACH;
  if (!tt_op_is_light(row) || !tt_op_is_light(before)) return false;
  if (lists != (before->cls == TT_FOREACH)) return false;
  if (last->depth - first->depth >= LONGEST_RUN) return false;
  if (lists && next->call->output_count != last->step.call->output_count) return false;
  if (lists && reads_from_before(whole, first, next)) return true;
  for (const tt_trace_node *node = last; node != first; node = node->parent)
    if (node->step.call == next->call) return false;
  return true;
}

static bool orders(const tt_parts *parts, int at) {
  const tt_target *target = tt_program_table_target(parts->whole->device->programs);
  return tt_call_orders(parts->path[at]->step.call, target);
}

/* Does the piece that begins at operator `first` go on with operator `next`? Neighbours that order
 * are one piece, as nothing has to be compiled for them. */
static bool piece_goes_on(const tt_parts *parts, tt_tier tier, int first, int next) {
  const tt_trace_node *before = first ? parts->path[first - 1] : &parts->whole->device->trace.root;
  if (tier == TT_TIER_OPERATORS) return false;
  bool ordered = tier == TT_TIER_KERNELS && orders(parts, next - 1);
  if (tier == TT_TIER_KERNELS && ordered != orders(parts, next)) return false;
  return ordered || goes_on(parts->whole, before, parts->path[next - 1], &parts->path[next]->step);
}

/* Returns how many pieces the section has, and where each ends. ends: [whole->at->depth] */
static int find_ends(const tt_parts *parts, tt_tier tier, int *ends) {
  int count = 0, depth = parts->whole->at->depth;
  for (int i = 1, first = 0; i < depth; i++) {
    if (piece_goes_on(parts, tier, first, i)) continue;
    ends[count++] = first = i;
  }
  ends[count++] = depth;
  return count;
}

/* One of the section's operators, with all its results, by its call's own program. */
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

/* A run, or one element of what it does. */
static tt_status launch_run(tt_parts *parts, int first, int last, int number, bool ordered,
                            tt_cut why, const tt_policy *policy, tt_launch **out) {
  tt_section run;
  tt_section_init(&run, parts->whole->device);
  run.ordered = ordered;
  tt_status status = tt_parts_cut(parts, first, last, number, &run);
  if (!status && tt_section_any_live(&run))
    status = tt_section_launch(&run, tt_trace_find(run.at, run.live, false), why, policy, out);
  tt_section_deinit(&run);
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
static tt_status launch_piece(tt_parts *parts, tt_tier tier, int first, int last, int *room,
                              tt_cut why, const tt_policy *policy, tt_launch **out) {
  int needed = find_needed(parts, &first, &last);
  if (!needed) return TT_SUCCESS;
  if (tier == TT_TIER_KERNELS && orders(parts, first)) {
    tt_count_add(TT_COUNT_TIER_KERNELS, needed);
    return launch_run(parts, first, last, TT_PARTS_WHOLE, true, why, policy, out);
  }
  int elements = *room ? tt_parts_elements(parts, first, last) : 0;
  bool apart = elements && elements <= *room;
  if (needed > 1 || apart) tt_count_add(TT_COUNT_TIER_PIECES, needed);
  if (apart) {
    *room -= elements;
    for (int number = 0; number < elements; number++) {
      TT_TRY(launch_run(parts, first, last, number, false, why, policy, out));
      if (*out) out = &(*out)->next;
    }
    return TT_SUCCESS;
  }
  if (needed > 1) return launch_run(parts, first, last, TT_PARTS_WHOLE, false, why, policy, out);
  return launch_alone(parts, first, policy->known_only ? TT_WANT_KNOWN : TT_WANT_NOW, out);
}

static tt_status launch_pieces(tt_parts *parts, tt_tier tier, const int *ends, int count,
                               tt_cut why, const tt_policy *policy, tt_launch **out) {
  int room = tier == TT_TIER_OPERATORS ? 0 : MOST_ELEMENTS;
  for (int i = 0, begin = 0; i < count; begin = ends[i++]) {
    TT_TRY(launch_piece(parts, tier, begin, ends[i] - 1, &room, why, policy, out));
    while (*out) out = &(*out)->next;
  }
  return TT_SUCCESS;
}

/* -- The section's own program -- */

/* Would nothing have to be compiled for its pieces? */
static bool all_order(const tt_parts *parts) {
  for (int i = 0; i < parts->whole->at->depth; i++)
    if (!orders(parts, i)) return false;
  return true;
}

/* *found: the live set that is known, or NULL. It has a program if it has come often, or if a cache
 * folder has one; that is not looked for where all of it is `ordered`, as the text would have to be
 * made for it. Is the program there, or soon will be? */
static bool ask_for(tt_section *section, bool ordered, tt_cut why, const tt_policy *policy,
                    tt_live_set **found) {
  bool again = *found;
  tt_want want = again ? TT_WANT_BACKGROUND : TT_WANT_FOUND;
  tt_status status = TT_SUCCESS;
  if (policy->known_only) want = TT_WANT_KNOWN;
  else if ((again || ordered) && section->at->met < OFTEN) return false;
  if (!again || !(*found)->program) status = tt_section_program(section, why, want, found);
  if (again && !status) (void)tt_program_poll((*found)->program, want);
  bool comes = !status && tt_program_is_coming((*found)->program);
  tt_status_release(status); /* what is said of the pieces will do */
  return comes;
}

static tt_status launch_whole(tt_section *section, tt_live_set *own, tt_cut why,
                              const tt_policy *policy, tt_launch **out) {
  tt_count_add(TT_COUNT_TIER_CHUNKS, section->at->depth);
  return tt_section_launch(section, own, why, policy, out);
}

/* A section that would be one piece of XLA's code, and cannot be ordered, is waited for. */
static tt_status launch_parts(tt_parts *parts, tt_section *section, tt_live_set *found,
                              tt_tier tier, int *ends, tt_cut why, const tt_policy *policy,
                              tt_launch **out) {
  bool ordered = tier == TT_TIER_AUTO && all_order(parts);
  bool whole = tier != TT_TIER_KERNELS && !ordered && find_ends(parts, tier, ends) == 1;
  if (whole || (tier == TT_TIER_AUTO && ask_for(section, ordered, why, policy, &found)))
    return launch_whole(section, found, why, policy, out);
  if (tier == TT_TIER_AUTO) tier = TT_TIER_KERNELS;
  int count = find_ends(parts, tier, ends);
  tt_parts_divide(parts, ends, count, false);
  tt_status status = launch_pieces(parts, tier, ends, count, why, policy, out);
  if (!status) return TT_SUCCESS;
  tt_launch_destroy_list(*out);
  *out = NULL;
  return status;
}

void tt_tiers_foresee(tt_device *device, tt_call *call, const tt_policy *policy) {
  tt_program *program = NULL;
  if (tt_program_is_known(device->programs, call) || policy->known_only) return;
  tt_tier tier = tt_tier_chosen(policy);
  bool alone = tier == TT_TIER_OPERATORS || !tt_op_is_light(call->row);
  if (!alone || tier == TT_TIER_CHUNKS) return;
  bool kernels = tier == TT_TIER_AUTO || tier == TT_TIER_KERNELS;
  if (kernels && tt_call_orders(call, tt_program_table_target(device->programs))) return;
  tt_status_release(tt_program_of_call(device->programs, call, TT_WANT_NOW, &program));
}

/* An operator alone returns all that it makes, so that it has one program wherever it stands. */
static void keep_all(tt_section *section) {
  for (int i = 0; i < section->slot_count; i++) section->live[i] = !section->is_input[i];
}

tt_status tt_tiers_launch(tt_section *section, bool any, tt_cut why, const tt_policy *policy,
                          tt_launch **out) {
  *out = NULL;
  if (!tt_section_any_live(section)) return TT_SUCCESS;
  if (section->at->met < INT_MAX) section->at->met++;
  if (section->at->depth == 1) keep_all(section);
  tt_tier tier = tt_tier_chosen(policy);
  tt_live_set *found = tt_trace_find(section->at, section->live, any);
  bool whole = tier == TT_TIER_AUTO && found && tt_program_is_coming(found->program);
  if (whole || tier == TT_TIER_CHUNKS) return launch_whole(section, found, why, policy, out);
  tt_parts parts;
  int *ends = tt_malloc(sizeof *ends * (size_t)section->at->depth);
  if (!ends) return tt_out_of_memory();
  tt_status status = tt_parts_init(&parts, section);
  if (!status) status = launch_parts(&parts, section, found, tier, ends, why, policy, out);
  tt_parts_deinit(&parts);
  tt_free(ends);
  return status;
}
