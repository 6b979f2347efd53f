#include "ops/collective/devices.h"

/* -- What is only moved, as integers: compilers take these, and adding zeros changes none -- */

static tt_dtype bits_dtype(tt_dtype dtype) {
  static const tt_dtype by_bytes[] = {[1] = TT_U8, [2] = TT_U16, [4] = TT_U32, [8] = TT_U64};
  return by_bytes[tt_dtype_bytes(tt_dtype_real(dtype))];
}

static tt_node *to_bits(tt_lower *cx, tt_node *x) {
  tt_dtype bits = bits_dtype(x->type.dtype);
  if (tt_is_complex(x->type.dtype)) x = tt_pairs_of_complex(cx, x);
  return x->type.dtype == TT_BOOL ? tt_cast(cx, x, bits) : tt_hlo_bitcast(cx->h, x, bits);
}

static tt_node *from_bits(tt_lower *cx, tt_node *y, tt_dtype dtype) {
  if (dtype == TT_BOOL) return tt_cast(cx, y, dtype);
  y = tt_hlo_bitcast(cx->h, y, tt_dtype_real(dtype));
  return tt_is_complex(dtype) ? tt_complex_of_pairs(cx, y) : y;
}

static tt_node *is_root(tt_lower *cx, const tt_exchange *e) {
  return tt_hlo_compare(cx->h, TT_EQ, e->rank, e->root);
}

static tt_node *broadcast(tt_lower *cx, const tt_exchange *e, tt_node *x) {
  tt_node *mine = tt_hlo_broadcast_to(cx->h, is_root(cx, e), 1, x->type.dims);
  x = tt_hlo_select(cx->h, mine, x, tt_hlo_zeros(cx->h, &x->type));
  return tt_hlo_all_reduce(cx->h, TT_SUM, x, &e->groups);
}

static tt_node *scatter(tt_lower *cx, const tt_exchange *e, tt_node *x) {
  int64_t size = x->type.dims[0] / e->groups.size;
  tt_node *parts = tt_hlo_all_to_all(cx->h, x, &e->groups);
  tt_node *start = tt_hlo_multiply(cx->h, e->root, tt_hlo_const_i(cx->h, TT_I64, size));
  return tt_hlo_dynamic_slice(cx->h, parts, &start, &size);
}

static tt_node *move(tt_lower *cx, const tt_exchange *e, tt_node *x) {
  switch (e->kind) {
  case TT_COLLECTIVE_BROADCAST:
    return broadcast(cx, e, x);
  case TT_COLLECTIVE_SCATTER:
    return scatter(cx, e, x);
  case TT_COLLECTIVE_ALL_GATHER:
    return tt_hlo_all_gather(cx->h, x, &e->groups);
  case TT_COLLECTIVE_ALL_TO_ALL:
    return tt_hlo_all_to_all(cx->h, x, &e->groups);
  default:
    return tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "%s is not a collective of devices",
                       tt_collective_name(e->kind));
  }
}

/* -- What is computed -- */

static void combine_bits(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  tt_reduction op = *(const tt_reduction *)user;
  tt_hlo_op ops[] = {TT_HLO_and, TT_HLO_or, TT_HLO_xor};
  results[0] = tt_hlo_binary(h, ops[op - TT_REDUCE_BAND], args[0], args[1]);
}

/* Compilers reduce no bits between devices. `parts`: what each device gave, in its group's order.
 */
static tt_node *reduce_bits(tt_lower *cx, const tt_exchange *e, tt_node *parts) {
  tt_reduction op = e->op;
  int64_t rows[] = {e->groups.size, parts->type.dims[0] / e->groups.size};
  int dim = 0;
  tt_node *x = tt_hlo_reshape(cx->h, parts, 2, rows), *y = NULL;
  tt_node *init = tt_hlo_const_i(cx->h, x->type.dtype, op == TT_REDUCE_BAND ? -1 : 0);
  tt_hlo_reduce_n(cx->h, 1, &x, &init, &dim, 1, combine_bits, &op, &y);
  return y;
}

static tt_node *reduce(tt_lower *cx, const tt_exchange *e, tt_node *x) {
  static const tt_reducer reducers[] = {[TT_REDUCE_SUM] = TT_SUM,
                                        [TT_REDUCE_PRODUCT] = TT_PROD,
                                        [TT_REDUCE_MIN] = TT_MIN,
                                        [TT_REDUCE_MAX] = TT_MAX};
  bool scatters = e->kind == TT_COLLECTIVE_REDUCE_SCATTER;
  if (e->op >= TT_REDUCE_BAND)
    return reduce_bits(cx, e,
                       scatters ? tt_hlo_all_to_all(cx->h, x, &e->groups)
                                : tt_hlo_all_gather(cx->h, x, &e->groups));
  tt_reducer by = reducers[e->op];
  if (scatters) return tt_hlo_reduce_scatter(cx->h, by, x, &e->groups);
  return tt_hlo_all_reduce(cx->h, by, x, &e->groups);
}

tt_node *tt_exchange_lower(tt_lower *cx, const tt_exchange *e, tt_node *x) {
  if (!tt_collective_reduces(e->kind))
    return from_bits(cx, move(cx, e, to_bits(cx, x)), x->type.dtype);
  tt_node *y = reduce(cx, e, x);
  if (e->kind != TT_COLLECTIVE_REDUCE) return y;
  return tt_hlo_select(cx->h, tt_hlo_broadcast_to(cx->h, is_root(cx, e), 1, x->type.dims), y, x);
}

/* A maximum of numbers that are known to be equal nowhere but at run time. */
tt_node *tt_exchange_barrier(tt_lower *cx, const tt_groups *groups, tt_node *number) {
  int64_t one = 1;
  tt_node *x = tt_hlo_reshape(cx->h, number, 1, &one);
  return tt_hlo_reshape(cx->h, tt_hlo_all_reduce(cx->h, TT_MAX, x, groups), 0, NULL);
}
