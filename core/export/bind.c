#include "export/bind.h"

#include "export/executable.h"

static tt_status make_module(const tt_exported *exported, tt_module *out) {
  size_t parameters = (size_t)exported->parameter_count;
  *out = (tt_module){.result_count = exported->output_count};
  tt_text_add(&out->text, exported->code.data, exported->code.size);
  out->name = tt_strndup("exported", 8);
  out->reads = tt_malloc(parameters + 1);
  if (!out->name || !out->reads) return tt_out_of_memory();
  for (size_t i = 0; i < parameters; i++) out->reads[i] = true;
  return tt_text_status(&out->text);
}

static tt_status find_program(const tt_exported *exported, tt_program_table *table,
                              tt_program **out, bool *loaded) {
  tt_module module;
  tt_executable *executable = NULL;
  tt_status status = make_module(exported, &module);
  if (!status)
    status = tt_exported_executable(exported, tt_program_table_target(table), &executable, loaded);
  if (!status) status = tt_program_adopt(table, &module, executable, out);
  tt_module_deinit(&module);
  return status;
}

static tt_status bind_ports(const tt_exported *exported, tt_captured *made) {
  size_t parameters = (size_t)exported->parameter_count, outputs = (size_t)exported->output_count;
  made->inputs = tt_arena_alloc(&made->arena, (parameters + 1) * sizeof *made->inputs);
  made->outputs = tt_arena_alloc(&made->arena, (outputs + 1) * sizeof *made->outputs);
  if (!made->inputs || !made->outputs) return tt_out_of_memory();
  for (size_t i = 0; i < parameters; i++)
    if (exported->ports[i].kind != TT_PORT_RANDOM)
      made->inputs[made->input_count++] = (tt_bound){.type = exported->ports[i].type};
  for (size_t i = 0; i < outputs; i++)
    made->outputs[i] = (tt_bound){.type = exported->ports[parameters + i].type,
                                  .value = made->input_count + (int)i};
  made->output_count = (int)outputs;
  return TT_SUCCESS;
}

/* The last parameter, of four words, is what a launch calls its words. */
static tt_status bind_words(const tt_exported *exported, tt_captured *made) {
  int last = exported->parameter_count - 1;
  if (last < 0 || exported->ports[last].kind != TT_PORT_RANDOM) return TT_SUCCESS;
  tt_scalar *place = tt_arena_alloc(&made->arena, sizeof *place);
  made->draws = tt_arena_alloc(&made->arena, sizeof *made->draws);
  if (!place || !made->draws) return tt_out_of_memory();
  *place = (tt_scalar){.kind = TT_SCALAR_PHILOX, .count = 4, .blocks = exported->blocks};
  made->draws[0].blocks = exported->blocks;
  made->draw_count = 1;
  made->words = (tt_graph){.word_count = 4, .scalar_count = 1, .scalars = place};
  return TT_SUCCESS;
}

static tt_status bind(const tt_exported *exported, tt_captured *made, bool *loaded) {
  made->step_count = 1;
  TT_TRY(bind_ports(exported, made));
  TT_TRY(bind_words(exported, made));
  tt_program *program = NULL;
  tt_divided_part counts = {.input_count = made->input_count,
                            .output_count = made->output_count,
                            .word_count = made->words.word_count};
  TT_TRY(find_program(exported, made->device->programs, &program, loaded));
  TT_TRY(tt_divided_of_program(&made->divided, &made->arena, program, &counts));
  for (int i = 0; i < made->output_count; i++)
    made->divided.types[made->outputs[i].value] = made->outputs[i].type;
  return TT_SUCCESS;
}

tt_status tt_exported_bind(const tt_exported *exported, tt_device *device, tt_captured **out,
                           bool *loaded) {
  *out = NULL;
  tt_captured *made = tt_calloc(1, sizeof *made);
  if (!made) return tt_out_of_memory();
  made->device = device;
  tt_status status = bind(exported, made, loaded);
  if (status) tt_captured_destroy(made);
  else *out = made;
  return status;
}
