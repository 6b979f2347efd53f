/* Sizes that change: which dim of uploads that are otherwise alike was seen with a third size, and
 * which results of cat become longer each time. What has such sizes is held in bounded values
 * (call/bounded.h), so that programs serve all of them. */
#ifndef TT_CALL_GROWING_H
#define TT_CALL_GROWING_H

#include "base/atomic.h"
#include "call/type.h"

#include <pthread.h>

enum { TT_MOST_RECENT = 4 };

typedef struct tt_growing {
  pthread_mutex_t lock;
  tt_intern seen; /* types without one of their dims, and what they are of */
  TT_ATOMIC(int64_t) recent[TT_MOST_RECENT]; /* lengths that were uploaded; 0: none yet */
  TT_ATOMIC(uint32_t) next;
} tt_growing;

void tt_growing_init(tt_growing *growing);
void tt_growing_deinit(tt_growing *growing);
/* Notes an upload; which dim's size changes, or -1. Only whole numbers and masks are looked at:
 * texts, not weights. Thread-safe, as the next one; neither finds anything where the registry's
 * GROWING is off. */
int tt_growing_upload(tt_growing *growing, const tt_type *type);
/* Notes that something with `part` elements along a dim was joined with something else, to this
 * type. Whether the first was joined in this way itself, as a cache that grows by a token is. */
bool tt_growing_join(tt_growing *growing, const tt_type *type, int dim, int64_t part);

/* A length that a value was uploaded with: what else has this size goes along with that value, as
 * the positions of a text's words do. Thread-safe. */
void tt_growing_note(tt_growing *growing, int64_t length);
/* Whether there is any. */
static inline bool tt_growing_any(tt_growing *growing) {
#ifdef __cplusplus
  return growing->next != 0;
#else
  return atomic_load_explicit(&growing->next, memory_order_relaxed) != 0;
#endif
}
/* Whether a size is one of the latest such lengths. Thread-safe. */
bool tt_growing_recent(tt_growing *growing, int64_t size);

#endif
