#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool tt_alloc_watched, tt_alloc_forever;
static atomic_int_fast64_t tt_alloc_asked, tt_alloc_nth;

void tt_alloc_fail_at(int64_t nth, bool forever) {
  atomic_store(&tt_alloc_watched, false);
  atomic_store(&tt_alloc_asked, 0);
  atomic_store(&tt_alloc_nth, nth);
  atomic_store(&tt_alloc_forever, forever);
  atomic_store(&tt_alloc_watched, nth > 0);
}

int64_t tt_alloc_count(void) { return atomic_load(&tt_alloc_asked); }

/* Off, the hook costs one relaxed load. */
static bool alloc_refused(void) {
  if (!atomic_load_explicit(&tt_alloc_watched, memory_order_relaxed)) return false;
  int64_t number = atomic_fetch_add(&tt_alloc_asked, 1) + 1, nth = atomic_load(&tt_alloc_nth);
  return number == nth || (number > nth && atomic_load(&tt_alloc_forever));
}

void *tt_malloc(size_t size) {
  if (alloc_refused() || size > PTRDIFF_MAX) return NULL;
  return malloc(size ? size : 1);
}

void *tt_calloc(size_t count, size_t size) {
  size_t bytes;
  if (alloc_refused() || __builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX)
    return NULL;
  return calloc(1, bytes ? bytes : 1);
}

void *tt_realloc(void *block, size_t size) {
  if (alloc_refused() || size > PTRDIFF_MAX) return NULL;
  return realloc(block, size ? size : 1);
}

void tt_free(void *block) { free(block); }

char *tt_strndup(const char *text, size_t length) {
  if (length == SIZE_MAX) return NULL;
  char *copy = tt_malloc(length + 1);
  if (!copy) return NULL;
  if (length) memcpy(copy, text, length);
  copy[length] = '\0';
  return copy;
}
