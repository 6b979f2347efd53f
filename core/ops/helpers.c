/* Small steps that the lowerings of several families share. */
#include "ops/lower.h"

tt_dtype tt_compute_dtype(tt_dtype dtype) {
  return tt_is_float(dtype) && dtype != TT_F64 ? TT_F32 : dtype;
}

tt_node *tt_cast(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  return tt_hlo_convert(cx->h, x, dtype);
}

tt_node *tt_cast_wrapping(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  tt_hlo *h = cx->h;
  if (!tt_is_float(x->type.dtype) || !tt_is_integer(dtype) || dtype == TT_U64)
    return tt_hlo_convert(h, x, dtype);
  bool wide = tt_dtype_bytes(dtype) == 8 || dtype == TT_U32 || dtype == TT_U8;
  tt_dtype through = wide ? TT_I64 : TT_I32;
  x = tt_hlo_convert(h, x, tt_compute_dtype(x->type.dtype));
  tt_node *least = tt_like(cx, x, wide ? -0x1p63 : -0x1p31);
  tt_node *fits = tt_hlo_compare(h, TT_LT, tt_hlo_abs(h, x), tt_hlo_negate(h, least));
  least = tt_hlo_broadcast_to(h, least, x->type.rank, x->type.dims);
  x = tt_hlo_convert(h, tt_hlo_select(h, fits, x, least), through);
  return tt_hlo_convert(h, x, dtype);
}

tt_node *tt_in_as(tt_lower *cx, int i, tt_dtype dtype) {
  bool tensor = i >= 0 && i < cx->arg_count && cx->args[i].kind == TT_ARG_TENSOR;
  return tensor ? tt_cast(cx, tt_in(cx, i), dtype) : tt_num(cx, i, dtype);
}

tt_dtype tt_float_result_dtype(tt_lower *cx) {
  if (tt_is_float(cx->result_type) || tt_is_complex(cx->result_type)) return cx->result_type;
  return cx->fractions == TT_INVALID ? TT_F32 : cx->fractions;
}

void tt_out_in(tt_lower *cx, int k, tt_node *x, tt_dtype dtype) {
  tt_out_as(cx, k, tt_cast(cx, x, dtype));
}

/* false when the dims do not fit together. */
static bool widen(tt_type *type, const tt_type *with) {
  tt_type wide = {.dtype = type->dtype, .rank = type->rank > with->rank ? type->rank : with->rank};
  for (int i = 0; i < wide.rank; i++) {
    int ia = i - (wide.rank - type->rank), ib = i - (wide.rank - with->rank);
    int64_t a = ia < 0 ? 1 : type->dims[ia], b = ib < 0 ? 1 : with->dims[ib];
    if (a != b && a != 1 && b != 1) return false;
    wide.dims[i] = a == 1 ? b : a;
  }
  *type = wide;
  return true;
}

void tt_broadcast_all(tt_lower *cx, tt_node **xs, int n) {
  tt_type wide = {.dtype = TT_F32};
  for (int i = 0; i < n; i++) {
    if (widen(&wide, &xs[i]->type)) continue;
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                "%s: the sizes of the operands cannot be broadcast together",
                cx->row ? cx->row->name : "operator");
    return;
  }
  for (int i = 0; i < n; i++) xs[i] = tt_hlo_broadcast_to(cx->h, xs[i], wide.rank, wide.dims);
}

void tt_broadcast_pair(tt_lower *cx, tt_node **a, tt_node **b, tt_dtype dtype) {
  tt_node *pair[2] = {tt_cast(cx, *a, dtype), tt_cast(cx, *b, dtype)};
  tt_broadcast_all(cx, pair, 2);
  *a = pair[0];
  *b = pair[1];
}

/* As programs for such compilers write extremes: tt_hlo_choose_extremes. */
static void choose(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  results[0] = tt_hlo_binary(h, *(const tt_hlo_op *)user, args[1], args[0]);
}

tt_node *tt_extreme(tt_lower *cx, tt_reducer reducer, tt_node *x, const int *dims, int count) {
  tt_hlo *h = cx->h;
  bool plain = !cx->target->xla_cpu || !tt_is_float(x->type.dtype) || count == 0;
  if (plain) return tt_hlo_reduce(h, reducer, x, dims, count);
  tt_hlo_op op = reducer == TT_MAX ? TT_HLO_maximum : TT_HLO_minimum;
  tt_node *init = tt_hlo_identity(h, reducer, x->type.dtype), *result;
  tt_hlo_reduce_n(h, 1, &x, &init, dims, count, choose, &op, &result);
  return result;
}

tt_node *tt_reduce_keep(tt_lower *cx, tt_reducer reducer, tt_node *x, const int *dims, int count,
                        bool keepdim) {
  tt_type kept = x->type;
  for (int i = 0; i < count; i++) kept.dims[dims[i]] = 1;
  bool extreme = reducer == TT_MAX || reducer == TT_MIN;
  tt_node *y = extreme ? tt_extreme(cx, reducer, x, dims, count)
                       : tt_hlo_reduce(cx->h, reducer, x, dims, count);
  return keepdim ? tt_hlo_reshape(cx->h, y, kept.rank, kept.dims) : y;
}

tt_node *tt_like(tt_lower *cx, tt_node *x, double value) {
  if (tt_is_complex(x->type.dtype)) return tt_hlo_const_c(cx->h, x->type.dtype, value, 0.0);
  return tt_hlo_const(cx->h, x->type.dtype, value);
}

tt_node *tt_quotient(tt_lower *cx, tt_node *a, tt_node *b) {
  tt_hlo *h = cx->h;
  if (!tt_is_float(a->type.dtype) || tt_is_complex(a->type.dtype)) return tt_hlo_divide(h, a, b);
  if (b->type.rank == 0) b = tt_hlo_broadcast_to(h, b, a->type.rank, a->type.dims);
  tt_node *nan = tt_hlo_compare(h, TT_NE, a, a);
  b = tt_hlo_select(h, nan, a, b); /* equal, and no broadcast to XLA */
  if (!cx->target->xla_gpu || a->type.dtype != TT_F32) return tt_hlo_divide(h, a, b);
  tt_node *wide = tt_hlo_divide(h, tt_hlo_convert(h, a, TT_F64), tt_hlo_convert(h, b, TT_F64));
  return tt_hlo_convert(h, tt_product_apart(cx, wide), TT_F32); /* LLVM would divide in f32 */
}

tt_node *tt_product_apart(tt_lower *cx, tt_node *x) {
  tt_node *nan = tt_hlo_compare(cx->h, TT_NE, x, x);
  return tt_hlo_select(cx->h, nan, tt_hlo_add(cx->h, x, x), x);
}

tt_node *tt_once(tt_lower *cx, tt_node *x) {
  return cx->target->xla_cpu ? tt_hlo_optimization_barrier(cx->h, x) : x;
}

tt_node *tt_swap_last(tt_lower *cx, tt_node *x) {
  int perm[TT_MAX_RANK], rank = x->type.rank;
  if (!tt_need_rank(cx, x, 2)) return x;
  for (int i = 0; i < rank; i++) perm[i] = i;
  perm[rank - 1] = rank - 2;
  perm[rank - 2] = rank - 1;
  return tt_hlo_transpose(cx->h, x, perm);
}

tt_node *tt_flatten(tt_lower *cx, tt_node *x) {
  int64_t count = tt_type_numel(&x->type);
  return tt_hlo_reshape(cx->h, x, 1, &count);
}

tt_node *tt_pairs_of_complex(tt_lower *cx, tt_node *x) {
  int64_t column[] = {x->type.dims[0], 1};
  tt_node *pair[] = {tt_hlo_reshape(cx->h, tt_hlo_real(cx->h, x), 2, column),
                     tt_hlo_reshape(cx->h, tt_hlo_imag(cx->h, x), 2, column)};
  return tt_flatten(cx, tt_hlo_concatenate(cx->h, pair, 2, 1));
}

tt_node *tt_complex_of_pairs(tt_lower *cx, tt_node *x) {
  int64_t pairs[] = {x->type.dims[0] / 2, 2};
  x = tt_hlo_reshape(cx->h, x, 2, pairs);
  return tt_flatten(cx, tt_hlo_complex(cx->h, tt_hlo_slice_dim(cx->h, x, 1, 0, 1, 1),
                                       tt_hlo_slice_dim(cx->h, x, 1, 1, 2, 1)));
}

tt_node *tt_times(tt_lower *cx, tt_node *x, double c) {
  return tt_hlo_multiply(cx->h, x, tt_like(cx, x, c));
}

tt_node *tt_plus(tt_lower *cx, tt_node *x, double c) {
  return tt_hlo_add(cx->h, x, tt_like(cx, x, c));
}
