/* The _foreach_* operators: a row applied to each element of its lists. */
#include "ops/foreach/foreach.h"

#include <assert.h>

enum { MAX_ARGS = 16 };

static int category(tt_dtype dtype) {
  if (dtype == TT_INVALID) return 0;
  if (dtype == TT_BOOL) return 1;
  if (tt_is_integer(dtype)) return 2;
  return tt_is_complex(dtype) ? 4 : 3;
}

static tt_dtype wider_float(tt_dtype a, tt_dtype b) {
  if (a == b) return a;
  int64_t na = tt_dtype_bytes(a), nb = tt_dtype_bytes(b);
  if (na == nb) return TT_F32; /* f16 with bf16 */
  return na > nb ? a : b;
}

/* PyTorch's promote_types; TT_INVALID gives way to anything. */
static tt_dtype promote(tt_dtype a, tt_dtype b) {
  int ca = category(a), cb = category(b);
  if (a == b || cb == 0) return a;
  if (ca == 0) return b;
  if (ca == 4 || cb == 4) {
    bool wide = tt_dtype_real(a) == TT_F64 || tt_dtype_real(b) == TT_F64;
    return wide ? TT_C128 : TT_C64;
  }
  if (ca != cb) return ca > cb ? a : b;
  if (ca == 3) return wider_float(a, b);
  bool sa = tt_dtype_kind(a) == TT_KIND_SIGNED, sb = tt_dtype_kind(b) == TT_KIND_SIGNED;
  int64_t na = tt_dtype_bytes(a), nb = tt_dtype_bytes(b);
  if (sa == sb) return na > nb ? a : b;
  if (na == 1 && nb == 1) return TT_I16; /* u8 with i8 */
  return sa ? (na > nb ? a : TT_I64) : (nb > na ? b : TT_I64);
}

/* A lower rank of evidence (0-dim tensors, scalars) only wins by category. */
static tt_dtype prefer(tt_dtype high, tt_dtype low) {
  int ch = category(high), cl = category(low);
  if (ch == 4) return high;
  if (ch == 3) return cl == 4 ? tt_dtype_complex(high) : high;
  if (ch <= 1 || cl >= 3) return promote(high, low);
  return high;
}

static tt_dtype result_type_of(const tt_arg *args, int count, tt_node *const *tensors,
                               tt_node *const *numbers) {
  tt_dtype dims = TT_INVALID, scalars = TT_INVALID, wrapped = TT_INVALID;
  for (int i = 0; i < count; i++) {
    tt_arg_kind kind = args[i].kind;
    if (kind == TT_ARG_TENSOR) {
      tt_dtype *slot = tensors[i]->type.rank > 0 ? &dims : &scalars;
      *slot = promote(*slot, tensors[i]->type.dtype);
    }
    tt_dtype number = kind == TT_ARG_SCALAR    ? numbers[i]->type.dtype
                      : kind == TT_ARG_INT     ? TT_I64
                      : kind == TT_ARG_FLOAT   ? TT_F32
                      : kind == TT_ARG_COMPLEX ? TT_C64
                                               : TT_INVALID;
    if (kind == TT_ARG_INT && args[i].dtype == TT_BOOL) number = TT_BOOL;
    if (tt_is_float(number)) number = TT_F32;
    wrapped = promote(wrapped, number);
  }
  return prefer(dims, prefer(scalars, wrapped));
}

int tt_first_list_size(const tt_lower *cx) {
  for (int i = 0; i < cx->arg_count; i++)
    if (cx->args[i].kind == TT_ARG_TENSORS) return cx->args[i].count;
  return 0;
}

/* A number of all elements, or of one of them. */
static tt_node *number_at(tt_lower *cx, const tt_arg *arg, int k) {
  bool common = arg->kind == TT_ARG_SCALAR || arg->equal;
  tt_node *number = cx->scalars[arg->first + (common ? 0 : k)];
  return common && tt_first_list_size(cx) > 1 ? tt_once(cx, number) : number;
}

/* Argument i of element k: what it is, and its node where it has one. */
static tt_arg element_arg(tt_lower *cx, int i, int k, tt_node **tensor, tt_node **number) {
  tt_arg arg = cx->args[i];
  switch (arg.kind) {
  case TT_ARG_TENSORS:
    *tensor = tt_in_at(cx, i, k);
    arg = (tt_arg){.kind = *tensor ? TT_ARG_TENSOR : TT_ARG_NONE, .first = i};
    break;
  case TT_ARG_TENSOR:
    *tensor = tt_in(cx, i);
    arg.first = i;
    break;
  case TT_ARG_SCALARS:
    *number = number_at(cx, &arg, k);
    arg = (tt_arg){.kind = TT_ARG_SCALAR, .first = i, .dtype = (*number)->type.dtype};
    break;
  case TT_ARG_SCALAR:
    *number = number_at(cx, &arg, k);
    arg.first = i;
    break;
  case TT_ARG_INTS:
    arg = (tt_arg){.kind = TT_ARG_INT, .i = arg.ints[k], .dtype = TT_I64};
    break;
  case TT_ARG_FLOATS:
    arg = (tt_arg){.kind = TT_ARG_FLOAT, .f = arg.floats[k], .dtype = TT_F64};
    break;
  default:
    break;
  }
  return arg;
}

/* (self, a, b, scalars): one tensor holds the numbers of all elements. */
static void take_packed(tt_lower *cx, int k, tt_node **tensors) {
  tt_node *packed = tensors[3];
  if (packed && packed->type.rank == 1)
    tensors[3] = tt_hlo_reshape(cx->h, tt_hlo_slice_dim(cx->h, packed, 0, k, k + 1, 1), 0, NULL);
}

static void each(tt_lower *cx, const tt_op_row *row, bool packed) {
  int count = cx->arg_count, size = tt_first_list_size(cx);
  int operands = packed && count > 3 ? 3 : count; /* those that the result type is made of */
  if (!row || count > MAX_ARGS) {
    tt_hlo_fail(cx->h, TT_INTERNAL, "%s: there is no row for its elements", cx->row->name);
    return;
  }
  for (int k = 0; k < size; k++) {
    tt_arg args[MAX_ARGS];
    tt_node *tensors[MAX_ARGS] = {NULL}, *scalars[MAX_ARGS] = {NULL};
    for (int i = 0; i < count; i++) args[i] = element_arg(cx, i, k, &tensors[i], &scalars[i]);
    if (packed) take_packed(cx, k, tensors);
    tt_lower one = *cx;
    one.row = row;
    one.args = args;
    one.tensors = tensors;
    one.scalars = scalars;
    one.result_type = result_type_of(args, operands, tensors, scalars);
    one.meta_types = k < cx->meta_count && cx->meta_types ? cx->meta_types + k : NULL;
    one.meta_count = one.meta_types ? 1 : 0;
    one.results = cx->results + k;
    one.result_count = 0;
    one.result_capacity = k < cx->result_capacity ? 1 : 0;
    row->lower(&one);
    assert(one.result_count <= 1 && one.check_count >= cx->check_count);
    cx->check_count = one.check_count;
    if (one.result_count == 1) cx->result_count = k + 1;
  }
}

void tt_lower_each(tt_lower *cx, const tt_op_row *row) { each(cx, row, false); }

/* Those whose elements have other arguments than the row of their name, or statics. */
void tt_lower_pow(tt_lower *cx);
void tt_lower_addcmul(tt_lower *cx);
void tt_lower_full_norm(tt_lower *cx);
#define ELEMENT(name, cls, fn, param) {name, cls, fn, param, NULL, "", ""}
static const tt_op_row power = ELEMENT("pow", TT_POINTWISE, tt_lower_pow, 0),
                       norm = ELEMENT("norm", TT_REDUCE, tt_lower_full_norm, 0),
                       powsum = ELEMENT("powsum", TT_REDUCE, tt_lower_full_norm, 1),
                       addcmul =
                           ELEMENT("addcmul", TT_POINTWISE, tt_lower_addcmul, TT_HLO_multiply),
                       addcdiv = ELEMENT("addcdiv", TT_POINTWISE, tt_lower_addcmul, TT_HLO_divide);

void tt_lower_foreach_pow(tt_lower *cx) { each(cx, &power, false); }
void tt_lower_foreach_norm(tt_lower *cx) { each(cx, &norm, false); }
void tt_lower_foreach_powsum(tt_lower *cx) { each(cx, &powsum, false); }
/* addcmul and addcdiv with the numbers in one tensor; param 1: addcdiv. */
void tt_lower_foreach_packed(tt_lower *cx) { each(cx, cx->row->param ? &addcdiv : &addcmul, true); }

/* param 0: a list as it is; 1: the second list in the dtypes and shapes of the first. */
void tt_lower_foreach_copy(tt_lower *cx) {
  int size = tt_first_list_size(cx);
  for (int k = 0; k < size; k++) {
    tt_node *x = tt_in_at(cx, 0, k);
    if (cx->row->param) {
      tt_node *from = tt_cast(cx, tt_in_at(cx, 1, k), x->type.dtype);
      x = tt_hlo_broadcast_to(cx->h, from, x->type.rank, x->type.dims);
    }
    tt_out_as(cx, k, x);
  }
}
