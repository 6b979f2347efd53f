#include "hlo/internal.h"

#include <stdio.h>
#include <string.h>

static bool verify_instr(const tt_block *block, const tt_instr *in, tt_why *why) {
  if (in->op < 0 || in->op >= TT_OPCODE_COUNT) return tt_hlo_bad(why, "there is no such op");
  for (int i = 0; i < in->operand_count; i++) {
    const tt_node *node = in->operands[i];
    if (!node || !tt_hlo_visible(block, node))
      return tt_hlo_bad(why, "operand %d is missing or out of scope", i);
    if (node->instr && node->instr->number >= in->number)
      return tt_hlo_bad(why, "operand %d is used before it is computed", i);
  }
  for (int i = 0; i < in->region_count; i++)
    if (!in->regions[i]) return tt_hlo_bad(why, "region %d is missing", i);
  tt_type *types = tt_malloc(((size_t)in->result_count + 1) * sizeof *types);
  if (!types) return tt_hlo_bad_memory(why);
  for (int i = 0; i < in->result_count; i++) types[i] = in->results[i].node.type;
  bool ok = tt_hlo_check(in, types, why);
  for (int i = 0; ok && i < in->result_count; i++)
    if (!tt_type_equal(&types[i], &in->results[i].node.type))
      ok = tt_hlo_bad(why, "result %d is %s, expected %s", i,
                      tt_hlo_show(why, &in->results[i].node.type), tt_hlo_show(why, &types[i]));
  tt_free(types);
  return ok;
}

static tt_status verify_block(const tt_block *block, const char *stage) {
  tt_why why = {.memory = false};
  for (const tt_instr *in = block->first; in; in = in->next) {
    why.next = 0;
    if (!verify_instr(block, in, &why)) {
      if (why.memory) return tt_out_of_memory();
      bool known = in->op >= 0 && in->op < TT_OPCODE_COUNT;
      return tt_error(TT_INTERNAL, "%s: instruction %d (%s): %s", stage, in->number,
                      known ? tt_hlo_info(in->op)->name : "?", why.text);
    }
    for (int i = 0; i < in->region_count; i++) TT_TRY(verify_block(in->regions[i], stage));
  }
  for (int i = 0; i < block->yield_count; i++)
    if (!block->yields[i] || !tt_hlo_visible(block, block->yields[i]))
      return tt_error(TT_INTERNAL, "%s: value %d that a region yields is out of scope", stage, i);
  return TT_SUCCESS;
}

tt_status tt_hlo_verify(tt_hlo *h, const char *stage) {
  if (h->error) return tt_status_clone(h->error);
  return verify_block(h->main, stage);
}
