/* Operands that are longer than what counts of them. */
#include "ops/lower.h"

/* Argument i's tensor, or -1. */
static int tensor_of(const tt_lower *cx, int i) {
  bool is = i >= 0 && i < cx->arg_count && cx->args[i].kind == TT_ARG_TENSOR;
  return is ? cx->args[i].first : -1;
}

/* NULL: the size along `dim` is not a bound. */
static tt_node *length_of(const tt_lower *cx, int tensor, int dim) {
  for (int i = 0; i < cx->length_count; i++)
    if (cx->lengths[i].tensor == tensor && cx->lengths[i].dim == dim) return cx->lengths[i].value;
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

/* Along one dim: select(place < length, x, neutral). */
static tt_node *pad_dim(tt_lower *cx, tt_node *x, int dim, tt_node *length, tt_node *neutral) {
  tt_hlo *h = cx->h;
  const tt_type *type = &x->type;
  tt_type line = {.dtype = TT_I32, .rank = 1, .dims = {type->dims[dim]}};
  if (type->dims[dim] > INT32_MAX) line.dtype = TT_I64;
  length = tt_hlo_broadcast_to(h, tt_hlo_convert(h, length, line.dtype), 1, line.dims);
  tt_node *some = tt_hlo_compare(h, TT_LT, tt_hlo_iota(h, &line, 0), length);
  some = tt_hlo_broadcast(h, some, &dim, type->rank, type->dims);
  return tt_hlo_select(h, some, x, tt_hlo_broadcast_to(h, neutral, type->rank, type->dims));
}

static tt_node *neutral_of(tt_hlo *h, tt_reducer reducer, tt_dtype dtype) {
  if (dtype != TT_BOOL) return tt_hlo_identity(h, reducer, dtype);
  bool all = reducer == TT_PROD || reducer == TT_MIN || reducer == TT_AND;
  return tt_hlo_const(h, dtype, all);
}

tt_node *tt_pad_tensor(tt_lower *cx, int tensor, tt_node *x, tt_reducer neutral) {
  for (int dim = 0; dim < x->type.rank; dim++) {
    tt_node *length = length_of(cx, tensor, dim);
    if (length) x = pad_dim(cx, x, dim, length, neutral_of(cx->h, neutral, x->type.dtype));
  }
  return x;
}

tt_node *tt_pad(tt_lower *cx, int i, tt_node *x, tt_reducer neutral) {
  return tt_padded(cx, i) ? tt_pad_tensor(cx, tensor_of(cx, i), x, neutral) : x;
}

tt_node *tt_pad_along(tt_lower *cx, int i, int dim, tt_node *x, int at, tt_reducer neutral) {
  tt_node *length = length_of(cx, tensor_of(cx, i), dim);
  return length ? pad_dim(cx, x, at, length, neutral_of(cx->h, neutral, x->type.dtype)) : x;
}

tt_node *tt_count(tt_lower *cx, int i, const int *dims, int count, tt_dtype dtype) {
  tt_hlo *h = cx->h;
  int tensor = tensor_of(cx, i);
  const tt_type *type = &tt_in(cx, i)->type;
  tt_node *all = NULL;
  int64_t known = 1;
  for (int k = 0; k < count; k++) {
    tt_node *length = length_of(cx, tensor, dims[k]);
    if (!length) known *= type->dims[dims[k]];
    else all = all ? tt_hlo_multiply(h, all, length) : length;
  }
  if (!all)
    return tt_is_complex(dtype) ? tt_hlo_const_c(h, dtype, (double)known, 0)
                                : tt_hlo_const(h, dtype, (double)known);
  all = tt_hlo_multiply(h, all, tt_hlo_const_i(h, TT_I64, known));
  return tt_hlo_convert(h, all, dtype);
}
