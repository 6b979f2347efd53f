/* Collectives. A program of them is a replica for each device; replicas are numbered in the order
 * of the devices' numbers, and form groups. */
#include "hlo/internal.h"

#include <stdlib.h>
#include <string.h>

/* -- Rules -- */

static bool check_groups(const tt_instr *in, tt_why *why) {
  const tt_attr *groups = tt_attr_find(in, "replica_groups");
  const tt_type *x = tt_operand_type(in, 0);
  if (x->rank != 1) return tt_hlo_bad(why, "%s must have rank 1", tt_hlo_show(why, x));
  if (!groups || groups->kind != TT_ATTR_ROWS || groups->value < 1 || groups->count < 1 ||
      groups->count % groups->value)
    return tt_hlo_bad(why, "replica_groups is missing or not whole");
  return true;
}

static int64_t group_size(const tt_instr *in) { return tt_attr_find(in, "replica_groups")->value; }

static bool check_combiner(const tt_instr *in, tt_why *why) {
  tt_type scalar = {.dtype = tt_operand_type(in, 0)->dtype}, pair[] = {scalar, scalar};
  return tt_region_is(in, 0, 2, pair, 1, &scalar, why);
}

static bool check_shares(const tt_instr *in, tt_why *why) {
  const tt_type *x = tt_operand_type(in, 0);
  if (x->dims[0] % group_size(in) == 0) return true;
  return tt_hlo_bad(why, "%lld devices cannot share %s", (long long)group_size(in),
                    tt_hlo_show(why, x));
}

static bool rule_all_reduce(const tt_instr *in, tt_type *out, tt_why *why) {
  *out = *tt_operand_type(in, 0);
  return check_groups(in, why) && check_combiner(in, why);
}

static bool rule_all_gather(const tt_instr *in, tt_type *out, tt_why *why) {
  if (!check_groups(in, why)) return false;
  *out = *tt_operand_type(in, 0);
  return tt_mul_i64(out->dims[0], group_size(in), &out->dims[0]) ||
         tt_hlo_bad(why, "the result has too many elements");
}

static bool rule_reduce_scatter(const tt_instr *in, tt_type *out, tt_why *why) {
  if (!check_groups(in, why) || !check_combiner(in, why) || !check_shares(in, why)) return false;
  *out = *tt_operand_type(in, 0);
  out->dims[0] /= group_size(in);
  return true;
}

static bool rule_all_to_all(const tt_instr *in, tt_type *out, tt_why *why) {
  *out = *tt_operand_type(in, 0);
  return check_groups(in, why) && check_shares(in, why);
}

/* -- The devices -- */

/* Makes them the program's; false with a sticky error if they are not what it has. */
static bool set_devices(tt_hlo *h, const tt_groups *groups) {
  size_t size = sizeof(int64_t) * (size_t)groups->count;
  if (groups->size < 1 || groups->count < 1 || groups->count % groups->size) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "%d devices in groups of %d", groups->count, groups->size);
    return false;
  }
  int64_t *sorted = tt_hlo_alloc(h, (size_t)groups->count, sizeof *sorted);
  if (!sorted) return false;
  memcpy(sorted, groups->devices, size);
  qsort(sorted, (size_t)groups->count, sizeof *sorted, tt_compare_i64);
  for (int i = 1; i < groups->count; i++)
    if (sorted[i] == sorted[i - 1]) {
      tt_hlo_fail(h, TT_INVALID_ARGUMENT, "device %lld is in two groups", (long long)sorted[i]);
      return false;
    }
  if (!h->devices) {
    h->devices = sorted;
    h->device_count = groups->count;
  } else if (h->device_count != groups->count || memcmp(h->devices, sorted, size) != 0) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                "a program has collectives of %d devices and of %d others; it runs on all of its "
                "devices at once",
                h->device_count, groups->count);
    return false;
  }
  return true;
}

const int64_t *tt_hlo_devices(const tt_hlo *h, int *count) {
  *count = h->device_count;
  return h->devices;
}

/* The groups by the replicas' numbers. */
static bool add_groups(tt_hlo *h, const tt_groups *groups, tt_attr *attr) {
  if (!set_devices(h, groups)) return false;
  int64_t *replicas = tt_hlo_alloc(h, (size_t)groups->count, sizeof *replicas);
  if (!replicas) return false;
  for (int i = 0; i < groups->count; i++) {
    const int64_t *found = bsearch(&groups->devices[i], h->devices, (size_t)h->device_count,
                                   sizeof *h->devices, tt_compare_i64);
    replicas[i] = found - h->devices;
  }
  *attr = tt_attr_rows("replica_groups", replicas, groups->count, groups->size);
  return true;
}

/* -- Builders -- */

/* `attrs` has room in its first place, which the groups take. */
static tt_node *emit(tt_hlo *h, int op, tt_rule rule, tt_node *x, const tt_groups *groups,
                     tt_attr *attrs, int attr_count, tt_block *region) {
  if (h->error || !add_groups(h, groups, &attrs[0])) return tt_hlo_poison(h);
  tt_instr draft = {.op = op,
                    .rule = rule,
                    .operands = &x,
                    .operand_count = 1,
                    .attrs = attrs,
                    .attr_count = attr_count,
                    .regions = &region,
                    .region_count = region ? 1 : 0};
  return tt_hlo_emit1(h, &draft, x->type);
}

tt_node *tt_hlo_all_reduce(tt_hlo *h, tt_reducer reducer, tt_node *x, const tt_groups *groups) {
  TT_NEED(h, all_reduce, x);
  int op = TT_OPCODE_all_reduce;
  tt_attr attrs[1];
  return emit(h, op, rule_all_reduce, x, groups, attrs, 1,
              tt_hlo_reducer_region(h, op, reducer, x->type.dtype));
}

tt_node *tt_hlo_all_gather(tt_hlo *h, tt_node *x, const tt_groups *groups) {
  TT_NEED(h, all_gather, x);
  tt_attr attrs[] = {{.name = NULL}, tt_attr_i64("all_gather_dim", 0)};
  return emit(h, TT_OPCODE_all_gather, rule_all_gather, x, groups, attrs, 2, NULL);
}

tt_node *tt_hlo_reduce_scatter(tt_hlo *h, tt_reducer reducer, tt_node *x, const tt_groups *groups) {
  TT_NEED(h, reduce_scatter, x);
  int op = TT_OPCODE_reduce_scatter;
  tt_attr attrs[] = {{.name = NULL}, tt_attr_i64("scatter_dimension", 0)};
  return emit(h, op, rule_reduce_scatter, x, groups, attrs, 2,
              tt_hlo_reducer_region(h, op, reducer, x->type.dtype));
}

tt_node *tt_hlo_all_to_all(tt_hlo *h, tt_node *x, const tt_groups *groups) {
  TT_NEED(h, all_to_all, x);
  tt_attr attrs[] = {{.name = NULL},
                     tt_attr_i64("split_dimension", 0),
                     tt_attr_i64("concat_dimension", 0),
                     tt_attr_i64("split_count", groups->size)};
  return emit(h, TT_OPCODE_all_to_all, rule_all_to_all, x, groups, attrs, 4, NULL);
}
