/* Operands that are longer than what counts of them. */
#include "ops/lower.h"

/* Argument i's tensor, or TT_NO_TENSOR. */
static int tensor_of(const tt_lower *cx, int i) {
  bool is = i >= 0 && i < cx->arg_count && cx->args[i].kind == TT_ARG_TENSOR;
  return is ? cx->args[i].first : TT_NO_TENSOR;
}

/* NULL: the size along `dim` is not a bound. */
static const tt_length *length_of(const tt_lower *cx, int tensor, int dim) {
  for (int i = 0; i < cx->length_count; i++)
    if (cx->lengths[i].tensor == tensor && cx->lengths[i].dim == dim) return &cx->lengths[i];
  return NULL;
}

bool tt_padded(const tt_lower *cx, int i) {
  int tensor = tensor_of(cx, i);
  for (int k = 0; k < cx->length_count; k++)
    if (cx->lengths[k].tensor == tensor) return true;
  return false;
}

bool tt_padded_along(const tt_lower *cx, int i, int dim) {
  return length_of(cx, tensor_of(cx, i), dim) != NULL;
}

/* Which of the `size` places along a dim count. */
static tt_node *counted(tt_hlo *h, const tt_length *length, int64_t size) {
  tt_type line = {.dtype = size > INT32_MAX ? TT_I64 : TT_I32, .rank = 1, .dims = {size}};
  tt_node *place = tt_hlo_iota(h, &line, 0);
  if (length->inner > 1)
    place = tt_hlo_divide(h, place, tt_hlo_const_i(h, line.dtype, length->inner));
  if (length->outer > 1)
    place = tt_hlo_remainder(h, place, tt_hlo_const_i(h, line.dtype, length->bound));
  tt_node *limit = tt_hlo_convert(h, length->value, line.dtype);
  return tt_hlo_compare(h, TT_LT, place, tt_hlo_broadcast_to(h, limit, 1, line.dims));
}

tt_node *tt_where_counted(tt_hlo *h, const tt_length *length, int dim, tt_node *x,
                          tt_node *otherwise) {
  const tt_type *type = &x->type;
  tt_node *some =
      tt_hlo_broadcast(h, counted(h, length, type->dims[dim]), &dim, type->rank, type->dims);
  return tt_hlo_select(h, some, x, tt_hlo_broadcast_to(h, otherwise, type->rank, type->dims));
}

static tt_node *neutral_of(tt_hlo *h, tt_reducer reducer, tt_dtype dtype) {
  if (dtype != TT_BOOL) return tt_hlo_identity(h, reducer, dtype);
  bool all = reducer == TT_PROD || reducer == TT_MIN || reducer == TT_AND;
  return tt_hlo_const(h, dtype, all);
}

static tt_node *pad_dims(tt_lower *cx, int tensor, tt_node *x, tt_node *value) {
  for (int dim = 0; dim < x->type.rank; dim++) {
    const tt_length *length = length_of(cx, tensor, dim);
    if (length) x = tt_where_counted(cx->h, length, dim, x, value);
  }
  return x;
}

tt_node *tt_pad_tensor(tt_lower *cx, int tensor, tt_node *x, tt_reducer neutral) {
  return pad_dims(cx, tensor, x, neutral_of(cx->h, neutral, x->type.dtype));
}

tt_node *tt_pad_with(tt_lower *cx, int i, tt_node *x, tt_node *value) {
  return tt_padded(cx, i) ? pad_dims(cx, tensor_of(cx, i), x, value) : x;
}

tt_node *tt_pad(tt_lower *cx, int i, tt_node *x, tt_reducer neutral) {
  return tt_padded(cx, i) ? tt_pad_tensor(cx, tensor_of(cx, i), x, neutral) : x;
}

tt_node *tt_pad_at(tt_lower *cx, int i, int k, tt_node *x, tt_reducer neutral) {
  int tensor = tt_tensor_at(cx, i, k);
  return tensor < 0 ? x : tt_pad_tensor(cx, tensor, x, neutral);
}

tt_node *tt_in_counted(tt_lower *cx, int i) { return tt_pad(cx, i, tt_in(cx, i), TT_SUM); }

tt_node *tt_pad_along(tt_lower *cx, int i, int dim, tt_node *x, int at, tt_reducer neutral) {
  const tt_length *length = length_of(cx, tensor_of(cx, i), dim);
  if (!length) return x;
  return tt_where_counted(cx->h, length, at, x, neutral_of(cx->h, neutral, x->type.dtype));
}

tt_node *tt_count(tt_lower *cx, int i, const int *dims, int count, tt_dtype dtype) {
  tt_hlo *h = cx->h;
  int tensor = tensor_of(cx, i);
  const tt_type *type = &tt_in(cx, i)->type;
  tt_node *all = NULL;
  int64_t known = 1;
  for (int k = 0; k < count; k++) {
    const tt_length *length = length_of(cx, tensor, dims[k]);
    known *= length ? length->outer * length->inner : type->dims[dims[k]];
    if (length) all = all ? tt_hlo_multiply(h, all, length->value) : length->value;
  }
  if (!all)
    return tt_is_complex(dtype) ? tt_hlo_const_c(h, dtype, (double)known, 0)
                                : tt_hlo_const(h, dtype, (double)known);
  all = tt_hlo_multiply(h, all, tt_hlo_const_i(h, TT_I64, known));
  return tt_hlo_convert(h, all, dtype);
}

tt_node *tt_to_front(tt_lower *cx, int i, int dim, tt_node *x) {
  const tt_length *length = length_of(cx, tensor_of(cx, i), dim);
  if (!length) return x;
  tt_hlo *h = cx->h;
  tt_type type = x->type;
  int64_t before = length->outer, behind = length->inner;
  for (int d = 0; d < type.rank; d++) *(d < dim ? &before : &behind) *= d == dim ? 1 : type.dims[d];
  int64_t split[3] = {before, length->bound, behind};
  tt_node *zero = tt_hlo_const_i(h, TT_I64, 0);
  tt_node *start = tt_hlo_subtract(h, tt_hlo_const_i(h, TT_I64, length->bound), length->value);
  x = tt_hlo_reshape(h, x, 3, split);
  x = tt_hlo_pad(h, x, tt_hlo_zeros(h, &(tt_type){.dtype = type.dtype}), (int64_t[]){0, 0, 0},
                 (int64_t[]){0, length->bound, 0}, NULL);
  x = tt_hlo_dynamic_slice(h, x, (tt_node *[]){zero, start, zero}, split);
  return tt_hlo_reshape(h, x, type.rank, type.dims);
}

/* How many elements count of one of the outer rows. */
static tt_node *row_width(tt_lower *cx, const tt_length *length) {
  return tt_hlo_multiply(cx->h, length->value, tt_hlo_const_i(cx->h, TT_I64, length->inner));
}

tt_node *tt_place_counted(tt_lower *cx, int i, int dim, tt_node *place) {
  const tt_length *length = length_of(cx, tensor_of(cx, i), dim);
  if (!length || length->outer == 1) return place;
  tt_hlo *h = cx->h;
  tt_dtype dtype = place->type.dtype;
  tt_node *wide = tt_hlo_const_i(h, dtype, length->bound * length->inner);
  tt_node *row = tt_hlo_divide(h, place, wide), *rest = tt_hlo_remainder(h, place, wide);
  row = tt_hlo_multiply(h, row, tt_hlo_convert(h, row_width(cx, length), dtype));
  return tt_hlo_add(h, row, rest);
}

tt_node *tt_places_counted(tt_lower *cx, const tt_type *type, const tt_axis *axes) {
  tt_hlo *h = cx->h;
  tt_type wide = *type;
  wide.dtype = TT_U64;
  tt_node *places = tt_hlo_zeros(h, &wide), *unit = tt_hlo_const_i(h, TT_U64, 1);
  cx->drawn_along_count = 0;
  for (int d = type->rank - 1; d >= 0; d--) {
    const tt_length *length = length_of(cx, tensor_of(cx, axes[d].arg), axes[d].dim);
    tt_type line = {.dtype = TT_U64, .rank = 1, .dims = {type->dims[d]}};
    tt_node *along = tt_place_counted(cx, axes[d].arg, axes[d].dim, tt_hlo_iota(h, &line, 0));
    along = tt_hlo_multiply(h, along, unit);
    places = tt_hlo_add(h, places, tt_hlo_broadcast(h, along, &d, wide.rank, wide.dims));
    tt_node *size = tt_hlo_const_i(h, TT_U64, length ? length->outer : type->dims[d]);
    if (length) size = tt_hlo_multiply(h, size, tt_hlo_convert(h, row_width(cx, length), TT_U64));
    unit = tt_hlo_multiply(h, unit, size);
    if (!length) continue;
    if (cx->drawn_along_count == TT_MOST_DRAWN_ALONG)
      return tt_hlo_fail(h, TT_UNIMPLEMENTED, "%s: too many sizes change", cx->row->name);
    cx->drawn_along[cx->drawn_along_count++] = length;
  }
  int64_t numel = tt_type_numel(&wide);
  return tt_hlo_reshape(h, places, 1, &numel);
}
