#include "base/status.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Messages come partly from plugins; past this size only the beginning is kept. */
#define TT_MAX_MESSAGE ((size_t)64 << 10)

/* What stays the same when words are added. */
typedef struct identity {
  tt_code code;
  tt_source source;
  uint64_t id, words; /* the hash of the first words */
} identity;

struct tt_status_s {
  identity is;
  const char *message; /* in the same allocation */
};

/* What a failed allocation of a status becomes. Shared by all threads, hence never freed. */
static struct tt_status_s tt_static_oom = {{TT_RESOURCE_EXHAUSTED, TT_FROM_HOST_MEMORY, 0, 0},
                                           "out of host memory"};

static identity new_identity(tt_code code) {
  static _Atomic uint64_t last;
  return (identity){code, TT_FROM_CORE, atomic_fetch_add(&last, 1) + 1, 0};
}

tt_status tt_out_of_memory(void) { return &tt_static_oom; }

/* A status whose message is the three pieces put together. */
static tt_status status_concat(identity is, const char *a, const char *b, const char *c) {
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
  status->is = is;
  status->message = text;
  for (int i = 0; i < 3; i++) {
    memcpy(text, pieces[i], sizes[i]);
    text += sizes[i];
  }
  *text = '\0';
  return status;
}

__attribute__((format(printf, 2, 0), nonnull(2))) static tt_status
status_format(identity is, const char *format, va_list args) {
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
    status->is = is;
    status->message = text;
  }
  va_end(again);
  return status;
}

tt_status tt_error(tt_code code, const char *format, ...) {
  if (code == TT_OK) code = TT_INTERNAL; /* an error that says OK must not pass for success */
  va_list args;
  va_start(args, format);
  tt_status status = status_format(new_identity(code), format, args);
  va_end(args);
  if (!status) return tt_out_of_memory();
  status->is.words = tt_hash_bytes(status->message, strlen(status->message), 0);
  return status;
}

tt_status tt_status_prefix(tt_status status, const char *format, ...) {
  if (!status) return TT_SUCCESS;
  va_list args;
  va_start(args, format);
  tt_status words = status_format(status->is, format, args);
  va_end(args);
  if (!words) return status;
  tt_status both = status_concat(status->is, words->message, ": ", status->message);
  tt_status_release(words);
  if (!both) return status;
  tt_status_release(status);
  return both;
}

tt_status tt_status_extend(tt_status status, const char *format, ...) {
  if (!status) return TT_SUCCESS;
  va_list args;
  va_start(args, format);
  tt_status words = status_format(status->is, format, args);
  va_end(args);
  if (!words) return status;
  tt_status both = status_concat(status->is, status->message, words->message, "");
  tt_status_release(words);
  if (!both) return status;
  tt_status_release(status);
  return both;
}

tt_status tt_join(tt_status first, tt_status second) {
  if (!first) return second;
  if (!second) return first;
  tt_status both = status_concat(first->is, first->message, "; then: ", second->message);
  tt_status_release(second);
  if (!both) return first;
  tt_status_release(first);
  return both;
}

tt_status tt_status_clone(tt_status status) {
  if (!status || status == &tt_static_oom) return status;
  tt_status copy = status_concat(status->is, status->message, "", "");
  return copy ? copy : tt_out_of_memory();
}

void tt_status_release(tt_status status) {
  if (status != &tt_static_oom) tt_free(status);
}

tt_code tt_status_code(tt_status status) { return status ? status->is.code : TT_OK; }

tt_status tt_status_from(tt_status status, tt_source source) {
  if (status && status != &tt_static_oom) status->is.source = source;
  return status;
}

tt_source tt_status_source(tt_status status) { return status ? status->is.source : TT_FROM_CORE; }

bool tt_status_same(tt_status a, tt_status b) {
  return a == b || (a && b && a->is.id && a->is.id == b->is.id);
}

bool tt_status_alike(tt_status a, tt_status b) {
  return a == b || (a && b && a->is.code == b->is.code && a->is.words == b->is.words);
}

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
