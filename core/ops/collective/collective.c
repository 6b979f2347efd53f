#include "ops/collective/collective.h"

#include "ops/collective/devices.h"

/* -- What is reduced, as transports reduce it -- */

typedef struct wire {
  tt_dtype dtype;
  tt_reduction op;
  bool biased; /* U64 as I64 that compare alike */
  bool mean;
} wire;

static tt_dtype wire_dtype(tt_dtype dtype) {
  switch (dtype) {
  case TT_BOOL:
    return TT_U8;
  case TT_I16:
  case TT_U16:
    return TT_I32;
  case TT_U32:
  case TT_U64:
    return TT_I64;
  default:
    break;
  }
  dtype = tt_dtype_real(dtype);
  return tt_is_float(dtype) && tt_dtype_bytes(dtype) == 1 ? TT_F32 : dtype;
}

/* True + True is true. */
static tt_reduction of_bools(tt_reduction op) {
  switch (op) {
  case TT_REDUCE_SUM:
  case TT_REDUCE_BOR:
    return TT_REDUCE_MAX;
  case TT_REDUCE_PRODUCT:
  case TT_REDUCE_BAND:
    return TT_REDUCE_MIN;
  default:
    return op;
  }
}

static wire wire_of(tt_lower *cx, tt_dtype dtype) {
  wire w = {.dtype = wire_dtype(dtype), .op = (tt_reduction)tt_int(cx, TT_COLLECTIVE_ARG_OP)};
  tt_status refused = tt_reduction_check(w.op, dtype);
  if (refused) tt_hlo_fail(cx->h, tt_status_code(refused), "%s", tt_status_message(refused));
  tt_status_release(refused);
  if (dtype == TT_BOOL) w.op = of_bools(w.op);
  w.biased = dtype == TT_U64 && (w.op == TT_REDUCE_MIN || w.op == TT_REDUCE_MAX);
  w.mean = w.op == TT_REDUCE_AVG;
  if (w.mean) w.op = TT_REDUCE_SUM;
  return w;
}

static tt_node *flip_sign(tt_lower *cx, tt_node *x) {
  return tt_hlo_xor(cx->h, x, tt_hlo_const_i(cx->h, TT_I64, INT64_MIN));
}

/* Complex numbers become pairs of real ones, so that each rank's part stays together. */
static tt_node *to_wire(tt_lower *cx, const wire *w, tt_node *x) {
  if (tt_is_complex(x->type.dtype)) return tt_pairs_of_complex(cx, x);
  x = tt_cast(cx, x, w->dtype);
  return w->biased ? flip_sign(cx, x) : x;
}

static tt_node *word_of(tt_lower *cx, tt_node *turn, int word) {
  tt_node *one = tt_hlo_slice_dim(cx->h, turn, 0, word, word + 1, 1);
  return tt_hlo_reshape(cx->h, one, 0, NULL);
}

static tt_node *mean(tt_lower *cx, tt_node *sum, tt_node *turn) {
  tt_dtype dtype = tt_compute_dtype(sum->type.dtype);
  tt_node *size = tt_cast(cx, word_of(cx, turn, TT_TURN_SIZE), dtype);
  tt_node *x = tt_cast(cx, sum, dtype);
  x = tt_is_float(dtype) ? tt_quotient(cx, x, size) : tt_hlo_divide(cx->h, x, size);
  return tt_cast(cx, x, sum->type.dtype);
}

static tt_node *from_wire(tt_lower *cx, const wire *w, tt_node *y, tt_node *turn, tt_dtype dtype) {
  if (w->mean) y = mean(cx, y, turn);
  if (w->biased) y = flip_sign(cx, y);
  return tt_is_complex(dtype) ? tt_complex_of_pairs(cx, y) : tt_cast(cx, y, dtype);
}

/* -- Lists -- */

/* The elements of a list's tensors, one behind the other; NULL: there are none. */
static tt_node *packed(tt_lower *cx, int list) {
  int count = tt_list_size(cx, list), filled = 0;
  tt_node **flat = tt_arena_alloc(tt_hlo_arena(cx->h), sizeof *flat * ((size_t)count + 1));
  if (!flat) return tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "out of memory");
  for (int k = 0; k < count; k++) {
    tt_node *x = tt_in_at(cx, list, k);
    if (tt_type_numel(&x->type)) flat[filled++] = tt_flatten(cx, x);
  }
  return filled ? tt_hlo_concatenate(cx->h, flat, filled, 0) : NULL;
}

/* The type of such, which the outputs will have; of rank 1. */
static tt_type room(tt_lower *cx) {
  int count = tt_list_size(cx, TT_COLLECTIVE_ARG_OUTPUTS);
  tt_type type = {.rank = 1};
  for (int k = 0; k < count; k++) {
    const tt_type *one = &tt_in_at(cx, TT_COLLECTIVE_ARG_OUTPUTS, k)->type;
    if (k && one->dtype != type.dtype)
      tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "the tensors have different dtypes, %s and %s",
                  tt_dtype_name(type.dtype), tt_dtype_name(one->dtype));
    type.dtype = one->dtype;
    type.dims[0] += tt_type_numel(one);
  }
  return type;
}

static void unpack(tt_lower *cx, tt_node *y) {
  int64_t at = 0;
  for (int k = 0; k < tt_list_size(cx, TT_COLLECTIVE_ARG_OUTPUTS); k++) {
    tt_node *target = tt_in_at(cx, TT_COLLECTIVE_ARG_OUTPUTS, k);
    int64_t numel = tt_type_numel(&target->type);
    tt_node *part = numel ? tt_hlo_slice_dim(cx->h, y, 0, at, at + numel, 1) : target;
    tt_out(cx, 1 + k, tt_hlo_reshape(cx->h, part, target->type.rank, target->type.dims));
    at += numel;
  }
}

/* -- Between devices -- */

static void take_turn(tt_lower *cx, tt_node *sequence) {
  tt_node *turn = tt_in(cx, TT_COLLECTIVE_ARG_TURN),
          *at = tt_hlo_const_i(cx->h, TT_I64, TT_TURN_SEQUENCE);
  int64_t one = 1;
  tt_node *next = tt_hlo_add(cx->h, sequence, tt_hlo_const_i(cx->h, TT_I64, 1));
  next = tt_hlo_reshape(cx->h, next, 1, &one);
  tt_out(cx, 0, tt_hlo_dynamic_update_slice(cx->h, turn, next, &at));
}

/* As `call`, which it takes the place of where the program runs on all of the ranks' devices. */
static tt_node *exchange(tt_lower *cx, tt_collective_kind kind, tt_reduction op, tt_node *x) {
  int count = 0, splits = 0;
  const int64_t *devices = tt_ints(cx, TT_COLLECTIVE_ARG_DEVICES, &count);
  tt_node *turn = tt_in(cx, TT_COLLECTIVE_ARG_TURN),
          *sequence = word_of(cx, turn, TT_TURN_SEQUENCE);
  tt_exchange e = {.kind = kind,
                   .op = op,
                   .groups = {devices, count, (int)tt_int(cx, TT_COLLECTIVE_ARG_RANKS)},
                   .rank = word_of(cx, turn, TT_TURN_RANK),
                   .root = tt_num(cx, TT_COLLECTIVE_ARG_ROOT, TT_I64)};
  tt_ints(cx, TT_COLLECTIVE_ARG_SPLITS, &splits);
  if (splits)
    return tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "devices exchange parts of one size only");
  if (kind == TT_COLLECTIVE_BARRIER) sequence = tt_exchange_barrier(cx, &e.groups, sequence);
  take_turn(cx, sequence);
  return x ? tt_exchange_lower(cx, &e, x) : NULL;
}

/* -- The call -- */

static tt_node *numbers(tt_lower *cx) {
  int64_t one = 1;
  int count = 0;
  const int64_t *splits = tt_ints(cx, TT_COLLECTIVE_ARG_SPLITS, &count);
  tt_node *parts[] = {tt_hlo_reshape(cx->h, tt_num(cx, TT_COLLECTIVE_ARG_ROOT, TT_I64), 1, &one),
                      tt_hlo_reshape(cx->h, tt_num(cx, TT_COLLECTIVE_ARG_TAG, TT_I64), 1, &one),
                      tt_hlo_reshape(cx->h, tt_num(cx, TT_COLLECTIVE_ARG_SITE, TT_I64), 1, &one),
                      NULL};
  if (count) parts[3] = tt_hlo_const_i64s(cx->h, TT_I64, splits, count);
  return tt_hlo_concatenate(cx->h, parts, count ? 4 : 3, 0);
}

/* Returns y, of this type, which may be empty; x may be NULL. */
static tt_node *call_transport(tt_lower *cx, tt_collective_kind kind, tt_reduction op, tt_node *x,
                               const tt_type *y) {
  tt_node *xs[] = {tt_in(cx, TT_COLLECTIVE_ARG_TURN), numbers(cx), x}, *out[2] = {NULL, NULL};
  tt_type types[] = {xs[0]->type, *y};
  char *config =
      tt_arena_printf(tt_hlo_arena(cx->h), "kind = %d : i64, op = %d : i64", (int)kind, (int)op);
  if (!config) return tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "out of memory");
  int operands = x ? 3 : 2, results = y->dims[0] ? 2 : 1;
  if (tt_collective_in_place(kind) && x)
    tt_hlo_custom_call_over(cx->h, TT_COLLECTIVE_TARGET, config, operands, xs, results, types,
                            &(tt_over){2, 1}, 1, out);
  else tt_hlo_custom_call(cx->h, TT_COLLECTIVE_TARGET, config, operands, xs, results, types, out);
  tt_out(cx, 0, out[0]);
  return out[1];
}

static tt_node *call(tt_lower *cx, tt_collective_kind kind, tt_reduction op, tt_node *x,
                     const tt_type *y) {
  int devices = 0;
  tt_ints(cx, TT_COLLECTIVE_ARG_DEVICES, &devices);
  if (devices) return exchange(cx, kind, op, x);
  if (cx->target->collectives) return call_transport(cx, kind, op, x, y);
  return tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "process groups are not there yet on platform '%s'",
                     cx->target->platform);
}

/* The next turn, then the outputs. */
void tt_lower_collective(tt_lower *cx) {
  tt_collective_kind kind = (tt_collective_kind)tt_int(cx, TT_COLLECTIVE_ARG_KIND);
  tt_node *x = packed(cx, tt_collective_in_place(kind) ? TT_COLLECTIVE_ARG_OUTPUTS
                                                       : TT_COLLECTIVE_ARG_INPUTS),
          *y;
  tt_type type = room(cx);
  if (tt_collective_reduces(kind) && type.dims[0]) {
    tt_dtype dtype = type.dtype;
    wire w = wire_of(cx, dtype);
    type.dtype = w.dtype;
    if (tt_is_complex(dtype)) type.dims[0] *= 2;
    y = call(cx, kind, w.op, x ? to_wire(cx, &w, x) : NULL, &type);
    y = y ? from_wire(cx, &w, y, tt_in(cx, TT_COLLECTIVE_ARG_TURN), dtype) : NULL;
  } else {
    y = call(cx, kind, TT_REDUCE_SUM, x, &type);
  }
  unpack(cx, y);
}
