/* What a lowering may ask about its call, and how it states results and checks. */
#include "ops/lower.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

static const tt_arg none = {.kind = TT_ARG_NONE};

static const char *op_name(const tt_lower *cx) {
  return cx->row && cx->row->name ? cx->row->name : "operator";
}

static const tt_arg *arg_at(const tt_lower *cx, int i) {
  return i >= 0 && i < cx->arg_count ? &cx->args[i] : &none;
}

static tt_node *bad_arg(tt_lower *cx, int i, const char *expected) {
  return tt_hlo_fail(cx->h, TT_INTERNAL, "%s: argument %d should be %s", op_name(cx), i, expected);
}

static int64_t clip_to_i64(double value) {
  if (!(value > -9.2233720368547748e18)) return value != value ? 0 : INT64_MIN;
  return value < 9.2233720368547748e18 ? (int64_t)value : INT64_MAX;
}

static tt_node *constant(tt_hlo *h, tt_dtype dtype, const tt_arg *arg) {
  bool is_int = arg->kind == TT_ARG_INT;
  double re = is_int ? (double)arg->i : arg->kind == TT_ARG_COMPLEX ? arg->floats[0] : arg->f;
  double im = arg->kind == TT_ARG_COMPLEX ? arg->floats[1] : 0.0;
  if (tt_is_complex(dtype)) return tt_hlo_const_c(h, dtype, re, im);
  if (dtype == TT_BOOL) return tt_hlo_const(h, dtype, re != 0.0 || im != 0.0);
  if (tt_is_integer(dtype)) return tt_hlo_const_i(h, dtype, is_int ? arg->i : clip_to_i64(re));
  return tt_hlo_const(h, dtype, re);
}

static tt_dtype number_dtype(const tt_arg *arg) {
  if (arg->dtype != TT_INVALID) return tt_dtype_computed(arg->dtype);
  if (arg->kind == TT_ARG_INT) return TT_I64;
  return arg->kind == TT_ARG_COMPLEX ? TT_C128 : TT_F64;
}

bool tt_has(const tt_lower *cx, int i) { return arg_at(cx, i)->kind != TT_ARG_NONE; }

tt_node *tt_in(tt_lower *cx, int i) {
  const tt_arg *arg = arg_at(cx, i);
  switch (arg->kind) {
  case TT_ARG_TENSOR:
    return cx->tensors[arg->first];
  case TT_ARG_SCALAR:
    return cx->scalars[arg->first];
  case TT_ARG_INT:
  case TT_ARG_FLOAT:
  case TT_ARG_COMPLEX:
    return constant(cx->h, number_dtype(arg), arg);
  default:
    return bad_arg(cx, i, "a tensor or a number");
  }
}

int tt_list_size(const tt_lower *cx, int i) {
  const tt_arg *arg = arg_at(cx, i);
  switch (arg->kind) {
  case TT_ARG_TENSORS:
  case TT_ARG_SCALARS:
  case TT_ARG_INTS:
  case TT_ARG_FLOATS:
    return arg->count;
  default:
    return arg->kind == TT_ARG_NONE ? 0 : 1;
  }
}

/* A None in a list takes no place among the call's tensors. */
static int tensor_index(const tt_arg *arg, int k) {
  assert(k >= 0 && k < arg->count);
  if (!arg->present) return arg->first + k;
  if (!arg->present[k]) return -1;
  int index = arg->first;
  for (int j = 0; j < k; j++) index += arg->present[j] ? 1 : 0;
  return index;
}

tt_node *tt_in_at(tt_lower *cx, int i, int k) {
  const tt_arg *arg = arg_at(cx, i);
  if (arg->kind != TT_ARG_TENSORS) return k == 0 ? tt_in(cx, i) : bad_arg(cx, i, "a tensor list");
  if (k < 0 || k >= arg->count) return bad_arg(cx, i, "a longer tensor list");
  int index = tensor_index(arg, k);
  return index < 0 ? NULL : cx->tensors[index];
}

int tt_tensor_at(const tt_lower *cx, int i, int k) { return tensor_index(arg_at(cx, i), k); }

int64_t tt_int(tt_lower *cx, int i) {
  const tt_arg *arg = arg_at(cx, i);
  if (arg->kind == TT_ARG_INT) return arg->i;
  if (arg->kind == TT_ARG_FLOAT) return clip_to_i64(arg->f);
  if (arg->kind == TT_ARG_INTS && arg->count == 1) return arg->ints[0];
  bad_arg(cx, i, "an integer known when the program is built");
  return 0;
}

bool tt_moves(const tt_lower *cx, int i) { return arg_at(cx, i)->kind == TT_ARG_SCALAR; }

bool tt_bool(tt_lower *cx, int i) { return tt_has(cx, i) && tt_int(cx, i) != 0; }

double tt_float(tt_lower *cx, int i) {
  const tt_arg *arg = arg_at(cx, i);
  if (arg->kind == TT_ARG_FLOAT) return arg->f;
  if (arg->kind == TT_ARG_INT) return (double)arg->i;
  if (arg->kind == TT_ARG_COMPLEX) return arg->floats[0];
  bad_arg(cx, i, "a number known when the program is built");
  return 0.0;
}

static tt_node *scalar_as(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  if (tt_type_numel(&x->type) != 1)
    return tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "%s: expected a tensor with one element",
                       op_name(cx));
  return tt_hlo_convert(cx->h, tt_hlo_reshape(cx->h, x, 0, NULL), dtype);
}

tt_node *tt_num(tt_lower *cx, int i, tt_dtype dtype) {
  const tt_arg *arg = arg_at(cx, i);
  switch (arg->kind) {
  case TT_ARG_INT:
  case TT_ARG_FLOAT:
  case TT_ARG_COMPLEX:
    return constant(cx->h, dtype, arg);
  case TT_ARG_SCALAR:
    return scalar_as(cx, cx->scalars[arg->first], dtype);
  case TT_ARG_TENSOR:
    return scalar_as(cx, cx->tensors[arg->first], dtype);
  default:
    return bad_arg(cx, i, "a number");
  }
}

tt_node *tt_num_at(tt_lower *cx, int i, int k, tt_dtype dtype) {
  const tt_arg *arg = arg_at(cx, i);
  tt_arg one = {.kind = TT_ARG_NONE};
  if (k < 0 || k >= tt_list_size(cx, i)) return bad_arg(cx, i, "a longer number list");
  switch (arg->kind) {
  case TT_ARG_SCALARS:
    return scalar_as(cx, cx->scalars[arg->first + (arg->equal ? 0 : k)], dtype);
  case TT_ARG_INTS:
    one = (tt_arg){.kind = TT_ARG_INT, .i = arg->ints[k]};
    return constant(cx->h, dtype, &one);
  case TT_ARG_FLOATS:
    one = (tt_arg){.kind = TT_ARG_FLOAT, .f = arg->floats[k]};
    return constant(cx->h, dtype, &one);
  case TT_ARG_TENSORS:
    return tt_in_at(cx, i, k) ? scalar_as(cx, tt_in_at(cx, i, k), dtype)
                              : bad_arg(cx, i, "a list without None");
  default:
    return tt_num(cx, i, dtype);
  }
}

const int64_t *tt_ints(tt_lower *cx, int i, int *count) {
  const tt_arg *arg = arg_at(cx, i);
  *count = 0;
  if (arg->kind == TT_ARG_NONE) return NULL;
  if (arg->kind == TT_ARG_INT) {
    *count = 1;
    return &arg->i;
  }
  if (arg->kind == TT_ARG_INTS) {
    *count = arg->count;
    return arg->ints;
  }
  bad_arg(cx, i, "a list of integers known when the program is built");
  return NULL;
}

const char *tt_str(tt_lower *cx, int i) {
  const tt_arg *arg = arg_at(cx, i);
  return arg->kind == TT_ARG_STRING && arg->text ? arg->text : "";
}

tt_dtype tt_dtype_arg(tt_lower *cx, int i, tt_dtype otherwise) {
  const tt_arg *arg = arg_at(cx, i);
  if (arg->kind == TT_ARG_NONE) return otherwise;
  if (arg->kind == TT_ARG_INT) return tt_dtype_computed(arg->dtype);
  bad_arg(cx, i, "a dtype");
  return otherwise;
}

static int wrap_dim(tt_lower *cx, int64_t dim, int rank) {
  int64_t limit = rank > 0 ? rank : 1;
  if (dim < -limit || dim >= limit) {
    tt_hlo_fail(
        cx->h, TT_OUT_OF_RANGE,
        "%s: Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
        op_name(cx), (long long)-limit, (long long)(limit - 1), (long long)dim);
    return 0;
  }
  return (int)(dim < 0 ? dim + limit : dim);
}

int tt_dim(tt_lower *cx, int i, int rank) { return wrap_dim(cx, tt_int(cx, i), rank); }

int tt_dims(tt_lower *cx, int i, int rank, bool empty_is_all, int *dims) {
  int given = 0, count = 0;
  const int64_t *list = tt_ints(cx, i, &given);
  bool chosen[TT_MAX_RANK + 1] = {false};
  for (int k = 0; k < given; k++) {
    int dim = wrap_dim(cx, list[k], rank);
    if (chosen[dim])
      tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                  "%s: dim %d appears multiple times in the list of dims", op_name(cx), dim);
    chosen[dim] = true;
  }
  for (int dim = 0; dim < rank; dim++)
    if (chosen[dim] || (given == 0 && empty_is_all)) dims[count++] = dim;
  assert(count <= rank);
  return count;
}

const tt_type *tt_meta_type(tt_lower *cx, int k) {
  static const tt_type unknown = {.dtype = TT_F32};
  if (cx->meta_types && k >= 0 && k < cx->meta_count) return &cx->meta_types[k];
  tt_hlo_fail(cx->h, TT_INTERNAL, "%s: the type of result %d is not known beforehand", op_name(cx),
              k);
  return &unknown;
}

tt_dtype tt_meta_dtype(const tt_lower *cx, int k, tt_dtype otherwise) {
  bool known = cx->meta_types && k < cx->meta_count && cx->meta_types[k].dtype != TT_INVALID;
  return known ? cx->meta_types[k].dtype : otherwise;
}

void tt_out(tt_lower *cx, int k, tt_node *x) {
  if (k < 0 || k >= cx->result_capacity) {
    tt_hlo_fail(cx->h, TT_INTERNAL, "%s: result %d is one too many", op_name(cx), k);
    return;
  }
  cx->results[k] = x;
  if (k >= cx->result_count) cx->result_count = k + 1;
}

void tt_out_as(tt_lower *cx, int k, tt_node *x) {
  if (cx->meta_types && k < cx->meta_count && cx->meta_types[k].dtype != TT_INVALID) {
    const tt_type *type = &cx->meta_types[k];
    x = tt_hlo_convert(cx->h, x, type->dtype);
    x = tt_hlo_broadcast_to(cx->h, x, type->rank, type->dims);
  }
  tt_out(cx, k, x);
}

void tt_check(tt_lower *cx, tt_node *violated, tt_code code, const char *format, ...) {
  if (!cx->checks || !cx->check_flags || cx->check_count >= TT_MAX_CHECKS) return;
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  int k = cx->check_count;
  assert(k >= 0 && cx->check_texts && cx->check_codes);
  cx->check_flags[k] = tt_hlo_reduce_all(cx->h, TT_OR, violated);
  cx->check_texts[k] = tt_arena_printf(tt_hlo_arena(cx->h), "%s", text);
  cx->check_codes[k] = code;
  if (!cx->check_texts[k]) {
    tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "%s: out of memory", op_name(cx));
    return;
  }
  cx->check_count++;
}

void tt_check_index(tt_lower *cx, tt_node *index, int64_t size, bool negative, tt_code code,
                    const char *what) {
  if (!cx->checks) return;
  tt_hlo *h = cx->h;
  tt_node *wide = tt_hlo_convert(h, index, TT_I64);
  tt_node *low = tt_hlo_const_i(h, TT_I64, negative ? -size : 0);
  tt_node *high = tt_hlo_const_i(h, TT_I64, size);
  tt_node *violated =
      tt_hlo_or(h, tt_hlo_compare(h, TT_LT, wide, low), tt_hlo_compare(h, TT_GE, wide, high));
  tt_check(cx, violated, code, "%s: %s is out of range for a dimension of size %lld", op_name(cx),
           what, (long long)size);
}
