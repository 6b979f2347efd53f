#include "call/spread.h"

#include <assert.h>
#include <string.h>

/* Codes of dims: a rule's letters, places in its "...", dims of a reduction's operand. */
enum { ELLIPSIS = 256, REDUCED = 512, NONE = -1 };

/* -- What is known of a code -- */

static int find(const tt_spread *s, int code) {
  int i = 0;
  while (i < s->known_count && s->known[i].code != code) i++;
  return i;
}

static bool same_mark(const tt_mark *a, const tt_mark *b) {
  return a->scalar == b->scalar && a->outer == b->outer && a->inner == b->inner;
}

static bool same_marks(const tt_marks *a, const tt_marks *b) {
  bool same = a->count == b->count;
  for (int k = 0; k < a->count && same; k++) {
    const tt_mark *other = tt_mark_of(b, a->of[k].dim);
    same = other && same_mark(&a->of[k], other);
  }
  return same;
}

static bool note(tt_spread *s, int code, const tt_call_tensor *tensor, const tt_mark *mark) {
  int64_t size = tensor->view.sizes[mark->dim];
  int i = find(s, code);
  assert(i >= 0 && s->known_count <= TT_MOST_SPREAD);
  if (i < s->known_count) return same_mark(&s->known[i].mark, mark) && s->known[i].size == size;
  if (i == TT_MOST_SPREAD) return false;
  s->known[i].code = code;
  s->known[i].size = size;
  s->known[i].mark = *mark;
  s->known_count++;
  return true;
}

/* The padding along the tensor's marked dim is left out. */
static bool leave_out(tt_spread *s, int tensor, const tt_mark *mark) {
  if (s->length_count == TT_MOST_SPREAD) return false;
  s->lengths[s->length_count++] = (tt_call_length){.tensor = tensor,
                                                   .dim = mark->dim,
                                                   .scalar = mark->scalar,
                                                   .outer = mark->outer,
                                                   .inner = mark->inner,
                                                   .motion = TT_MOTION_NONE};
  return true;
}

/* -- Rules: "ij,jk->ik" -- */

static int pattern_size(const char *pattern) { return (int)strcspn(pattern, ",-"); }

static const char *next_pattern(const char *pattern) {
  pattern += pattern_size(pattern);
  return *pattern == ',' ? pattern + 1 : NULL;
}

/* The codes of a tensor's dims, if it has any; false: they are not as many. */
static bool codes_of(const char *pattern, int rank, int *codes) {
  int size = pattern_size(pattern), at = 0;
  if (rank == 0) return true;
  for (int i = 0; i < rank && pattern[0] == '!'; i++) codes[i] = 'A';
  if (pattern[0] == '!') return true;
  const char *dots = memchr(pattern, '.', (size_t)size);
  int rest = dots ? rank - (size - 3) : 0;
  if (rest < 0 || (!dots && size != rank)) return false;
  for (int i = 0; i < size && pattern[i]; i++) {
    if (pattern[i] != '.') {
      codes[at++] = (unsigned char)pattern[i];
      continue;
    }
    for (int k = rest - 1; k >= 0; k--) codes[at++] = ELLIPSIS + k;
    i += 2;
  }
  return true;
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
  if (!pattern || *pattern != '*') return pattern && codes_of(pattern, tensor->view.rank, codes);
  const char *result = results_of(rule);
  int more = pattern_size(result) - tensor->view.rank;
  return more >= 0 && codes_of(result + more, tensor->view.rank, codes);
}

static bool upper(int code) { return code >= 'A' && code <= 'Z'; }

/* Beside a marked dim others are marked alike, or have one element. */
static bool agrees(const tt_spread *s, const tt_call_tensor *tensor, const int *codes) {
  for (int dim = 0; dim < tensor->view.rank; dim++) {
    if (!tt_mark_of(&tensor->marks, dim) && tensor->view.sizes[dim] != 1 && find(s, codes[dim]) < s->known_count)
      return false;
  }
  return true;
}

static bool in_pattern(const char *pattern, int code) {
  return memchr(pattern, code >= ELLIPSIS ? '.' : code, (size_t)pattern_size(pattern));
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
  for (int k = 0; k < one->marks.count && all; k++) {
    const tt_mark *mark = &one->marks.of[k];
    all = !upper(codes[mark->dim]) && note(s, codes[mark->dim], one, mark);
  }
  return all;
}

static bool check_tensor(tt_spread *s, const tt_call_spec *spec, const char *rule, int tensor,
                         const int *codes) {
  const tt_call_tensor *one = &spec->tensors[tensor];
  bool all = agrees(s, one, codes);
  for (int k = 0; k < one->marks.count && all; k++) {
    const tt_mark *mark = &one->marks.of[k];
    bool kept = spec->row->cls != TT_RANDOM && in_results(rule, codes[mark->dim]);
    all = kept || leave_out(s, tensor, mark);
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
  return count == 0;
}

static bool is_percent(const tt_call_spec *spec) {
  const char *rule = tt_op_along_of(spec->row->name)->rule;
  return rule && rule[0] == '%';
}

static int listed_arg(const tt_call_spec *spec) {
  const char *rule = tt_op_along_of(spec->row->name)->rule;
  return is_percent(spec) ? rule[1] - '0' : tt_op_length_of(spec->row->name)->reduced;
}

/* All tensors are as the first. */
static bool spread_listed(tt_spread *s, const tt_call_spec *spec) {
  if (spec->args[0].kind != TT_ARG_TENSOR) return false;
  const tt_call_tensor *first = &spec->tensors[spec->args[0].first];
  for (int i = 0; i < spec->arg_count; i++) {
    if (spec->args[i].kind != TT_ARG_TENSOR) continue;
    if (!same_marks(&spec->tensors[spec->args[i].first].marks, &first->marks)) return false;
  }
  for (int k = 0; k < first->marks.count; k++) {
    const tt_mark *mark = &first->marks.of[k];
    bool listed = is_listed(spec, listed_arg(spec), first->view.rank, mark->dim);
    for (int i = 0; i < spec->arg_count && listed; i++)
      if (spec->args[i].kind == TT_ARG_TENSOR && !leave_out(s, spec->args[i].first, mark))
        return false;
    if ((!listed || is_percent(spec)) && !note(s, REDUCED + mark->dim, first, mark)) return false;
  }
  return first->marks.count > 0;
}

static int reduced_dim(const tt_call_spec *spec, int rank, int dim) {
  int operand = spec->tensors[spec->args[0].first].view.rank, at = dim;
  if (rank == operand) return dim;
  for (int i = 0; i < dim; i++) at -= is_listed(spec, listed_arg(spec), operand, i);
  return at;
}

/* -- Concatenation -- */

/* What cat leaves out, whatever the others' rank: a tensor of one dim and no elements. */
static bool is_nothing(const tt_call_tensor *tensor) {
  return tensor->view.rank == 1 && tensor->view.sizes[0] == 0;
}

/* The only one that there is; NULL: there are several. */
static const tt_call_tensor *joined_alone(const tt_call_spec *spec) {
  const tt_call_tensor *one = NULL;
  for (int i = 0; i < spec->tensor_count; i++) {
    if (is_nothing(&spec->tensors[i])) continue;
    if (one) return NULL;
    one = &spec->tensors[i];
  }
  return one;
}

static bool spread_cat(tt_spread *s, const tt_call_spec *spec) {
  const tt_arg *list = &spec->args[0];
  const tt_call_tensor *alone = joined_alone(spec);
  int marked = 0;
  if (list->kind != TT_ARG_TENSORS || list->count != spec->tensor_count) return false;
  for (int k = 0; alone && !spec->bound && k < alone->marks.count; k++)
    if (!note(s, REDUCED + alone->marks.of[k].dim, alone, &alone->marks.of[k])) return false;
  if (alone && !spec->bound) return true;
  for (int i = 0; i < spec->tensor_count; i++) {
    const tt_call_tensor *one = &spec->tensors[i];
    int rank = one->view.rank, dim = (int)spec->args[1].i;
    if (rank != spec->tensors[0].view.rank || tt_view_numel(&one->view) == 0) return false;
    if (dim < 0) dim += rank;
    marked += one->marks.count > 0;
    for (int k = 0; k < one->marks.count; k++) {
      const tt_mark *mark = &one->marks.of[k];
      if (mark->outer != 1 || mark->inner != 1) return false;
      if (mark->dim == dim ? !leave_out(s, i, mark) : !note(s, REDUCED + mark->dim, one, mark))
        return false;
    }
  }
  if (spec->bound && s->known_count) return false; /* two dims with room */
  if (s->length_count) return marked == 1 && spec->bound > 0;
  for (int i = 0; i < spec->tensor_count; i++)
    if (spec->tensors[i].marks.count != s->known_count) return false;
  return spec->bound > 0 || s->known_count > 0;
}

/* The result has room for its bound along a dim. */
static bool give_room(const tt_call_spec *spec, int dim, tt_call_result *result) {
  int rank = result->view.rank;
  tt_type type = tt_view_held(&result->view);
  tt_view rows = tt_view_whole(&type);
  for (int i = 0; i < rank; i++)
    if (rows.sizes[i] != 1 && rows.strides[i] != result->view.strides[i]) return false;
  result->view = tt_bounded_cover(&rows, dim, spec->bound);
  result->marks.of[result->marks.count++] =
      (tt_mark){.dim = dim, .scalar = spec->bound_scalar, .outer = 1, .inner = 1};
  return true;
}

static bool cat_result(const tt_call_spec *spec, tt_call_result *result) {
  int dim = (int)spec->args[1].i;
  return give_room(spec, dim < 0 ? dim + result->view.rank : dim, result);
}

/* -- Padding by a constant -- */

int tt_padded_dim(const int64_t *pad, size_t count, int rank) {
  int dim = -1;
  for (size_t i = 0; i + 1 < count; i += 2) {
    if (pad[i] == 0 && pad[i + 1] == 0) continue;
    if (dim >= 0) return -1;
    dim = rank - 1 - (int)(i / 2);
  }
  return dim;
}

static int padded_dim(const tt_call_spec *spec) {
  const tt_arg *list = &spec->args[1];
  if (list->kind != TT_ARG_INTS || spec->args[0].kind != TT_ARG_TENSOR) return -1;
  int rank = spec->tensors[spec->args[0].first].view.rank;
  return tt_padded_dim(list->ints, (size_t)list->count, rank);
}

static bool spread_pad(tt_spread *s, const tt_call_spec *spec) {
  const tt_call_tensor *tensor = &spec->tensors[0];
  int dim = padded_dim(spec);
  if (dim < 0 || (tt_mark_of(&tensor->marks, dim) != NULL) != (spec->bound > 0)) return false;
  for (int k = 0; k < tensor->marks.count; k++) {
    const tt_mark *mark = &tensor->marks.of[k];
    bool whole = mark->outer == 1 && mark->inner == 1;
    if (mark->dim == dim ? !whole || !leave_out(s, 0, mark)
                         : !note(s, REDUCED + mark->dim, tensor, mark))
      return false;
  }
  return true;
}

/* -- Indexing -- */

static const tt_call_tensor *index_of(const tt_call_spec *spec, int dim) {
  const tt_arg *list = &spec->args[1];
  int at = list->first;
  for (int i = 0; i < dim && i < list->count; i++) at += !list->present || list->present[i];
  bool is = dim < list->count && (!list->present || list->present[dim]);
  return is ? &spec->tensors[at] : NULL;
}

/* Indices that vary are broadcast; along dims that are indexed padding is picked by nobody. */
static bool spread_index(tt_spread *s, const tt_call_spec *spec) {
  if (spec->args[0].kind != TT_ARG_TENSOR || spec->args[1].kind != TT_ARG_TENSORS) return false;
  const tt_call_tensor *self = &spec->tensors[spec->args[0].first];
  int codes[TT_MAX_RANK];
  for (int k = 0; k < self->marks.count; k++) {
    const tt_mark *mark = &self->marks.of[k];
    bool indexed = index_of(spec, mark->dim);
    if (indexed ? mark->outer != 1 || !leave_out(s, spec->args[0].first, mark)
                : !note(s, REDUCED + mark->dim, self, mark))
      return false;
  }
  for (int pass = 0; pass < 2; pass++) {
    for (int dim = 0; dim < self->view.rank; dim++) {
      const tt_call_tensor *index = index_of(spec, dim);
      if (!index) continue;
      (void)codes_of("...", index->view.rank, codes);
      for (int k = 0; k < index->marks.count && pass == 0; k++)
        if (!note(s, codes[index->marks.of[k].dim], index, &index->marks.of[k])) return false;
      if (pass == 1 && !agrees(s, index, codes)) return false;
    }
  }
  return true;
}

/* Of the result's dims: those of the indices are where these are if they are neighbours, else in
 * front. */
static void index_codes(const tt_call_spec *spec, int rank, int *codes) {
  const tt_call_tensor *self = &spec->tensors[spec->args[0].first];
  int first = -1, last = -1, count = 0;
  for (int dim = 0; dim < self->view.rank; dim++) {
    if (!index_of(spec, dim)) continue;
    if (first < 0) first = dim;
    last = dim;
    count++;
  }
  int spread = rank - (self->view.rank - count), at = 0;
  if (last - first + 1 != count) first = 0;
  for (int dim = 0; dim <= self->view.rank; dim++) {
    for (int k = spread - 1; dim == first && k >= 0; k--) codes[at++] = ELLIPSIS + k;
    if (dim < self->view.rank && !index_of(spec, dim)) codes[at++] = REDUCED + dim;
  }
}

/* -- Any of them -- */

typedef enum kind { REFUSED, RULE, LISTED, CAT, PAD, INDEX, SIZED, PUT_BACK } kind;

/* Argument 0 is as the result along all dims but one, which it may lack. */
static bool spread_back(tt_spread *s, const tt_call_spec *spec) {
  const tt_call_tensor *part = &spec->tensors[spec->args[0].first];
  int sizes = tt_op_along_of(spec->row->name)->rule[1] - '0';
  int rank = spec->args[sizes].count, dim = (int)spec->args[sizes + 1].i;
  if (dim < 0) dim += rank;
  int found = 0;
  for (int at = 0; at < part->view.rank; at++) {
    int to = part->view.rank < rank && at >= dim ? at + 1 : at;
    const tt_mark *own = tt_mark_of(&part->marks, at), *mark = tt_mark_of(&spec->sized, to);
    found += own != NULL;
    if (own && to == dim && mark && own->outer == 1 && own->inner == 1) {
      if (!leave_out(s, spec->args[0].first, own)) return false;
    } else if (own ? !mark || !same_mark(own, mark) : mark && to != dim) {
      return false;
    }
  }
  return found == part->marks.count;
}

static kind kind_of(const tt_op_row *row) {
  const char *rule = tt_op_along_of(row->name)->rule;
  if (!tt_op_spreads(row)) return REFUSED;
  if (!rule) return row->cls == TT_REDUCE ? LISTED : RULE;
  if (rule[0] == '%') return LISTED;
  if (rule[0] == '#') return SIZED;
  if (rule[0] == '@') return PUT_BACK;
  if (strcmp(rule, "index") == 0) return INDEX;
  if (strcmp(rule, "pad") == 0) return PAD;
  return strcmp(rule, "cat") == 0 ? CAT : RULE;
}

bool tt_spread_operands(const tt_call_spec *spec, tt_spread *out) {
  *out = (tt_spread){.known_count = 0};
  kind is = kind_of(spec->row);
  bool marked = spec->bound > 0 || spec->sized.count > 0;
  for (int i = 0; i < spec->tensor_count; i++) marked |= spec->tensors[i].marks.count > 0;
  if (!marked) return true;
  if (is == REFUSED || spec->checks) return false;
  if (is == CAT) return spread_cat(out, spec);
  if (is == PAD) return spread_pad(out, spec);
  if (is == INDEX) return spread_index(out, spec);
  if (is == SIZED) return true;
  if (is == PUT_BACK) return spread_back(out, spec);
  if (is == LISTED) return spread_listed(out, spec);
  const char *rule = tt_op_along_of(spec->row->name)->rule;
  if (!rule) rule = "";
  return each_tensor(out, spec, rule, note_tensor) && each_tensor(out, spec, rule, check_tensor);
}

/* Of result k's dims; false: it has another rank. One that the rule does not name has none. */
static bool rule_codes(const tt_call_spec *spec, int k, int rank, int *codes) {
  const char *rule = tt_op_along_of(spec->row->name)->rule;
  const char *result = rule && *rule ? results_of(rule) : "...";
  if (rule && *rule)
    for (; result && k > 0; k--) result = next_pattern(result);
  for (int i = 0; !result && i < rank; i++) codes[i] = NONE;
  return !result || codes_of(result, rank, codes);
}

/* The code of a result's dim. */
static int code_at(kind is, const tt_call_spec *spec, const tt_spread *s, int rank,
                   const int *codes, int dim) {
  if (is == RULE || is == INDEX) return codes[dim];
  for (int i = 0; i < s->known_count; i++) {
    int from = s->known[i].code - REDUCED;
    bool same = is == CAT || is == PAD || is_percent(spec);
    if (dim == (same ? from : reduced_dim(spec, rank, from))) return s->known[i].code;
  }
  return NONE;
}

static bool mark_result(kind is, const tt_spread *s, const tt_call_spec *spec, int k,
                        tt_call_result *result) {
  int codes[TT_MAX_RANK], rank = result->view.rank;
  result->marks.count = 0;
  if (is == CAT && spec->bound) return cat_result(spec, result);
  if (is == SIZED || is == PUT_BACK) return result->marks = spec->sized, true;
  if (is == PAD && spec->bound && !give_room(spec, padded_dim(spec), result)) return false;
  if (s->known_count == 0) return true;
  if (is == INDEX) index_codes(spec, rank, codes);
  bool known = is != RULE || rule_codes(spec, k, rank, codes);
  for (int dim = 0; dim < rank && known; dim++) {
    int i = find(s, code_at(is, spec, s, rank, codes, dim));
    if (i == s->known_count || result->view.sizes[dim] == 1) continue;
    tt_marks *marks = &result->marks;
    if (marks->count == TT_MOST_ALONG || result->view.sizes[dim] != s->known[i].size) return false;
    marks->of[marks->count] = s->known[i].mark;
    marks->of[marks->count++].dim = dim;
  }
  return known || s->known_count == 0;
}

bool tt_spread_results(const tt_spread *spread, const tt_call_spec *spec, tt_call_result *results) {
  kind is = kind_of(spec->row);
  for (int k = 0; k < spec->result_count; k++) {
    tt_call_result *result = &results[k];
    if (result->target < 0 && result->view.dtype == TT_INVALID) continue;
    if (!mark_result(is, spread, spec, k, result)) return false;
    if (result->target >= 0 && !same_marks(&spec->tensors[result->target].marks, &result->marks))
      return false;
  }
  return true;
}
