#include "call/ordered.h"

typedef struct ordering {
  tt_node **operands; /* [input_count + 1] storages, and the words */
  tt_type *types;     /* [output_count] */
  tt_over *over;      /* [output_count] */
  int over_count;
} ordering;

static bool prepare(ordering *o, const tt_call *call, tt_hlo *h) {
  tt_arena *arena = tt_hlo_arena(h);
  size_t outputs = (size_t)call->output_count;
  o->operands = tt_arena_alloc(arena, ((size_t)call->input_count + 1) * sizeof(tt_node *));
  o->types = tt_arena_alloc(arena, outputs * sizeof *o->types);
  o->over = tt_arena_alloc(arena, outputs * sizeof *o->over);
  return o->operands && o->types && o->over;
}

static void describe(ordering *o, const tt_call *call, const tt_call_io *io) {
  for (int i = 0; i < call->input_count; i++) o->operands[i] = io->inputs[i];
  if (call->word_count) o->operands[call->input_count] = io->words;
  for (int k = 0, output = 0; k < call->result_count; k++) {
    const tt_call_result *result = &call->results[k];
    if (!result->defined) continue;
    if (result->over >= 0) o->over[o->over_count++] = (tt_over){result->over, output};
    o->types[output++] = *result->storage;
  }
}

tt_status tt_call_lower_ordered(tt_call *call, const tt_target *target, tt_hlo *h,
                                const tt_call_io *io) {
  ordering o = {.over_count = 0};
  if (tt_op_needs_no_code(call->row)) return tt_call_lower(call, target, h, io);
  tt_text config = TT_TEXT_INIT;
  tt_order_print(call, io->word_at, &config);
  tt_status status = prepare(&o, call, h) ? tt_text_status(&config) : tt_out_of_memory();
  if (!status) {
    describe(&o, call, io);
    tt_hlo_custom_call_over(h, TT_KERNEL_TARGET, config.data,
                            call->input_count + (call->word_count > 0), o.operands,
                            call->output_count, o.types, o.over, o.over_count, io->outputs);
  }
  tt_text_deinit(&config);
  return status;
}
