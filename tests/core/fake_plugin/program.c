/* Reads the signature of `func.func ... @main(...) -> ...` from a module's text. */
#include "internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_MAX_VALUES 65536

typedef struct scanner {
  const char *at, *end;
} scanner;

static void skip_space(scanner *scan) {
  while (scan->at < scan->end && isspace((unsigned char)*scan->at)) scan->at++;
}

static bool take(scanner *scan, const char *word) {
  skip_space(scan);
  size_t size = strlen(word);
  if ((size_t)(scan->end - scan->at) < size || memcmp(scan->at, word, size) != 0) return false;
  scan->at += size;
  return true;
}

static bool find(scanner *scan, const char *word) {
  for (; scan->at < scan->end; scan->at++)
    if (take(scan, word)) return true;
  return false;
}

static int dtype_of(const char *name, size_t size) {
#define X(dtype, number, mlir, bytes, kind)                                                        \
  if (strlen(mlir) == size && !memcmp(name, mlir, size)) return number;
  TT_DTYPES(X)
#undef X
  return TT_INVALID;
}

/* `2x3xf32>` after `tensor<`. */
static bool take_tensor(scanner *scan, fake_type *type) {
  *type = (fake_type){.donates_to = -1};
  while (scan->at < scan->end && isdigit((unsigned char)*scan->at)) {
    if (type->rank == TT_MAX_RANK) return false;
    char *after = NULL;
    type->dims[type->rank++] = strtoll(scan->at, &after, 10);
    if (*after != 'x') return false;
    scan->at = after + 1;
  }
  const char *name = scan->at;
  int depth = 1; /* complex<f32> has brackets of its own */
  for (; scan->at < scan->end && depth; scan->at++)
    depth += *scan->at == '<' ? 1 : *scan->at == '>' ? -1 : 0;
  if (depth) return false;
  type->dtype = dtype_of(name, (size_t)(scan->at - 1 - name));
  return fake_type_finish(type);
}

/* `{...}` after a type; strings may hold braces. */
static void take_attributes(scanner *scan, fake_type *type) {
  static const char donation[] = "tf.aliasing_output = ";
  if (!take(scan, "{")) return;
  bool quoted = false;
  for (int depth = 1; scan->at < scan->end && depth; scan->at++) {
    char c = *scan->at;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if ((size_t)(scan->end - scan->at) > sizeof donation &&
        !memcmp(scan->at, donation, sizeof donation - 1))
      type->donates_to = (int)strtol(scan->at + sizeof donation - 1, NULL, 10);
  }
}

/* The types up to the closing bracket, with or without `%name: ` before each. */
static bool take_types(scanner *scan, fake_type **types, int *count) {
  while (!take(scan, ")")) {
    if (scan->at >= scan->end || *count == FAKE_MAX_VALUES) return false;
    if (!take(scan, "tensor<")) {
      scan->at++;
      continue;
    }
    *types = realloc(*types, (size_t)(*count + 1) * sizeof **types);
    if (!*types) abort();
    fake_type *type = &(*types)[(*count)++];
    if (!take_tensor(scan, type)) return false;
    take_attributes(scan, type);
  }
  return true;
}

static bool take_signature(scanner *scan, fake_program *program) {
  if (!find(scan, "@main") || !take(scan, "(")) return false;
  if (!take_types(scan, &program->arguments, &program->argument_count)) return false;
  if (!take(scan, "->")) return true;
  if (take(scan, "(")) return take_types(scan, &program->results, &program->result_count);
  program->results = fake_alloc(sizeof *program->results);
  program->result_count = 1;
  return take(scan, "tensor<") && take_tensor(scan, program->results);
}

PJRT_Error *fake_program_parse(const char *text, size_t size, fake_program **out) {
  fake_program *program = fake_alloc(sizeof *program);
  program->refs = 1;
  program->size = size;
  program->text = fake_alloc(size + 1);
  memcpy(program->text, text, size);
  scanner scan = {program->text, program->text + size};
  if (!take_signature(&scan, program)) {
    PJRT_Error *error = fake_error(TT_INVALID_ARGUMENT,
                                   "Failed to parse: no valid @main, at byte "
                                   "%td",
                                   scan.at - program->text);
    fake_program_release(program);
    return error;
  }
  *out = program;
  return NULL;
}

void fake_program_release(fake_program *program) {
  if (--program->refs) return;
  free(program->arguments);
  free(program->results);
  free(program->text);
  free(program);
}
