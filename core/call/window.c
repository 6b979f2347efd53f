/* A view of one dtype is read: slice, reshape, transpose, broadcast; in the last resort gather. It
 * is written: update-slice, select; in the last resort scatter. */
#include "call/window.h"

#include "call/bits.h"

/* Every index of the view into the flat storage, as a tensor of the view's dims. */
static tt_node *flat_indices(tt_hlo *h, const tt_view *view) {
  tt_type type = tt_type_make(TT_I64, view->rank, view->sizes);
  tt_node *offset = tt_hlo_const_i(h, TT_I64, view->offset);
  tt_node *sum = tt_hlo_broadcast(h, offset, NULL, type.rank, type.dims);
  for (int i = 0; i < view->rank; i++) {
    if (view->strides[i] == 0) continue;
    tt_node *step = tt_hlo_const_i(h, TT_I64, view->strides[i]);
    sum = tt_hlo_add(h, sum, tt_hlo_multiply(h, tt_hlo_iota(h, &type, i), step));
  }
  return sum;
}

/* The flat slice [first, first + length), padded with zeros past the end, as digits. */
static tt_node *to_digits(tt_hlo *h, tt_node *x, const tt_digits *d) {
  int64_t total = tt_type_numel(&x->type);
  if (d->first != 0 || d->length != total) {
    x = tt_bits_flat(h, x);
    int64_t low = -d->first, high = d->first + d->length - total;
    x = tt_hlo_pad(h, x, tt_hlo_const_i(h, x->type.dtype, 0), &low, &high, NULL);
  }
  return tt_hlo_reshape(h, x, d->count, d->radix);
}

/* For each kept dim in ascending view order, which digit it is; and back. */
static int kept_dims(const tt_digits *d, int *digit_of_rank, int *kept) {
  int count = 0;
  for (int dim = 0; dim < TT_MAX_RANK; dim++)
    for (int i = 0; i < d->dim_count; i++)
      if (d->dims[i] == dim) {
        digit_of_rank[count] = i;
        kept[count++] = dim;
      }
  return count;
}

/* What was cut out of the digits, in the order and shape of the view. */
static tt_node *as_view(tt_hlo *h, tt_node *x, const tt_view *view, const tt_digits *d) {
  int64_t dims[TT_MAX_RANK];
  for (int i = 0; i < d->dim_count; i++) dims[i] = view->sizes[d->dims[i]];
  x = tt_hlo_reshape(h, x, d->dim_count, dims);
  int perm[TT_MAX_RANK], kept[TT_MAX_RANK];
  int count = kept_dims(d, perm, kept);
  x = tt_hlo_transpose(h, x, perm);
  if (count == view->rank) return x;
  bool only_ones = true; /* all dropped dims have size 1: a reshape will do */
  for (int i = 0; i < view->rank; i++)
    only_ones = only_ones && (view->sizes[i] == 1 || view->strides[i] != 0);
  if (only_ones) return tt_hlo_reshape(h, x, view->rank, view->sizes);
  return tt_hlo_broadcast(h, x, kept, view->rank, view->sizes);
}

static tt_node *read_known(tt_hlo *h, tt_node *x, const tt_view *view) {
  tt_digits d = tt_digits_of(view, tt_type_numel(&x->type));
  if (!d.ok) return tt_hlo_take(h, tt_bits_flat(h, x), flat_indices(h, view), 0);
  x = tt_hlo_slice(h, to_digits(h, x, &d), d.start, d.limit, d.step);
  return as_view(h, x, view, &d);
}

/* `value` in the order and shape of the digits' window. */
static tt_node *as_window(tt_hlo *h, tt_node *value, const tt_view *view, const tt_digits *d) {
  int64_t start[TT_MAX_RANK] = {0}, limit[TT_MAX_RANK], dims[TT_MAX_RANK];
  for (int i = 0; i < view->rank; i++) limit[i] = view->strides[i] == 0 ? 1 : view->sizes[i];
  value = tt_hlo_slice(h, value, start, limit, NULL);
  int perm[TT_MAX_RANK], kept[TT_MAX_RANK], inverse[TT_MAX_RANK];
  int count = kept_dims(d, perm, kept);
  for (int i = 0; i < count; i++) dims[i] = view->sizes[kept[i]];
  value = tt_hlo_reshape(h, value, count, dims);
  for (int i = 0; i < count; i++) inverse[perm[i]] = i;
  value = tt_hlo_transpose(h, value, inverse);
  for (int i = 0; i < d->count; i++) dims[i] = i < d->dim_count ? view->sizes[d->dims[i]] : 1;
  return tt_hlo_reshape(h, value, d->count, dims);
}

/* XLA's CPU compiler updates a slice in place although what it writes there is read from elsewhere
 * in the same memory by other dims, and so reads what it wrote before. A barrier makes it read
 * first. */
static tt_node *update_window(tt_hlo *h, tt_node *x, tt_node *window, const int64_t *start) {
  return tt_hlo_update_slice(h, x, tt_hlo_optimization_barrier(h, window), start);
}

static bool is_whole(const tt_digits *d) {
  for (int i = 0; i < d->count; i++)
    if (d->start[i] != 0 || d->limit[i] != d->radix[i] || d->step[i] != 1) return false;
  return true;
}

static tt_node *write_window(tt_hlo *h, tt_node *x, tt_node *window, const tt_digits *d) {
  bool stepped = false;
  for (int i = 0; i < d->count; i++) stepped = stepped || d->step[i] != 1;
  if (is_whole(d)) return window;
  if (!stepped) return update_window(h, x, window, d->start);
  int64_t low[TT_MAX_RANK], high[TT_MAX_RANK], interior[TT_MAX_RANK];
  for (int i = 0; i < d->count; i++) {
    low[i] = d->start[i];
    high[i] = d->radix[i] - d->limit[i];
    interior[i] = d->step[i] - 1;
  }
  tt_type ones = window->type;
  ones.dtype = TT_BOOL;
  tt_node *mask =
      tt_hlo_pad(h, tt_hlo_full(h, &ones, 1), tt_hlo_const_i(h, TT_BOOL, 0), low, high, interior);
  tt_node *zero = tt_hlo_const_i(h, window->type.dtype, 0);
  return tt_hlo_select(h, mask, tt_hlo_pad(h, window, zero, low, high, interior), x);
}

static tt_node *scatter_write(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *value) {
  int64_t n = tt_type_numel(&value->type), column[2] = {n, 1};
  tt_node *indices = tt_hlo_reshape(h, flat_indices(h, view), 2, column);
  const int zero = 0;
  tt_scatter dims = {.inserted_dims = &zero,
                     .inserted_count = 1,
                     .scatter_map = &zero,
                     .scatter_count = 1,
                     .index_vector_dim = 1};
  return tt_hlo_scatter(h, tt_bits_flat(h, x), indices, tt_bits_flat(h, value), &dims, TT_SET);
}

static tt_node *write_known(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *value) {
  int64_t total = tt_type_numel(&x->type);
  tt_digits d = tt_digits_of(view, total);
  if (!d.ok) return scatter_write(h, x, view, value);
  tt_node *window = as_window(h, value, view, &d);
  tt_node *written = tt_bits_flat(h, write_window(h, to_digits(h, x, &d), window, &d));
  if (d.first != 0 || d.length != total) {
    int64_t start = 0, limit = d.length < total - d.first ? d.length : total - d.first;
    written = tt_hlo_slice(h, written, &start, &limit, NULL);
    written = update_window(h, tt_bits_flat(h, x), written, &d.first);
  }
  return written;
}

/* -- Offsets that are known only at run time -- */

/* Where the view begins in each digit: what the others leave over. */
static void starts_of(tt_hlo *h, const tt_digits *d, tt_node *offset, tt_node **starts) {
  for (int i = 0; i < d->count; i++) {
    tt_dtype dtype = offset->type.dtype;
    starts[i] = offset;
    if (d->unit[i] > 1)
      starts[i] = tt_hlo_divide(h, starts[i], tt_hlo_const_i(h, dtype, d->unit[i]));
    if (i > 0) starts[i] = tt_hlo_remainder(h, starts[i], tt_hlo_const_i(h, dtype, d->radix[i]));
    if (d->limit[i] - d->start[i] == d->radix[i]) starts[i] = tt_hlo_const_i(h, dtype, 0);
  }
}

/* The window alone, as if it were all there is. */
static tt_digits inside(const tt_digits *d) {
  tt_digits window = *d;
  for (int i = 0; i < d->count; i++) {
    window.radix[i] = window.limit[i] = d->limit[i] - d->start[i];
    window.start[i] = 0;
  }
  return window;
}

/* Whether the window can only be all there is. */
static bool is_full(const tt_digits *d) {
  for (int i = 0; i < d->count; i++)
    if (d->limit[i] - d->start[i] != d->radix[i]) return false;
  return true;
}

static tt_view from_zero(const tt_view *view) {
  tt_view moved = *view;
  moved.offset = 0;
  return moved;
}

/* As narrow as the storage allows: a program computes with it more often than once. */
static tt_node *narrow(tt_hlo *h, tt_node *offset, int64_t total) {
  return tt_hlo_convert(h, offset, total <= INT32_MAX ? TT_I32 : TT_I64);
}

static tt_node *read_moving(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset) {
  int64_t total = tt_type_numel(&x->type), extent = tt_view_extent(view);
  offset = narrow(h, offset, total);
  if (tt_view_motion(view, total) != TT_MOTION_DIGITS) {
    tt_view known = from_zero(view);
    return read_known(h, tt_hlo_dynamic_slice(h, tt_bits_flat(h, x), &offset, &extent), &known);
  }
  tt_digits d = tt_digits_of_whole(view, total), window = inside(&d);
  tt_node *starts[TT_MAX_RANK];
  starts_of(h, &d, offset, starts);
  x = tt_hlo_reshape(h, x, d.count, d.radix);
  if (!is_full(&d)) x = tt_hlo_dynamic_slice(h, x, starts, window.limit);
  return as_view(h, tt_hlo_slice(h, x, window.start, window.limit, d.step), view, &d);
}

static tt_node *write_moving(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset,
                             tt_node *value) {
  int64_t total = tt_type_numel(&x->type), extent = tt_view_extent(view);
  offset = narrow(h, offset, total);
  if (tt_view_motion(view, total) != TT_MOTION_DIGITS) {
    tt_view known = from_zero(view);
    tt_node *all = tt_bits_flat(h, x), *part = tt_hlo_dynamic_slice(h, all, &offset, &extent);
    part = tt_hlo_optimization_barrier(h, write_known(h, part, &known, value));
    return tt_hlo_dynamic_update_slice(h, all, part, &offset);
  }
  tt_digits d = tt_digits_of_whole(view, total), window = inside(&d);
  tt_node *starts[TT_MAX_RANK], *part = as_window(h, value, view, &d);
  starts_of(h, &d, offset, starts);
  x = tt_hlo_reshape(h, x, d.count, d.radix);
  if (!is_whole(&window))
    part = write_window(h, tt_hlo_dynamic_slice(h, x, starts, window.limit), part, &window);
  return tt_hlo_dynamic_update_slice(h, x, tt_hlo_optimization_barrier(h, part), starts);
}

/* A dynamic slice that would run past the end begins earlier. What it should have begun with is
 * moved to the front again. */
static tt_node *slice_on(tt_hlo *h, tt_node *x, tt_node *const *starts, const int64_t *sizes,
                         int dim) {
  tt_node *begin = starts[dim], *again[TT_MAX_RANK],
          *zero = tt_hlo_const_i(h, begin->type.dtype, 0);
  tt_node *last = tt_hlo_const_i(h, begin->type.dtype, x->type.dims[dim] - sizes[dim]);
  tt_node *late = tt_hlo_maximum(h, tt_hlo_subtract(h, begin, last), zero);
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  high[dim] = sizes[dim];
  x = tt_hlo_dynamic_slice(h, x, starts, sizes);
  x = tt_hlo_pad(h, x, tt_hlo_const_i(h, x->type.dtype, 0), low, high, NULL);
  for (int i = 0; i < x->type.rank; i++) again[i] = i == dim ? late : zero;
  return tt_hlo_dynamic_slice(h, x, again, sizes);
}

tt_node *tt_window_read_on(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset, int dim,
                           tt_motion motion) {
  int64_t total = tt_type_numel(&x->type), extent = tt_view_extent(view);
  offset = narrow(h, offset, total);
  if (motion != TT_MOTION_DIGITS) {
    tt_view known = from_zero(view);
    return read_known(h, slice_on(h, tt_bits_flat(h, x), &offset, &extent, 0), &known);
  }
  tt_digits d = tt_digits_of_whole(view, total), window = inside(&d);
  tt_node *starts[TT_MAX_RANK];
  int digit = 0;
  while (d.dims[digit] != dim) digit++;
  d.limit[digit] = d.start[digit]; /* not all of it: its start counts */
  starts_of(h, &d, offset, starts);
  x = slice_on(h, tt_hlo_reshape(h, x, d.count, d.radix), starts, window.limit, digit);
  return as_view(h, tt_hlo_slice(h, x, window.start, window.limit, d.step), view, &d);
}

tt_node *tt_window_read(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset) {
  return offset ? read_moving(h, x, view, offset) : read_known(h, x, view);
}

/* -- A part of a flat storage that lies in one piece, as gradients do in a bucket -- */

static bool is_stretch(const tt_view *view, const tt_type *storage) {
  int64_t below = 1;
  for (int i = view->rank - 1; i >= 0; i--) {
    if (view->sizes[i] != 1 && view->strides[i] != below) return false;
    below *= view->sizes[i];
  }
  return storage->rank == 1 && below > 0 && below < storage->dims[0];
}

/* Whatever the view's dims, the storage keeps its own: XLA's CPU compiler copies all of it between
 * two updates that see it in different ones. */
static tt_node *write_stretch(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset,
                              tt_node *value) {
  value = tt_bits_flat(h, value);
  if (!offset) return update_window(h, x, value, &view->offset);
  offset = narrow(h, offset, x->type.dims[0]);
  return tt_hlo_dynamic_update_slice(h, x, tt_hlo_optimization_barrier(h, value), &offset);
}

tt_node *tt_window_write(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset,
                         tt_node *value) {
  tt_type type = x->type;
  if (is_stretch(view, &type)) return write_stretch(h, x, view, offset, value);
  x = offset ? write_moving(h, x, view, offset, value) : write_known(h, x, view, value);
  return tt_hlo_reshape(h, x, type.rank, type.dims);
}
