#include "export/executable.h"

#include "base/base.h"
#include "pjrt/compile_options.h"
#include "program/environment.h"

#include <string.h>

/* Both texts are the caller's to deinit, also on failure. */
static tt_status print_key(const tt_target *target, tt_text *environment, tt_text *options) {
  TT_TRY(tt_environment_print(target, NULL, environment));
  return tt_compile_options_write(&target->options, options);
}

static bool same(tt_bytes a, const tt_text *b) {
  return a.size == b->size && (a.size == 0 || memcmp(a.data, b->data, a.size) == 0);
}

static tt_executable *load(const tt_exported *exported, const tt_target *target) {
  tt_text environment = TT_TEXT_INIT, options = TT_TEXT_INIT;
  tt_executable *executable = NULL;
  tt_status status = print_key(target, &environment, &options);
  if (!status && same(exported->environment, &environment) && same(exported->options, &options))
    status =
        tt_executable_load(target->client, exported->body.data, exported->body.size, &executable);
  if (status) tt_log(TT_LOG_COMPILE, "an exported program: %s", tt_status_message(status));
  tt_status_release(status);
  tt_text_deinit(&environment);
  tt_text_deinit(&options);
  return executable;
}

/* Parsers of MLIR look at the byte behind the text. */
static tt_status compile(const tt_exported *exported, const tt_target *target,
                         tt_executable **out) {
  char *code = tt_strndup(exported->code.data, exported->code.size);
  if (!code) return tt_out_of_memory();
  tt_status status = tt_target_compile(target, code, exported->code.size, out);
  tt_free(code);
  return status;
}

tt_status tt_exported_executable(const tt_exported *exported, const tt_target *target,
                                 tt_executable **out, bool *loaded) {
  *out = exported->body.size ? load(exported, target) : NULL;
  *loaded = *out != NULL;
  if (!*out) TT_TRY(compile(exported, target, out));
  if (tt_executable_outputs(*out) == exported->output_count) return TT_SUCCESS;
  tt_executable_destroy(*out);
  *out = NULL;
  return tt_error(TT_DATA_LOSS, "its program returns another number of results than it says");
}

tt_status tt_exported_save(const tt_exported *content, const tt_target *target, const char *path) {
  tt_text environment = TT_TEXT_INIT, options = TT_TEXT_INIT;
  tt_exported whole = *content;
  tt_executable *executable = NULL;
  void *body = NULL;
  size_t size = 0;
  tt_status status = print_key(target, &environment, &options);
  if (!status) status = compile(content, target, &executable);
  if (!status) status = tt_executable_serialize(executable, &body, &size);
  if (!status) {
    whole.environment = (tt_bytes){environment.data, environment.size};
    whole.options = (tt_bytes){options.data, options.size};
    whole.body = (tt_bytes){body, size};
  } else if (tt_status_code(status) == TT_UNIMPLEMENTED && executable) {
    tt_log(TT_LOG_COMPILE, "only StableHLO is saved: %s", tt_status_message(status));
    tt_status_release(status);
    status = TT_SUCCESS;
  }
  if (!status) status = tt_exported_write(&whole, path);
  tt_executable_destroy(executable);
  tt_free(body);
  tt_text_deinit(&environment);
  tt_text_deinit(&options);
  return status;
}
