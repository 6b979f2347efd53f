/* Checks by the op table, and what the rules share. */
#include "hlo/internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool tt_hlo_bad(tt_why *why, const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(why->text, sizeof why->text, format, args);
  va_end(args);
  return false;
}

bool tt_hlo_bad_memory(tt_why *why) {
  why->memory = true;
  return tt_hlo_bad(why, "out of memory");
}

const char *tt_hlo_show(tt_why *why, const tt_type *type) {
  char *slot = why->slots[why->next++ & 3];
  int used = snprintf(slot, sizeof why->slots[0], "tensor<");
  for (int i = 0; i < type->rank && i < TT_MAX_RANK && used < 120; i++)
    used += snprintf(slot + used, sizeof why->slots[0] - (size_t)used, "%lldx",
                     (long long)type->dims[i]);
  (void)snprintf(slot + used, sizeof why->slots[0] - (size_t)used, "%s>",
                 used < 120 ? tt_dtype_name(type->dtype) : "..");
  return slot;
}

const tt_type *tt_operand_type(const tt_instr *in, int i) { return &in->operands[i]->type; }

const tt_attr *tt_attr_find(const tt_instr *in, const char *name) {
  for (int i = 0; i < in->attr_count; i++)
    if (!strcmp(in->attrs[i].name, name)) return &in->attrs[i];
  return NULL;
}

const tt_attr *tt_attr_field(const tt_attr *attr, const char *name) {
  for (int i = 0; attr && attr->kind == TT_ATTR_STRUCT && i < attr->count; i++)
    if (!strcmp(attr->fields[i].name, name)) return &attr->fields[i];
  return NULL;
}

bool tt_attr_sized(const tt_attr *attr, int count, const char *name, tt_why *why) {
  if (!attr || (attr->count && !attr->values)) return tt_hlo_bad(why, "%s is missing", name);
  if (attr->count != count)
    return tt_hlo_bad(why, "%s has %d values, expected %d", name, attr->count, count);
  return true;
}

bool tt_attr_dims(const tt_attr *attr, int rank, const char *name, tt_why *why) {
  uint64_t seen = 0;
  if (!attr || (attr->count && !attr->values)) return tt_hlo_bad(why, "%s is missing", name);
  for (int i = 0; i < attr->count; i++) {
    int64_t dim = attr->values[i];
    if (dim < 0 || dim >= rank)
      return tt_hlo_bad(why, "%s names dimension %lld of a tensor of rank %d", name, (long long)dim,
                        rank);
    if (seen >> dim & 1)
      return tt_hlo_bad(why, "%s names dimension %lld twice", name, (long long)dim);
    seen |= UINT64_C(1) << dim;
  }
  return true;
}

bool tt_attr_has(const tt_attr *attr, int64_t value) {
  for (int i = 0; i < attr->count; i++)
    if (attr->values[i] == value) return true;
  return false;
}

bool tt_window_count(int64_t dim, int64_t base_dilation, int64_t low, int64_t high, int64_t size,
                     int64_t dilation, int64_t stride, int64_t *out) {
  int64_t extent = 0, window;
  if (base_dilation < 1 || dilation < 1 || stride < 1 || size < 1 || dim < 0) return false;
  if (dim && (!tt_mul_i64(dim - 1, base_dilation, &extent) || !tt_add_i64(extent, 1, &extent)))
    return false;
  if (!tt_add_i64(extent, low, &extent) || !tt_add_i64(extent, high, &extent)) return false;
  if (!tt_mul_i64(size - 1, dilation, &window) || !tt_add_i64(window, 1, &window)) return false;
  if (extent < 0) return false;
  *out = extent < window ? 0 : (extent - window) / stride + 1;
  return true;
}

bool tt_region_is(const tt_instr *in, int i, int args, const tt_type *arg_types, int yields,
                  const tt_type *yield_types, tt_why *why) {
  const tt_block *block = in->regions[i];
  if (block->arg_count != args || block->yield_count != yields)
    return tt_hlo_bad(why, "region %d takes %d and yields %d values, expected %d and %d", i,
                      block->arg_count, block->yield_count, args, yields);
  for (int k = 0; k < args; k++)
    if (!tt_type_equal(&block->args[k].node.type, &arg_types[k]))
      return tt_hlo_bad(why, "argument %d of region %d is %s, expected %s", k, i,
                        tt_hlo_show(why, &block->args[k].node.type),
                        tt_hlo_show(why, &arg_types[k]));
  for (int k = 0; k < yields; k++)
    if (!tt_type_equal(&block->yields[k]->type, &yield_types[k]))
      return tt_hlo_bad(why, "region %d yields %s as value %d, expected %s", i,
                        tt_hlo_show(why, &block->yields[k]->type), k,
                        tt_hlo_show(why, &yield_types[k]));
  return true;
}

static bool check_operands(const tt_instr *in, const tt_op_info *info, tt_why *why) {
  if (in->operand_count < info->min || (info->max >= 0 && in->operand_count > info->max))
    return tt_hlo_bad(why, "%d operands, expected %s%d", in->operand_count,
                      info->max == info->min ? "" : "at least ", info->min);
  for (int i = 0; i < in->operand_count; i++) {
    const tt_type *type = tt_operand_type(in, i);
    int64_t bytes;
    if (!tt_type_bytes(type, &bytes)) return tt_hlo_bad(why, "operand %d is malformed", i);
    if (!(info->classes[i < 2 ? i : 2] >> tt_dtype_kind(type->dtype) & 1))
      return tt_hlo_bad(why, "operand %d is %s, a dtype that this operation does not take", i,
                        tt_hlo_show(why, type));
  }
  return true;
}

bool tt_hlo_check(const tt_instr *in, tt_type *out, tt_why *why) {
  assert(in->rule && in->operand_count >= 0 && in->result_count >= 0);
  const tt_op_info *info = tt_hlo_info(in->op);
  why->next = 0;
  if (!check_operands(in, info, why)) return false;
  if (in->region_count != info->regions)
    return tt_hlo_bad(why, "%d regions, expected %d", in->region_count, info->regions);
  if (!in->rule(in, out, why)) return false;
  for (int i = 0; i < in->result_count; i++) {
    int64_t bytes;
    if (!tt_type_bytes(&out[i], &bytes))
      return tt_hlo_bad(why, "result %d, %s, is malformed or too large", i,
                        tt_hlo_show(why, &out[i]));
  }
  return true;
}
