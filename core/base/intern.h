/* A table from byte strings to pointers: the one hash table of the core. Thread-compatible. */
#ifndef TT_INTERN_H
#define TT_INTERN_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tt_intern_entry {
  uint64_t hash;
  size_t size;
  const void *key;
  void *value; /* owned by the caller */
} tt_intern_entry;

typedef struct tt_intern {
  tt_intern_entry *entries;
  size_t count, capacity;
  bool lent; /* keys are parts of their values, and live as long; else the table owns copies */
} tt_intern;

#define TT_INTERN_INIT {0}
#define TT_INTERN_LENT {.lent = true}
void tt_intern_deinit(tt_intern *table); /* values are the caller's; lent keys may be gone */
/* NULL if absent. */
void *tt_intern_find(const tt_intern *table, const void *key, size_t size);
/* Copies the key, unless it is lent; the key must be absent. */
tt_status tt_intern_add(tt_intern *table, const void *key, size_t size, void *value);
/* Removes the entries whose values `keep` (asked once for each) does not want, hands these values
 * to `drop`, and makes the table as small as what is left. On failure nothing is removed. */
tt_status tt_intern_filter(tt_intern *table, bool (*keep)(void *value), void (*drop)(void *value));

#endif
