#include "hlo_run.h"

#include "pjrt/pjrt.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static tt_client *client; /* one for the whole test program */

bool program_can_run(void) {
  const char *path = getenv("TT_CPU_PLUGIN");
  return path && *path;
}

static void check(tt_status status, const char *text) {
  if (!status) return;
  print_error("%s\n%s\n", tt_status_message(status), text ? text : "");
  tt_status_release(status);
  fail();
}

static void open_client(void) {
  tt_plugin *plugin = NULL;
  if (client) return;
  check(tt_plugin_open(getenv("TT_CPU_PLUGIN"), &plugin), NULL);
  check(tt_client_create(plugin, &(tt_client_options){.cpu_devices = 1}, &client), NULL);
}

program program_start(void) {
  program p = {0};
  check(tt_hlo_create(&p.h), NULL);
  return p;
}

tt_node *program_in(program *p, tt_dtype dtype, int rank, const int64_t *dims,
                    const double *values) {
  assert_true(p->count < PROGRAM_MAX_INPUTS);
  tt_type type = tt_type_make(TT_F64, rank, dims);
  p->types[p->count] = type;
  p->values[p->count++] = values;
  return tt_hlo_convert(p->h, tt_hlo_param(p->h, &type), dtype);
}

static tt_executable *compiled(program *p, tt_node *const *results, int count, int level) {
  static const char *const names[] = {"xla_cpu_enable_fast_min_max"};
  static const char *const values[] = {"False"};
  tt_text text = TT_TEXT_INIT;
  check(tt_hlo_finish(p->h, results, count, &text), NULL);
  tt_executable *executable = NULL;
  if (program_can_run()) {
    open_client();
    tt_compile_options options = {.portable = true,
                                  .optimization_level = level,
                                  .override_names = names,
                                  .override_values = values,
                                  .override_count = 1};
    check(tt_compile(client, text.data, text.size, &options, &executable), text.data);
  }
  tt_text_deinit(&text);
  return executable;
}

void program_accept(program *p, tt_node *const *results, int count) {
  tt_executable_destroy(compiled(p, results, count, 0));
  tt_hlo_destroy(p->h);
}

static void compare(const double *got, const double *expected, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    bool same = got[i] == expected[i] || (isnan(got[i]) && isnan(expected[i])) ||
                fabs(got[i] - expected[i]) <= 2e-5 + 2e-5 * fabs(expected[i]);
    if (same) continue;
    print_error("element %lld is %.9g, expected %.9g\n", (long long)i, got[i], expected[i]);
    fail();
  }
}

/* Runs `executable` on the inputs; its one result, of `type`, is the caller's. */
static double *run(program *p, tt_executable *executable, const tt_type *type) {
  tt_buffer *arguments[PROGRAM_MAX_INPUTS], *output = NULL;
  tt_pjrt_device *device = tt_client_device(client, 0);
  int64_t bytes = 0;
  assert_true(tt_type_bytes(type, &bytes));
  double *got = malloc((size_t)bytes + 8);
  assert_non_null(got);
  for (int i = 0; i < p->count; i++)
    check(tt_buffer_from_host(device, &p->types[i], p->values[i], NULL, NULL, &arguments[i]), NULL);
  check(tt_execute(executable, device, arguments, p->count, NULL, 0, &output, NULL), NULL);
  check(tt_buffer_to_host(client, output, type, got, bytes), NULL);
  for (int i = 0; i < p->count; i++) tt_buffer_destroy(client, arguments[i]);
  tt_buffer_destroy(client, output);
  return got;
}

void program_expect(program *p, tt_node *result, const double *expected) {
  tt_node *wide = tt_hlo_convert(p->h, result, TT_F64);
  tt_type type = wide->type;
  tt_executable *executable = compiled(p, &wide, 1, -1);
  if (executable) {
    double *got = run(p, executable, &type);
    compare(got, expected, tt_type_numel(&type));
    free(got);
  }
  tt_executable_destroy(executable);
  tt_hlo_destroy(p->h);
}

void program_refuse(program *p, tt_node *result, const char *part) {
  tt_text text = TT_TEXT_INIT;
  tt_status status = tt_hlo_finish(p->h, &result, 1, &text);
  assert_non_null(status);
  if (!strstr(tt_status_message(status), part)) {
    print_error("\"%s\" does not contain \"%s\"\n", tt_status_message(status), part);
    fail();
  }
  tt_status_release(status);
  tt_text_deinit(&text);
  tt_hlo_destroy(p->h);
}
