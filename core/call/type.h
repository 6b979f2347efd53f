/* Interned types: one pointer for each distinct type. The first ones stay for ever; of later ones
 * storages are counted, so that those that no storage has can be reclaimed. The table is the
 * process's. */
#ifndef TT_CALL_TYPE_H
#define TT_CALL_TYPE_H

#include "hlo/types.h"

/* *out is good as long as a storage has the type, or within the guard (base/guard.h) in which it
 * was asked for. Thread-safe. */
tt_status tt_type_intern(const tt_type *type, const tt_type **out);
/* Dims of a bounded value (call/bounded.h), ascending: along them fewer elements count than its
 * type has. */
enum { TT_MOST_ALONG = 2 };
typedef struct tt_along {
  int count;
  int dims[TT_MOST_ALONG];
} tt_along;
static inline tt_along tt_along_one(int dim) { return (tt_along){.count = 1, .dims = {dim}}; }
static inline int tt_along_count(const tt_along *along) {
  return along->count < TT_MOST_ALONG ? along->count : TT_MOST_ALONG; /* which analysers know */
}
/* How many elements count along each of them. */
typedef struct tt_reach {
  int64_t of[TT_MOST_ALONG]; /* of[0] is 0: it is the reach of no bounded value */
} tt_reach;
static inline tt_reach tt_reach_one(int64_t length) { return (tt_reach){.of = {length}}; }
/* The type of a bounded value. Another pointer than the type itself has. */
tt_status tt_type_intern_bounded(const tt_type *type, const tt_along *along, const tt_type **out);
/* Its dims; none: the interned type is no bounded value's. */
const tt_along *tt_type_along(const tt_type *type);
static inline bool tt_type_is_bounded(const tt_type *type) {
  return tt_type_along(type)->count > 0;
}
/* Of a bounded type: an operator saw a value as bounded, or one was made exact. */
void tt_type_note_seen(const tt_type *type);
void tt_type_note_settled(const tt_type *type);
/* Whether values were made exact before any operator had seen one: the next one, of that length,
 * may be exact at once. After having been told so of 16 other lengths in a row, and then of ever
 * more, one tries again; a loop that goes on with one length does not. */
bool tt_type_unwelcome(const tt_type *type, int64_t length);
int64_t tt_type_table_size(void);
/* Of an interned type; 0 where they overflow. */
int64_t tt_type_held_bytes(const tt_type *type);
/* A storage has the interned type from now on (+1), or no longer (-1). Thread-safe. */
void tt_type_count_storage(const tt_type *type, int64_t change);

/* Reclaiming: between lock and unlock nobody interns a type; tt_type_reclaim, in between, frees
 * types that no storage has. */
void tt_type_lock(void);
void tt_type_unlock(void);
void tt_type_reclaim(void);

#endif
