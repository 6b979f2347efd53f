#include "export/npy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 10, MAX_HEADER = 1 << 16, DESCR = 16, ALIGNMENT = 64 };

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

/* -- Types -- */

static void print_descr(tt_dtype dtype, char out[DESCR]) {
  int bytes = (int)tt_dtype_bytes(dtype);
  bool raw = dtype == TT_BF16 || (tt_is_float(dtype) && bytes == 1);
  static const char kinds[] = {[TT_KIND_BOOL] = 'b',
                               [TT_KIND_SIGNED] = 'i',
                               [TT_KIND_UNSIGNED] = 'u',
                               [TT_KIND_FLOAT] = 'f',
                               [TT_KIND_COMPLEX] = 'c'};
  char kind = raw ? 'V' : kinds[tt_dtype_kind(dtype)];
  (void)snprintf(out, DESCR, "%c%c%d", bytes == 1 || raw ? '|' : '<', kind, bytes);
}

/* Of one byte or raw elements the order does not matter. */
static bool is_descr(const char *given, const char *wanted) {
  bool any_order = wanted[0] == '|' && given[0] && strchr("|<=", given[0]);
  return (any_order || given[0] == wanted[0]) && strcmp(given + (given[0] != 0), wanted + 1) == 0;
}

/* -- The header: a Python dict -- */

typedef struct cursor {
  const char *at, *end;
} cursor;

static void skip_blanks(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

static bool take(cursor *c, const char *word) {
  size_t size = strlen(word);
  skip_blanks(c);
  if ((size_t)(c->end - c->at) < size || memcmp(c->at, word, size) != 0) return false;
  c->at += size;
  return true;
}

/* A string of at most DESCR - 1 characters. */
static bool take_string(cursor *c, char out[DESCR]) {
  size_t size = 0;
  skip_blanks(c);
  if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
  char quote = *c->at++;
  while (c->at < c->end && *c->at != quote) {
    if (size == DESCR - 1) return false;
    out[size++] = *c->at++;
  }
  out[size] = '\0';
  return c->at++ < c->end;
}

static bool take_dim(cursor *c, int64_t *out) {
  skip_blanks(c);
  const char *start = c->at;
  for (*out = 0; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
    if (!tt_mul_i64(*out, 10, out) || !tt_add_i64(*out, *c->at - '0', out)) return false;
  return c->at > start;
}

static bool take_shape(cursor *c, tt_type *out) {
  if (!take(c, "(")) return false;
  for (out->rank = 0; !take(c, ")");) {
    if (out->rank == TT_MAX_RANK || !take_dim(c, &out->dims[out->rank])) return false;
    out->rank++;
    if (take(c, ",")) continue;
    return take(c, ")");
  }
  return true;
}

typedef struct array {
  char descr[DESCR];
  bool by_columns;
  tt_type type; /* only its shape */
} array;

static bool take_entry(cursor *c, array *out, int *seen) {
  char key[DESCR];
  if (!take_string(c, key) || !take(c, ":")) return false;
  if (strcmp(key, "descr") == 0) *seen |= 1;
  if (strcmp(key, "descr") == 0) return take_string(c, out->descr);
  if (strcmp(key, "shape") == 0) *seen |= 2;
  if (strcmp(key, "shape") == 0) return take_shape(c, &out->type);
  if (strcmp(key, "fortran_order") != 0) return false;
  *seen |= 4;
  out->by_columns = take(c, "True");
  return out->by_columns || take(c, "False");
}

static bool parse_header(const char *text, size_t size, array *out) {
  cursor c = {text, text + size};
  int seen = 0;
  *out = (array){.by_columns = false};
  if (!take(&c, "{")) return false;
  while (!take(&c, "}")) {
    if (!take_entry(&c, out, &seen)) return false;
    if (!take(&c, ",") && (c.at == c.end || *c.at != '}')) return false;
  }
  return seen == 7;
}

/* -- Reading -- */

static void print_shape(const tt_type *type, tt_text *out) {
  tt_text_printf(out, "(");
  for (int i = 0; i < type->rank; i++)
    tt_text_printf(out, i ? ", %lld" : "%lld", (long long)type->dims[i]);
  tt_text_printf(out, ")");
}

static tt_status wrong_type(const char *path, const array *got, const char *descr,
                            const tt_type *type) {
  tt_text text = TT_TEXT_INIT;
  tt_text_printf(&text, "'%s' holds '%s' of shape ", path, got->descr);
  print_shape(&got->type, &text);
  tt_text_printf(&text, ", not '%s' (%s) of shape ", descr, tt_dtype_name(type->dtype));
  print_shape(type, &text);
  tt_status status = tt_text_status(&text);
  if (!status) status = tt_error(TT_INVALID_ARGUMENT, "%s", text.data);
  tt_text_deinit(&text);
  return status;
}

static tt_status check_array(const char *path, const array *got, const tt_type *type) {
  char descr[DESCR];
  print_descr(type->dtype, descr);
  if (!is_descr(got->descr, descr) || !tt_type_same_dims(&got->type, type))
    return wrong_type(path, got, descr, type);
  if (got->by_columns && type->rank > 1)
    return tt_error(TT_INVALID_ARGUMENT,
                    "'%s' is column-major; save numpy.ascontiguousarray(x) instead", path);
  return TT_SUCCESS;
}

static tt_status no_array(const char *path) {
  return tt_error(TT_DATA_LOSS, "'%s' is no .npy file", path);
}

static tt_status read_header(FILE *file, const char *path, char *text, array *out) {
  unsigned char start[LEAST], more[2] = {0, 0};
  if (fread(start, 1, LEAST, file) != LEAST || memcmp(start, magic, sizeof magic) != 0)
    return no_array(path);
  if (start[6] < 1 || start[6] > 3)
    return tt_error(TT_DATA_LOSS, "'%s' has version %d of the .npy format; 1 to 3 are read", path,
                    start[6]);
  if (start[6] > 1 && fread(more, 1, 2, file) != 2) return no_array(path);
  size_t size = (size_t)start[8] | (size_t)start[9] << 8 | (size_t)more[0] << 16;
  if (more[1] || size > MAX_HEADER || fread(text, 1, size, file) != size) return no_array(path);
  return parse_header(text, size, out) ? TT_SUCCESS : no_array(path);
}

static tt_status read_data(FILE *file, const char *path, const tt_type *type, void **data) {
  int64_t bytes = 0;
  if (!tt_type_bytes(type, &bytes)) return tt_error(TT_INVALID_ARGUMENT, "a malformed type");
  *data = tt_malloc((size_t)bytes + 1);
  if (!*data) return tt_out_of_memory();
  if (fread(*data, 1, (size_t)bytes, file) != (size_t)bytes)
    return tt_error(TT_DATA_LOSS, "'%s' was cut short", path);
  return fgetc(file) == EOF ? TT_SUCCESS
                            : tt_error(TT_DATA_LOSS, "'%s' is longer than it says", path);
}

tt_status tt_npy_read(const char *path, const tt_type *type, void **data) {
  array got;
  *data = NULL;
  FILE *file = fopen(path, "rbe");
  if (!file)
    return tt_error(errno == ENOENT ? TT_NOT_FOUND : TT_UNAVAILABLE, "cannot read '%s' (%s)", path,
                    strerror(errno));
  char *text = tt_malloc(MAX_HEADER);
  tt_status status = text ? read_header(file, path, text, &got) : tt_out_of_memory();
  if (!status) status = check_array(path, &got, type);
  if (!status) status = read_data(file, path, type, data);
  if (status) {
    tt_free(*data);
    *data = NULL;
  }
  tt_free(text);
  (void)fclose(file);
  return status;
}

/* -- Writing -- */

static tt_status print_header(const tt_type *type, tt_text *out) {
  char descr[DESCR];
  print_descr(type->dtype, descr);
  tt_text_printf(out, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
  for (int i = 0; i < type->rank; i++)
    tt_text_printf(out, i ? " %lld," : "%lld,", (long long)type->dims[i]);
  tt_text_printf(out, "), }");
  while ((out->size + LEAST + 1) % ALIGNMENT) tt_text_add(out, " ", 1);
  tt_text_add(out, "\n", 1);
  return tt_text_status(out);
}

static tt_status write_error(const char *path) {
  return tt_error(TT_UNAVAILABLE, "cannot write '%s' (%s)", path, strerror(errno));
}

tt_status tt_npy_write(const char *path, const tt_type *type, const void *data) {
  int64_t bytes = 0;
  tt_text text = TT_TEXT_INIT;
  if (!tt_type_bytes(type, &bytes)) return tt_error(TT_INVALID_ARGUMENT, "a malformed type");
  tt_status status = print_header(type, &text);
  FILE *file = status ? NULL : fopen(path, "wbe");
  if (!status && !file) status = write_error(path);
  if (file) {
    const unsigned char rest[4] = {1, 0, text.size & 0xff, (unsigned char)(text.size >> 8)};
    bool fine = fwrite(magic, sizeof magic, 1, file) == 1 &&
                fwrite(rest, sizeof rest, 1, file) == 1 &&
                fwrite(text.data, text.size, 1, file) == 1 &&
                (bytes == 0 || fwrite(data, (size_t)bytes, 1, file) == 1);
    if (fclose(file) || !fine) status = write_error(path);
  }
  tt_text_deinit(&text);
  return status;
}
