#include "call/bounded.h"

#include <string.h>

enum { LEAST = 64 };

int64_t tt_bound_of(int64_t length) {
  int64_t bound = LEAST;
  while (bound < length && bound <= INT64_MAX / 2) bound *= 2;
  return bound < length ? length : bound;
}

/* -- Views -- */

/* The digits of a flat index, with and without the padding: the bounded dims, and what is between
 * them, as one digit each. */
typedef struct places {
  int count;
  int along[TT_MAX_RANK];                        /* which of the bounded dims it is, or -1 */
  int64_t size[TT_MAX_RANK], unit[TT_MAX_RANK];  /* without */
  int64_t room[TT_MAX_RANK], width[TT_MAX_RANK]; /* with */
  int64_t last[TT_MAX_RANK]; /* where the view begins and, then, how far its placed dims reach */
} places;

static int bounded_at(const tt_type *type, int dim) {
  const tt_along *along = tt_type_along(type);
  for (int k = 0; k < tt_along_count(along); k++)
    if (along->dims[k] == dim) return k;
  return -1;
}

static void measure(places *p, const tt_type *type, const tt_reach *reach) {
  int64_t unit = 1, width = 1;
  p->count = 0;
  for (int i = 0; i < type->rank; i++) {
    int along = bounded_at(type, i), at = p->count - 1;
    if (along < 0 && at >= 0 && p->along[at] < 0) {
      p->room[at] *= type->dims[i];
      p->size[at] = p->room[at];
      continue;
    }
    at = p->count++;
    p->along[at] = along;
    p->room[at] = type->dims[i];
    p->size[at] = along >= 0 ? reach->of[along] : type->dims[i];
  }
  for (int i = p->count - 1; i >= 0; i--) {
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

/* The bounded dims of a view, by which one it is of the value: a mark of no dim has outer 0. */
typedef struct found {
  tt_mark of[TT_MOST_ALONG];
} found;

/* Takes `size` elements along a digit, `step` apart, from where the view is on; all of a bounded
 * one, and all of any but the highest. */
static bool take_digit(places *p, int digit, int64_t step, int64_t size) {
  int64_t all = p->size[digit] / step;
  if (p->along[digit] >= 0 && (step != 1 || size < all)) return false;
  p->last[digit] += step * ((size < all ? size : all) - 1);
  return p->last[digit] < p->size[digit];
}

/* A dim of the view that runs through digits, from the k-th, the lowest, upwards, of which it takes
 * every step-th element. */
static bool place_run(places *p, int dim, int k, int64_t step, tt_view *view, found *marks) {
  int64_t left = view->sizes[dim], room = 1;
  tt_mark mark = {.dim = dim, .scalar = -1, .outer = 1, .inner = 1};
  if (p->size[k] % step) return false;
  view->strides[dim] = step * p->width[k];
  for (int top = k; top >= 0 && left > 1; top--, step = 1) {
    int64_t all = p->size[top] / step;
    bool along = p->along[top] >= 0, whole = left >= all;
    if ((whole && left % all) || (along && mark.scalar >= 0)) return false;
    if (!take_digit(p, top, step, left)) return false;
    int64_t taken = whole ? p->room[top] / step : left;
    if (along) mark.scalar = p->along[top];
    else *(mark.scalar >= 0 ? &mark.outer : &mark.inner) *= taken;
    left = whole ? left / all : 1;
    room *= taken;
  }
  if (left != 1) return false;
  view->sizes[dim] = room;
  if (mark.scalar < 0) return true;
  if (marks->of[mark.scalar].outer) return false;
  marks->of[mark.scalar] = mark;
  return true;
}

static bool place_dim(places *p, int dim, tt_view *view, found *marks) {
  int64_t size = view->sizes[dim], stride = view->strides[dim];
  if (size == 1 || stride == 0) return true;
  int k = stride > 0 ? digit_of(p, stride) : -1;
  if (k < 0) return false;
  int64_t step = stride / p->unit[k];
  bool whole = p->along[k] >= 0 && step == 1 && size == p->size[k];
  if (whole || p->last[k] + step * (size - 1) >= p->size[k])
    return place_run(p, dim, k, step, view, marks);
  p->last[k] += step * (size - 1);
  view->strides[dim] = step * p->width[k];
  return true;
}

/* Strides along dims of one element mean nothing, but some look at them (is an image's last dim its
 * channels?): they are as long as what lies inside of them, as the strides that were say. */
static void fill_strides(tt_view *view, const tt_view *before) {
  for (int i = 0; i < view->rank; i++) {
    if (view->sizes[i] != 1) continue;
    view->strides[i] = 1;
    for (int j = 0; j < view->rank; j++)
      if (before->strides[j] != 0 && before->strides[j] < before->strides[i])
        view->strides[i] *= view->sizes[j];
  }
}

bool tt_bounded_view(const tt_type *type, const tt_reach *reach, const tt_view *logical,
                     tt_view *out, tt_marks *marks) {
  places p;
  found all = {0};
  *out = *logical;
  marks->count = 0;
  measure(&p, type, reach);
  if (logical->rank < 0 || logical->rank > TT_MAX_RANK) return false;
  if (logical->dtype != type->dtype || tt_view_numel(logical) == 0) return false;
  if (!start_at(&p, logical->offset, &out->offset)) return false;
  for (int i = 0; i < out->rank; i++)
    if (!place_dim(&p, i, out, &all)) return false;
  for (int k = 0; k < TT_MOST_ALONG; k++)
    if (all.of[k].outer) marks->of[marks->count++] = all.of[k];
  fill_strides(out, logical);
  return true;
}

/* The dense view of these sizes whose dims are ordered as its strides say. */
static void restride(tt_view *view) {
  tt_view before = *view;
  int order[TT_MAX_RANK];
  int64_t stride = 1;
  for (int i = tt_view_order(view, order) - 1; i >= 0; i--) {
    view->strides[order[i]] = stride;
    stride *= view->sizes[order[i]];
  }
  fill_strides(view, &before);
}

tt_view tt_bounded_cover(const tt_view *view, int dim, int64_t bound) {
  tt_view wide = *view;
  wide.sizes[dim] = bound;
  restride(&wide);
  return wide;
}

tt_view tt_bounded_logical(const tt_view *view, const tt_marks *marks, const tt_reach *reach) {
  tt_view exact = *view;
  for (int k = 0; k < tt_marks_count(marks); k++) {
    const tt_mark *mark = &marks->of[k];
    exact.sizes[mark->dim] = mark->outer * reach->of[k] * mark->inner;
  }
  if (marks->count) restride(&exact);
  return exact;
}

tt_reach tt_call_result_reach(const tt_call_result *result, const uint32_t *words) {
  tt_reach reach = {{0}};
  for (int k = 0; k < result->length_count && k < TT_MOST_ALONG; k++)
    memcpy(&reach.of[k], words + result->length_words[k], sizeof reach.of[k]);
  return reach;
}

tt_view tt_call_result_view(const tt_call *call, size_t k, const uint32_t *words) {
  const tt_call_result *result = &call->results[k];
  tt_reach reach = tt_call_result_reach(result, words);
  return tt_bounded_logical(&result->view, &result->marks, &reach);
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

/* A dim of a dense view's storage as digits of their own; false: there are too many dims. */
static bool split_dim(tt_type *split, int64_t size, const tt_mark *mark, tt_along *along) {
  int64_t parts[3] = {1, size, 1};
  if (mark) {
    parts[0] = mark->outer;
    parts[1] = size / (mark->outer * mark->inner);
    parts[2] = mark->inner;
  }
  for (int k = 0; k < 3; k++) {
    if (k != 1 && parts[k] == 1) continue;
    if (split->rank == TT_MAX_RANK) return false;
    if (k == 1 && mark) along->dims[along->count++] = split->rank;
    split->dims[split->rank++] = parts[k];
  }
  return true;
}

tt_status tt_bounded_type(const tt_view *view, tt_marks *marks, const tt_type **out) {
  tt_view dense = *view;
  tt_type type, split = {.rank = 0};
  tt_marks ordered = {.count = 0};
  tt_along along = {.count = 0};
  tt_view_dense(&dense, &type);
  for (int i = 0; i < type.rank; i++) {
    const tt_mark *own = NULL;
    for (int k = 0; k < tt_marks_count(marks); k++)
      if (dense_dim(&dense, marks->of[k].dim) == i) own = &marks->of[k];
    if (!split_dim(&split, type.dims[i], own, &along))
      return tt_error(TT_INVALID_ARGUMENT, "a bounded value would have over %d dims", TT_MAX_RANK);
    if (own) ordered.of[ordered.count++] = *own;
  }
  split.dtype = type.dtype;
  *marks = ordered;
  return tt_type_intern_bounded(&split, &along, out);
}

tt_type tt_bounded_exact(const tt_type *type, const tt_reach *reach) {
  tt_type exact = tt_type_make(type->dtype, type->rank, type->dims);
  const tt_along *along = tt_type_along(type);
  for (int k = 0; k < tt_along_count(along); k++) exact.dims[along->dims[k]] = reach->of[k];
  return exact;
}

int tt_padded_dim(const int64_t *pad, size_t count, int rank) {
  int dim = -1;
  for (size_t i = 0; i + 1 < count; i += 2) {
    if (pad[i] == 0 && pad[i + 1] == 0) continue;
    if (dim >= 0) return -1;
    dim = rank - 1 - (int)(i / 2);
  }
  return dim;
}

/* -- Operands -- */

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

bool tt_lengths_add(tt_lengths *lengths, const tt_type *bounded, const tt_reach *reach) {
  const tt_along *along = tt_type_along(bounded);
  bool all = true;
  for (int k = 0; k < tt_along_count(along) && all; k++)
    all = add_length(lengths, reach->of[k], bounded->dims[along->dims[k]]);
  return all;
}

void tt_lengths_add_size(tt_lengths *lengths, int64_t size) {
  (void)add_length(lengths, size, tt_bound_of(size));
}

void tt_lengths_add_merged(tt_lengths *lengths, const tt_operand *seen) {
  for (int k = 0; k < tt_marks_count(&seen->marks); k++) {
    const tt_mark *mark = &seen->marks.of[k];
    bool merged = mark->outer != 1 || mark->inner != 1;
    if (merged && lengths->merged_count < TT_MOST_ALONG)
      lengths->merged[lengths->merged_count++] = *mark;
  }
}

void tt_lengths_guide(tt_lengths *lengths, const tt_operand *seen) {
  for (int dim = 0; dim < seen->view.rank; dim++) {
    const tt_mark *mark = tt_mark_of(&seen->marks, dim);
    uint8_t *own = &lengths->guide[seen->view.rank - 1 - dim];
    if (mark && mark->outer == 1 && mark->inner == 1) *own = (uint8_t)(mark->scalar + 2);
    else if (!mark && seen->view.sizes[dim] > 1 && *own == 0) *own = 1;
  }
}

void tt_lengths_recall_size(tt_lengths *lengths, tt_growing *growing, int64_t size) {
  if (size > 1 && tt_growing_is_live(growing, size)) tt_lengths_add_size(lengths, size);
}

int tt_lengths_find(const tt_lengths *lengths, int64_t size) {
  int i = size > 1 ? find_length(lengths, size, 0) : lengths->count;
  return i < lengths->count ? i : -1;
}

void tt_lengths_recall(tt_lengths *lengths, tt_growing *growing, const tt_view *view,
                       const tt_type *storage) {
  int64_t total = tt_view_total(view, storage), numel = 1; /* of those that are apart */
  for (int i = 0; i < view->rank; i++)
    if (view->strides[i] != 0) numel *= view->sizes[i];
  bool part = numel < total;
  for (int i = 0; i < view->rank; i++) {
    int64_t size = view->sizes[i];
    bool fits =
        view->strides[i] == 0 || (part && tt_view_room(view, total, i, false) >= tt_bound_of(size));
    if (fits) tt_lengths_recall_size(lengths, growing, size);
  }
}

static int64_t width_of(const tt_type *type, int dim) {
  int64_t width = 1;
  for (int i = dim + 1; i < type->rank; i++) width *= type->dims[i];
  return width;
}

/* Which bounded dim a view's dim steps along, an element at a time; -1: none. */
static int bounded_dim(const tt_type *type, int64_t stride) {
  const tt_along *along = tt_type_along(type);
  for (int k = 0; k < tt_along_count(along); k++)
    if (width_of(type, along->dims[k]) == stride) return along->dims[k];
  return -1;
}

void tt_lengths_recall_part(tt_lengths *lengths, tt_growing *growing, const tt_view *view,
                            const tt_type *bounded, const tt_reach *reach) {
  tt_type exact = tt_bounded_exact(bounded, reach);
  const tt_along *along = tt_type_along(bounded);
  for (int i = 0; i < view->rank; i++) {
    for (int k = 0; k < tt_along_count(along); k++) {
      int64_t size = view->sizes[i], all = reach->of[k];
      if (size < 2 || size >= all || view->strides[i] != width_of(&exact, along->dims[k])) continue;
      bool nearly = size > all - TT_FEW_LEFT_OUT && size >= all / 2;
      if (nearly || tt_growing_is_live(growing, size)) tt_lengths_add_size(lengths, size);
    }
  }
}

/* The storage as seen is longer by `more` along a dim: the view steps over what comes between. */
static void lengthen(tt_operand *o, int dim, int64_t more) {
  int64_t block = width_of(o->type, dim) * o->type->dims[dim];
  int64_t longer = width_of(o->type, dim) * (o->type->dims[dim] + more);
  o->view.offset = o->view.offset / block * longer + o->view.offset % block;
  for (int i = 0; i < o->view.rank; i++)
    if (o->view.strides[i] >= block)
      o->view.strides[i] = o->view.strides[i] / block * longer + o->view.strides[i] % block;
  o->more_dim = dim;
  o->more = more;
}

/* Takes back what lengthen does. */
tt_view tt_bounded_shortened(const tt_call_tensor *tensor) {
  tt_view view = tensor->view;
  const tt_type *storage = tensor->storage;
  if (!tensor->more) return view;
  int64_t width = width_of(storage, tensor->more_dim);
  int64_t block = width * storage->dims[tensor->more_dim], longer = block + width * tensor->more;
  view.offset = view.offset / longer * block + view.offset % longer;
  for (int i = 0; i < view.rank; i++)
    view.strides[i] = view.strides[i] / longer * block + view.strides[i] % longer;
  return view;
}

/* Whether a part of a bounded dim can be as long as a bound. */
static bool make_room(tt_operand *o, int dim, int64_t bound) {
  int along = bounded_dim(o->type, o->view.strides[dim]);
  if (along < 0 || o->more) return false;
  int64_t start = o->view.offset / width_of(o->type, along) % o->type->dims[along];
  int64_t more = start + bound - o->type->dims[along];
  if (more > 0) lengthen(o, along, more);
  return true;
}

/* Whether dim `dim`, which has as many elements as a length says, can be as wide as its bound. */
static bool has_room(tt_operand *o, tt_use use, int dim, int64_t bound, bool in_bounded) {
  if (o->view.strides[dim] == 0) return use == TT_USE_READ;
  if (in_bounded) return make_room(o, dim, bound);
  return tt_view_room(&o->view, tt_view_total(&o->view, o->type), dim, false) >= bound;
}

/* The mark of a dim of that size; false: it is no length's. */
static bool mark_of_size(const tt_lengths *lengths, int64_t size, int guide, bool repeats,
                         tt_mark *out) {
  int i = guide == 1 ? lengths->count : find_length(lengths, size, 0);
  if (guide > 1 && lengths->of[guide - 2].length == size) i = guide - 2;
  out->scalar = i;
  out->outer = out->inner = 1;
  for (int k = 0; i == lengths->count && repeats && k < lengths->merged_count; k++) {
    const tt_mark *merged = &lengths->merged[k];
    if (merged->outer * merged->inner * lengths->of[merged->scalar].length != size) continue;
    *out = *merged;
    return true;
  }
  return i < lengths->count;
}

/* Dims that are as long as a length become as wide as its bound. */
static void widen(const tt_lengths *lengths, tt_use use, bool in_bounded, bool fills,
                  tt_operand *o) {
  for (int dim = 0; dim < o->view.rank && o->marks.count < TT_MOST_ALONG; dim++) {
    int64_t size = o->view.sizes[dim];
    tt_mark mark;
    if (size < 2 || tt_mark_of(&o->marks, dim)) continue;
    int guide = lengths->guide[o->view.rank - 1 - dim];
    if (!mark_of_size(lengths, size, guide, o->view.strides[dim] == 0, &mark)) continue;
    int64_t bound = lengths->of[mark.scalar].bound * mark.outer * mark.inner;
    if (!fills && !has_room(o, use, dim, bound, in_bounded)) continue;
    if (fills) o->view = tt_bounded_cover(&o->view, dim, bound);
    else o->view.sizes[dim] = bound;
    mark.dim = dim;
    o->marks.of[o->marks.count++] = mark;
    o->partly = use != TT_USE_READ && !fills;
  }
}

/* What is filled gets a bounded value, where its storage is as wide as that. */
static bool fill(tt_operand *o) {
  tt_status status = tt_bounded_type(&o->view, &o->marks, &o->type);
  bool good = !status;
  tt_status_release(status);
  for (int k = 0; k < tt_marks_count(&o->marks) && good; k++) o->lengths[k] = o->marks.of[k].scalar;
  return good;
}

/* The scalars of the marks are which of the bounded dims they are of. */
static bool find_lengths(const tt_lengths *lengths, const tt_reach *reach, tt_operand *o) {
  const tt_along *along = tt_type_along(o->type);
  for (int k = 0; k < tt_along_count(along); k++) {
    o->lengths[k] = find_length(lengths, reach->of[k], o->type->dims[along->dims[k]]);
    if (o->lengths[k] == lengths->count) return false;
  }
  for (int i = 0; i < tt_marks_count(&o->marks); i++)
    o->marks.of[i].scalar = o->lengths[o->marks.of[i].scalar];
  return true;
}

bool tt_operand_of(const tt_lengths *lengths, const tt_type *type, const tt_type *bounded,
                   const tt_reach *reach, tt_use use, const tt_view *view, tt_operand *out) {
  *out = (tt_operand){.type = bounded ? bounded : type, .view = *view};
  if (bounded && !(tt_bounded_view(bounded, reach, view, &out->view, &out->marks) &&
                   find_lengths(lengths, reach, out)))
    return false;
  tt_operand exact = *out;
  bool fills = use == TT_USE_FILL && !bounded && tt_view_covers(view, type);
  widen(lengths, use, bounded != NULL, fills, out);
  if (fills && out->marks.count && !fill(out)) *out = exact;
  return true;
}
