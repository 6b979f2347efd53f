#include "call/growing.h"

#include "base/env.h"

#include <string.h>

enum { MOST_SEEN = 4096 };

typedef struct sizes {
  bool grows;
  int64_t first, second; /* 0: not seen yet */
} sizes;

void tt_growing_init(tt_growing *growing) {
  pthread_mutex_init(&growing->lock, NULL);
  growing->seen = (tt_intern)TT_INTERN_INIT;
}

void tt_growing_deinit(tt_growing *growing) {
  for (size_t i = 0; i < growing->seen.capacity; i++)
    if (growing->seen.entries[i].key) tt_free(growing->seen.entries[i].value);
  tt_intern_deinit(&growing->seen);
  pthread_mutex_destroy(&growing->lock);
}

/* NULL: it cannot be remembered. */
static sizes *sizes_of(tt_growing *growing, const void *what, const tt_type *type, int dim) {
  int64_t key[TT_MAX_RANK + 4] = {(int64_t)(uintptr_t)what, type->dtype, type->rank, dim};
  for (int i = 0; i < type->rank; i++) key[4 + i] = i == dim ? -1 : type->dims[i];
  size_t size = sizeof *key * (size_t)(4 + type->rank);
  sizes *found = tt_intern_find(&growing->seen, key, size);
  if (found || growing->seen.count >= MOST_SEEN) return found;
  sizes *made = tt_calloc(1, sizeof *made);
  tt_status status = made ? tt_intern_add(&growing->seen, key, size, made) : TT_SUCCESS;
  if (!status) return made;
  tt_status_release(status);
  tt_free(made);
  return NULL;
}

bool tt_growing_along(tt_growing *growing, const void *what, const tt_type *type, int dim) {
  int64_t size = type->dims[dim];
  if (size < 2 || strcmp(tt_env(TT_ENV_GROWING), "on") != 0) return false;
  pthread_mutex_lock(&growing->lock);
  sizes *of = sizes_of(growing, what, type, dim);
  if (of && of->first && of->second && size != of->first && size != of->second) of->grows = true;
  if (of && of->first && !of->second && size != of->first) of->second = size;
  if (of && !of->first) of->first = size;
  bool grows = of && of->grows;
  pthread_mutex_unlock(&growing->lock);
  return grows;
}

bool tt_growing_recent(tt_growing *growing, int64_t size) {
  for (int i = 0; i < TT_MOST_RECENT; i++)
    if (atomic_load_explicit(&growing->recent[i], memory_order_relaxed) == size) return size > 0;
  return false;
}

void tt_growing_note(tt_growing *growing, int64_t length) {
  if (tt_growing_recent(growing, length)) return;
  uint32_t at = atomic_fetch_add_explicit(&growing->next, 1, memory_order_relaxed);
  atomic_store_explicit(&growing->recent[at % TT_MOST_RECENT], length, memory_order_relaxed);
}
