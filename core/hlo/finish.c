#include "hlo/internal.h"

#include <assert.h>

static void mark(tt_node *const *nodes, int count) {
  for (int i = 0; i < count; i++)
    if (nodes[i]->instr) nodes[i]->instr->live = true;
    else ((tt_hlo_value *)nodes[i])->live = true;
}

/* Marks backwards from what is marked; instructions without results are needed for what they do. */
static void mark_block(tt_block *block) {
  for (tt_instr *in = block->last; in; in = in->prev) {
    if (!in->result_count) in->live = true;
    if (!in->live) continue;
    mark(in->operands, in->operand_count);
    for (int i = 0; i < in->region_count; i++) {
      mark(in->regions[i]->yields, in->regions[i]->yield_count);
      mark_block(in->regions[i]);
    }
  }
}

static void clear_block(tt_block *block) {
  for (tt_instr *in = block->first; in; in = in->next) {
    in->live = false;
    for (int i = 0; i < in->region_count; i++) clear_block(in->regions[i]);
  }
}

/* Marks what the results need. */
static void mark_live(tt_hlo *h, tt_node *const *results, int count) {
  clear_block(h->main);
  for (size_t i = 0; i < h->param_count; i++) h->params[i]->live = false;
  mark(results, count);
  mark_block(h->main);
}

bool tt_hlo_is_needed(const tt_node *param) { return ((const tt_hlo_value *)param)->live; }

static tt_status check_results(tt_hlo *h, tt_node *const *results, int count) {
  if (h->current != h->main)
    return tt_error(TT_INTERNAL, "tt_hlo_finish was called inside a region");
  for (int i = 0; i < count; i++) {
    const tt_hlo_value *value = (const tt_hlo_value *)results[i];
    if (!value || !value->block || !tt_hlo_visible(h->main, results[i]))
      return tt_error(TT_INTERNAL, "result %d is missing or was built inside a region", i);
  }
  return TT_SUCCESS;
}

static tt_status check_donations(const tt_hlo *h, tt_node *const *results, int count) {
  for (size_t i = 0; i < h->donation_count; i++) {
    const tt_donation *d = &h->donations[i];
    if (d->result >= count ||
        !tt_type_equal(&h->params[d->param]->node.type, &results[d->result]->type))
      return tt_error(TT_INTERNAL,
                      "parameter %d cannot be overwritten by result %d: their types differ",
                      d->param, d->result);
    for (size_t k = 0; k < i; k++)
      if (h->donations[k].param == d->param || h->donations[k].result == d->result)
        return tt_error(TT_INTERNAL, "parameter %d or result %d is donated twice", d->param,
                        d->result);
  }
  return TT_SUCCESS;
}

static bool verifying(void) {
#ifndef NDEBUG
  return true;
#else
  return tt_env_int(TT_ENV_VERIFY) == 1;
#endif
}

tt_status tt_hlo_finish(tt_hlo *h, tt_node *const *results, int count, tt_text *text) {
  if (h->error) return tt_status_clone(h->error);
  TT_TRY(check_results(h, results, count));
  TT_TRY(check_donations(h, results, count));
  if (verifying()) TT_TRY(tt_hlo_verify(h, "finish"));
  assert(h->depth == 0);
  mark_live(h, results, count);
  tt_hlo_print(h, results, count, text);
  return tt_text_status(text);
}
