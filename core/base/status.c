#include "base/status.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Messages come partly from plugins; past this size only the beginning is kept. */
#define TT_MAX_MESSAGE ((size_t)64 << 10)

struct tt_status_s {
  tt_code code;
  const char *message; /* in the same allocation */
};

/* What a failed allocation of a status becomes. Shared by all threads, hence never freed. */
static struct tt_status_s tt_static_oom = {TT_RESOURCE_EXHAUSTED, "out of host memory"};

tt_status tt_out_of_memory(void) { return &tt_static_oom; }

/* A status whose message is the three pieces put together. */
static tt_status status_concat(tt_code code, const char *a, const char *b, const char *c) {
  const char *pieces[] = {a, b, c};
  size_t sizes[3], size = 0;
  for (int i = 0; i < 3; i++) {
    size_t piece = strlen(pieces[i]), room = TT_MAX_MESSAGE - size;
    sizes[i] = piece < room ? piece : room;
    size += sizes[i];
  }
  tt_status status = tt_malloc(sizeof *status + size + 1);
  if (!status) return NULL;
  char *text = (char *)(status + 1);
  status->code = code;
  status->message = text;
  for (int i = 0; i < 3; i++) {
    memcpy(text, pieces[i], sizes[i]);
    text += sizes[i];
  }
  *text = '\0';
  return status;
}

__attribute__((format(printf, 2, 0), nonnull(2))) static tt_status
status_format(tt_code code, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  size_t size = length < 0 ? 0 : (size_t)length;
  if (size > TT_MAX_MESSAGE) size = TT_MAX_MESSAGE;
  tt_status status = tt_malloc(sizeof *status + size + 1);
  if (status) {
    char *text = (char *)(status + 1);
    text[0] = '\0';
    (void)vsnprintf(text, size + 1, format, again);
    status->code = code;
    status->message = text;
  }
  va_end(again);
  return status;
}

tt_status tt_error(tt_code code, const char *format, ...) {
  if (code == TT_OK) code = TT_INTERNAL; /* an error that says OK must not pass for success */
  va_list args;
  va_start(args, format);
  tt_status status = status_format(code, format, args);
  va_end(args);
  return status ? status : tt_out_of_memory();
}

tt_status tt_annotate(tt_status status, const char *format, ...) {
  if (!status) return TT_SUCCESS;
  va_list args;
  va_start(args, format);
  tt_status words = status_format(status->code, format, args);
  va_end(args);
  if (!words) return status;
  tt_status both = status_concat(status->code, words->message, ": ", status->message);
  tt_status_release(words);
  if (!both) return status;
  tt_status_release(status);
  return both;
}

tt_status tt_extend(tt_status status, const char *format, ...) {
  if (!status) return TT_SUCCESS;
  va_list args;
  va_start(args, format);
  tt_status words = status_format(status->code, format, args);
  va_end(args);
  if (!words) return status;
  tt_status both = status_concat(status->code, status->message, words->message, "");
  tt_status_release(words);
  if (!both) return status;
  tt_status_release(status);
  return both;
}

tt_status tt_join(tt_status first, tt_status second) {
  if (!first) return second;
  if (!second) return first;
  tt_status both = status_concat(first->code, first->message, "; then: ", second->message);
  tt_status_release(second);
  if (!both) return first;
  tt_status_release(first);
  return both;
}

tt_status tt_status_clone(tt_status status) {
  if (!status || status == &tt_static_oom) return status;
  tt_status copy = status_concat(status->code, status->message, "", "");
  return copy ? copy : tt_out_of_memory();
}

void tt_status_release(tt_status status) {
  if (status != &tt_static_oom) tt_free(status);
}

tt_code tt_status_code(tt_status status) { return status ? status->code : TT_OK; }

const char *tt_status_message(tt_status status) { return status ? status->message : ""; }

const char *tt_code_name(tt_code code) {
  switch (code) {
#define X(name, number)                                                                            \
  case TT_##name:                                                                                  \
    return #name;
    TT_CODES(X)
#undef X
  }
  return "UNKNOWN";
}
