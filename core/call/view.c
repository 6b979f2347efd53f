#include "call/view.h"

#include <string.h>

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

static int64_t numel(const tt_view *view) {
  int64_t n = 1;
  for (int i = 0; i < view->rank; i++) n *= view->sizes[i];
  return n;
}

/* Dims that matter (more than one element, not broadcast), by descending stride. */
static int order_dims(const tt_view *view, int *order) {
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
  int count = order_dims(view, order);
  int64_t expected = 1;
  for (int i = count - 1; i >= 0; i--) {
    if (view->strides[order[i]] != expected) return false;
    expected *= view->sizes[order[i]];
  }
  return expected == numel(view);
}

bool tt_view_covers(const tt_view *view, const tt_type *storage) {
  int64_t view_bytes = numel(view) * tt_dtype_bytes(view->dtype);
  int64_t storage_bytes = tt_type_numel(storage) * tt_dtype_bytes(storage->dtype);
  return view_bytes == storage_bytes && (view_bytes == 0 || (view->offset == 0 && is_dense(view)));
}

void tt_view_dense(tt_view *view, tt_type *storage) {
  view->offset = 0;
  bool keep = numel(view) > 0 && is_dense(view);
  if (!keep) {
    tt_dtype dtype = view->dtype;
    tt_type type = tt_view_held(view);
    *view = tt_view_whole(&type);
    view->dtype = dtype;
  }
  int order[TT_MAX_RANK];
  bool placed[TT_MAX_RANK] = {false};
  int count = order_dims(view, order);
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

/* -- Other dtypes over the same bytes -- */

static tt_node *flat(tt_hlo *h, tt_node *x) {
  int64_t n = tt_type_numel(&x->type);
  return tt_hlo_reshape(h, x, 1, &n);
}

/* The bits as a flat tensor of plain numbers (no bool, no complex). */
static tt_node *plain_bits(tt_hlo *h, tt_node *x) {
  x = flat(h, x);
  if (x->type.dtype == TT_BOOL) return tt_hlo_convert(h, x, TT_U8);
  if (!tt_is_complex(x->type.dtype)) return x;
  int64_t n = x->type.dims[0], pair[2] = {n, 1};
  tt_node *parts[2] = {tt_hlo_reshape(h, tt_hlo_real(h, x), 2, pair),
                       tt_hlo_reshape(h, tt_hlo_imag(h, x), 2, pair)};
  return flat(h, tt_hlo_concatenate(h, parts, 2, 1));
}

/* Flat bits of any width as flat bits of `dtype`, which is plain. */
static tt_node *rewidth(tt_hlo *h, tt_node *x, tt_dtype dtype) {
  int64_t from = tt_dtype_bytes(x->type.dtype), to = tt_dtype_bytes(dtype);
  if (to > from) {
    int64_t ratio = to / from, dims[2] = {x->type.dims[0] / ratio, ratio};
    int64_t start = 0, limit = dims[0] * ratio;
    x = tt_hlo_reshape(h, tt_hlo_slice(h, x, &start, &limit, NULL), 2, dims);
  }
  return flat(h, tt_hlo_bitcast(h, x, dtype));
}

static tt_node *retype(tt_hlo *h, tt_node *x, tt_dtype dtype) {
  if (x->type.dtype == dtype) return x;
  x = plain_bits(h, x);
  if (dtype == TT_BOOL) {
    x = rewidth(h, x, TT_U8);
    return tt_hlo_compare(h, TT_NE, x, tt_hlo_const_i(h, TT_U8, 0));
  }
  if (!tt_is_complex(dtype)) return rewidth(h, x, dtype);
  x = rewidth(h, x, tt_dtype_real(dtype));
  int64_t n = x->type.dims[0] / 2, dims[2] = {n, 2};
  x = tt_hlo_reshape(h, tt_hlo_slice_dim(h, x, 0, 0, 2 * n, 1), 2, dims);
  return tt_hlo_complex(h, flat(h, tt_hlo_slice_dim(h, x, 1, 0, 1, 1)),
                        flat(h, tt_hlo_slice_dim(h, x, 1, 1, 2, 1)));
}

/* -- Complex numbers of two halves: the real one is in the low bits of a U32 -- */

static tt_node *half_of(tt_hlo *h, tt_node *x, int64_t shift) {
  x = tt_hlo_shift_right_logical(h, x, tt_hlo_const_i(h, TT_U32, shift));
  return tt_hlo_convert(h, tt_hlo_bitcast(h, tt_hlo_convert(h, x, TT_U16), TT_F16), TT_F32);
}

static tt_node *decode_halves(tt_hlo *h, tt_node *x) {
  return tt_hlo_complex(h, half_of(h, x, 0), half_of(h, x, 16));
}

static tt_node *bits_of_half(tt_hlo *h, tt_node *x) {
  x = tt_hlo_bitcast(h, tt_hlo_convert(h, x, TT_F16), TT_U16);
  return tt_hlo_convert(h, x, TT_U32);
}

static tt_node *encode_halves(tt_hlo *h, tt_node *x) {
  tt_node *high = bits_of_half(h, tt_hlo_imag(h, x));
  high = tt_hlo_shift_left(h, high, tt_hlo_const_i(h, TT_U32, 16));
  return tt_hlo_or(h, bits_of_half(h, tt_hlo_real(h, x)), high);
}

/* -- Strided views of one dtype --
 * The storage is cut into mixed-radix digits so that each dim of the view walks along one digit:
 * digit i has the unit u[i] = gcd(stride[i], u[i-1]) and the radix u[i-1] / u[i]. A view whose
 * dims stay inside their digits is a slice; another starts with a flat slice at its offset; what
 * then still crosses digits (overlapping windows) is gathered. */
typedef struct digits {
  bool ok;
  int count; /* digits, the last may be the remainder below the last stride */
  int64_t radix[TT_MAX_RANK], start[TT_MAX_RANK], limit[TT_MAX_RANK], step[TT_MAX_RANK];
  int64_t first, length;            /* flat slice taken first, padded with zeros to `length` */
  int dims[TT_MAX_RANK], dim_count; /* the view's dim that walks along digit i */
} digits;

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

static digits cut(const tt_view *view, int64_t total, bool slice_first) {
  digits d = {.first = slice_first ? view->offset : 0};
  int64_t offset = view->offset - d.first, available = total - d.first, unit = 1;
  d.dim_count = order_dims(view, d.dims);
  if (d.dim_count >= TT_MAX_RANK) return d;
  for (int i = 0; i < d.dim_count; i++) {
    int64_t stride = view->strides[d.dims[i]], size = view->sizes[d.dims[i]];
    int64_t above = unit;
    unit = i == 0 ? stride : gcd(stride, above);
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

static digits plan(const tt_view *view, int64_t total) {
  digits d = cut(view, total, false);
  return d.ok ? d : cut(view, total, true);
}

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
static tt_node *to_digits(tt_hlo *h, tt_node *x, const digits *d) {
  int64_t total = tt_type_numel(&x->type);
  if (d->first != 0 || d->length != total) {
    x = flat(h, x);
    int64_t low = -d->first, high = d->first + d->length - total;
    x = tt_hlo_pad(h, x, tt_hlo_const_i(h, x->type.dtype, 0), &low, &high, NULL);
  }
  return tt_hlo_reshape(h, x, d->count, d->radix);
}

/* For each kept dim in ascending view order, which digit it is; and back. */
static int kept_dims(const digits *d, int *digit_of_rank, int *kept) {
  int count = 0;
  for (int dim = 0; dim < TT_MAX_RANK; dim++)
    for (int i = 0; i < d->dim_count; i++)
      if (d->dims[i] == dim) {
        digit_of_rank[count] = i;
        kept[count++] = dim;
      }
  return count;
}

tt_node *tt_view_read(tt_hlo *h, tt_node *storage, const tt_view *view) {
  tt_type type = tt_view_type(view);
  if (tt_type_numel(&type) == 0) return tt_hlo_zeros(h, &type);
  if (view->dtype == TT_C32) {
    tt_view bits = *view;
    bits.dtype = TT_U32;
    return decode_halves(h, tt_view_read(h, storage, &bits));
  }
  tt_node *x = retype(h, storage, view->dtype);
  digits d = plan(view, tt_type_numel(&x->type));
  if (!d.ok) return tt_hlo_take(h, flat(h, x), flat_indices(h, view), 0);
  x = tt_hlo_slice(h, to_digits(h, x, &d), d.start, d.limit, d.step);
  int64_t dims[TT_MAX_RANK];
  for (int i = 0; i < d.dim_count; i++) dims[i] = view->sizes[d.dims[i]];
  x = tt_hlo_reshape(h, x, d.dim_count, dims);
  int perm[TT_MAX_RANK], kept[TT_MAX_RANK];
  int count = kept_dims(&d, perm, kept);
  x = tt_hlo_transpose(h, x, perm);
  if (count == view->rank) return x;
  bool only_ones = true; /* all dropped dims have size 1: a reshape will do */
  for (int i = 0; i < view->rank; i++)
    only_ones = only_ones && (view->sizes[i] == 1 || view->strides[i] != 0);
  if (only_ones) return tt_hlo_reshape(h, x, view->rank, view->sizes);
  return tt_hlo_broadcast(h, x, kept, view->rank, view->sizes);
}

/* `value` in the order and shape of the digits' window. */
static tt_node *as_window(tt_hlo *h, tt_node *value, const tt_view *view, const digits *d) {
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

static tt_node *write_window(tt_hlo *h, tt_node *x, tt_node *window, const digits *d) {
  bool stepped = false, whole = true;
  for (int i = 0; i < d->count; i++) {
    stepped = stepped || d->step[i] != 1;
    whole = whole && d->start[i] == 0 && d->limit[i] == d->radix[i] && d->step[i] == 1;
  }
  if (whole) return window;
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
  return tt_hlo_scatter(h, flat(h, x), indices, flat(h, value), &dims, TT_SET);
}

/* Writes into x of the view's own dtype; the result has x's dims. */
static tt_node *write_same(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *value) {
  int64_t total = tt_type_numel(&x->type);
  tt_type type = x->type;
  digits d = plan(view, total);
  if (!d.ok) return tt_hlo_reshape(h, scatter_write(h, x, view, value), type.rank, type.dims);
  tt_node *window = as_window(h, value, view, &d);
  tt_node *written = flat(h, write_window(h, to_digits(h, x, &d), window, &d));
  if (d.first != 0 || d.length != total) {
    int64_t start = 0, limit = d.length < total - d.first ? d.length : total - d.first;
    written = tt_hlo_slice(h, written, &start, &limit, NULL);
    written = update_window(h, flat(h, x), written, &d.first);
  }
  return tt_hlo_reshape(h, written, type.rank, type.dims);
}

/* A wider dtype does not see the last bytes of a storage that it does not divide: they stay. */
static tt_node *with_rest(tt_hlo *h, tt_node *x, tt_node *storage) {
  int64_t seen = x->type.dims[0], total = storage->type.dims[0];
  if (seen == total) return x;
  tt_node *parts[2] = {x, tt_hlo_slice_dim(h, storage, 0, seen, total, 1)};
  return tt_hlo_concatenate(h, parts, 2, 0);
}

tt_node *tt_view_write(tt_hlo *h, tt_node *storage, const tt_type *type, const tt_view *view,
                       tt_node *value) {
  if (view->dtype == TT_C32) {
    tt_view bits = *view;
    bits.dtype = TT_U32;
    return tt_view_write(h, storage, type, &bits, encode_halves(h, value));
  }
  if (tt_view_covers(view, type)) {
    tt_view own = *view;
    tt_type dense;
    tt_view_dense(&own, &dense);
    int order[TT_MAX_RANK], perm[TT_MAX_RANK], at = 0;
    bool placed[TT_MAX_RANK] = {false};
    int count = order_dims(view, order);
    for (int i = 0; i < count; i++) placed[order[i]] = true;
    for (int i = 0; i < view->rank; i++)
      if (!placed[i]) perm[at++] = i;
    for (int i = 0; i < count; i++) perm[at++] = order[i];
    value = tt_hlo_transpose(h, value, perm);
    if (type->dtype == view->dtype) return tt_hlo_reshape(h, value, type->rank, type->dims);
    return tt_hlo_reshape(h, value, dense.rank, dense.dims);
  }
  if (numel(view) == 0) return storage;
  if (view->dtype == type->dtype) return write_same(h, storage, view, value);
  tt_node *other = write_same(h, retype(h, storage, view->dtype), view, value);
  other = with_rest(h, retype(h, other, type->dtype), flat(h, storage));
  return tt_hlo_reshape(h, other, type->rank, type->dims);
}
