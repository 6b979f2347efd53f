#include "call/bounded.h"

#include <string.h>

enum { LEAST = 64 };

int64_t tt_bound_of(int64_t length) {
  int64_t bound = LEAST;
  while (bound < length && bound <= INT64_MAX / 2) bound *= 2;
  return bound < length ? length : bound;
}

/* -- Views -- */

/* The type's dims as digits of a flat index, with and without the padding. */
typedef struct places {
  int count, along;
  int64_t size[TT_MAX_RANK], unit[TT_MAX_RANK];  /* without */
  int64_t room[TT_MAX_RANK], width[TT_MAX_RANK]; /* with */
  int64_t last[TT_MAX_RANK]; /* where the view begins and, then, how far its placed dims reach */
} places;

static void measure(places *p, const tt_type *type, int64_t length) {
  int64_t unit = 1, width = 1;
  p->count = type->rank;
  p->along = tt_type_along(type);
  for (int i = type->rank - 1; i >= 0; i--) {
    p->size[i] = i == p->along ? length : type->dims[i];
    p->room[i] = type->dims[i];
    p->unit[i] = unit;
    p->width[i] = width;
    unit *= p->size[i];
    width *= p->room[i];
  }
}

static bool start_at(places *p, int64_t offset, int64_t *out) {
  *out = 0;
  for (int i = 0; i < p->count; i++) {
    p->last[i] = offset / p->unit[i];
    offset %= p->unit[i];
    if (p->last[i] >= p->size[i]) return false;
    *out += p->last[i] * p->width[i];
  }
  return offset == 0;
}

/* The digit that a stride steps along; -1: none. */
static int digit_of(const places *p, int64_t stride) {
  for (int i = 0; i < p->count; i++)
    if (p->size[i] > 1 && stride % p->unit[i] == 0 && stride / p->unit[i] < p->size[i]) return i;
  return -1;
}

/* A dim of the view that runs through whole digits, from the k-th, the lowest, upwards. */
static bool place_run(places *p, int dim, int k, tt_view *view, tt_mark *mark) {
  int64_t size = 1, room = 1, inner = 1, outer = 1;
  int top = k;
  for (; top >= 0 && size < view->sizes[dim]; top--) {
    if (p->last[top] != 0) return false;
    p->last[top] = p->size[top] - 1;
    if (top > p->along) inner *= p->room[top];
    if (top < p->along) outer *= p->room[top];
    size *= p->size[top];
    room *= p->room[top];
  }
  if (size != view->sizes[dim]) return false;
  view->strides[dim] = p->width[k];
  view->sizes[dim] = room;
  if (top < p->along && p->along <= k)
    *mark = (tt_mark){.is = true, .dim = dim, .outer = outer, .inner = inner};
  return true;
}

static bool place_dim(places *p, int dim, tt_view *view, tt_mark *mark) {
  int64_t size = view->sizes[dim], stride = view->strides[dim];
  if (size == 1 || stride == 0) return true;
  int k = stride > 0 ? digit_of(p, stride) : -1;
  if (k < 0) return false;
  int64_t step = stride / p->unit[k];
  bool whole = k == p->along && step == 1 && size == p->size[k];
  if (whole || p->last[k] + step * (size - 1) >= p->size[k])
    return step == 1 && place_run(p, dim, k, view, mark);
  p->last[k] += step * (size - 1);
  view->strides[dim] = step * p->width[k];
  return true;
}

/* Strides along dims of one element mean nothing, but some look at them. */
static void fill_strides(tt_view *view) {
  int64_t behind = 1;
  for (int i = view->rank - 1; i >= 0; i--) {
    if (view->sizes[i] == 1) view->strides[i] = behind;
    behind = view->strides[i] * view->sizes[i];
  }
}

bool tt_bounded_view(const tt_type *type, int64_t length, const tt_view *logical, tt_view *out,
                     tt_mark *mark) {
  places p;
  *out = *logical;
  *mark = (tt_mark){.is = false};
  measure(&p, type, length);
  if (logical->rank < 0 || logical->rank > TT_MAX_RANK) return false;
  if (logical->dtype != type->dtype || tt_view_numel(logical) == 0) return false;
  if (!start_at(&p, logical->offset, &out->offset)) return false;
  for (int i = 0; i < out->rank; i++) {
    tt_mark one = {.is = false};
    if (!place_dim(&p, i, out, &one) || (one.is && mark->is)) return false;
    if (one.is) *mark = one;
  }
  fill_strides(out);
  return true;
}

/* The dense view of these sizes whose dims are ordered as its strides say. */
static void restride(tt_view *view) {
  int order[TT_MAX_RANK];
  int64_t stride = 1;
  for (int i = tt_view_order(view, order) - 1; i >= 0; i--) {
    view->strides[order[i]] = stride;
    stride *= view->sizes[order[i]];
  }
  fill_strides(view);
}

tt_view tt_bounded_cover(const tt_view *view, int dim, int64_t bound) {
  tt_view wide = *view;
  wide.sizes[dim] = bound;
  restride(&wide);
  return wide;
}

tt_view tt_bounded_logical(const tt_view *view, const tt_mark *mark, int64_t length) {
  tt_view exact = *view;
  if (!mark->is) return exact;
  exact.sizes[mark->dim] = mark->outer * length * mark->inner;
  restride(&exact);
  return exact;
}

int64_t tt_call_result_length(const tt_call_result *result, const uint32_t *words) {
  int64_t length = 0;
  memcpy(&length, words + result->length_word, sizeof length);
  return length;
}

tt_view tt_call_result_view(const tt_call *call, size_t k, const uint32_t *words) {
  const tt_call_result *result = &call->results[k];
  if (!result->mark.is) return result->view;
  return tt_bounded_logical(&result->view, &result->mark, tt_call_result_length(result, words));
}

/* -- Types -- */

/* Which dim of a dense view's storage (tt_view_dense) a dim of the view is. */
static int dense_dim(const tt_view *view, int dim) {
  int order[TT_MAX_RANK], count = tt_view_order(view, order), at = 0;
  bool sorted = true;
  for (int i = 1; i < count; i++) sorted = sorted && order[i] > order[i - 1];
  if (sorted) return dim;
  while (at < count && order[at] != dim) at++;
  return view->rank - count + at;
}

tt_status tt_bounded_type(const tt_view *view, const tt_mark *mark, const tt_type **out) {
  tt_view dense = *view;
  tt_type type;
  tt_view_dense(&dense, &type);
  int at = dense_dim(&dense, mark->dim);
  int64_t parts[3] = {mark->outer, type.dims[at] / (mark->outer * mark->inner), mark->inner};
  tt_type split = {.dtype = type.dtype};
  int along = at;
  for (int i = 0; i < type.rank; i++) {
    for (int k = 0; k < 3; k++) {
      if (k != 1 && (i != at || parts[k] == 1)) continue;
      if (split.rank == TT_MAX_RANK)
        return tt_error(TT_INVALID_ARGUMENT, "a bounded value would have over %d dims",
                        TT_MAX_RANK);
      if (k == 1 && i == at) along = split.rank;
      split.dims[split.rank++] = i == at ? parts[k] : type.dims[i];
    }
  }
  return tt_type_intern_bounded(&split, along, out);
}

tt_type tt_bounded_exact(const tt_type *type, int64_t length) {
  tt_type exact = tt_type_make(type->dtype, type->rank, type->dims);
  exact.dims[tt_type_along(type)] = length;
  return exact;
}

/* -- Operands -- */

static int64_t bound_in(const tt_type *bounded) { return bounded->dims[tt_type_along(bounded)]; }

static int find_length(const tt_lengths *lengths, int64_t length, int64_t bound) {
  int i = 0;
  while (i < lengths->count &&
         (lengths->of[i].length != length || (bound && lengths->of[i].bound != bound)))
    i++;
  return i;
}

static bool add_length(tt_lengths *lengths, int64_t length, int64_t bound) {
  int i = find_length(lengths, length, bound);
  if (i == TT_MOST_LENGTHS) return false;
  lengths->of[i].length = length;
  lengths->of[i].bound = bound;
  if (i == lengths->count) lengths->count++;
  return true;
}

bool tt_lengths_add(tt_lengths *lengths, const tt_type *bounded, int64_t length) {
  return add_length(lengths, length, bound_in(bounded));
}

void tt_lengths_recall(tt_lengths *lengths, tt_growing *growing, const tt_view *view,
                       const tt_type *storage) {
  if (tt_view_numel(view) >= tt_view_total(view, storage)) return;
  for (int i = 0; i < view->rank; i++) {
    int64_t size = view->sizes[i], bound = tt_bound_of(size);
    if (size < 2 || view->strides[i] == 0 || !tt_growing_is_live(growing, size)) continue;
    if (tt_view_room(view, tt_view_total(view, storage), i, false) >= bound)
      (void)add_length(lengths, size, bound);
  }
}

/* Dim `dim` has as many elements as the length says. */
static bool widen(const tt_lengths *lengths, int i, int dim, tt_use use, tt_operand *o) {
  int64_t bound = lengths->of[i].bound;
  o->mark = (tt_mark){.is = true, .dim = dim, .scalar = i, .outer = 1, .inner = 1};
  if (use == TT_USE_FILL && tt_view_covers(&o->view, o->type)) {
    o->view = tt_bounded_cover(&o->view, dim, bound);
    tt_status status = tt_bounded_type(&o->view, &o->mark, &o->type);
    bool good = !status;
    tt_status_release(status);
    return good;
  }
  int64_t total = tt_view_total(&o->view, o->type);
  bool repeats = o->view.strides[dim] == 0;
  if (use != TT_USE_READ || (!repeats && tt_view_room(&o->view, total, dim, false) < bound))
    return false;
  o->view.sizes[dim] = bound;
  return true;
}

bool tt_operand_of(const tt_lengths *lengths, const tt_type *type, const tt_type *bounded,
                   int64_t length, tt_use use, const tt_view *view, tt_operand *out) {
  *out = (tt_operand){.type = bounded ? bounded : type, .view = *view};
  if (bounded) {
    bool seen = tt_bounded_view(bounded, length, view, &out->view, &out->mark);
    out->mark.scalar = find_length(lengths, length, bound_in(bounded));
    return seen && out->mark.scalar < lengths->count;
  }
  tt_operand exact = *out;
  for (int dim = 0; dim < view->rank; dim++) {
    int i = view->sizes[dim] > 1 ? find_length(lengths, view->sizes[dim], 0) : lengths->count;
    if (i < lengths->count && widen(lengths, i, dim, use, out)) return true;
    *out = exact;
  }
  return true;
}
