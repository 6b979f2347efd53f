#include "stream/chunk.h"

#include "stream/ids.h"
#include "stream/tiers.h"

#include <assert.h>
#include <string.h>

void tt_chunk_init(tt_chunk *chunk, tt_device *device) {
  *chunk = (tt_chunk){.id = tt_next_section(), .cutter.limits = TT_CUT_OPERATORS};
  tt_section_init(&chunk->section, device);
  tt_fuse_init(&chunk->fuse);
}

static void empty(tt_chunk *chunk) {
  tt_section_empty(&chunk->section);
  chunk->bytes = 0;
  chunk->id = tt_next_section();
  chunk->due = TT_CUT_NONE;
  chunk->overdue = false;
  chunk->idle = 0;
  chunk->shares = false;
}

void tt_chunk_deinit(tt_chunk *chunk) { tt_section_deinit(&chunk->section); }

void tt_chunk_reclaim(tt_chunk *chunk) {
  assert(tt_chunk_empty(chunk));
  tt_fuse_init(&chunk->fuse);
}

static int add_slot(tt_chunk *chunk, tt_value *value, bool is_input) {
  tt_section *s = &chunk->section;
  int slot = s->slot_count++;
  value->section = chunk->id;
  value->slot = slot;
  s->slots[slot] = tt_value_retain(value);
  s->is_input[slot] = is_input;
  return slot;
}

static int input_slot(tt_chunk *chunk, tt_value *value) {
  if (value->section == chunk->id) return value->slot;
  for (int i = 0; chunk->shares && i < chunk->section.slot_count; i++) {
    if (chunk->section.slots[i] != value) continue;
    value->section = chunk->id;
    return value->slot = i;
  }
  return add_slot(chunk, value, true);
}

/* The step for a call on these inputs, which get slots; on failure these are taken back. */
static tt_status add_step(tt_chunk *chunk, tt_call *call, tt_value *const *inputs,
                          tt_trace_node **out) {
  enum { LOCAL = 64 };
  tt_section *s = &chunk->section;
  int local[LOCAL] = {0}, before = s->slot_count, count = call->input_count;
  int *slots = count <= LOCAL ? local : tt_malloc(sizeof *slots * (size_t)count);
  if (!slots) return tt_out_of_memory();
  for (int i = 0; i < count; i++) slots[i] = input_slot(chunk, inputs[i]);
  tt_status status = tt_trace_step(&s->device->trace, s->at, call, slots, s->slot_count, out);
  if (slots != local) tt_free(slots);
  while (status && s->slot_count > before) {
    tt_value *value = s->slots[--s->slot_count];
    value->section = 0;
    tt_value_release(value);
  }
  return status;
}

/* Of the call's results, but those that replace one of the chunk's: that would not be written. */
static int64_t added_bytes(const tt_chunk *chunk, const tt_call *call, tt_value *const *inputs,
                           tt_value *const *outputs) {
  int64_t bytes = 0;
  for (int r = 0, k = 0; r < call->result_count; r++) {
    const tt_call_result *result = &call->results[r];
    if (!result->defined) continue;
    bool again = result->over >= 0 && !chunk->section.is_input[inputs[result->over]->slot];
    if (!again) bytes += tt_type_held_bytes(outputs[k]->holding.type);
    k++;
  }
  return bytes;
}

tt_status tt_chunk_add(tt_chunk *chunk, tt_call *call, tt_value *const *inputs,
                       tt_value *const *outputs, const uint32_t *words, uint32_t site) {
  tt_section *s = &chunk->section;
  tt_trace_node *node = NULL;
  TT_TRY(tt_section_reserve(s, s->slot_count + call->input_count + call->output_count,
                            s->at->depth + 1, s->word_count + call->word_count));
  TT_TRY(add_step(chunk, call, inputs, &node));
  chunk->bytes += added_bytes(chunk, call, inputs, outputs);
  for (int k = 0; k < call->output_count; k++) add_slot(chunk, outputs[k], false);
  if (call->word_count)
    memcpy(s->words + s->word_count, words, sizeof *words * (size_t)call->word_count);
  s->word_count += call->word_count;
  s->sites[node->depth - 1] = site;
  s->at = node;
  chunk->idle = 0;
  tt_fuse_add(&chunk->fuse, call->hash);
  chunk->due = tt_cutter_add(&chunk->cutter, call->hash, node->depth - chunk->fuse.depth,
                             chunk->bytes - chunk->fuse.bytes);
  if (chunk->overdue && !chunk->due) chunk->due = TT_CUT_CONTENT;
  return TT_SUCCESS;
}

/* Results that somebody besides the chunk still holds. */
static void mark_live(tt_section *s) {
  for (int i = 0; i < s->slot_count; i++)
    s->live[i] = !s->is_input[i] && !tt_value_unique(s->slots[i]);
}

static void count_cut(tt_cut why) {
  static const tt_counter counters[] = {
      [TT_CUT_NONE] = TT_COUNT_CUTS_MODE,        [TT_CUT_CONTENT] = TT_COUNT_CUTS_CONTENT,
      [TT_CUT_STOP] = TT_COUNT_CUTS_CONTENT,     [TT_CUT_LENGTH] = TT_COUNT_CUTS_LENGTH,
      [TT_CUT_BYTES] = TT_COUNT_CUTS_BYTES,      [TT_CUT_READ] = TT_COUNT_CUTS_READ,
      [TT_CUT_SYNC] = TT_COUNT_CUTS_SYNCHRONISE, [TT_CUT_MODE] = TT_COUNT_CUTS_MODE};
  tt_count_add(counters[why], 1);
}

bool tt_chunk_goes_on(tt_chunk *chunk, const tt_call *next, const tt_policy *policy, bool behind) {
  if (chunk->due != TT_CUT_CONTENT) return false;
  const tt_op_row *last = chunk->section.at->step.call->row;
  chunk->overdue = last->cls == TT_FOREACH && next->row->cls == TT_FOREACH;
  if (chunk->overdue) {
    chunk->due = TT_CUT_NONE;
    return true;
  }
  if (!tt_fuse_pass(&chunk->fuse, &chunk->section, chunk->bytes, policy, behind)) return false;
  chunk->due = TT_CUT_NONE;
  return true;
}

void tt_chunk_note_wait(tt_chunk *chunk, const tt_policy *policy) {
  if (policy->mode == TT_MODE_FUSED) tt_cutter_stop(&chunk->cutter);
}

tt_status tt_chunk_close(tt_chunk *chunk, tt_cut why, const tt_policy *policy, tt_launch **out) {
  tt_section *s = &chunk->section;
  *out = NULL;
  if (tt_chunk_empty(chunk)) return TT_SUCCESS;
  mark_live(s);
  tt_status status = chunk->fuse.count ? tt_fuse_close(&chunk->fuse, s, why, policy, out)
                                       : tt_tiers_launch(s, false, why, policy, out);
  if (tt_status_code(status) == TT_FAILED_PRECONDITION && policy->known_only) return status;
  for (int i = 0; status && i < s->slot_count; i++)
    if (!s->is_input[i]) tt_value_fail(s->slots[i], tt_status_clone(status));
  count_cut(why);
  tt_count_chunk(s->at->depth);
  empty(chunk);
  tt_fuse_reset(&chunk->fuse, why);
  return status;
}
