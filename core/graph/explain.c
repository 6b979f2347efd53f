#include "graph/explain.h"

#include "base/site.h"

enum { MOST_SEEN = 64 }; /* branches of a path that are looked at */

static void add_place(tt_text *text, const tt_trace_node *step, const uint32_t *sites) {
  const char *site = tt_site_text(sites[step->depth - 1]);
  tt_text_printf(text, "%s", step->step.call->name);
  if (*site) tt_text_printf(text, " at %s", site);
}

static const tt_trace_node *ancestor(const tt_trace_node *end, int depth) {
  while (end->depth > depth) end = end->parent;
  return end;
}

/* The operator whose result is in `slot`. */
static const tt_trace_node *maker(const tt_trace_node *end, int slot) {
  while (end->parent && end->step.first_output > slot) end = end->parent;
  return end;
}

/* The same operators are known with other results alive. */
static void explain_liveness(const tt_trace_node *end, const uint8_t *live, const uint32_t *sites,
                             tt_text *text) {
  const tt_live_set *nearest = NULL;
  int fewest = end->slot_count + 1;
  for (const tt_live_set *v = end->live_sets; v; v = v->next) {
    int differ = 0;
    for (int i = 0; i < end->slot_count; i++) differ += v->live[i] != live[i];
    if (differ < fewest) fewest = differ, nearest = v;
  }
  tt_text_printf(text,
                 "the same operators are known, but %d result%s differ%s in being needed:", fewest,
                 fewest == 1 ? "" : "s", fewest == 1 ? "s" : "");
  for (int slot = 0, named = 0; slot < end->slot_count && named < 3; slot++) {
    if (!nearest || nearest->live[slot] == live[slot]) continue;
    const tt_trace_node *step = maker(end, slot);
    tt_text_printf(text, "%s that of operator %d, ", named++ ? ";" : "", step->depth);
    add_place(text, step, sites);
    tt_text_printf(text, ", is %s", live[slot] ? "now needed afterwards" : "no longer needed");
  }
}

/* The known chunk has another operator, or other operands, as its next. */
static void explain_branch(const tt_trace_node *step, const tt_trace_node *known,
                           const uint32_t *sites, tt_text *text) {
  tt_text_printf(text, "operator %d is ", step->depth);
  add_place(text, step, sites);
  if (known->step.call != step->step.call && known->step.call->row == step->step.call->row) {
    tt_text_printf(text, ", where the nearest known chunk has it with other operands: ");
    tt_explain_difference(&step->step.call->spec, &known->step.call->spec, text);
  } else if (known->step.call != step->step.call) {
    tt_text_printf(text, ", where the nearest known chunk has %s", known->step.call->name);
  } else {
    tt_text_printf(text, " on other tensors than in the nearest known chunk");
  }
}

/* How a known chunk goes on: with the same operator if there is one, else as the latest did. */
static const tt_trace_node *other_child(const tt_trace_node *parent, const tt_trace_node *child) {
  const tt_trace_node *latest = parent->children == child ? child->sibling : parent->children;
  const tt_trace_node *other = latest;
  for (int i = 0; other && i < MOST_SEEN; i++, other = other->sibling)
    if (other != child && other->step.call->row == child->step.call->row) return other;
  return latest;
}

/* Where the path leaves what is known: the last operator that a known chunk shares. */
static void explain_path(const tt_trace_node *end, const uint32_t *sites, tt_text *text) {
  if (end->children) {
    tt_text_printf(text, "the nearest known chunk goes on with %s", end->children->step.call->name);
    return;
  }
  for (const tt_trace_node *step = end; step->parent; step = step->parent) {
    const tt_trace_node *parent = step->parent, *known = other_child(parent, step);
    if (known && (parent->parent || known->step.call->row == step->step.call->row)) {
      explain_branch(step, known, sites, text);
      return;
    }
    if (parent->live_sets) {
      tt_text_printf(text, "the nearest known chunk ends after operator %d, ", parent->depth);
      add_place(text, parent, sites);
      return;
    }
  }
  tt_text_printf(text, "no known chunk begins with ");
  add_place(text, ancestor(end, 1), sites);
}

void tt_explain_chunk(const tt_trace_node *end, const uint8_t *live, const uint32_t *sites,
                      tt_cut why, tt_text *text) {
  static const char *const ended[] = {[TT_CUT_NONE] = "itself",
                                      [TT_CUT_CONTENT] = "its content",
                                      [TT_CUT_STOP] = "its content",
                                      [TT_CUT_LENGTH] = "its length",
                                      [TT_CUT_BYTES] = "the size of its results",
                                      [TT_CUT_READ] = "a read",
                                      [TT_CUT_SYNC] = "a synchronisation",
                                      [TT_CUT_MODE] = "a change of mode"};
  if (!end->parent) return; /* it has no operators */
  tt_text_printf(text, "%d operators, ", end->depth);
  add_place(text, ancestor(end, 1), sites);
  tt_text_printf(text, ", to ");
  add_place(text, end, sites);
  tt_text_printf(text, ", ended by %s: ", ended[why]);
  if (end->live_sets) explain_liveness(end, live, sites, text);
  else explain_path(end, sites, text);
}
