/* Slices whose place is known only at run time. */
#include "hlo/internal.h"

/* Operands from `first` on are `rank` rank-0 integers. */
static bool are_starts(const tt_instr *in, int first, int rank, tt_why *why) {
  if (in->operand_count != first + rank)
    return tt_hlo_bad(why, "%d start indices, expected %d", in->operand_count - first, rank);
  for (int i = first; i < in->operand_count; i++) {
    const tt_type *type = tt_operand_type(in, i);
    if (type->rank || !tt_type_equal(type, tt_operand_type(in, first)))
      return tt_hlo_bad(why, "start index %d is %s, expected rank 0 and one dtype", i - first,
                        tt_hlo_show(why, type));
    if (!tt_is_integer(type->dtype))
      return tt_hlo_bad(why, "start index %d is %s, expected an integer", i - first,
                        tt_hlo_show(why, type));
  }
  return true;
}

static bool rule_dynamic_slice(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  const tt_attr *sizes = tt_attr_find(in, "slice_sizes");
  if (!are_starts(in, 1, x->rank, why) || !tt_attr_sized(sizes, x->rank, "slice_sizes", why))
    return false;
  *out = *x;
  for (int i = 0; i < x->rank; i++) {
    if (sizes->values[i] < 0 || sizes->values[i] > x->dims[i])
      return tt_hlo_bad(why, "slice size %lld of dimension %d of %s", (long long)sizes->values[i],
                        i, tt_hlo_show(why, x));
    out->dims[i] = sizes->values[i];
  }
  return true;
}

static bool rule_dynamic_update_slice(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0), *update = tt_operand_type(in, 1);
  if (!are_starts(in, 2, x->rank, why)) return false;
  bool ok = update->rank == x->rank && update->dtype == x->dtype;
  for (int i = 0; ok && i < x->rank; i++) ok = update->dims[i] <= x->dims[i];
  if (!ok)
    return tt_hlo_bad(why, "an update %s does not fit into %s", tt_hlo_show(why, update),
                      tt_hlo_show(why, x));
  *out = *x;
  return true;
}

/* Appends the rank-0 starts to `operands`. */
static int with_starts(tt_node **operands, int used, tt_node *const *starts, int rank) {
  for (int i = 0; i < rank; i++) operands[used++] = starts[i];
  return used;
}

tt_node *tt_hlo_dynamic_slice(tt_hlo *h, tt_node *x, tt_node *const *starts, const int64_t *sizes) {
  TT_NEED(h, dynamic_slice, x);
  if (!x->type.rank) return x;
  tt_node *operands[1 + TT_MAX_RANK] = {x};
  tt_attr attrs[] = {tt_attr_i64s("slice_sizes", sizes, x->type.rank)};
  tt_instr draft = {.op = TT_OPCODE_dynamic_slice,
                    .rule = rule_dynamic_slice,
                    .operands = operands,
                    .operand_count = with_starts(operands, 1, starts, x->type.rank),
                    .attrs = attrs,
                    .attr_count = 1};
  return tt_hlo_emit1(h, &draft, x->type);
}

tt_node *tt_hlo_dynamic_update_slice(tt_hlo *h, tt_node *x, tt_node *update,
                                     tt_node *const *starts) {
  TT_NEED(h, dynamic_update_slice, x, update);
  if (tt_type_equal(&x->type, &update->type)) return update;
  tt_node *operands[2 + TT_MAX_RANK] = {x, update};
  tt_instr draft = {.op = TT_OPCODE_dynamic_update_slice,
                    .rule = rule_dynamic_update_slice,
                    .operands = operands,
                    .operand_count = with_starts(operands, 2, starts, x->type.rank)};
  return tt_hlo_emit1(h, &draft, x->type);
}

tt_node *tt_hlo_update_slice(tt_hlo *h, tt_node *x, tt_node *update, const int64_t *starts) {
  TT_NEED(h, dynamic_update_slice, x, update);
  tt_node *nodes[TT_MAX_RANK] = {NULL};
  tt_dtype dtype = TT_I32;
  for (int i = 0; i < x->type.rank; i++) {
    if (x->type.dims[i] > INT32_MAX) dtype = TT_I64;
    if (update->type.rank == x->type.rank &&
        (starts[i] < 0 || starts[i] > x->type.dims[i] - update->type.dims[i]))
      return tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                         "stablehlo.dynamic_update_slice: start %lld of dimension %d is outside",
                         (long long)starts[i], i);
  }
  for (int i = 0; i < x->type.rank; i++) nodes[i] = tt_hlo_const_i(h, dtype, starts[i]);
  return tt_hlo_dynamic_update_slice(h, x, update, nodes);
}
