#include "program/trial.h"

#include <string.h>

static const char smallest[] = "module @jit_tt {\n"
                               "func.func public @main(%arg0: tensor<f32>) -> (tensor<f32>) {\n"
                               "\"func.return\"(%arg0) : (tensor<f32>) -> ()\n"
                               "}\n"
                               "}\n";

static tt_status make_module(const char *options, tt_module *out) {
  static const char name[] = "a trial of compile options";
  *out = (tt_module){.result_count = 1, .name = tt_strndup(name, strlen(name))};
  tt_text_add(&out->text, options, strlen(options));
  tt_text_add(&out->text, smallest, strlen(smallest));
  return out->name ? tt_text_status(&out->text) : tt_out_of_memory();
}

tt_status tt_options_try(tt_program_table *table, const char *options) {
  tt_module module;
  tt_program *program = NULL;
  tt_status status = make_module(options, &module);
  if (!status) status = tt_program_intern(table, &module, TT_WANT_NOW, &program);
  if (!status) status = tt_program_await(program);
  if (!status) tt_program_release(program);
  tt_module_deinit(&module);
  return status;
}
