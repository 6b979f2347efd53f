/* Operators that move elements and compute nothing. */
#include "ops/index/index.h"

static tt_node *zero_of(tt_lower *cx, tt_node *x) { return tt_like(cx, x, 0.0); }

static tt_node *pad_dim(tt_lower *cx, tt_node *x, tt_node *value, int dim, int64_t low,
                        int64_t high, int64_t interior) {
  int64_t lows[TT_MAX_RANK] = {0}, highs[TT_MAX_RANK] = {0}, interiors[TT_MAX_RANK] = {0};
  lows[dim] = low;
  highs[dim] = high;
  interiors[dim] = interior;
  return tt_hlo_pad(cx->h, x, value, lows, highs, interiors);
}

static tt_node *insert_dim(tt_lower *cx, tt_node *x, int dim) {
  tt_type type = x->type;
  if (type.rank >= TT_MAX_RANK)
    return tt_hlo_fail(cx->h, TT_UNIMPLEMENTED,
                       "%s: tensors of more than %d dims are not supported", cx->row->name,
                       TT_MAX_RANK);
  for (int i = type.rank; i > dim; i--) type.dims[i] = type.dims[i - 1];
  type.dims[dim] = 1;
  return tt_hlo_reshape(cx->h, x, type.rank + 1, type.dims);
}

static tt_node **node_array(tt_lower *cx, int count) {
  tt_node **nodes = tt_arena_alloc(tt_hlo_arena(cx->h), (size_t)(count + 1) * sizeof *nodes);
  if (!nodes) tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "%s: out of memory", cx->row->name);
  return nodes;
}

/* A tensor of shape [0] joins anything: PyTorch's oldest exception. */
static bool is_nothing(const tt_node *x) { return x->type.rank == 1 && x->type.dims[0] == 0; }

/* x cut or padded to `size` elements along a dim. */
static tt_node *fit(tt_lower *cx, tt_node *x, int dim, int64_t size) {
  int64_t have = x->type.dims[dim], start[TT_MAX_RANK] = {0}, limit[TT_MAX_RANK];
  if (have < size) return pad_dim(cx, x, zero_of(cx, x), dim, 0, size - have, 0);
  for (int i = 0; i < x->type.rank; i++) limit[i] = i == dim ? size : x->type.dims[i];
  return have > size ? tt_hlo_slice(cx->h, x, start, limit, NULL) : x;
}

/* Joined where only some elements of tensors count: what is behind them begins at their end. The
 * result has room for `bound`. */
static tt_node *join_to(tt_lower *cx, tt_node **xs, tt_node *const *lengths, int count, int dim,
                        int64_t bound) {
  tt_hlo *h = cx->h;
  tt_node *starts[TT_MAX_RANK], *zero = tt_hlo_const_i(h, TT_I64, 0), *start = zero;
  int first = 0; /* that begins where is known only at run time */
  int64_t most = 0;
  while (first < count && !lengths[first]) first++;
  first = first < count ? first + 1 : count;
  tt_node *all = tt_hlo_concatenate(h, xs, first, dim);
  for (int k = 0; k < count; k++) most += xs[k]->type.dims[dim];
  all = fit(cx, all, dim, most); /* so that no update is moved to fit in */
  for (int i = 0; i < xs[0]->type.rank; i++) starts[i] = zero;
  for (int k = 0; k < count; k++) {
    starts[dim] = start;
    if (k >= first) all = tt_hlo_dynamic_update_slice(h, all, xs[k], starts);
    tt_node *size = lengths[k] ? lengths[k] : tt_hlo_const_i(h, TT_I64, xs[k]->type.dims[dim]);
    start = tt_hlo_add(h, start, size);
  }
  return fit(cx, all, dim, bound);
}

static tt_node *join(tt_lower *cx, tt_node **xs, tt_node *const *lengths, int count, int dim) {
  int64_t bound = cx->meta_count ? cx->meta_types[0].dims[dim] : 0;
  if (cx->length_count) return join_to(cx, xs, lengths, count, dim, bound);
  tt_node *all = tt_hlo_concatenate(cx->h, xs, count, dim);
  return bound ? fit(cx, all, dim, bound) : all;
}

/* How many elements of the call's k-th tensor count; NULL: all. */
static tt_node *length_at(const tt_lower *cx, int k) {
  for (int i = 0; i < cx->length_count; i++)
    if (cx->lengths[i].tensor == cx->args[0].first + k) return cx->lengths[i].value;
  return NULL;
}

void tt_lower_cat(tt_lower *cx) {
  int count = tt_list_size(cx, 0), used = 0;
  tt_node **xs = node_array(cx, count), **lengths = node_array(cx, count);
  if (!xs || !lengths) return;
  tt_dtype dtype = tt_meta_dtype(cx, 0, cx->result_type);
  for (int k = 0; k < count; k++) {
    tt_node *x = tt_in_at(cx, 0, k);
    if (is_nothing(x)) continue;
    lengths[used] = length_at(cx, k);
    xs[used++] = tt_cast(cx, x, dtype);
  }
  if (used == 0) {
    tt_type empty = {.dtype = dtype, .rank = 1};
    tt_out_as(cx, 0, tt_hlo_zeros(cx->h, &empty));
    return;
  }
  tt_out_as(cx, 0, join(cx, xs, lengths, used, tt_dim(cx, 1, xs[0]->type.rank)));
}

void tt_lower_stack(tt_lower *cx) {
  int count = tt_list_size(cx, 0);
  tt_node **xs = node_array(cx, count);
  if (!xs || count == 0) return;
  tt_dtype dtype = tt_meta_dtype(cx, 0, cx->result_type);
  int dim = tt_dim(cx, 1, tt_in_at(cx, 0, 0)->type.rank + 1);
  for (int k = 0; k < count; k++)
    xs[k] = insert_dim(cx, tt_cast(cx, tt_in_at(cx, 0, k), dtype), dim);
  tt_out_as(cx, 0, tt_hlo_concatenate(cx->h, xs, count, dim));
}

/* Each tensor is padded along `dim` to whole chunks, and chunk i of the result joins all chunks i.
 */
void tt_lower_chunk_cat(tt_lower *cx) {
  int count = tt_list_size(cx, 0);
  int64_t chunks = tt_int(cx, 2);
  tt_node **xs = node_array(cx, count);
  if (!xs || count == 0 || chunks < 1) return;
  int dim = tt_dim(cx, 1, tt_in_at(cx, 0, 0)->type.rank);
  for (int k = 0; k < count; k++) {
    tt_node *x = tt_cast(cx, tt_in_at(cx, 0, k), tt_meta_dtype(cx, 0, cx->result_type));
    int64_t size = x->type.dims[dim], whole = (size + chunks - 1) / chunks * chunks;
    x = pad_dim(cx, x, zero_of(cx, x), dim, 0, whole - size, 0);
    tt_type type = x->type;
    int64_t rest = 1;
    for (int i = dim; i < type.rank; i++) rest *= type.dims[i];
    type.dims[dim] = chunks;
    type.dims[dim + 1] = rest / chunks;
    xs[k] = tt_hlo_reshape(cx->h, x, dim + 2, type.dims);
  }
  tt_out_as(cx, 0, tt_hlo_concatenate(cx->h, xs, count, dim + 1));
}

void tt_lower_split_copy(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int count = 0, dim = tt_dim(cx, 2, x->type.rank);
  const int64_t *sizes = tt_ints(cx, 1, &count);
  int64_t start = 0;
  for (int k = 0; k < count && !tt_hlo_failed(cx->h); k++) {
    tt_out_as(cx, k, tt_hlo_slice_dim(cx->h, x, dim, start, start + sizes[k], 1));
    start += sizes[k];
  }
}

void tt_lower_flip(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int dims[TT_MAX_RANK + 1];
  int count = tt_dims(cx, 1, x->type.rank, false, dims);
  if (x->type.rank > 0) x = tt_hlo_reverse(cx->h, x, dims, count);
  for (int k = 0; k < count && x->type.rank > 0; k++) x = tt_to_front(cx, 0, dims[k], x);
  tt_out_as(cx, 0, x);
}

/* Where element i of a rolled dim comes from, where only some count. */
static tt_node *roll_counted(tt_lower *cx, tt_node *x, int64_t shift, int dim) {
  tt_hlo *h = cx->h;
  tt_type line = {.dtype = TT_I64, .rank = 1, .dims = {x->type.dims[dim]}};
  tt_node *count = tt_count(cx, 0, &dim, 1, TT_I64);
  tt_node *by = tt_hlo_remainder(h, tt_hlo_const_i(h, TT_I64, shift), count);
  tt_node *from = tt_hlo_add(h, tt_hlo_iota(h, &line, 0), tt_hlo_subtract(h, count, by));
  return tt_hlo_take(h, x, tt_hlo_remainder(h, from, count), dim);
}

static tt_node *roll_dim(tt_lower *cx, tt_node *x, int64_t shift, int dim) {
  if (x->type.rank == 0) return x;
  if (dim < 0 || dim >= x->type.rank)
    return tt_hlo_fail(cx->h, TT_OUT_OF_RANGE, "roll: no dim %d in rank %d", dim, x->type.rank);
  if (tt_padded_along(cx, 0, dim)) return roll_counted(cx, x, shift, dim);
  int64_t size = x->type.dims[dim];
  if (size == 0) return x;
  shift = (shift % size + size) % size;
  if (shift == 0) return x;
  tt_node *parts[2] = {tt_hlo_slice_dim(cx->h, x, dim, size - shift, size, 1),
                       tt_hlo_slice_dim(cx->h, x, dim, 0, size - shift, 1)};
  return tt_hlo_concatenate(cx->h, parts, 2, dim);
}

void tt_lower_roll(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_type type = x->type;
  int shift_count = 0, dim_count = 0;
  const int64_t *shifts = tt_ints(cx, 1, &shift_count), *dims = tt_ints(cx, 2, &dim_count);
  if (dim_count == 0 && shift_count == 1) {
    if (tt_padded(cx, 0) && type.rank > 1) {
      tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "roll: sizes of flattened tensors do not change");
      return;
    }
    x = roll_dim(cx, tt_flatten(cx, x), shifts[0], 0);
    tt_out_as(cx, 0, tt_hlo_reshape(cx->h, x, type.rank, type.dims));
    return;
  }
  if (shift_count != dim_count) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                "roll: shifts and dimensions must align. shifts: %d, dims:%d", shift_count,
                dim_count);
    return;
  }
  for (int k = 0; k < dim_count; k++) {
    int dim = (int)(dims[k] < 0 ? dims[k] + type.rank : dims[k]);
    x = roll_dim(cx, x, shifts[k], dim);
  }
  tt_out_as(cx, 0, x);
}

static tt_node *repeat_dim(tt_lower *cx, tt_node *x, int64_t times, int dim) {
  if (times == 1) return x;
  tt_type type = insert_dim(cx, x, dim)->type;
  int map[TT_MAX_RANK];
  for (int i = 0; i < x->type.rank; i++) map[i] = i < dim ? i : i + 1;
  type.dims[dim] = times;
  x = tt_hlo_broadcast(cx->h, x, map, type.rank, type.dims);
  for (int i = dim + 1; i < type.rank; i++) type.dims[i - 1] = type.dims[i];
  type.dims[dim] *= times;
  return tt_hlo_reshape(cx->h, x, type.rank - 1, type.dims);
}

void tt_lower_repeat(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int rank = 0;
  const int64_t *times = tt_ints(cx, 1, &rank);
  while (x->type.rank < rank && !tt_hlo_failed(cx->h)) x = insert_dim(cx, x, 0);
  for (int i = 0; i < rank && !tt_hlo_failed(cx->h); i++) x = repeat_dim(cx, x, times[i], i);
  tt_out_as(cx, 0, x);
}

/* -- Backwards of views -- */

static tt_type sized(tt_lower *cx, int arg, tt_dtype dtype) {
  int rank = 0;
  const int64_t *sizes = tt_ints(cx, arg, &rank);
  if (rank <= TT_MAX_RANK) return tt_type_make(dtype, rank, sizes);
  tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "%s: tensors of more than %d dims are not supported",
              cx->row->name, TT_MAX_RANK);
  return tt_type_make(dtype, 0, NULL);
}

/* Along `dim` the place that argument 3 says, which is known only at run time. */
static void starts_at(tt_lower *cx, int rank, int dim, tt_node **starts) {
  for (int i = 0; i < rank; i++)
    starts[i] = i == dim ? tt_num(cx, 3, TT_I64) : tt_hlo_const_i(cx->h, TT_I64, 0);
}

/* x with `part`, which was read before that is written: see update_window in call/window.c. */
static tt_node *put(tt_lower *cx, tt_node *x, tt_node *part, const int64_t *starts) {
  return tt_hlo_update_slice(cx->h, x, tt_once(cx, part), starts);
}

/* x with `part` from there on. */
static tt_node *put_at(tt_lower *cx, tt_node *x, tt_node *part, int dim) {
  tt_node *starts[TT_MAX_RANK];
  starts_at(cx, x->type.rank, dim, starts);
  return tt_hlo_dynamic_update_slice(cx->h, x, tt_once(cx, part), starts);
}

/* `part` from there on in zeros: cut out of more of them, which compilers join with what is done
 * with it, other than an update. */
static tt_node *put_in_zeros(tt_lower *cx, tt_node *part, int dim, int64_t size) {
  int64_t more = tt_padded(cx, 0) ? size : size - part->type.dims[dim];
  tt_type type = part->type;
  type.dims[dim] = size;
  tt_node *starts[TT_MAX_RANK], *most = tt_hlo_const_i(cx->h, TT_I64, more);
  starts_at(cx, type.rank, dim, starts);
  starts[dim] = tt_hlo_subtract(cx->h, most, starts[dim]);
  part = pad_dim(cx, part, zero_of(cx, part), dim, more, more, 0);
  return tt_hlo_dynamic_slice(cx->h, part, starts, type.dims);
}

void tt_lower_select_backward(tt_lower *cx) {
  tt_node *grad = tt_in(cx, 0);
  tt_type type = sized(cx, 1, grad->type.dtype);
  int dim = tt_dim(cx, 2, type.rank);
  grad = insert_dim(cx, grad, dim);
  if (tt_moves(cx, 3)) {
    tt_out_as(cx, 0, put_in_zeros(cx, grad, dim, type.dims[dim]));
    return;
  }
  int64_t size = type.dims[dim], index = tt_int(cx, 3);
  if (index < 0) index += size;
  tt_out_as(cx, 0, pad_dim(cx, grad, zero_of(cx, grad), dim, index, size - index - 1, 0));
}

static int64_t clip_bound(int64_t bound, int64_t low, int64_t size) {
  if (bound < 0) bound += size;
  return bound < low ? low : bound > size ? size : bound;
}

static tt_node *spread_slice(tt_lower *cx, tt_node *x, int dim, int64_t size, int64_t start,
                             int64_t step) {
  int64_t count = x->type.dims[dim], span = count > 0 ? (count - 1) * step + 1 : 0;
  return pad_dim(cx, x, zero_of(cx, x), dim, start, size - start - span, step - 1);
}

/* From its first element to its last. */
static tt_node *spread_alone(tt_lower *cx, tt_node *x, int dim, int64_t step) {
  int64_t count = x->type.dims[dim];
  return spread_slice(cx, x, dim, count > 0 ? (count - 1) * step + 1 : 0, 0, step);
}

void tt_lower_slice_backward(tt_lower *cx) {
  tt_node *grad = tt_in(cx, 0);
  tt_type type = sized(cx, 1, grad->type.dtype);
  int dim = tt_dim(cx, 2, type.rank);
  if (tt_moves(cx, 3)) {
    grad = spread_alone(cx, grad, dim, tt_int(cx, 5));
    tt_out_as(cx, 0, put_in_zeros(cx, grad, dim, type.dims[dim]));
    return;
  }
  int64_t start = clip_bound(tt_int(cx, 3), 0, type.dims[dim]);
  tt_out_as(cx, 0, spread_slice(cx, grad, dim, type.dims[dim], start, tt_int(cx, 5)));
}

/* The start is known only at run time; how much is replaced, the source says. */
static void scatter_moving(tt_lower *cx, int dim, int64_t step) {
  tt_node *x = tt_in(cx, 0), *src = tt_cast(cx, tt_in(cx, 1), x->type.dtype);
  tt_node *part = spread_alone(cx, src, dim, step);
  if (step > 1) {
    tt_node *starts[TT_MAX_RANK];
    starts_at(cx, x->type.rank, dim, starts);
    tt_node *old = tt_hlo_dynamic_slice(cx->h, x, starts, part->type.dims);
    tt_node *inside = tt_range_mask(cx, &part->type, dim, 0, part->type.dims[dim], step);
    part = tt_hlo_select(cx->h, inside, part, old);
  }
  tt_out_as(cx, 0, put_at(cx, x, part, dim));
}

void tt_lower_slice_scatter(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int dim = tt_dim(cx, 2, x->type.rank);
  int64_t size = x->type.dims[dim], step = tt_has(cx, 5) ? tt_int(cx, 5) : 1;
  if (tt_moves(cx, 3)) {
    scatter_moving(cx, dim, step);
    return;
  }
  int64_t start = tt_has(cx, 3) ? clip_bound(tt_int(cx, 3), 0, size) : 0;
  int64_t end = tt_has(cx, 4) ? clip_bound(tt_int(cx, 4), start, size) : size;
  tt_type part = x->type;
  part.dims[dim] = step > 0 && end > start ? (end - start + step - 1) / step : 0;
  if (part.dims[dim] == 0) {
    tt_out_as(cx, 0, x);
    return;
  }
  tt_node *src = tt_cast(cx, tt_in(cx, 1), x->type.dtype);
  src = tt_hlo_broadcast_to(cx->h, src, part.rank, part.dims);
  if (step == 1) {
    int64_t starts[TT_MAX_RANK] = {0};
    starts[dim] = start;
    tt_out_as(cx, 0, put(cx, x, src, starts));
    return;
  }
  tt_node *inside = tt_range_mask(cx, &x->type, dim, start, end, step);
  tt_out_as(cx, 0, tt_hlo_select(cx->h, inside, spread_slice(cx, src, dim, size, start, step), x));
}

void tt_lower_select_scatter(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *src = tt_cast(cx, tt_in(cx, 1), x->type.dtype);
  int dim = tt_dim(cx, 2, x->type.rank);
  if (tt_moves(cx, 3)) {
    tt_out_as(cx, 0, put_at(cx, x, insert_dim(cx, src, dim), dim));
    return;
  }
  int64_t index = tt_int(cx, 3), starts[TT_MAX_RANK] = {0};
  starts[dim] = index < 0 ? index + x->type.dims[dim] : index;
  tt_out_as(cx, 0, put(cx, x, insert_dim(cx, src, dim), starts));
}

/* Where coordinate a + offset equals coordinate b. */
static tt_node *diagonal_mask(tt_lower *cx, const tt_type *type, int64_t offset, int a, int b) {
  tt_type index = *type;
  index.dtype = TT_I64;
  tt_node *row = tt_hlo_iota(cx->h, &index, a), *column = tt_hlo_iota(cx->h, &index, b);
  return tt_hlo_compare(cx->h, TT_EQ, tt_hlo_add(cx->h, row, tt_hlo_const_i(cx->h, TT_I64, offset)),
                        column);
}

/* Lays the last dim of x along the diagonal of dims a and b of `type`, writing all of it. */
static tt_node *spread_diagonal(tt_lower *cx, tt_node *x, const tt_type *type, int64_t offset,
                                int a, int b) {
  int along = offset >= 0 ? a : b, last = x->type.rank - 1, map[TT_MAX_RANK], k = 0;
  if (last < 0) return x;
  x = pad_dim(cx, x, zero_of(cx, x), last, 0, type->dims[along] - x->type.dims[last], 0);
  for (int i = 0; i < type->rank; i++)
    if (i != a && i != b && k < TT_MAX_RANK) map[k++] = i;
  map[last] = along;
  return tt_hlo_broadcast(cx->h, x, map, type->rank, type->dims);
}

void tt_lower_diagonal_backward(tt_lower *cx) {
  tt_node *grad = tt_in(cx, 0);
  tt_type type = sized(cx, 1, grad->type.dtype);
  int64_t offset = tt_int(cx, 2);
  int a = tt_dim(cx, 3, type.rank), b = tt_dim(cx, 4, type.rank);
  tt_node *spread = spread_diagonal(cx, grad, &type, offset, a, b);
  tt_out_as(cx, 0,
            tt_hlo_select(cx->h, diagonal_mask(cx, &type, offset, a, b), spread,
                          tt_hlo_zeros(cx->h, &type)));
}

void tt_lower_diagonal_scatter(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *src = tt_cast(cx, tt_in(cx, 1), x->type.dtype);
  int64_t offset = tt_has(cx, 2) ? tt_int(cx, 2) : 0;
  int a = tt_has(cx, 3) ? tt_dim(cx, 3, x->type.rank) : 0;
  int b = tt_has(cx, 4) ? tt_dim(cx, 4, x->type.rank) : 1;
  tt_node *spread = spread_diagonal(cx, src, &x->type, offset, a, b);
  tt_out_as(cx, 0, tt_hlo_select(cx->h, diagonal_mask(cx, &x->type, offset, a, b), spread, x));
}

void tt_lower_diag_embed(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  int64_t offset = tt_int(cx, 1), size;
  int rank = x->type.rank + 1, a = tt_dim(cx, 2, rank), b = tt_dim(cx, 3, rank), k = 0;
  if (rank > TT_MAX_RANK || rank < 2) return;
  size = x->type.dims[rank - 2] + (offset < 0 ? -offset : offset);
  tt_type type = {.dtype = x->type.dtype, .rank = rank};
  for (int i = 0; i < rank; i++) type.dims[i] = i == a || i == b ? size : x->type.dims[k++];
  tt_node *spread = spread_diagonal(cx, x, &type, offset, a, b);
  tt_out_as(cx, 0,
            tt_hlo_select(cx->h, diagonal_mask(cx, &type, offset, a, b), spread,
                          tt_hlo_zeros(cx->h, &type)));
}

/* As the CPU does it (istft relies on that): one row serves all of the result's. */
static tt_node *for_all_rows(tt_lower *cx, tt_node *grad, const tt_type *type, int dim) {
  int map[TT_MAX_RANK];
  int64_t dims[TT_MAX_RANK];
  for (int i = 0; i < grad->type.rank; i++) {
    bool is_row = i < type->rank && i != dim && grad->type.dims[i] == 1;
    dims[i] = is_row ? type->dims[i] : grad->type.dims[i];
    map[i] = i;
  }
  return tt_hlo_broadcast(cx->h, grad, map, grad->type.rank, dims);
}

/* Windows of `size`, `step` apart, are added back. A window is cut into pieces as long as a step,
 * so that piece j of all windows together is one dense stretch, j steps from the start. */
void tt_lower_unfold_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *grad = tt_in(cx, 0), *sum = NULL;
  tt_type type = sized(cx, 1, grad->type.dtype);
  int dim = tt_dim(cx, 2, type.rank), rank = type.rank;
  int64_t size = tt_int(cx, 3), step = tt_int(cx, 4);
  if (tt_hlo_failed(h)) return;
  if (rank == 0 || dim < 0 || step < 1 || grad->type.rank != rank + 1 || rank >= TT_MAX_RANK) {
    tt_out_as(cx, 0, rank == 0 ? tt_hlo_reshape(h, grad, 0, NULL) : grad);
    return;
  }
  int perm[TT_MAX_RANK];
  grad = for_all_rows(cx, grad, &type, dim);
  for (int i = 0; i <= rank; i++) perm[i] = i <= dim ? i : i == dim + 1 ? rank : i - 1;
  grad = tt_hlo_transpose(h, grad, perm);
  int64_t pieces = (size + step - 1) / step, length = grad->type.dims[dim] * step;
  grad = pad_dim(cx, grad, zero_of(cx, grad), dim + 1, 0, pieces * step - size, 0);
  for (int64_t j = 0; j < pieces && !tt_hlo_failed(h); j++) {
    tt_node *piece = tt_hlo_slice_dim(h, grad, dim + 1, j * step, (j + 1) * step, 1);
    tt_type flat = type;
    flat.dims[dim] = length;
    piece = tt_hlo_reshape(h, piece, rank, flat.dims);
    piece = pad_dim(cx, piece, zero_of(cx, piece), dim, j * step,
                    type.dims[dim] - length - j * step, 0);
    sum = sum ? tt_hlo_add(h, sum, piece) : piece;
  }
  tt_out_as(cx, 0, sum ? sum : tt_hlo_zeros(h, &type));
}

/* -- Blocks -- */

static int64_t leading(const tt_type *type, int trailing) {
  int64_t count = 1;
  for (int i = 0; i < type->rank - trailing; i++) count *= type->dims[i];
  return count;
}

void tt_lower_block_diag(tt_lower *cx) {
  int count = tt_list_size(cx, 0);
  tt_node **xs = node_array(cx, count);
  if (!xs || count == 0) return;
  int64_t width = 0, left = 0;
  for (int k = 0; k < count; k++) {
    tt_node *x = tt_cast(cx, tt_in_at(cx, 0, k), tt_meta_dtype(cx, 0, cx->result_type));
    int64_t columns = x->type.rank > 0 ? x->type.dims[x->type.rank - 1] : 1;
    xs[k] = tt_hlo_reshape(cx->h, x, 2, (int64_t[]){leading(&x->type, 1), columns});
    width += columns;
  }
  for (int k = 0; k < count; k++) {
    int64_t columns = xs[k]->type.dims[1];
    xs[k] = pad_dim(cx, xs[k], zero_of(cx, xs[k]), 1, left, width - left - columns, 0);
    left += columns;
  }
  tt_out_as(cx, 0, tt_hlo_concatenate(cx->h, xs, count, 0));
}
