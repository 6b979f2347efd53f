#include "call/spread.h"

#include "call/moved.h"
#include "call/picked.h"

#include <string.h>

/* -- Rules: "ij,jk->ik" -- */

static int pattern_size(const char *pattern) { return (int)strcspn(pattern, ",-"); }

static const char *next_pattern(const char *pattern) {
  pattern += pattern_size(pattern);
  return *pattern == ',' ? pattern + 1 : NULL;
}

/* Of argument i; NULL: the rule says nothing of it. */
static const char *pattern_of(const char *rule, int i) {
  for (; rule && i > 0; i--) rule = next_pattern(rule);
  return rule && *rule != '-' ? rule : NULL;
}

static const char *results_of(const char *rule) { return strstr(rule, "->") + 2; }

/* Argument i's dims. One that is "*" is broadcast to the result. */
static bool tensor_codes(const char *rule, int arg, const tt_call_tensor *tensor, int *codes) {
  const char *pattern = strcmp(rule, "") == 0 ? "..." : pattern_of(rule, arg);
  if (!pattern || *pattern != '*')
    return pattern && tt_spread_codes(pattern, tensor->view.rank, codes);
  const char *result = results_of(rule);
  int more = pattern_size(result) - tensor->view.rank;
  return more >= 0 && tt_spread_codes(result + more, tensor->view.rank, codes);
}

static bool upper(int code) { return code >= 'A' && code <= 'Z'; }

static bool in_pattern(const char *pattern, int code) {
  return memchr(pattern, code >= TT_CODE_ELLIPSIS ? '.' : code, (size_t)pattern_size(pattern));
}

/* Whether all results have the dim, so that nothing is summed over it. */
static bool in_results(const char *rule, int code) {
  const char *result = strcmp(rule, "") == 0 ? NULL : results_of(rule);
  while (result && in_pattern(result, code)) result = next_pattern(result);
  return !result;
}

typedef bool (*visit)(tt_spread *s, const tt_call_spec *spec, const char *rule, int tensor,
                      const int *codes);

static bool note_tensor(tt_spread *s, const tt_call_spec *spec, const char *rule, int tensor,
                        const int *codes) {
  const tt_call_tensor *one = &spec->tensors[tensor];
  bool all = true;
  (void)rule;
  for (int k = 0; k < tt_marks_count(&one->marks) && all; k++) {
    const tt_mark *mark = &one->marks.of[k];
    all = !upper(codes[mark->dim]) && tt_spread_note(s, codes[mark->dim], one, mark);
  }
  return all;
}

/* Whether the row's lowering counts along all dims: it draws, or draws again what was dropped. */
static bool counts_all(const tt_op_row *row) {
  return row->cls == TT_RANDOM || row->cls == TT_LOSS || strcmp(row->statics, "dropout_p") == 0;
}

static bool check_tensor(tt_spread *s, const tt_call_spec *spec, const char *rule, int tensor,
                         const int *codes) {
  const tt_call_tensor *one = &spec->tensors[tensor];
  bool all = tt_spread_agrees(s, one, codes);
  for (int k = 0; k < tt_marks_count(&one->marks) && all; k++) {
    const tt_mark *mark = &one->marks.of[k];
    bool kept = !counts_all(spec->row) && in_results(rule, codes[mark->dim]);
    all = kept || tt_spread_leave_out(s, tensor, mark);
  }
  return all;
}

static bool each_tensor(tt_spread *s, const tt_call_spec *spec, const char *rule, visit what) {
  for (int i = 0; i < spec->arg_count; i++) {
    const tt_arg *arg = &spec->args[i];
    int codes[TT_MAX_RANK];
    if (arg->kind == TT_ARG_TENSORS) return false;
    if (arg->kind != TT_ARG_TENSOR) continue;
    if (!tensor_codes(rule, i, &spec->tensors[arg->first], codes)) return false;
    if (!what(s, spec, rule, arg->first, codes)) return false;
  }
  return true;
}

/* -- Reductions, and what works along the dims that an argument lists -- */

static bool is_listed(const tt_call_spec *spec, int arg, int rank, int dim) {
  const tt_arg *list = arg > 0 && arg < spec->arg_count ? &spec->args[arg] : NULL;
  if (!list || (list->kind != TT_ARG_INTS && list->kind != TT_ARG_INT)) return true;
  int count = list->kind == TT_ARG_INTS ? list->count : 1;
  const int64_t *dims = list->kind == TT_ARG_INTS ? list->ints : &list->i;
  for (int i = 0; i < count; i++)
    if (dims[i] == dim || dims[i] + rank == dim) return true;
  const tt_op_length *length = tt_op_length_of(spec->row->name);
  return count == 0 && !(length && length->empty_is_none);
}

/* The character that a rule about listed dims begins with; 0: it reduces them. */
static char listing(const tt_call_spec *spec) {
  const char *rule = tt_op_along_of(spec->row->name)->rule;
  return rule ? rule[0] : 0;
}

static int listed_arg(const tt_call_spec *spec) {
  const char *rule = tt_op_along_of(spec->row->name)->rule;
  return rule ? rule[1] - '0' : tt_op_length_of(spec->row->name)->reduced;
}

/* Whether a row whose lowering is told of it allows padding along a listed dim. */
static bool listed_may(const tt_call_spec *spec, const tt_mark *mark) {
  char how = listing(spec);
  return how != '^' && ((how != '<' && spec->row->cls != TT_SORT) || mark->outer == 1);
}

/* All tensors are as the first. */
static bool spread_listed(tt_spread *s, const tt_call_spec *spec) {
  if (spec->args[0].kind != TT_ARG_TENSOR) return false;
  const tt_call_tensor *first = &spec->tensors[spec->args[0].first];
  for (int i = 0; i < spec->arg_count; i++) {
    if (spec->args[i].kind != TT_ARG_TENSOR) continue;
    if (!tt_spread_same_all(&spec->tensors[spec->args[i].first].marks, &first->marks)) return false;
  }
  for (int k = 0; k < tt_marks_count(&first->marks); k++) {
    const tt_mark *mark = &first->marks.of[k];
    bool listed = is_listed(spec, listed_arg(spec), first->view.rank, mark->dim);
    if (listed && !listed_may(spec, mark)) return false;
    for (int i = 0; i < spec->arg_count && listed; i++)
      if (spec->args[i].kind == TT_ARG_TENSOR && !tt_spread_leave_out(s, spec->args[i].first, mark))
        return false;
    if ((!listed || listing(spec)) && !tt_spread_note(s, TT_CODE_DIM + mark->dim, first, mark))
      return false;
  }
  return first->marks.count > 0;
}

static int reduced_dim(const tt_call_spec *spec, int rank, int dim) {
  int operand = spec->tensors[spec->args[0].first].view.rank, at = dim;
  if (rank == operand) return dim;
  for (int i = 0; i < dim; i++) at -= is_listed(spec, listed_arg(spec), operand, i);
  return at;
}

/* -- Any of them -- */

/* How the results stand. */
typedef enum standing {
  BY_RULE,  /* as its letters say */
  INDEXED,  /* as x[indices] does */
  REDUCED,  /* as the first tensor, which may have dims more */
  SAME,     /* along dims of the same number */
  SORTED,   /* the same, but for those that are shorter: these count altogether */
  REPEATED, /* as often as argument 1 lists for each dim, the last ones the tensor's */
  JOINED,   /* the same; with room along the dim of cat */
  PADDED,   /* the same; with room along the dim that is padded */
  STACKED,  /* the same, but for a dim more */
  AS_SELF,  /* what is written is argument 0 */
  AS_SIZED  /* as the sizes that are listed */
} standing;

/* A rule of letters. */
static bool spread_rule(tt_spread *s, const tt_call_spec *spec) {
  const char *rule = tt_op_along_of(spec->row->name)->rule;
  if (!rule) rule = "";
  return each_tensor(s, spec, rule, note_tensor) && each_tensor(s, spec, rule, check_tensor);
}

/* Nothing is read, but random numbers are drawn for what counts only. */
static bool made_of_sizes(tt_spread *s, const tt_call_spec *spec) {
  bool all = true, draws = spec->row->cls == TT_RANDOM;
  for (int k = 0; k < tt_marks_count(&spec->sized) && draws && all; k++)
    all = tt_spread_leave_out(s, TT_NO_TENSOR, &spec->sized.of[k]);
  return all;
}

/* What notes the operands' marks, by a rule's name or its first character. */
typedef struct noting {
  const char *rule;
  standing results;
  bool (*note)(tt_spread *s, const tt_call_spec *spec);
} noting;
static const noting rules[] = {{"", BY_RULE, spread_rule},
                               {"%", SAME, spread_listed},
                               {"<", SORTED, spread_listed},
                               {"^", SORTED, spread_listed},
                               {"repeat", REPEATED, tt_moved_repeat},
                               {"#", AS_SIZED, made_of_sizes},
                               {"?", AS_SIZED, tt_picked_by_mask},
                               {"@", AS_SIZED, tt_moved_back},
                               {"cat", JOINED, tt_moved_cat},
                               {"stack", STACKED, tt_moved_stack},
                               {"pad", PADDED, tt_moved_pad},
                               {"index", INDEXED, tt_picked_index},
                               {"put", AS_SELF, tt_picked_put},
                               {"select", SAME, tt_picked_select},
                               {"add", AS_SELF, tt_picked_add},
                               {"gather", SAME, tt_picked_gather},
                               {"scatter", AS_SELF, tt_picked_scatter},
                               {"masked", AS_SELF, tt_picked_masked}};

static const noting reduction = {NULL, REDUCED, spread_listed};

/* NULL: the row allows no marks. */
static const noting *noting_of(const tt_op_row *row) {
  const char *rule = tt_op_along_of(row->name)->rule;
  if (!tt_op_spreads(row)) return NULL;
  if (!rule && row->cls != TT_POINTWISE) return &reduction;
  if (!rule) rule = "";
  size_t size = strchr("%<^#?@", *rule) ? 1 : strlen(rule);
  for (size_t i = 1; i < sizeof rules / sizeof *rules && *rule; i++)
    if (strlen(rules[i].rule) == size && strncmp(rule, rules[i].rule, size) == 0) return &rules[i];
  return &rules[0];
}

bool tt_spread_operands(const tt_call_spec *spec, tt_spread *out) {
  *out = (tt_spread){.known_count = 0};
  const noting *by = noting_of(spec->row);
  bool marked = spec->bound > 0 || spec->sized.count > 0;
  for (int i = 0; i < spec->tensor_count; i++) marked |= spec->tensors[i].marks.count > 0;
  if (!marked) return true;
  return by && !spec->checks && by->note(out, spec);
}

/* Of result k's dims; false: it has another rank. One that the rule does not name has none. */
static bool rule_codes(const tt_call_spec *spec, int k, int rank, int *codes) {
  const char *rule = tt_op_along_of(spec->row->name)->rule;
  const char *result = rule && *rule ? results_of(rule) : "...";
  if (rule && *rule)
    for (; result && k > 0; k--) result = next_pattern(result);
  for (int i = 0; !result && i < rank; i++) codes[i] = TT_CODE_NONE;
  return !result || tt_spread_codes(result, rank, codes);
}

/* The code of a result's dim. */
static int code_at(standing how, const tt_call_spec *spec, const tt_spread *s, int rank,
                   const int *codes, int dim) {
  if (how == BY_RULE || how == INDEXED) return codes[dim];
  if (how == STACKED) dim = tt_moved_stacked(spec, rank, dim);
  for (int i = 0; i < s->known_count; i++) {
    int from = s->known[i].code - TT_CODE_DIM;
    if (dim == (how == REDUCED ? reduced_dim(spec, rank, from) : from)) return s->known[i].code;
  }
  return TT_CODE_NONE;
}

/* As the sizes that are listed, or a square of one. */
static bool mark_sized(const tt_call_spec *spec, tt_call_result *result) {
  tt_marks *marks = &result->marks;
  *marks = spec->sized;
  if (tt_op_along_of(spec->row->name)->rule[1] != '#' || marks->count != 1) return true;
  marks->of[marks->count] = marks->of[0];
  marks->of[marks->count++].dim = 1;
  return true;
}

static bool mark_result(standing how, const tt_spread *s, const tt_call_spec *spec, int k,
                        tt_call_result *result) {
  int codes[TT_MAX_RANK], rank = result->view.rank;
  if (how == JOINED && spec->bound && !tt_moved_cat_result(spec, result)) return false;
  if (how == AS_SIZED) return mark_sized(spec, result);
  if (how == AS_SELF) return result->marks = spec->tensors[spec->args[0].first].marks, true;
  if (how == REPEATED) return tt_moved_repeated(spec, result);
  if (how == PADDED && spec->bound && !tt_moved_pad_result(spec, result)) return false;
  if (s->known_count == 0) return true;
  if (how == INDEXED) tt_picked_codes(spec, rank, codes);
  bool known = how != BY_RULE || rule_codes(spec, k, rank, codes);
  for (int dim = 0; dim < rank && known; dim++) {
    int i = tt_spread_find(s, code_at(how, spec, s, rank, codes, dim));
    if (i == s->known_count || result->view.sizes[dim] == 1) continue;
    if (how == SORTED && result->view.sizes[dim] != s->known[i].size) continue;
    tt_marks *marks = &result->marks;
    if (marks->count == TT_MOST_ALONG || result->view.sizes[dim] != s->known[i].size) return false;
    marks->of[marks->count] = s->known[i].mark;
    marks->of[marks->count++].dim = dim;
  }
  return known;
}

bool tt_spread_results(const tt_spread *spread, const tt_call_spec *spec, tt_call_result *results) {
  const noting *by = noting_of(spec->row);
  for (int k = 0; k < spec->result_count; k++) {
    tt_call_result *result = &results[k];
    if (result->target < 0 && result->view.dtype == TT_INVALID) continue;
    result->marks.count = 0;
    if (by && !mark_result(by->results, spread, spec, k, result)) return false;
    if (result->target >= 0 &&
        !tt_spread_same_all(&spec->tensors[result->target].marks, &result->marks))
      return false;
  }
  return true;
}
