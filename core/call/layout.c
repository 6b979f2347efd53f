#include "call/layout.h"

tt_view tt_view_whole(const tt_type *storage) {
  tt_view view = {.dtype = storage->dtype, .rank = storage->rank};
  int64_t stride = 1;
  for (int i = storage->rank - 1; i >= 0; i--) {
    view.sizes[i] = storage->dims[i];
    view.strides[i] = stride;
    stride *= storage->dims[i] > 0 ? storage->dims[i] : 1;
  }
  return view;
}

tt_type tt_view_type(const tt_view *view) {
  return tt_type_make(tt_dtype_computed(view->dtype), view->rank, view->sizes);
}

tt_type tt_view_held(const tt_view *view) {
  return tt_type_make(tt_dtype_held(view->dtype), view->rank, view->sizes);
}

int64_t tt_view_numel(const tt_view *view) {
  int64_t n = 1;
  for (int i = 0; i < view->rank; i++) n *= view->sizes[i];
  return n;
}

int tt_view_order(const tt_view *view, int *order) {
  int count = 0;
  for (int i = 0; i < view->rank; i++) {
    if (view->sizes[i] == 1 || view->strides[i] == 0) continue;
    int at = count++;
    for (; at > 0 && view->strides[order[at - 1]] < view->strides[i]; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  return count;
}

static bool is_dense(const tt_view *view) {
  int order[TT_MAX_RANK];
  int count = tt_view_order(view, order);
  int64_t expected = 1;
  for (int i = count - 1; i >= 0; i--) {
    if (view->strides[order[i]] != expected) return false;
    expected *= view->sizes[order[i]];
  }
  return expected == tt_view_numel(view);
}

bool tt_view_covers(const tt_view *view, const tt_type *storage) {
  int64_t view_bytes = tt_view_numel(view) * tt_dtype_bytes(view->dtype);
  int64_t storage_bytes = tt_type_numel(storage) * tt_dtype_bytes(storage->dtype);
  return view_bytes == storage_bytes && (view_bytes == 0 || (view->offset == 0 && is_dense(view)));
}

void tt_view_dense(tt_view *view, tt_type *storage) {
  view->offset = 0;
  if (tt_view_numel(view) > 0 && !is_dense(view)) {
    tt_dtype dtype = view->dtype;
    tt_type type = tt_view_held(view);
    *view = tt_view_whole(&type);
    view->dtype = dtype;
  }
  int order[TT_MAX_RANK];
  bool placed[TT_MAX_RANK] = {false};
  int count = tt_view_order(view, order);
  *storage = tt_view_held(view);
  bool sorted = true;
  for (int i = 1; i < count; i++) sorted = sorted && order[i] > order[i - 1];
  if (sorted) return; /* row-major, perhaps with size-1 dims in between */
  for (int i = 0; i < count; i++) placed[order[i]] = true;
  int at = 0;
  for (int i = 0; i < view->rank; i++)
    if (!placed[i]) storage->dims[at++] = view->sizes[i];
  for (int i = 0; i < count; i++) storage->dims[at++] = view->sizes[order[i]];
}

/* -- Digits -- */

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static tt_digits cut(const tt_view *view, int64_t total, bool slice_first) {
  tt_digits d = {.first = slice_first ? view->offset : 0};
  int64_t offset = view->offset - d.first, available = total - d.first, unit = 1;
  d.dim_count = tt_view_order(view, d.dims);
  if (d.dim_count >= TT_MAX_RANK) return d;
  for (int i = 0; i < d.dim_count; i++) {
    int64_t stride = view->strides[d.dims[i]], size = view->sizes[d.dims[i]];
    int64_t above = unit;
    unit = i == 0 ? stride : gcd(stride, above);
    d.unit[i] = unit;
    d.step[i] = stride / unit;
    d.start[i] = offset / unit;
    if (i == 0) d.radix[i] = slice_first ? size : (available + unit - 1) / unit;
    else {
      d.radix[i] = above / unit;
      d.start[i] %= d.radix[i];
    }
    d.limit[i] = d.start[i] + (size - 1) * d.step[i] + 1;
    if (d.limit[i] > d.radix[i]) return d;
  }
  d.count = d.dim_count;
  if (d.count == 0) unit = available; /* one element */
  if (unit > 1) {
    d.unit[d.count] = 1;
    d.radix[d.count] = unit;
    d.start[d.count] = offset % unit;
    d.limit[d.count] = d.start[d.count] + 1;
    d.step[d.count++] = 1;
  }
  d.length = 1;
  for (int i = 0; i < d.count; i++)
    if (!tt_mul_i64(d.length, d.radix[i], &d.length)) return d;
  d.ok = true;
  return d;
}

tt_digits tt_digits_of_whole(const tt_view *view, int64_t total) { return cut(view, total, false); }

tt_digits tt_digits_of(const tt_view *view, int64_t total) {
  tt_digits d = cut(view, total, false);
  return d.ok ? d : cut(view, total, true);
}

/* -- Offsets that are known only at run time -- */

int64_t tt_view_extent(const tt_view *view) {
  int64_t extent = 1, span = 0;
  for (int i = 0; i < view->rank; i++)
    if (!tt_mul_i64(view->sizes[i] - 1, view->strides[i], &span) ||
        !tt_add_i64(extent, span, &extent))
      return -1;
  return extent;
}

int64_t tt_view_total(const tt_view *view, const tt_type *storage) {
  return tt_type_numel(storage) * tt_dtype_bytes(storage->dtype) / tt_dtype_bytes(view->dtype);
}

tt_motion tt_view_motion(const tt_view *view, int64_t total) {
  if (tt_view_numel(view) == 0) return TT_MOTION_DIGITS; /* nothing is looked for */
  int64_t extent = tt_view_extent(view);
  if (extent < 1 || view->offset < 0 || extent > total || view->offset > total - extent)
    return TT_MOTION_NONE;
  tt_digits d = tt_digits_of_whole(view, total);
  return d.ok && d.length == total ? TT_MOTION_DIGITS : TT_MOTION_FLAT;
}

/* -- Sizes that are known only at run time -- */

/* At least two elements along the dim, so that it has a digit; *digit is that, or -1 if others do
 * not stay inside theirs. */
static tt_digits with_digit(const tt_view *view, int64_t total, int dim, int *digit) {
  tt_view wide = *view;
  if (wide.sizes[dim] < 2) wide.sizes[dim] = 2;
  tt_digits d = tt_digits_of_whole(&wide, total);
  *digit = -1;
  for (int i = 0; i < d.dim_count && d.dim_count < TT_MAX_RANK; i++)
    if (d.dims[i] == dim && d.radix[i] > 0) *digit = i;
  return d;
}

/* Of one that moves: where the dim begins at its digit's first element. */
static tt_view at_front(const tt_view *view, const tt_digits *d, int digit) {
  tt_view front = *view;
  front.offset -= d->start[digit] * d->unit[digit];
  return front;
}

static tt_motion widen_in_digit(tt_view *view, int64_t total, int dim, int64_t size, bool moves) {
  int digit = -1;
  if (tt_view_motion(view, total) != TT_MOTION_DIGITS) return TT_MOTION_FLAT;
  tt_digits d = with_digit(view, total, dim, &digit);
  if (digit < 0) return TT_MOTION_FLAT;
  tt_view wide = moves ? at_front(view, &d, digit) : *view;
  wide.sizes[dim] = size;
  if (tt_view_motion(&wide, total) != TT_MOTION_DIGITS) return TT_MOTION_FLAT;
  *view = wide;
  return TT_MOTION_DIGITS;
}

tt_motion tt_view_widen(tt_view *view, int64_t total, int dim, int64_t size, bool moves) {
  if (view->strides[dim] == 0) {
    view->sizes[dim] = size;
    return tt_view_motion(view, total);
  }
  if (widen_in_digit(view, total, dim, size, moves) == TT_MOTION_DIGITS) return TT_MOTION_DIGITS;
  view->sizes[dim] = size;
  if (moves) view->offset = 0;
  return TT_MOTION_FLAT;
}

int64_t tt_view_room(const tt_view *view, int64_t total, int dim, bool moves) {
  int digit = -1;
  if (view->strides[dim] == 0) return INT64_MAX;
  tt_digits d = with_digit(view, total, dim, &digit);
  tt_view wide = *view;
  if (digit >= 0) {
    int64_t room = (d.radix[digit] - (moves ? 0 : d.start[digit]) - 1) / d.step[digit] + 1;
    if (room >= view->sizes[dim] &&
        widen_in_digit(&wide, total, dim, room, moves) == TT_MOTION_DIGITS)
      return room;
  }
  wide.sizes[dim] = 1;
  return (total - (moves ? 0 : view->offset) - tt_view_extent(&wide)) / view->strides[dim] + 1;
}
