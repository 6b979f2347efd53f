/* Sizes that change: which dim of uploads that are otherwise alike was seen with several sizes,
 * which ranges and results of cat become longer each time, and whether masks of a type have a third
 * number of true elements. What has such sizes is held in bounded values (call/bounded.h), so that
 * programs serve all of them. */
#ifndef TT_CALL_GROWING_H
#define TT_CALL_GROWING_H

#include "base/atomic.h"
#include "call/type.h"

#include <pthread.h>

enum { TT_MOST_LIVE = 16, TT_MOST_FRACTIONS = 16 };

/* A length that storages with bounded values have. */
typedef struct tt_live_length {
  TT_ATOMIC(int64_t) length; /* 0: none */
  int storages;              /* how many of these there are; guarded by the lock, as the next one */
  uint64_t latest;           /* when there was another one, counted */
} tt_live_length;

/* An upload of fractions of so many rows, and what is known of those that are alike; NULL: none. */
typedef struct tt_fractions {
  struct tt_sizes *of;
  int64_t size;
} tt_fractions;

typedef struct tt_growing {
  pthread_mutex_t lock;
  tt_intern seen; /* types without one of their dims, and what they are of */
  tt_live_length live[TT_MOST_LIVE];
  TT_ATOMIC(int) live_count;                 /* of them that have a length */
  uint64_t entered;                          /* how many storages got one; guarded by the lock */
  tt_fractions fractions[TT_MOST_FRACTIONS]; /* the latest */
  unsigned next_fractions;
} tt_growing;

void tt_growing_init(tt_growing *growing);
void tt_growing_deinit(tt_growing *growing);
/* Notes an upload; which dim's size changes, or -1. Of whole numbers and masks, such as texts, any
 * dim does with a third size. Fractions may be weights: their dims do where they are as long as a
 * live length (few columns of several dims never are), and all but the last of several once whole
 * numbers that were as many, and whose size changes, came behind such an upload two times, as with
 * what the nodes of a graph have.
 * Thread-safe, as the next one; neither finds anything where the registry's GROWING is off. */
int tt_growing_upload(tt_growing *growing, const tt_type *type);
/* No size was seen yet, of anything, and no length lives, whatever has it. Thread-safe. */
void tt_growing_forget(tt_growing *growing);
/* Notes that something with `part` elements along a dim was joined with something else, to this
 * type. Whether the first was joined in this way itself, as a cache that grows by a token is. */
bool tt_growing_join(tt_growing *growing, const tt_type *type, int dim, int64_t part);
/* Notes that the whole numbers from `start` up to `end` are made. Whether there are as many as a
 * live length says, or ranges become longer by one each time, as the positions of a text do to
 * which words are added; the latter is not asked of those that are `known`. Long ones are not
 * looked at, nor are numbers that f32 does not hold. */
bool tt_growing_range(tt_growing *growing, int64_t start, int64_t end, bool known);
/* Notes how many elements of a mask of this type are true; whether that changes, or the masks'
 * sizes do where they have one dim. */
bool tt_growing_count(tt_growing *growing, const tt_type *mask, int64_t count);

/* A storage has a bounded value with that length, or no longer: what else has this size meanwhile
 * goes along with it, as the positions of a text's words do. The latest lengths are known when
 * there are too many. Thread-safe. */
void tt_growing_enter(tt_growing *growing, int64_t length);
void tt_growing_leave(tt_growing *growing, int64_t length);
/* Whether there is any such length. */
static inline bool tt_growing_any(tt_growing *growing) {
#ifdef __cplusplus
  return growing->live_count != 0;
#else
  return atomic_load_explicit(&growing->live_count, memory_order_relaxed) != 0;
#endif
}
/* Whether a size is one of them. Thread-safe. */
bool tt_growing_is_live(tt_growing *growing, int64_t size);

#endif
