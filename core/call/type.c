#include "call/type.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

typedef struct interned {
  bool counted;
  tt_along along;
  _Atomic bool seen, unwelcome;
  _Atomic int told, patience; /* how often it was said to be unwelcome, and how often it will be */
  _Atomic int64_t told_of;    /* the latest length */
  _Atomic int64_t storages;   /* only if counted */
  int64_t bytes;
  tt_type type;
} interned;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tt_intern types = TT_INTERN_INIT;

enum { KEY = TT_MAX_RANK + 2 + TT_MOST_ALONG };

static size_t write_key(const tt_type *type, const tt_along *along, int64_t key[KEY]) {
  key[0] = type->dtype;
  key[1] = type->rank;
  for (int i = 0; i < type->rank; i++) key[2 + i] = type->dims[i];
  for (int i = 0; i < tt_along_count(along); i++) key[2 + type->rank + i] = along->dims[i];
  return sizeof *key * (size_t)(2 + type->rank + along->count);
}

static tt_status add(const tt_type *type, const tt_along *along, const int64_t *key, size_t size,
                     interned **out) {
  interned *added = tt_calloc(1, sizeof *added);
  if (!added) return tt_out_of_memory();
  added->along = *along;
  added->patience = 2;
  added->type = tt_type_make(type->dtype, type->rank, type->dims);
  if (!tt_type_bytes(type, &added->bytes)) added->bytes = 0;
  added->counted = (int64_t)types.count >= tt_growth_spared_types();
  tt_status status = tt_intern_add(&types, key, size, added);
  if (status) return tt_free(added), status;
  if (added->counted) tt_growth_note(TT_GROWTH_TYPES, 1);
  *out = added;
  return TT_SUCCESS;
}

static tt_status intern(const tt_type *type, const tt_along *along, const tt_type **out) {
  int64_t key[KEY];
  size_t size = write_key(type, along, key);
  pthread_mutex_lock(&lock);
  interned *found = tt_intern_find(&types, key, size);
  tt_status status = found ? TT_SUCCESS : add(type, along, key, size, &found);
  pthread_mutex_unlock(&lock);
  if (!status) *out = &found->type;
  return status;
}

tt_status tt_type_intern(const tt_type *type, const tt_type **out) {
  return intern(type, &(tt_along){.count = 0}, out);
}

tt_status tt_type_intern_bounded(const tt_type *type, const tt_along *along, const tt_type **out) {
  assert(along->count > 0 && along->dims[along->count - 1] < type->rank);
  return intern(type, along, out);
}

int64_t tt_type_table_size(void) {
  pthread_mutex_lock(&lock);
  int64_t count = (int64_t)types.count;
  pthread_mutex_unlock(&lock);
  return count;
}

static interned *interned_of(const tt_type *type) {
  return (interned *)((char *)(uintptr_t)type - offsetof(interned, type));
}

const tt_along *tt_type_along(const tt_type *type) { return &interned_of(type)->along; }

void tt_type_note_seen(const tt_type *type) {
  interned *of = interned_of(type);
  if (!atomic_load_explicit(&of->seen, memory_order_relaxed))
    atomic_store_explicit(&of->seen, true, memory_order_relaxed);
}

void tt_type_note_settled(const tt_type *type) {
  interned *of = interned_of(type);
  if (!atomic_load_explicit(&of->seen, memory_order_relaxed))
    atomic_store_explicit(&of->unwelcome, true, memory_order_relaxed);
}

bool tt_type_unwelcome(const tt_type *type, int64_t length) {
  interned *of = interned_of(type);
  if (!atomic_load_explicit(&of->unwelcome, memory_order_relaxed)) return false;
  if (atomic_exchange_explicit(&of->told_of, length, memory_order_relaxed) == length) return true;
  int patience = atomic_load_explicit(&of->patience, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&of->told, 1, memory_order_relaxed) < patience) return true;
  atomic_store_explicit(&of->told, 0, memory_order_relaxed);
  atomic_store_explicit(&of->patience, patience < INT_MAX / 2 ? 2 * patience : patience,
                        memory_order_relaxed);
  atomic_store_explicit(&of->unwelcome, false, memory_order_relaxed);
  return false;
}

int64_t tt_type_held_bytes(const tt_type *type) { return interned_of(type)->bytes; }

void tt_type_count_storage(const tt_type *type, int64_t change) {
  interned *of = interned_of(type);
  if (of->counted) atomic_fetch_add_explicit(&of->storages, change, memory_order_acq_rel);
}

/* -- Reclaiming -- */

void tt_type_lock(void) { pthread_mutex_lock(&lock); }
void tt_type_unlock(void) { pthread_mutex_unlock(&lock); }

static bool is_needed(void *value) {
  const interned *type = value;
  return !type->counted || atomic_load_explicit(&type->storages, memory_order_acquire) > 0;
}

void tt_type_reclaim(void) { tt_status_release(tt_intern_filter(&types, is_needed, tt_free)); }
