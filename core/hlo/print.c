#include "hlo/internal.h"

#include <string.h>

/* Gathers small pieces so that the text grows in few steps. */
typedef struct tt_pen {
  tt_text *text;
  size_t used;
  char piece[2048];
} tt_pen;

static void flush(tt_pen *pen) {
  tt_text_add(pen->text, pen->piece, pen->used);
  pen->used = 0;
}

static void put_bytes(tt_pen *pen, const char *data, size_t size) {
  if (size > sizeof pen->piece - pen->used) flush(pen);
  if (size > sizeof pen->piece) {
    tt_text_add(pen->text, data, size);
    return;
  }
  memcpy(pen->piece + pen->used, data, size);
  pen->used += size;
}

static void put(tt_pen *pen, const char *text) { put_bytes(pen, text, strlen(text)); }

static void put_int(tt_pen *pen, int64_t value) {
  char digits[24];
  size_t at = sizeof digits;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do digits[--at] = (char)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0) digits[--at] = '-';
  put_bytes(pen, digits + at, sizeof digits - at);
}

static void put_type(tt_pen *pen, const tt_type *type) {
  put(pen, "tensor<");
  for (int i = 0; i < type->rank; i++) {
    put_int(pen, type->dims[i]);
    put(pen, "x");
  }
  put(pen, tt_dtype_name(type->dtype));
  put(pen, ">");
}

static void put_ints(tt_pen *pen, const tt_attr *attr) {
  for (int i = 0; i < attr->count; i++) {
    if (i) put(pen, ", ");
    if (attr->kind == TT_ATTR_BOOLS) put(pen, attr->values[i] ? "true" : "false");
    else put_int(pen, attr->values[i]);
  }
}

static void put_rows(tt_pen *pen, const tt_attr *attr) {
  int width = (int)attr->value;
  put(pen, attr->count ? "dense<[" : "dense<");
  for (int i = 0; i < attr->count; i++) {
    bool first = i % width == 0;
    put(pen, !first ? ", " : i ? "], [" : "[");
    put_int(pen, attr->values[i]);
  }
  put(pen, attr->count ? "]]> : tensor<" : "> : tensor<");
  put_int(pen, attr->count / width);
  put(pen, "x");
  put_int(pen, width);
  put(pen, "xi64>");
}

static void put_attr_value(tt_pen *pen, const tt_attr *attr);

static void put_struct(tt_pen *pen, const tt_attr *attr) {
  bool first = true;
  put(pen, attr->text);
  for (int i = 0; i < attr->count; i++) {
    const tt_attr *field = &attr->fields[i];
    if (field->kind == TT_ATTR_LIST && !field->count) continue;
    if (!first) put(pen, ", ");
    first = false;
    put(pen, field->name);
    put(pen, " = ");
    put_attr_value(pen, field);
  }
  put(pen, ">");
}

static void put_attr_value(tt_pen *pen, const tt_attr *attr) {
  switch (attr->kind) {
  case TT_ATTR_TEXT:
    put(pen, attr->text);
    break;
  case TT_ATTR_BOOL:
    put(pen, attr->value ? "true" : "false");
    break;
  case TT_ATTR_STRUCT:
    put_struct(pen, attr);
    break;
  case TT_ATTR_ROWS:
    put_rows(pen, attr);
    break;
  case TT_ATTR_I64:
  case TT_ATTR_I32:
  case TT_ATTR_PLAIN:
    put_int(pen, attr->value);
    if (attr->kind != TT_ATTR_PLAIN) put(pen, attr->kind == TT_ATTR_I64 ? " : i64" : " : i32");
    break;
  case TT_ATTR_I64S:
  case TT_ATTR_BOOLS:
    put(pen, attr->kind == TT_ATTR_I64S ? "array<i64" : "array<i1");
    if (attr->count) put(pen, ": ");
    put_ints(pen, attr);
    put(pen, ">");
    break;
  case TT_ATTR_LIST:
    put(pen, "[");
    put_ints(pen, attr);
    put(pen, "]");
    break;
  }
}

static void put_attr(tt_pen *pen, const tt_attr *attr) {
  put(pen, attr->name);
  put(pen, " = ");
  put_attr_value(pen, attr);
}

void tt_attr_print(const tt_attr *attr, tt_text *text) {
  tt_pen pen = {.text = text};
  put_attr(&pen, attr);
  flush(&pen);
}

static void put_value(tt_pen *pen, const tt_node *node) {
  const tt_hlo_value *value = (const tt_hlo_value *)node;
  bool param = !node->instr && !value->block->outer;
  put(pen, param ? "%arg" : "%");
  put_int(pen, value->number);
  if (!node->instr || node->instr->result_count == 1) return;
  put(pen, "#");
  put_int(pen, node->result);
}

static void put_values(tt_pen *pen, tt_node *const *nodes, int count) {
  for (int i = 0; i < count; i++) {
    if (i) put(pen, ", ");
    put_value(pen, nodes[i]);
  }
}

static void put_types(tt_pen *pen, tt_node *const *nodes, int count) {
  put(pen, "(");
  for (int i = 0; i < count; i++) {
    if (i) put(pen, ", ");
    put_type(pen, &nodes[i]->type);
  }
  put(pen, ")");
}

static void put_return(tt_pen *pen, const char *op, tt_node *const *nodes, int count) {
  put(pen, op);
  put(pen, "(");
  put_values(pen, nodes, count);
  put(pen, ") : ");
  put_types(pen, nodes, count);
  put(pen, " -> ()\n");
}

static void put_block(tt_pen *pen, tt_block *block, int *number);

static void put_region(tt_pen *pen, tt_block *block, int *number) {
  put(pen, "{\n^bb0(");
  for (int i = 0; i < block->arg_count; i++) {
    block->args[i].number = (*number)++;
    if (i) put(pen, ", ");
    put_value(pen, &block->args[i].node);
    put(pen, ": ");
    put_type(pen, &block->args[i].node.type);
  }
  put(pen, "):\n");
  put_block(pen, block, number);
  put_return(pen, "\"stablehlo.return\"", block->yields, block->yield_count);
  put(pen, "}");
}

static void put_results(tt_pen *pen, tt_instr *in, int *number) {
  if (!in->result_count) return;
  for (int i = 0; i < in->result_count; i++) in->results[i].number = *number;
  put(pen, "%");
  put_int(pen, (*number)++);
  if (in->result_count > 1) {
    put(pen, ":");
    put_int(pen, in->result_count);
  }
  put(pen, " = ");
}

static void put_instr(tt_pen *pen, tt_instr *in, int *number) {
  put_results(pen, in, number);
  put(pen, "\"");
  put(pen, tt_hlo_info(in->op)->name);
  put(pen, "\"(");
  put_values(pen, in->operands, in->operand_count);
  put(pen, ")");
  for (int i = 0; i < in->region_count; i++) {
    put(pen, i ? ", " : " (");
    put_region(pen, in->regions[i], number);
  }
  if (in->region_count) put(pen, ")");
  for (int i = 0; i < in->attr_count; i++) {
    put(pen, i ? ", " : " {");
    put_attr(pen, &in->attrs[i]);
  }
  put(pen, in->attr_count ? "} : " : " : ");
  put_types(pen, in->operands, in->operand_count);
  put(pen, in->result_count == 1 ? " -> " : " -> (");
  for (int i = 0; i < in->result_count; i++) {
    if (i) put(pen, ", ");
    put_type(pen, &in->results[i].node.type);
  }
  put(pen, in->result_count == 1 ? "\n" : ")\n");
}

static void put_block(tt_pen *pen, tt_block *block, int *number) {
  for (tt_instr *in = block->first; in; in = in->next)
    if (in->live) put_instr(pen, in, number);
}

static void put_signature(tt_pen *pen, tt_hlo *h, tt_node *const *results, int count) {
  put(pen, "module @jit_tt {\nfunc.func public @main(");
  for (size_t i = 0; i < h->param_count; i++) {
    h->params[i]->number = (int)i;
    put(pen, i ? ", %arg" : "%arg");
    put_int(pen, (int64_t)i);
    put(pen, ": ");
    put_type(pen, &h->params[i]->node.type);
    for (size_t k = 0; k < h->donation_count; k++) {
      if (h->donations[k].param != (int)i) continue;
      put(pen, " {tf.aliasing_output = ");
      put_int(pen, h->donations[k].result);
      put(pen, " : i32}");
    }
  }
  put(pen, ") -> ");
  put_types(pen, results, count);
  put(pen, " {\n");
}

void tt_hlo_print(tt_hlo *h, tt_node *const *results, int count, tt_text *text) {
  tt_pen pen = {.text = text};
  int number = 0;
  put_signature(&pen, h, results, count);
  put_block(&pen, h->main, &number);
  put_return(&pen, "\"func.return\"", results, count);
  put(&pen, "}\n}\n");
  flush(&pen);
}
