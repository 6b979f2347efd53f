#include "run/explain.h"

#include "run/run.h"
#include "run/trace.h"

#include <pthread.h>
#include <string.h>

enum { MOST_SEEN = 64 }; /* branches of a path that are looked at */

/* -- The ring of sentences -- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *ring[TT_EXPLAIN_KEPT];
static int64_t kept;

void tt_explain_keep(const char *done, tt_text *text) {
  tt_text line = TT_TEXT_INIT;
  tt_text_printf(&line, "%s: %s", done, text->data ? text->data : "");
  tt_text_deinit(text);
  if (line.failed) {
    tt_text_deinit(&line);
    return;
  }
  tt_log(TT_LOG_COMPILE, "%s", line.data);
  pthread_mutex_lock(&lock);
  char **slot = &ring[kept++ % TT_EXPLAIN_KEPT], *old = *slot;
  *slot = line.data;
  pthread_mutex_unlock(&lock);
  tt_free(old);
}

int64_t tt_explain_count(void) {
  pthread_mutex_lock(&lock);
  int64_t count = kept;
  pthread_mutex_unlock(&lock);
  return count;
}

char *tt_explain_get(int64_t i) {
  char *copy = NULL;
  pthread_mutex_lock(&lock);
  if (i >= 0 && i < kept && i >= kept - TT_EXPLAIN_KEPT) {
    const char *line = ring[i % TT_EXPLAIN_KEPT];
    copy = tt_strndup(line, strlen(line));
  }
  pthread_mutex_unlock(&lock);
  return copy;
}

/* -- Forbidding -- */

static atomic_int forbidden;

void tt_forbid_programs(int change) { atomic_fetch_add(&forbidden, change); }
bool tt_programs_forbidden(void) {
  return atomic_load_explicit(&forbidden, memory_order_relaxed) > 0;
}

/* -- Chunks -- */

static void add_place(tt_text *text, const tt_step *step, const uint32_t *sites) {
  const char *site = tt_site_text(sites[step->depth - 1]);
  tt_text_printf(text, "%s", step->call->name);
  if (*site) tt_text_printf(text, " at %s", site);
}

static const tt_step *ancestor(const tt_step *end, int depth) {
  while (end->depth > depth) end = end->parent;
  return end;
}

/* The operator whose result is in `slot`. */
static const tt_step *maker(const tt_step *end, int slot) {
  while (end->call && end->first_output > slot) end = end->parent;
  return end;
}

/* The same operators are known with other results alive. */
static void explain_liveness(const tt_step *end, const uint8_t *live, const uint32_t *sites,
                             tt_text *text) {
  const tt_variant *nearest = NULL;
  int fewest = end->slot_count + 1;
  for (const tt_variant *v = end->variants; v; v = v->next) {
    int differ = 0;
    for (int i = 0; i < end->slot_count; i++) differ += v->live[i] != live[i];
    if (differ < fewest) fewest = differ, nearest = v;
  }
  tt_text_printf(text,
                 "the same operators are known, but %d result%s differ%s in being needed:", fewest,
                 fewest == 1 ? "" : "s", fewest == 1 ? "s" : "");
  for (int slot = 0, named = 0; slot < end->slot_count && named < 3; slot++) {
    if (!nearest || nearest->live[slot] == live[slot]) continue;
    const tt_step *step = maker(end, slot);
    tt_text_printf(text, "%s that of operator %d, ", named++ ? ";" : "", step->depth);
    add_place(text, step, sites);
    tt_text_printf(text, ", is %s", live[slot] ? "now needed afterwards" : "no longer needed");
  }
}

/* The known chunk has another operator, or other operands, as its next. */
static void explain_branch(const tt_step *step, const tt_step *known, const uint32_t *sites,
                           tt_text *text) {
  tt_text_printf(text, "operator %d is ", step->depth);
  add_place(text, step, sites);
  if (known->call != step->call && known->call->row == step->call->row) {
    tt_text_printf(text, ", where the nearest known chunk has it with other operands: ");
    tt_explain_difference(&step->call->spec, &known->call->spec, text);
  } else if (known->call != step->call) {
    tt_text_printf(text, ", where the nearest known chunk has %s", known->call->name);
  } else {
    tt_text_printf(text, " on other tensors than in the nearest known chunk");
  }
}

/* How a known chunk goes on: with the same operator if there is one, else as the latest did. */
static const tt_step *other_child(const tt_step *parent, const tt_step *child) {
  const tt_step *latest = parent->children == child ? child->sibling : parent->children;
  const tt_step *other = latest;
  for (int i = 0; other && i < MOST_SEEN; i++, other = other->sibling)
    if (other != child && other->call->row == child->call->row) return other;
  return latest;
}

/* Where the path leaves what is known: the last operator that a known chunk shares. */
static void explain_path(const tt_step *end, const uint32_t *sites, tt_text *text) {
  if (end->children) {
    tt_text_printf(text, "the nearest known chunk goes on with %s", end->children->call->name);
    return;
  }
  for (const tt_step *step = end; step->call; step = step->parent) {
    const tt_step *parent = step->parent, *known = other_child(parent, step);
    if (known && (parent->call || known->call->row == step->call->row)) {
      explain_branch(step, known, sites, text);
      return;
    }
    if (parent->call && parent->variants) {
      tt_text_printf(text, "the nearest known chunk ends after operator %d, ", parent->depth);
      add_place(text, parent, sites);
      return;
    }
  }
  tt_text_printf(text, "no known chunk begins with ");
  add_place(text, ancestor(end, 1), sites);
}

void tt_explain_chunk(const tt_step *end, const uint8_t *live, const uint32_t *sites, tt_cut why,
                      tt_text *text) {
  static const char *const ended[] = {[TT_CUT_NONE] = "itself",
                                      [TT_CUT_CONTENT] = "its content",
                                      [TT_CUT_STOP] = "its content",
                                      [TT_CUT_LENGTH] = "its length",
                                      [TT_CUT_BYTES] = "the size of its results",
                                      [TT_CUT_READ] = "a read",
                                      [TT_CUT_SYNC] = "a synchronisation",
                                      [TT_CUT_MODE] = "a change of mode"};
  if (!end->call) return; /* it has no operators */
  tt_text_printf(text, "%d operators, ", end->depth);
  add_place(text, ancestor(end, 1), sites);
  tt_text_printf(text, ", to ");
  add_place(text, end, sites);
  tt_text_printf(text, ", ended by %s: ", ended[why]);
  if (end->variants) explain_liveness(end, live, sites, text);
  else explain_path(end, sites, text);
}
