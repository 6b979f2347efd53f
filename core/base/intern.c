#include "base/intern.h"

#include "base/hash.h"
#include "base/mem.h"

#include <string.h>

#define TT_INTERN_FIRST 16 /* entries; a power of two, as all later capacities */

static void free_key(const tt_intern *table, const void *key) {
  if (!table->lent) tt_free((void *)key);
}

void tt_intern_deinit(tt_intern *table) {
  for (size_t i = 0; i < table->capacity; i++) free_key(table, table->entries[i].key);
  tt_free(table->entries);
  *table = (tt_intern){.lent = table->lent};
}

void *tt_intern_find(const tt_intern *table, const void *key, size_t size) {
  if (!table->capacity) return NULL;
  uint64_t hash = tt_hash_bytes(key, size, 0);
  size_t mask = table->capacity - 1;
  for (size_t i = (size_t)hash & mask; table->entries[i].key; i = (i + 1) & mask) {
    const tt_intern_entry *entry = &table->entries[i];
    if (entry->hash == hash && entry->size == size && (!size || !memcmp(entry->key, key, size)))
      return entry->value;
  }
  return NULL;
}

static void intern_place(tt_intern_entry *entries, size_t capacity, tt_intern_entry entry) {
  size_t mask = capacity - 1, i = (size_t)entry.hash & mask;
  while (entries[i].key) i = (i + 1) & mask;
  entries[i] = entry;
}

static tt_status intern_grow(tt_intern *table) {
  size_t capacity = table->capacity ? table->capacity * 2 : TT_INTERN_FIRST;
  tt_intern_entry *entries = tt_calloc(capacity, sizeof *entries);
  if (!entries) return tt_out_of_memory();
  for (size_t i = 0; i < table->capacity; i++)
    if (table->entries[i].key) intern_place(entries, capacity, table->entries[i]);
  tt_free(table->entries);
  table->entries = entries;
  table->capacity = capacity;
  return TT_SUCCESS;
}

/* Room for one more. */
static tt_status intern_reserve(tt_intern *table) {
  return table->count + 1 > table->capacity / 8 * 5 ? intern_grow(table) : TT_SUCCESS;
}

tt_status tt_intern_add(tt_intern *table, const void *key, size_t size, void *value) {
  TT_TRY(intern_reserve(table));
  if (!table->lent) {
    void *copy = tt_malloc(size);
    if (!copy) return tt_out_of_memory();
    if (size) memcpy(copy, key, size);
    key = copy;
  }
  tt_intern_entry entry = {tt_hash_bytes(key, size, 0), size, key, value};
  intern_place(table->entries, table->capacity, entry);
  table->count++;
  return TT_SUCCESS;
}

tt_status tt_intern_filter(tt_intern *table, bool (*keep)(void *value), void (*drop)(void *value)) {
  tt_intern kept = {.lent = table->lent}; /* shares the keys */
  for (size_t i = 0; i < table->capacity; i++) {
    if (!table->entries[i].key || !keep(table->entries[i].value)) continue;
    tt_status status = intern_reserve(&kept);
    if (status) {
      tt_free(kept.entries);
      return status;
    }
    intern_place(kept.entries, kept.capacity, table->entries[i]);
    kept.count++;
  }
  for (size_t i = 0; i < table->capacity; i++) {
    const tt_intern_entry *e = &table->entries[i];
    if (!e->key || tt_intern_find(&kept, e->key, e->size)) continue;
    free_key(table, e->key);
    drop(e->value);
  }
  tt_free(table->entries);
  *table = kept;
  return TT_SUCCESS;
}
