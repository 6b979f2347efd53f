#include "hlo/internal.h"

#include <assert.h>
#include <string.h>

bool tt_hlo_visible(const tt_block *block, const tt_node *node) {
  const tt_block *home = ((const tt_hlo_value *)node)->block;
  for (; block && block != home; block = block->outer)
    if (!block->captures) return false;
  return block != NULL;
}

/* `node` itself or, for a constant that the current region cannot see, a copy inside. */
static tt_node *localized(tt_hlo *h, tt_node *node, const char *what) {
  if (tt_hlo_visible(h->current, node)) return node;
  if (node->instr && node->instr->op == TT_OPCODE_constant)
    return tt_hlo_emit1(h, node->instr, node->type);
  return tt_hlo_fail(h, TT_INTERNAL, "%s: an operand is defined outside of the region that uses it",
                     what);
}

static tt_node *const *localized_all(tt_hlo *h, tt_node *const *nodes, int count,
                                     const char *what) {
  tt_node **copy = tt_hlo_alloc(h, (size_t)count, sizeof(tt_node *));
  for (int i = 0; copy && i < count; i++) copy[i] = localized(h, nodes[i], what);
  return copy;
}

/* A deep copy of the attributes into the arena. */
static const tt_attr *copied_attrs(tt_hlo *h, const tt_attr *attrs, int count) {
  tt_attr *copy = tt_hlo_alloc(h, (size_t)count, sizeof *copy);
  for (int i = 0; copy && i < count; i++) {
    tt_attr *a = &copy[i];
    *a = attrs[i];
    if (a->values) a->values = tt_hlo_copied(h, a->values, (size_t)a->count * sizeof *a->values);
    if (a->text) a->text = tt_hlo_copied(h, a->text, strlen(a->text) + 1);
    if (a->fields) a->fields = copied_attrs(h, a->fields, a->count);
  }
  return copy;
}

/* Writes what makes two instructions the same into h->key; false when no two ever are. A number's
 * barrier is one for all who want the number made once. */
static bool key_of(tt_hlo *h, const tt_instr *in, const tt_type *types) {
  bool barrier = in->op == TT_OPCODE_optimization_barrier && types->rank > 0;
  if (in->region_count || in->op == TT_OPCODE_custom_call || barrier) return false;
  tt_text *key = &h->key;
  key->size = 0;
  tt_text_add(key, (const char *)&h->current, sizeof h->current);
  tt_text_add(key, (const char *)&in->op, sizeof in->op);
  for (int i = 0; i < in->operand_count; i++)
    tt_text_add(key, (const char *)&in->operands[i]->id, sizeof in->operands[i]->id);
  tt_type_print(types, key);
  for (int i = 0; i < in->attr_count; i++) tt_attr_print(&in->attrs[i], key);
  if (key->failed) tt_hlo_fail_memory(h);
  return !key->failed && key->size < TT_HLO_MAX_KEY;
}

/* Copies the checked draft and links it into the current block. */
/* What only repeats or arranges elements costs nothing where a reduction follows it. */
static bool only_arranges(int op) {
  return op == TT_OPCODE_constant || op == TT_OPCODE_broadcast_in_dim || op == TT_OPCODE_reshape ||
         op == TT_OPCODE_transpose;
}

static void measure(tt_hlo *h, const tt_type *type) {
  int64_t count = tt_type_numel(type);
  if (count > h->largest) h->largest = count;
}

static tt_instr *append(tt_hlo *h, const tt_instr *draft, const tt_type *types) {
  assert(h->current && h->current->owner == h);
  tt_instr *in = tt_hlo_alloc(h, 1, sizeof *in);
  if (!in) return NULL;
  *in = *draft;
  in->attrs = copied_attrs(h, draft->attrs, draft->attr_count);
  in->regions =
      draft->region_count
          ? tt_hlo_copied(h, draft->regions, (size_t)draft->region_count * sizeof(tt_block *))
          : NULL;
  in->results = tt_hlo_alloc(h, (size_t)draft->result_count, sizeof *in->results);
  if (h->error) return NULL;
  for (int i = 0; i < in->result_count; i++)
    in->results[i] =
        (tt_hlo_value){.node = {.type = types[i], .instr = in, .result = i, .id = h->next_id++},
                       .block = h->current};
  for (int i = 0; i < in->result_count && !only_arranges(in->op); i++) measure(h, &types[i]);
  in->number = h->instr_count++;
  in->prev = h->current->last;
  in->next = NULL;
  if (in->prev) in->prev->next = in;
  else h->current->first = in;
  return h->current->last = in;
}

/* NULL on failure. */
static tt_instr *emit(tt_hlo *h, const tt_instr *draft, tt_type *types) {
  const char *name = tt_hlo_info(draft->op)->name;
  if (!tt_hlo_usable(h, draft->op, draft->operands, draft->operand_count)) return NULL;
  if (h->instr_count >= TT_HLO_MAX_INSTRS) {
    tt_hlo_fail(h, TT_RESOURCE_EXHAUSTED, "more than %d instructions in one program",
                TT_HLO_MAX_INSTRS);
    return NULL;
  }
  tt_instr in = *draft;
  tt_why why = {.memory = false};
  in.operands = localized_all(h, draft->operands, draft->operand_count, name);
  if (h->error) return NULL;
  if (!tt_hlo_check(&in, types, &why)) {
    if (why.memory) tt_hlo_fail_memory(h);
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "%s: %s", name, why.text);
    return NULL;
  }
  bool numbered = key_of(h, &in, types);
  if (h->error) return NULL;
  tt_instr *known = numbered ? tt_intern_find(&h->numbered, h->key.data, h->key.size) : NULL;
  if (known) return known;
  tt_instr *added = append(h, &in, types);
  if (added && numbered) {
    tt_status status = tt_intern_add(&h->numbered, h->key.data, h->key.size, added);
    if (status) {
      tt_hlo_fail_memory(h);
      tt_status_release(status);
    }
  }
  return added;
}

tt_node *tt_hlo_emit1(tt_hlo *h, const tt_instr *draft, tt_type type) {
  tt_instr in = *draft;
  in.result_count = 1;
  tt_instr *added = emit(h, &in, &type);
  return added ? &added->results[0].node : &h->poison.node;
}

void tt_hlo_emit_all(tt_hlo *h, const tt_instr *draft, tt_type *types, tt_node **results) {
  tt_instr *added = emit(h, draft, types);
  if (!added) {
    tt_hlo_poison_all(h, results, draft->result_count);
    return;
  }
  for (int i = 0; i < draft->result_count; i++) results[i] = &added->results[i].node;
}

/* Checks what the body of a region of `op` left, and makes it the region's results. */
static void close_region(tt_hlo *h, int op, tt_block *block, tt_node *const *yields) {
  const char *name = tt_hlo_info(op)->name;
  for (int i = 0; !h->error && i < block->yield_count; i++)
    if (!yields[i]) tt_hlo_fail(h, TT_INTERNAL, "%s: the body left result %d unset", name, i);
  if (tt_hlo_usable(h, op, yields, block->yield_count))
    block->yields = localized_all(h, yields, block->yield_count, name);
}

tt_block *tt_hlo_region(tt_hlo *h, int op, int arg_count, const tt_type *args, int yield_count,
                        tt_body body, void *user) {
  if (h->error) return NULL;
  if (h->depth == TT_HLO_MAX_DEPTH) {
    tt_hlo_fail(h, TT_RESOURCE_EXHAUSTED, "regions nested more than %d deep", TT_HLO_MAX_DEPTH);
    return NULL;
  }
  tt_block *block = tt_hlo_alloc(h, 1, sizeof *block), *outer = h->current;
  tt_node **nodes = tt_hlo_alloc(h, (size_t)arg_count, sizeof(tt_node *));
  tt_node **yields = tt_hlo_alloc(h, (size_t)yield_count, sizeof(tt_node *));
  tt_hlo_value *values = tt_hlo_alloc(h, (size_t)arg_count, sizeof *values);
  if (h->error) return NULL;
  *block = (tt_block){.owner = h,
                      .outer = outer,
                      .captures = op == TT_OPCODE_while || op == TT_OPCODE_if,
                      .arg_count = arg_count,
                      .yield_count = yield_count,
                      .args = values};
  for (int i = 0; i < arg_count; i++) {
    values[i] = (tt_hlo_value){.node = {.type = args[i], .id = h->next_id++}, .block = block};
    nodes[i] = &values[i].node;
  }
  h->current = block;
  h->depth++;
  body(h, nodes, yields, user);
  assert(h->current == block && h->depth > 0); /* inner regions were closed */
  close_region(h, op, block, yields);
  h->depth--;
  h->current = outer;
  return h->error ? NULL : block;
}
