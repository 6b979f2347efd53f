#include "hlo/internal.h"

#include <string.h>

/* -- Rules -- */

static bool rule_reshape(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  out->dtype = x->dtype;
  if (tt_type_numel(x) != tt_type_numel(out))
    return tt_hlo_bad(why, "%s and %s have different numbers of elements", tt_hlo_show(why, x),
                      tt_hlo_show(why, out));
  return true;
}

static bool rule_transpose(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  const tt_attr *perm = tt_attr_find(in, "permutation");
  if (!tt_attr_sized(perm, x->rank, "permutation", why) ||
      !tt_attr_dims(perm, x->rank, "permutation", why))
    return false;
  *out = *x;
  for (int i = 0; i < x->rank; i++) out->dims[i] = x->dims[perm->values[i]];
  return true;
}

static bool rule_broadcast_in_dim(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  const tt_attr *map = tt_attr_find(in, "broadcast_dimensions");
  out->dtype = x->dtype;
  if (!tt_attr_sized(map, x->rank, "broadcast_dimensions", why) ||
      !tt_attr_dims(map, out->rank, "broadcast_dimensions", why))
    return false;
  for (int i = 0; i < x->rank; i++)
    if (x->dims[i] != 1 && x->dims[i] != out->dims[map->values[i]])
      return tt_hlo_bad(why, "dimension %d of %s does not broadcast to dimension %lld of %s", i,
                        tt_hlo_show(why, x), (long long)map->values[i], tt_hlo_show(why, out));
  return true;
}

static bool rule_slice(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  const tt_attr *start = tt_attr_find(in, "start_indices");
  const tt_attr *limit = tt_attr_find(in, "limit_indices");
  const tt_attr *step = tt_attr_find(in, "strides");
  if (!tt_attr_sized(start, x->rank, "start_indices", why) ||
      !tt_attr_sized(limit, x->rank, "limit_indices", why) ||
      !tt_attr_sized(step, x->rank, "strides", why))
    return false;
  *out = *x;
  for (int i = 0; i < x->rank; i++) {
    int64_t low = start->values[i], high = limit->values[i], by = step->values[i];
    if (low < 0 || high < low || high > x->dims[i] || by < 1)
      return tt_hlo_bad(why, "%lld:%lld:%lld is no slice of dimension %d of %s", (long long)low,
                        (long long)high, (long long)by, i, tt_hlo_show(why, x));
    out->dims[i] = (high - low) / by + ((high - low) % by != 0);
  }
  return true;
}

static bool rule_concatenate(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *first = tt_operand_type(in, 0);
  const tt_attr *attr = tt_attr_find(in, "dimension");
  int64_t dim = attr ? attr->value : -1, total = 0;
  if (dim < 0 || dim >= first->rank)
    return tt_hlo_bad(why, "there is no dimension %lld in %s", (long long)dim,
                      tt_hlo_show(why, first));
  for (int i = 0; i < in->operand_count; i++) {
    tt_type type = *tt_operand_type(in, i);
    if (type.rank == first->rank && !tt_add_i64(total, type.dims[dim], &total))
      return tt_hlo_bad(why, "the result is too large");
    type.dims[dim] = first->dims[dim];
    if (!tt_type_equal(&type, first))
      return tt_hlo_bad(why, "operand %d, %s, does not fit operand 0, %s, along dimension %lld", i,
                        tt_hlo_show(why, tt_operand_type(in, i)), tt_hlo_show(why, first),
                        (long long)dim);
  }
  *out = *first;
  out->dims[dim] = total;
  return true;
}

static bool rule_pad(const tt_instr *in, tt_type *out, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0), *value = tt_operand_type(in, 1);
  const tt_attr *low = tt_attr_find(in, "edge_padding_low");
  const tt_attr *high = tt_attr_find(in, "edge_padding_high");
  const tt_attr *interior = tt_attr_find(in, "interior_padding");
  if (value->rank || value->dtype != x->dtype)
    return tt_hlo_bad(why, "the padding value is %s, expected tensor<%s>", tt_hlo_show(why, value),
                      tt_dtype_name(x->dtype));
  if (!tt_attr_sized(low, x->rank, "edge_padding_low", why) ||
      !tt_attr_sized(high, x->rank, "edge_padding_high", why) ||
      !tt_attr_sized(interior, x->rank, "interior_padding", why))
    return false;
  *out = *x;
  for (int i = 0; i < x->rank; i++) {
    int64_t inner = 0, dim = x->dims[i], gap = interior->values[i];
    bool ok = gap >= 0 && (dim < 2 || tt_mul_i64(dim - 1, gap, &inner)) &&
              tt_add_i64(dim, inner, &dim) && tt_add_i64(dim, low->values[i], &dim) &&
              tt_add_i64(dim, high->values[i], &dim) && dim >= 0;
    if (!ok)
      return tt_hlo_bad(why, "padding (%lld, %lld, %lld) does not fit dimension %d of %s",
                        (long long)low->values[i], (long long)high->values[i], (long long)gap, i,
                        tt_hlo_show(why, x));
    out->dims[i] = dim;
  }
  return true;
}

static bool rule_reverse(const tt_instr *in, tt_type *out, tt_why *why) {
  *out = *tt_operand_type(in, 0);
  return tt_attr_dims(tt_attr_find(in, "dimensions"), out->rank, "dimensions", why);
}

/* -- Builders -- */

tt_node *tt_hlo_reshape(tt_hlo *h, tt_node *x, int rank, const int64_t *dims) {
  TT_NEED(h, reshape, x);
  if (!tt_hlo_rank_ok(h, rank, "stablehlo.reshape")) return tt_hlo_poison(h);
  tt_type type = tt_type_make(x->type.dtype, rank, dims);
  if (tt_type_equal(&type, &x->type)) return x;
  if (tt_type_numel(&type) == tt_type_numel(&x->type)) {
    tt_node *splat = tt_hlo_splat_as(h, x, &type);
    if (splat) return splat;
  }
  return tt_hlo_emit1(h, TT_DRAFT(reshape, NULL, 0, x), type);
}

tt_node *tt_hlo_transpose(tt_hlo *h, tt_node *x, const int *perm) {
  TT_NEED(h, transpose, x);
  bool same = true;
  tt_type type = x->type;
  for (int i = 0; i < x->type.rank; i++) {
    bool valid = perm[i] >= 0 && perm[i] < x->type.rank; /* the rule says it where not */
    same = same && perm[i] == i;
    type.dims[i] = valid ? x->type.dims[perm[i]] : -1;
  }
  if (same) return x;
  if (tt_type_numel(&type) == tt_type_numel(&x->type)) {
    tt_node *splat = tt_hlo_splat_as(h, x, &type);
    if (splat) return splat;
  }
  tt_attr attrs[] = {
      tt_attr_i64s("permutation", tt_hlo_widen(h, perm, x->type.rank), x->type.rank)};
  return tt_hlo_emit1(h, TT_DRAFT(transpose, attrs, 1, x), x->type);
}

tt_node *tt_hlo_permuted_from(const tt_node *x, const int *perm) {
  if (!x->instr || x->instr->op != TT_OPCODE_transpose) return NULL;
  const int64_t *has = x->instr->attrs[0].values;
  for (int i = 0; i < x->type.rank; i++)
    if (perm[i] != has[i]) return NULL;
  return x->instr->operands[0];
}

tt_node *tt_hlo_transposed_from(const tt_node *x) {
  int perm[TT_MAX_RANK], rank = x->type.rank;
  if (rank < 2) return NULL;
  for (int i = 0; i < rank; i++) perm[i] = i;
  perm[rank - 1] = rank - 2;
  perm[rank - 2] = rank - 1;
  return tt_hlo_permuted_from(x, perm);
}

tt_node *tt_hlo_broadcast(tt_hlo *h, tt_node *x, const int *map, int rank, const int64_t *dims) {
  TT_NEED(h, broadcast_in_dim, x);
  if (!tt_hlo_rank_ok(h, rank, "stablehlo.broadcast_in_dim")) return tt_hlo_poison(h);
  tt_type type = tt_type_make(x->type.dtype, rank, dims);
  bool same = tt_type_equal(&type, &x->type);
  for (int i = 0; i < x->type.rank; i++) same = same && map[i] == i;
  if (same) return x;
  tt_node *splat = x->type.rank ? NULL : tt_hlo_splat_as(h, x, &type);
  if (splat) return splat;
  tt_attr attrs[] = {
      tt_attr_i64s("broadcast_dimensions", tt_hlo_widen(h, map, x->type.rank), x->type.rank)};
  return tt_hlo_emit1(h, TT_DRAFT(broadcast_in_dim, attrs, 1, x), type);
}

tt_node *tt_hlo_broadcast_to(tt_hlo *h, tt_node *x, int rank, const int64_t *dims) {
  TT_NEED(h, broadcast_in_dim, x);
  int map[TT_MAX_RANK] = {0}, shift = rank - x->type.rank;
  if (shift < 0)
    return tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                       "a tensor of rank %d does not broadcast to the smaller rank %d",
                       x->type.rank, rank);
  for (int i = 0; i < x->type.rank; i++) map[i] = i + shift;
  return tt_hlo_broadcast(h, x, map, rank, dims);
}

tt_node *tt_hlo_slice(tt_hlo *h, tt_node *x, const int64_t *start, const int64_t *limit,
                      const int64_t *step) {
  TT_NEED(h, slice, x);
  int rank = x->type.rank;
  bool same = true;
  for (int i = 0; i < rank; i++)
    same = same && start[i] == 0 && limit[i] == x->type.dims[i] && (!step || step[i] == 1);
  if (same) return x;
  tt_attr attrs[] = {tt_attr_i64s("start_indices", start, rank),
                     tt_attr_i64s("limit_indices", limit, rank),
                     tt_attr_i64s("strides", tt_hlo_filled(h, step, rank, 1), rank)};
  return tt_hlo_emit1(h, TT_DRAFT(slice, attrs, 3, x), x->type);
}

tt_node *tt_hlo_slice_dim(tt_hlo *h, tt_node *x, int dim, int64_t start, int64_t limit,
                          int64_t step) {
  TT_NEED(h, slice, x);
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0}, by[TT_MAX_RANK] = {0};
  if (dim < 0 || dim >= x->type.rank)
    return tt_hlo_fail(h, TT_INVALID_ARGUMENT, "stablehlo.slice: no dimension %d in rank %d", dim,
                       x->type.rank);
  for (int i = 0; i < x->type.rank; i++) {
    high[i] = x->type.dims[i];
    by[i] = 1;
  }
  low[dim] = start;
  high[dim] = limit;
  by[dim] = step;
  return tt_hlo_slice(h, x, low, high, by);
}

tt_node *tt_hlo_concatenate(tt_hlo *h, tt_node *const *xs, int count, int dim) {
  if (!tt_hlo_usable(h, TT_OPCODE_concatenate, xs, count)) return tt_hlo_poison(h);
  if (count == 1) return xs[0];
  tt_attr attrs[] = {tt_attr_i64("dimension", dim)};
  tt_instr draft = {.op = TT_OPCODE_concatenate,
                    .rule = rule_concatenate,
                    .operands = xs,
                    .operand_count = count,
                    .attrs = attrs,
                    .attr_count = 1};
  return tt_hlo_emit1(h, &draft, (tt_type){.dtype = TT_F32});
}

tt_node *tt_hlo_pad(tt_hlo *h, tt_node *x, tt_node *value, const int64_t *low, const int64_t *high,
                    const int64_t *interior) {
  TT_NEED(h, pad, x, value);
  int rank = x->type.rank;
  bool same = true;
  for (int i = 0; i < rank; i++)
    same = same && !low[i] && !high[i] && (!interior || !interior[i] || x->type.dims[i] < 2);
  if (same) return x;
  tt_attr attrs[] = {tt_attr_i64s("edge_padding_low", low, rank),
                     tt_attr_i64s("edge_padding_high", high, rank),
                     tt_attr_i64s("interior_padding", tt_hlo_filled(h, interior, rank, 0), rank)};
  return tt_hlo_emit1(h, TT_DRAFT(pad, attrs, 3, x, value), x->type);
}

tt_node *tt_hlo_reverse(tt_hlo *h, tt_node *x, const int *dims, int count) {
  TT_NEED(h, reverse, x);
  if (!count) return x;
  tt_attr attrs[] = {tt_attr_i64s("dimensions", tt_hlo_widen(h, dims, count), count)};
  return tt_hlo_emit1(h, TT_DRAFT(reverse, attrs, 1, x), x->type);
}
