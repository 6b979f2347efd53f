#include "pjrt/compile_options.h"

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

static void put_override(tt_text *out, const char *name, const char *value) {
  tt_text entry = TT_TEXT_INIT, choice = TT_TEXT_INIT;
  bool yes = !strcmp(value, "true"), no = !strcmp(value, "false");
  if (yes || no) /* XLA does not read these words, but numbers and names of enumerators */
    put_int(&choice, TT_FIELD_bool_value, yes);
  else put_bytes(&choice, TT_FIELD_string_value, value, strlen(value));
  put_bytes(&entry, TT_FIELD_map_key, name, strlen(name));
  put_message(&entry, TT_FIELD_map_value, &choice);
  put_message(out, TT_FIELD_env_option_overrides, &entry);
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
