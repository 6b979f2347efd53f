#include "pjrt/compile_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TT_MAX_PARTICIPANTS (1 << 20)
#define TT_MAX_OVERRIDES 1024

enum {
#define X(message, field, number) TT_FIELD_##field = number,
  TT_COMPILE_OPTION_FIELDS(X)
#undef X
  /* of map entries and of OptionOverrideProto, which have no message name in the list */
  TT_FIELD_map_key = 1,
  TT_FIELD_map_value = 2,
  TT_FIELD_string_value = 1,
  TT_FIELD_bool_value = 2,
  TT_FIELD_int_value = 3,
  /* of DeviceAssignmentProto and its ComputationDevice, which another file of XLA's has */
  TT_FIELD_replica_count = 1,
  TT_FIELD_computation_count = 2,
  TT_FIELD_computation_devices = 3,
  TT_FIELD_replica_device_ids = 1,
};

/* -- Protocol buffers' wire format -- */

static void put_varint(tt_text *out, uint64_t value) {
  char bytes[10];
  size_t size = 0;
  for (; value >= 0x80; value >>= 7) bytes[size++] = (char)(0x80 | (value & 0x7f));
  bytes[size++] = (char)value;
  tt_text_add(out, bytes, size);
}

/* A negative number takes ten bytes: the format has it sign-extended to 64 bits. */
static void put_int(tt_text *out, int field, int64_t value) {
  put_varint(out, (uint64_t)field << 3);
  put_varint(out, (uint64_t)value);
}

static void put_bytes(tt_text *out, int field, const char *data, size_t size) {
  put_varint(out, (uint64_t)field << 3 | 2);
  put_varint(out, size);
  tt_text_add(out, data, size);
}

/* A message inside another; `inner` is consumed. */
static void put_message(tt_text *out, int field, tt_text *inner) {
  if (inner->failed) out->failed = true;
  else put_bytes(out, field, inner->data, inner->size);
  tt_text_deinit(inner);
}

/* -- The messages -- */

/* An entry of the map; of equal names the last one counts. `choice` is consumed. */
static void put_entry(tt_text *out, const char *name, size_t size, tt_text *choice) {
  tt_text entry = TT_TEXT_INIT;
  put_bytes(&entry, TT_FIELD_map_key, name, size);
  put_message(&entry, TT_FIELD_map_value, choice);
  put_message(out, TT_FIELD_env_option_overrides, &entry);
}

static void put_override(tt_text *out, const char *name, const char *value) {
  tt_text choice = TT_TEXT_INIT;
  bool yes = !strcmp(value, "true"), no = !strcmp(value, "false");
  if (yes || no) /* XLA does not read these words, but numbers and names of enumerators */
    put_int(&choice, TT_FIELD_bool_value, yes);
  else put_bytes(&choice, TT_FIELD_string_value, value, strlen(value));
  put_entry(out, name, strlen(name), &choice);
}

static void put_build_options(tt_text *out, const tt_compile_options *options, int replicas,
                              int partitions) {
  static const int efforts[] = {9, 19, 29, 39}; /* EFFORT_O0 to EFFORT_O3 */
  tt_text build = TT_TEXT_INIT;
  put_int(&build, TT_FIELD_device_ordinal, -1); /* absent would mean device 0 */
  put_int(&build, TT_FIELD_num_replicas, replicas);
  put_int(&build, TT_FIELD_num_partitions, partitions);
  if (partitions > 1) put_int(&build, TT_FIELD_use_spmd_partitioning, 1);
  if (options->optimization_level >= 0)
    put_int(&build, TT_FIELD_optimization_level, efforts[options->optimization_level]);
  put_message(out, TT_FIELD_executable_build_options, &build);
}

static tt_status check_options(const tt_compile_options *options, int replicas, int partitions) {
  if (replicas < 1 || partitions < 1 || replicas > TT_MAX_PARTICIPANTS / partitions)
    return tt_error(TT_INVALID_ARGUMENT,
                    "compile options: %d replicas x %d partitions; both must be positive and their "
                    "product at most %d",
                    replicas, partitions, TT_MAX_PARTICIPANTS);
  if (options->portable && (replicas > 1 || partitions > 1))
    return tt_error(TT_INVALID_ARGUMENT,
                    "compile options: a portable program runs on one device, not on %d replicas x "
                    "%d partitions",
                    replicas, partitions);
  if (options->optimization_level < -1 || options->optimization_level > 3)
    return tt_error(TT_INVALID_ARGUMENT,
                    "compile options: optimization level %d; it must be -1 (default) to 3",
                    options->optimization_level);
  if (options->override_count < 0 || options->override_count > TT_MAX_OVERRIDES)
    return tt_error(TT_INVALID_ARGUMENT, "compile options: %d overrides; at most %d are allowed",
                    options->override_count, TT_MAX_OVERRIDES);
  for (int i = 0; i < options->override_count; i++)
    if (!options->override_names[i] || !options->override_values[i])
      return tt_error(TT_INVALID_ARGUMENT, "compile options: override %d lacks a name or a value",
                      i);
  return TT_SUCCESS;
}

tt_status tt_compile_options_write(const tt_compile_options *options, tt_text *out) {
  static const tt_compile_options defaults = {.optimization_level = -1};
  if (!options) options = &defaults;
  int replicas = options->num_replicas ? options->num_replicas : 1;
  int partitions = options->num_partitions ? options->num_partitions : 1;
  TT_TRY(check_options(options, replicas, partitions));
  put_build_options(out, options, replicas, partitions);
  if (options->portable) put_int(out, TT_FIELD_compile_portable_executable, 1);
  for (int i = 0; i < options->override_count; i++)
    put_override(out, options->override_names[i], options->override_values[i]);
  return tt_text_status(out);
}

/* -- A program's own -- */

typedef struct line {
  const char *at, *end;
} line;

static size_t size_of(line word) { return (size_t)(word.end - word.at); }

/* The next word; empty where there is none. */
static line take_word(line *rest) {
  line word = *rest;
  const char *space = memchr(rest->at, ' ', size_of(*rest));
  word.end = space ? space : rest->end;
  rest->at = space ? space + 1 : rest->end;
  return word;
}

static bool is(line word, const char *name) {
  return size_of(word) == strlen(name) && memcmp(word.at, name, size_of(word)) == 0;
}

static bool read_number(line digits, int64_t *out) {
  char text[24], *end = NULL;
  size_t size = size_of(digits);
  if (size == 0 || size >= sizeof text) return false;
  memcpy(text, digits.at, size);
  text[size] = '\0';
  errno = 0;
  *out = strtoll(text, &end, 10);
  return !errno && !*end;
}

static bool put_number(line digits, tt_text *choice) {
  int64_t value = 0;
  if (!read_number(digits, &value)) return false;
  put_int(choice, TT_FIELD_int_value, value);
  return true;
}

static bool put_value(line kind, line value, tt_text *choice) {
  bool yes = is(value, "true");
  if (is(kind, "int")) return put_number(value, choice);
  if (is(kind, "str")) put_bytes(choice, TT_FIELD_string_value, value.at, size_of(value));
  else if (is(kind, "bool") && (yes || is(value, "false")))
    put_int(choice, TT_FIELD_bool_value, yes);
  else return false;
  return true;
}

static tt_status read_option(line rest, tt_text *out) {
  line whole = rest, name = take_word(&rest), kind = take_word(&rest);
  tt_text choice = TT_TEXT_INIT;
  if (name.at < name.end && put_value(kind, rest, &choice)) {
    put_entry(out, name.at, size_of(name), &choice);
    return TT_SUCCESS;
  }
  tt_text_deinit(&choice);
  return tt_error(TT_INVALID_ARGUMENT,
                  "compile options: '%.*s' is no option; it must be NAME bool|int|str VALUE",
                  (int)size_of(whole), whole.at);
}

/* Fields that are written again replace what was written before. */
static void put_devices(tt_text *out, int replicas, tt_text *ids) {
  tt_text devices = TT_TEXT_INIT, assignment = TT_TEXT_INIT, build = TT_TEXT_INIT;
  put_message(&devices, TT_FIELD_replica_device_ids, ids);
  put_int(&assignment, TT_FIELD_replica_count, replicas);
  put_int(&assignment, TT_FIELD_computation_count, 1);
  put_message(&assignment, TT_FIELD_computation_devices, &devices);
  put_int(&build, TT_FIELD_num_replicas, replicas);
  put_message(&build, TT_FIELD_device_assignment, &assignment);
  put_message(out, TT_FIELD_executable_build_options, &build);
  put_int(out, TT_FIELD_compile_portable_executable, 0);
}

static tt_status read_devices(line rest, tt_text *out) {
  line whole = rest;
  tt_text ids = TT_TEXT_INIT;
  int64_t id = 0;
  int count = 0;
  bool fine = true;
  while (fine && size_of(rest)) {
    fine = read_number(take_word(&rest), &id) && id >= 0 && count++ < TT_MAX_PARTICIPANTS;
    if (fine) put_varint(&ids, (uint64_t)id);
  }
  if (fine && count) {
    put_devices(out, count, &ids);
    return TT_SUCCESS;
  }
  tt_text_deinit(&ids);
  return tt_error(TT_INVALID_ARGUMENT,
                  "compile options: '%.*s' names no devices; it must be their numbers, at most %d",
                  (int)size_of(whole), whole.at, TT_MAX_PARTICIPANTS);
}

/* Whether the code begins with this; then *rest is the line's remainder. */
static bool begins(const char *code, size_t size, const char *begin, line *rest) {
  size_t skip = strlen(begin);
  if (size <= skip || memcmp(code, begin, skip) != 0) return false;
  const char *end = memchr(code, '\n', size);
  *rest = (line){code + skip, end ? end : code + size};
  return true;
}

tt_status tt_compile_options_read(const char *code, size_t size, tt_text *out) {
  for (int count = 0;; count++) {
    line rest;
    bool devices = begins(code, size, TT_DEVICES_LINE, &rest);
    bool party = begins(code, size, TT_PARTY_LINE, &rest);
    if (!devices && !party && !begins(code, size, TT_OPTION_LINE, &rest))
      return tt_text_status(out);
    if (rest.end == code + size || count == TT_MAX_OVERRIDES)
      return tt_error(TT_INVALID_ARGUMENT, "compile options: a program has at most %d, each a line",
                      TT_MAX_OVERRIDES);
    if (devices) TT_TRY(read_devices(rest, out));
    else if (!party) TT_TRY(read_option(rest, out));
    size -= (size_t)(rest.end + 1 - code);
    code = rest.end + 1;
  }
}
