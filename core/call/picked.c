#include "call/picked.h"

/* The lowering leaves out all padding of an index or a mask. */
static bool leave_out_all(tt_spread *s, const tt_call_spec *spec, int tensor) {
  const tt_marks *marks = &spec->tensors[tensor].marks;
  for (int k = 0; k < tt_marks_count(marks); k++)
    if (!tt_spread_leave_out(s, tensor, &marks->of[k])) return false;
  return true;
}

/* -- Lists of indices -- */

static const tt_call_tensor *index_of(const tt_call_spec *spec, int dim) {
  const tt_arg *list = &spec->args[1];
  int at = list->first;
  for (int i = 0; i < dim && i < list->count; i++) at += !list->present || list->present[i];
  bool is = dim < list->count && (!list->present || list->present[dim]);
  return is ? &spec->tensors[at] : NULL;
}

static bool note_indexed(tt_spread *s, const tt_call_spec *spec, int tensor) {
  const tt_marks *marks = &spec->tensors[tensor].marks;
  for (int k = 0; k < tt_marks_count(marks); k++) {
    const tt_mark *mark = &marks->of[k];
    bool indexed = index_of(spec, mark->dim);
    if (indexed ? mark->outer != 1 || !tt_spread_leave_out(s, tensor, mark)
                : !tt_spread_note(s, TT_CODE_DIM + mark->dim, &spec->tensors[tensor], mark))
      return false;
  }
  return true;
}

static bool note_index(tt_spread *s, const tt_call_tensor *index) {
  int codes[TT_MAX_RANK];
  (void)tt_spread_codes("...", index->view.rank, codes);
  for (int dim = 0; dim < index->view.rank; dim++) {
    const tt_mark *mark = tt_mark_of(&index->marks, dim);
    if (mark && !tt_spread_note(s, codes[dim], index, mark)) return false;
  }
  return true;
}

/* Indices that vary are broadcast; along dims that are indexed padding is picked by nobody. */
bool tt_picked_index(tt_spread *s, const tt_call_spec *spec) {
  if (spec->args[0].kind != TT_ARG_TENSOR || spec->args[1].kind != TT_ARG_TENSORS) return false;
  int self = spec->args[0].first, rank = spec->tensors[self].view.rank, codes[TT_MAX_RANK];
  if (!note_indexed(s, spec, self)) return false;
  for (int dim = 0; dim < rank; dim++)
    if (index_of(spec, dim) && !note_index(s, index_of(spec, dim))) return false;
  for (int dim = 0; dim < rank; dim++) {
    const tt_call_tensor *index = index_of(spec, dim);
    if (index &&
        (!tt_spread_codes("...", index->view.rank, codes) || !tt_spread_agrees(s, index, codes)))
      return false;
  }
  return true;
}

/* Of the result's dims: those of the indices are where these are if they are neighbours, else in
 * front. */
void tt_picked_codes(const tt_call_spec *spec, int rank, int *codes) {
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
    for (int k = spread - 1; dim == first && k >= 0; k--) codes[at++] = TT_CODE_ELLIPSIS + k;
    if (dim < self->view.rank && !index_of(spec, dim)) codes[at++] = TT_CODE_DIM + dim;
  }
}

/* What is written is broadcast to what would be read; false: it lacks padding that this has. */
static bool note_written(tt_spread *s, const tt_call_spec *spec, int rank) {
  if (spec->args[2].kind != TT_ARG_TENSOR) return false;
  const tt_call_tensor *values = &spec->tensors[spec->args[2].first];
  int codes[TT_MAX_RANK], more = rank - values->view.rank;
  if (more < 0 || rank > TT_MAX_RANK) return false;
  tt_picked_codes(spec, rank, codes);
  for (int k = 0; k < tt_marks_count(&values->marks); k++) {
    const tt_mark *mark = &values->marks.of[k];
    if (!tt_spread_note(s, codes[more + mark->dim], values, mark)) return false;
  }
  return tt_spread_agrees(s, values, codes + more);
}

bool tt_picked_put(tt_spread *s, const tt_call_spec *spec) {
  if (!tt_picked_index(s, spec)) return false;
  const tt_call_tensor *self = &spec->tensors[spec->args[0].first];
  int rank = self->view.rank, broadcast = 0;
  for (int dim = 0; dim < self->view.rank; dim++) {
    const tt_call_tensor *index = index_of(spec, dim);
    if (!index) continue;
    rank--;
    if (index->view.rank > broadcast) broadcast = index->view.rank;
    if (!leave_out_all(s, spec, (int)(index - spec->tensors))) return false;
  }
  return note_written(s, spec, rank + broadcast);
}

/* -- Along one dim -- */

/* The dim that argument 1 names, of self, argument 0; -1: these are no such arguments. */
static int dim_of(const tt_call_spec *spec) {
  if (spec->args[0].kind != TT_ARG_TENSOR || spec->args[1].kind != TT_ARG_INT) return -1;
  if (spec->args[2].kind != TT_ARG_TENSOR) return -1;
  int rank = spec->tensors[spec->args[0].first].view.rank, dim = (int)spec->args[1].i;
  return dim < 0 ? dim + rank : dim;
}

/* Slices: self is marked as it likes elsewhere; along `dim` indices count without padding, and
 * where they read they are told how many there are. */
static bool note_slices(tt_spread *s, const tt_call_spec *spec, int dim, bool read) {
  int tensor = spec->args[0].first;
  const tt_call_tensor *self = &spec->tensors[tensor];
  for (int k = 0; k < tt_marks_count(&self->marks); k++) {
    const tt_mark *mark = &self->marks.of[k];
    bool fits = mark->dim == dim
                    ? mark->outer == 1 && (!read || tt_spread_leave_out(s, tensor, mark))
                    : tt_spread_note(s, TT_CODE_DIM + mark->dim, self, mark);
    if (!fits) return false;
  }
  return true;
}

bool tt_picked_select(tt_spread *s, const tt_call_spec *spec) {
  int dim = dim_of(spec);
  if (dim < 0 || !note_slices(s, spec, dim, true)) return false;
  const tt_call_tensor *index = &spec->tensors[spec->args[2].first];
  return !index->marks.count || tt_spread_note(s, TT_CODE_DIM + dim, index, &index->marks.of[0]);
}

/* Whether what is written, which may be a number, has padding where self or the index has it. */
static bool writes_slices(const tt_call_spec *spec, int dim) {
  const tt_arg *written = &spec->args[3];
  const tt_call_tensor *self = &spec->tensors[spec->args[0].first];
  const tt_call_tensor *index = &spec->tensors[spec->args[2].first];
  if (written->kind != TT_ARG_TENSOR || spec->tensors[written->first].view.rank == 0) return true;
  const tt_call_tensor *source = &spec->tensors[written->first];
  if (source->view.rank != self->view.rank) return false;
  for (int d = 0; d < source->view.rank; d++) {
    const tt_mark *own = tt_mark_of(&source->marks, d), *other = tt_mark_of(&self->marks, d);
    if (d == dim) other = index->marks.count ? &index->marks.of[0] : NULL;
    if (own ? !other || !tt_spread_same(own, other) : other != NULL) return false;
  }
  return true;
}

bool tt_picked_add(tt_spread *s, const tt_call_spec *spec) {
  int dim = dim_of(spec);
  return dim >= 0 && note_slices(s, spec, dim, false) && writes_slices(spec, dim) &&
         leave_out_all(s, spec, spec->args[2].first);
}

/* Where `inner` has room for more along a dim other than `dim`, `outer`, which may be longer, has
 * it as well; along that dim, too, a place is the same with padding as without. */
static bool within(const tt_call_tensor *inner, const tt_call_tensor *outer, int dim) {
  for (int d = 0; d < inner->view.rank; d++) {
    const tt_mark *own = tt_mark_of(&inner->marks, d), *other = tt_mark_of(&outer->marks, d);
    bool same = own && other && tt_spread_same(own, other);
    bool apart = other && other->outer != 1;
    if (d == dim || !own ? apart : !same) return false;
  }
  return true;
}

/* Whether an index for each element, which is of self's rank, has its padding where self has. */
static bool is_within(const tt_call_spec *spec, int dim) {
  if (dim < 0) return false;
  const tt_call_tensor *self = &spec->tensors[spec->args[0].first];
  const tt_call_tensor *index = &spec->tensors[spec->args[2].first];
  return self->view.rank == index->view.rank && within(index, self, dim);
}

bool tt_picked_gather(tt_spread *s, const tt_call_spec *spec) {
  int self = spec->args[0].first, dim = dim_of(spec);
  if (!is_within(spec, dim)) return false;
  const tt_mark *along = tt_mark_of(&spec->tensors[self].marks, dim);
  if (along && !tt_spread_leave_out(s, self, along)) return false;
  return tt_spread_note_dims(s, &spec->tensors[spec->args[2].first]);
}

bool tt_picked_scatter(tt_spread *s, const tt_call_spec *spec) {
  int dim = dim_of(spec);
  if (!is_within(spec, dim)) return false;
  const tt_call_tensor *index = &spec->tensors[spec->args[2].first];
  const tt_mark *along = tt_mark_of(&index->marks, dim);
  if (along && !tt_spread_leave_out(s, spec->args[2].first, along)) return false;
  if (spec->args[3].kind != TT_ARG_TENSOR) return true;
  const tt_call_tensor *source = &spec->tensors[spec->args[3].first];
  return source->view.rank == index->view.rank && within(index, source, -1);
}

/* -- By masks -- */

/* Both have padding at the same places, of as many dims. */
static bool alike(const tt_call_tensor *one, const tt_call_tensor *other) {
  if (!one->marks.count && !other->marks.count) return true;
  return one->view.rank == other->view.rank && tt_spread_same_all(&one->marks, &other->marks);
}

/* What is picked fills the result from its begin on, so that padding may be at its end only. */
bool tt_picked_by_mask(tt_spread *s, const tt_call_spec *spec) {
  const tt_arg *first = &spec->args[0], *second = &spec->args[1];
  if (first->kind != TT_ARG_TENSOR) return false;
  for (int k = 0; k < tt_marks_count(&spec->sized); k++)
    if (spec->sized.of[k].dim != 0) return false;
  if (second->kind != TT_ARG_TENSOR) return leave_out_all(s, spec, first->first);
  return alike(&spec->tensors[first->first], &spec->tensors[second->first]) &&
         leave_out_all(s, spec, second->first);
}

/* What is written is read from its begin on, so that padding may be at its end. */
bool tt_picked_masked(tt_spread *s, const tt_call_spec *spec) {
  for (int i = 0; i < 3; i++)
    if (spec->args[i].kind != TT_ARG_TENSOR) return false;
  const tt_call_tensor *source = &spec->tensors[spec->args[2].first];
  for (int k = 0; k < tt_marks_count(&source->marks); k++)
    if (source->marks.of[k].dim != 0 || source->marks.of[k].outer != 1) return false;
  int mask = spec->args[1].first;
  return alike(&spec->tensors[spec->args[0].first], &spec->tensors[mask]) &&
         leave_out_all(s, spec, mask);
}
