/* What the text of a module and its compile options tell before the inner plugin compiles them. */
#include "internal.h"
#include "pjrt/compile_options.h"

#include <stdlib.h>
#include <string.h>

enum {
#define X(message, field, number) ACCEL_FIELD_##field = number,
  TT_COMPILE_OPTION_FIELDS(X)
#undef X
      ACCEL_FIELD_map_key = 1
};

typedef struct scanner {
  const char *at, *end;
} scanner;

static bool find(scanner *scan, const char *word) {
  size_t left = (size_t)(scan->end - scan->at), size = strlen(word);
  const char *at = memmem(scan->at, left, word, size);
  scan->at = at ? at + size : scan->end;
  return at;
}

/* -- The arguments of @main -- */

/* To the comma or the bracket that ends an argument; false if there is none. */
static bool skip_argument(scanner *scan) {
  bool quoted = false;
  int depth = 0;
  for (; scan->at < scan->end; scan->at++) {
    char c = *scan->at;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (depth == 0 && (c == ',' || c == ')')) return true;
    depth += strchr("([{<", c) ? 1 : strchr(")]}>", c) ? -1 : 0;
  }
  return false;
}

static bool donates(const char *argument, size_t size) {
  scanner alias = {argument, argument + size}, donor = alias;
  return find(&alias, "tf.aliasing_output") || find(&donor, "jax.buffer_donor = true");
}

static bool parse_arguments(scanner *scan, accel_program *program) {
  if (!find(scan, "@main") || !find(scan, "(")) return false;
  for (bool more = true; more; scan->at++) {
    const char *start = scan->at;
    if (!skip_argument(scan)) return false;
    size_t size = (size_t)(scan->at - start);
    more = *scan->at == ',';
    if (!memchr(start, '%', size)) continue;
    size_t count = (size_t)++program->arguments;
    program->donates = realloc(program->donates, count * sizeof *program->donates);
    if (!program->donates) abort();
    program->donates[count - 1] = donates(start, size);
  }
  return true;
}

/* -- Calls of functions outside -- */

/* What XLA itself expands, on every platform. */
static bool expanded(const char *target, size_t size) {
  static const char *const known[] = {"Qr", "Eigh", "ProductOfElementaryHouseholderReflectors"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strlen(known[i]) == size && !memcmp(known[i], target, size)) return true;
  return false;
}

static PJRT_Error *check_calls(const char *code, size_t size) {
  scanner scan = {code, code + size};
  while (find(&scan, "call_target_name = \"")) {
    const char *target = scan.at;
    if (!find(&scan, "\"")) break;
    size_t length = (size_t)(scan.at - 1 - target);
    if (!expanded(target, length))
      return accel_error(TT_UNIMPLEMENTED, "No registered implementation for custom call to %.*s",
                         (int)(length < 100 ? length : 100), target);
  }
  return NULL;
}

PJRT_Error *accel_program_parse(const char *code, size_t size, accel_program **out) {
  static const char bytecode[] = {'M', 'L', '\xef', 'R'};
  if (size >= sizeof bytecode && !memcmp(code, bytecode, sizeof bytecode))
    return accel_error(TT_UNIMPLEMENTED, "Compile: only modules as text");
  PJRT_Error *error = check_calls(code, size);
  if (error) return error;
  accel_program *program = accel_alloc(1, sizeof *program);
  program->refs = 1;
  scanner scan = {code, code + size};
  if (parse_arguments(&scan, program)) {
    *out = program;
    return NULL;
  }
  accel_lock();
  accel_program_release(program);
  accel_unlock();
  return accel_error(TT_INVALID_ARGUMENT, "Compile: the module has no @main");
}

/* -- Its outputs, as the inner plugin tells them -- */

/* Slots that only hold their place in our view of the table. */
typedef PJRT_Error *(*types_slot)(PJRT_Executable_OutputElementTypes_Args *args);
typedef PJRT_Error *(*dims_slot)(PJRT_Executable_OutputDimensions_Args *args);

PJRT_Error *accel_program_complete(accel_program *program, PJRT_Executable *inner) {
  types_slot get_types = NULL;
  dims_slot get_dims = NULL;
  memcpy((void *)&get_types, &accel_inner->PJRT_Executable_OutputElementTypes, sizeof get_types);
  memcpy((void *)&get_dims, &accel_inner->PJRT_Executable_OutputDimensions, sizeof get_dims);
  ACCEL_ARGS(Executable_OutputElementTypes, types, .executable = inner);
  ACCEL_ARGS(Executable_OutputDimensions, dims, .executable = inner);
  PJRT_Error *error = accel_error_of_inner(get_types(&types));
  if (!error) error = accel_error_of_inner(get_dims(&dims));
  if (error) return error;
  program->outputs = (int)types.num_output_types;
  program->types = accel_alloc(types.num_output_types, sizeof *program->types);
  const int64_t *next = dims.dims;
  for (int i = 0; i < program->outputs; i++) {
    size_t rank = dims.dim_sizes[i];
    if (rank > TT_MAX_RANK) return accel_error(TT_UNIMPLEMENTED, "Compile: rank %zu", rank);
    tt_type *type = &program->types[i];
    *type = (tt_type){.dtype = (tt_dtype)types.output_types[i], .rank = (int)rank};
    for (size_t k = 0; k < rank; k++) type->dims[k] = *next++;
    if (accel_dense_bytes(type) < 0)
      return accel_error(TT_UNIMPLEMENTED, "Compile: output %d has element type %d", i,
                         types.output_types[i]);
  }
  return NULL;
}

void accel_program_release(accel_program *program) {
  if (!program || --program->refs) return;
  free(program->donates);
  free(program->types);
  free(program);
}

/* -- Compile options: a protocol buffer -- */

static bool take_varint(scanner *scan, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && scan->at < scan->end; shift += 7) {
    unsigned char byte = (unsigned char)*scan->at++;
    *out |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

/* A field: its number, and its bytes if it has a length; false at the end. */
static bool take_field(scanner *scan, int *number, scanner *bytes) {
  uint64_t tag = 0, size = 0;
  *bytes = (scanner){0};
  if (!take_varint(scan, &tag)) return false;
  *number = (int)(tag >> 3);
  if ((tag & 7) == 0) return take_varint(scan, &size);
  if ((tag & 7) == 2 && !take_varint(scan, &size)) return false;
  if ((tag & 7) == 1) size = 8;
  if ((tag & 7) == 5) size = 4;
  if (size > (uint64_t)(scan->end - scan->at)) return false;
  if ((tag & 7) == 2) *bytes = (scanner){scan->at, scan->at + size};
  scan->at += size;
  return true;
}

PJRT_Error *accel_options_check(const char *options, size_t size) {
  static const char prefix[] = "xla_cpu_";
  scanner scan = {options, options + size}, entry, key;
  for (int number = 0; take_field(&scan, &number, &entry);) {
    if (number != ACCEL_FIELD_env_option_overrides) continue;
    for (int part = 0; take_field(&entry, &part, &key);) {
      size_t length = (size_t)(key.end - key.at);
      if (part == ACCEL_FIELD_map_key && length >= sizeof prefix - 1 &&
          !memcmp(key.at, prefix, sizeof prefix - 1))
        return accel_error(TT_INVALID_ARGUMENT, "No such compile option: '%.*s'",
                           (int)(length < 100 ? length : 100), key.at);
    }
  }
  return NULL;
}
