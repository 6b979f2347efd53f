/* Runs a program that torch_tpu.export.save wrote, on any PJRT plugin, without Python. */
#include "export/export.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INPUTS = 4096, MAX_RUNS = 1000000, SHOWN = 8 };
enum { KEY_INPUT = 'i', KEY_PLUGIN = 'p', KEY_DEVICE = 'd', KEY_OUT = 'o', KEY_REPEAT = 'r' };
enum { KEY_SEED = 's', KEY_JSON = 'j', KEY_LIST = 'l' };

typedef struct options {
  const char *file, *out;
  tt_runner_options runner;
  uint64_t seed;
  int repeat, input_count;
  bool json, list;
  const char *inputs[MAX_INPUTS]; /* "NAME=FILE", or "FILE" for the next one in order */
} options;

typedef struct times {
  int64_t open, first, median, least; /* ns */
} times;

static const struct argp_option help[] = {
    {"input", KEY_INPUT, "NAME=FILE", 0, "The .npy file of an input, by its name", 0},
    {"plugin", KEY_PLUGIN, "PATH", 0,
     "The PJRT plugin; else TORCH_TPU_PLUGIN, else the one that the file names", 0},
    {"device", KEY_DEVICE, "N", 0, "Which of the plugin's devices (0)", 0},
    {"out", KEY_OUT, "DIR", 0, "Writes each output to DIR/NAME.npy", 0},
    {"repeat", KEY_REPEAT, "N", 0, "Runs it N times, and tells how long a run takes", 0},
    {"seed", KEY_SEED, "N", 0, "Where random numbers come from (0)", 0},
    {"json", KEY_JSON, NULL, 0, "Prints JSON", 0},
    {"list", KEY_LIST, NULL, 0, "Only lists what the program takes and gives", 0},
    {0}};

static int64_t parse_number(struct argp_state *state, const char *text, int64_t most) {
  char *end = NULL;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (errno || end == text || *end || number < 0 || number > most)
    argp_error(state, "'%s' is no number from 0 to %" PRId64, text, most);
  return number;
}

static void add_input(options *chosen, struct argp_state *state, const char *arg) {
  if (chosen->input_count == MAX_INPUTS) argp_error(state, "more than %d inputs", MAX_INPUTS);
  else chosen->inputs[chosen->input_count++] = arg;
}

static error_t parse(int key, char *arg, struct argp_state *state) {
  options *chosen = state->input;
  if (key == KEY_INPUT && !strchr(arg, '=')) argp_error(state, "--input takes NAME=FILE");
  if (key == KEY_INPUT) add_input(chosen, state, arg);
  else if (key == KEY_PLUGIN) chosen->runner.plugin = arg;
  else if (key == KEY_DEVICE) chosen->runner.device = (int)parse_number(state, arg, INT32_MAX);
  else if (key == KEY_OUT) chosen->out = arg;
  else if (key == KEY_REPEAT) chosen->repeat = (int)parse_number(state, arg, MAX_RUNS);
  else if (key == KEY_SEED) chosen->seed = (uint64_t)parse_number(state, arg, INT64_MAX);
  else if (key == KEY_JSON) chosen->json = true;
  else if (key == KEY_LIST) chosen->list = true;
  else if (key == ARGP_KEY_ARG && !chosen->file) chosen->file = arg;
  else if (key == ARGP_KEY_ARG) add_input(chosen, state, arg);
  else if (key == ARGP_KEY_END && !chosen->file) argp_usage(state);
  else if (key != ARGP_KEY_END) return ARGP_ERR_UNKNOWN;
  return 0;
}

/* -- Values -- */

static void print_type(const tt_type *type, tt_text *out) {
  tt_text_printf(out, "%s[", tt_dtype_name(type->dtype));
  for (int i = 0; i < type->rank; i++)
    tt_text_printf(out, i ? ",%" PRId64 : "%" PRId64, type->dims[i]);
  tt_text_printf(out, "]");
}

static bool print_integer(tt_dtype dtype, const void *at, tt_text *out) {
  int64_t value = 0;
  if (dtype != TT_BOOL && !tt_is_integer(dtype)) return false;
  memcpy(&value, at, (size_t)tt_dtype_bytes(dtype));
  int unused = 64 - 8 * (int)tt_dtype_bytes(dtype);
  if (tt_dtype_kind(dtype) != TT_KIND_SIGNED) tt_text_printf(out, "%" PRIu64, (uint64_t)value);
  else tt_text_printf(out, "%" PRId64, (int64_t)((uint64_t)value << unused) >> unused);
  return true;
}

static bool print_float(tt_dtype dtype, const void *at, bool json, tt_text *out) {
  float single = 0;
  double value = 0;
  uint32_t bits = 0;
  if (dtype == TT_F64) memcpy(&value, at, sizeof value);
  else if (dtype == TT_BF16) memcpy((char *)&bits + 2, at, 2);
  else if (dtype == TT_F32) memcpy(&bits, at, sizeof bits);
  else return false;
  memcpy(&single, &bits, sizeof single);
  if (dtype != TT_F64) value = (double)single;
  if (json && !isfinite(value)) tt_text_printf(out, "null");
  else tt_text_printf(out, "%.*g", dtype == TT_F64 ? 17 : 9, value);
  return true;
}

/* The first few elements; of types that C does not have, their bytes. */
static void print_values(const tt_type *type, const void *data, bool json, tt_text *out) {
  int64_t count = tt_type_numel(type), size = tt_dtype_bytes(type->dtype);
  for (int64_t i = 0; i < count && i < SHOWN; i++) {
    const unsigned char *at = (const unsigned char *)data + i * size;
    if (i) tt_text_printf(out, json ? ", " : " ");
    if (print_integer(type->dtype, at, out) || print_float(type->dtype, at, json, out)) continue;
    tt_text_printf(out, json ? "\"0x" : "0x");
    for (int64_t k = size; k-- > 0;) tt_text_printf(out, "%02x", at[k]);
    if (json) tt_text_printf(out, "\"");
  }
  if (!json && count > SHOWN) tt_text_printf(out, " ..");
}

/* -- Listing -- */

static void print_port(const tt_exported *exported, const tt_port *port, bool json, tt_text *out) {
  static const char *const kinds[] = {"input", "weight", "random", "output"};
  const char *kind = kinds[port->kind];
  tt_text_printf(out, json ? "{\"kind\": \"%s\", \"name\": \"%s\", \"type\": \"" : "%-6s %s ", kind,
                 port->name);
  print_type(&port->type, out);
  if (json) tt_text_printf(out, "\"");
  if (port->writes < 0) return;
  tt_text_printf(out, json ? ", \"new_value_of\": \"%s\"" : ", the new value of %s",
                 exported->ports[port->writes].name);
}

static tt_status list(const tt_exported *exported, bool json) {
  tt_text text = TT_TEXT_INIT;
  int count = exported->parameter_count + exported->output_count;
  if (json) tt_text_printf(&text, "{\"ports\": [");
  for (int i = 0; i < count; i++) {
    if (json && i) tt_text_printf(&text, ", ");
    print_port(exported, &exported->ports[i], json, &text);
    tt_text_printf(&text, json ? "}" : "\n");
  }
  if (json) tt_text_printf(&text, "]}\n");
  tt_status status = tt_text_status(&text);
  if (!status) (void)fputs(text.data ? text.data : "", stdout);
  tt_text_deinit(&text);
  return status;
}

/* -- Running -- */

/* The port of an input by its name, or, without one, the first that has no value yet. */
static tt_status find_input(const tt_exported *exported, const char *arg, const bool *given,
                            int *port, const char **path) {
  const char *sign = strchr(arg, '=');
  *path = sign ? sign + 1 : arg;
  for (*port = 0; *port < exported->parameter_count; ++*port) {
    const tt_port *one = &exported->ports[*port];
    size_t size = strlen(one->name);
    if (one->kind != TT_PORT_INPUT || given[*port]) continue;
    if (!sign || ((size_t)(sign - arg) == size && memcmp(one->name, arg, size) == 0))
      return TT_SUCCESS;
  }
  return tt_error(TT_INVALID_ARGUMENT,
                  "'%s' is an input too many, or of no such name; --list tells them", arg);
}

static tt_status set_inputs(const tt_exported *exported, const options *chosen, tt_runner *runner,
                            bool *given) {
  for (int i = 0; i < chosen->input_count; i++) {
    int port = 0;
    int64_t bytes = 0;
    const char *path = NULL;
    void *data = NULL;
    TT_TRY(find_input(exported, chosen->inputs[i], given, &port, &path));
    const tt_port *one = &exported->ports[port];
    TT_TRY(tt_status_prefix(tt_npy_read(path, &one->type, &data), "input '%s'", one->name));
    (void)tt_type_bytes(&one->type, &bytes);
    tt_status status = tt_runner_set_input(runner, port, data, bytes);
    tt_free(data);
    if (status) return status;
    given[port] = true;
  }
  return TT_SUCCESS;
}

static int by_size(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static tt_status run(tt_runner *runner, int count, times *out) {
  int64_t *took = tt_malloc(sizeof *took * (size_t)count);
  if (!took) return tt_out_of_memory();
  tt_status status = TT_SUCCESS;
  for (int i = 0; !status && i < count; i++) {
    int64_t start = tt_now_ns();
    status = tt_runner_run(runner);
    took[i] = tt_now_ns() - start;
  }
  if (!status) {
    out->first = took[0];
    qsort(took, (size_t)count, sizeof *took, by_size);
    out->median = took[count / 2];
    out->least = took[0];
  }
  tt_free(took);
  return status;
}

static tt_status write_output(const options *chosen, const tt_port *port, const void *data) {
  tt_text path = TT_TEXT_INIT;
  tt_text_printf(&path, "%s/%s.npy", chosen->out, port->name);
  tt_status status = tt_text_status(&path);
  if (!status) status = tt_npy_write(path.data, &port->type, data);
  tt_text_deinit(&path);
  return status;
}

static tt_status print_output(const tt_exported *exported, const options *chosen, tt_runner *runner,
                              int port, tt_text *out) {
  const tt_port *one = &exported->ports[port];
  int64_t bytes = 0;
  (void)tt_type_bytes(&one->type, &bytes);
  void *data = tt_malloc((size_t)bytes + 1);
  if (!data) return tt_out_of_memory();
  tt_status status = tt_runner_get_output(runner, port, data, bytes);
  if (!status && chosen->out) status = write_output(chosen, one, data);
  if (!status) {
    print_port(exported, one, chosen->json, out);
    tt_text_printf(out, chosen->json ? ", \"values\": [" : ": ");
    print_values(&one->type, data, chosen->json, out);
    tt_text_printf(out, chosen->json ? "]}" : "\n");
  }
  tt_free(data);
  return status;
}

static void print_times(const options *chosen, const tt_runner *runner, const times *took,
                        tt_text *out) {
  const char *how = tt_runner_loaded(runner) ? "loaded" : "compiled";
  const char *platform = tt_runner_target(runner)->platform;
  if (chosen->json)
    tt_text_printf(out,
                   "], \"platform\": \"%s\", \"program\": \"%s\", \"open_ms\": %.3f, \"runs\": %d, "
                   "\"first_ms\": %.3f, \"median_ms\": %.3f, \"least_ms\": %.3f}\n",
                   platform, how, (double)took->open / 1e6, chosen->repeat,
                   (double)took->first / 1e6, (double)took->median / 1e6,
                   (double)took->least / 1e6);
  else
    tt_text_printf(
        out, "%s on %s in %.1f ms; %d runs: first %.3f ms, median %.3f ms, least %.3f ms\n", how,
        platform, (double)took->open / 1e6, chosen->repeat, (double)took->first / 1e6,
        (double)took->median / 1e6, (double)took->least / 1e6);
}

static tt_status print_outputs(const tt_exported *exported, const options *chosen,
                               tt_runner *runner, tt_text *out) {
  int count = exported->parameter_count + exported->output_count;
  for (int i = exported->parameter_count; i < count; i++) {
    if (chosen->json && i > exported->parameter_count) tt_text_printf(out, ", ");
    TT_TRY(print_output(exported, chosen, runner, i, out));
  }
  return tt_text_status(out);
}

static tt_status run_file(const tt_exported *exported, const options *chosen) {
  tt_runner *runner = NULL;
  tt_text text = TT_TEXT_INIT;
  times took = {.open = tt_now_ns()};
  bool *given = tt_calloc((size_t)exported->parameter_count + 1, sizeof *given);
  tt_status status = given ? TT_SUCCESS : tt_out_of_memory();
  if (!status) status = tt_runner_create(exported, &chosen->runner, &runner);
  took.open = tt_now_ns() - took.open;
  if (!status) {
    tt_runner_seed(runner, chosen->seed, 0);
    status = set_inputs(exported, chosen, runner, given);
  }
  if (!status) status = run(runner, chosen->repeat, &took);
  if (chosen->json) tt_text_printf(&text, "{\"outputs\": [");
  if (!status) status = print_outputs(exported, chosen, runner, &text);
  if (!status) print_times(chosen, runner, &took, &text);
  if (!status) status = tt_text_status(&text);
  if (!status) (void)fputs(text.data, stdout);
  tt_runner_destroy(runner);
  tt_text_deinit(&text);
  tt_free(given);
  return status;
}

int main(int argc, char **argv) {
  static const struct argp argp = {
      help,
      parse,
      "FILE [INPUT.npy...]",
      "Runs a program that torch_tpu.export.save wrote, without Python.\v"
      "Inputs without a name are taken in the program's order. Exit status: 0, or 1 after an "
      "error, "
      "which one sentence on stderr tells; 64 for wrong usage.",
      NULL,
      NULL,
      NULL};
  static options chosen = {.repeat = 1};
  argp_parse(&argp, argc, argv, 0, NULL, &chosen);
  if (chosen.repeat < 1) chosen.repeat = 1;
  tt_exported exported;
  tt_status status = tt_exported_read(chosen.file, &exported);
  if (!status) {
    status = chosen.list ? list(&exported, chosen.json) : run_file(&exported, &chosen);
    tt_exported_deinit(&exported);
  }
  if (!status && (fflush(stdout) || ferror(stdout)))
    status = tt_error(TT_UNAVAILABLE, "cannot write to stdout");
  if (!status) return 0;
  (void)fprintf(stderr, "tt_run: %s\n", tt_status_message(status));
  tt_status_release(status);
  return 1;
}
