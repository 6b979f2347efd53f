/* Bounds: a size that is a run-time number stands in a general call as the next power of two, if
 * the storage has as much, so that a size that grows needs few programs. */
#ifndef TT_CALL_BOUNDS_H
#define TT_CALL_BOUNDS_H

#include "call/places.h"

enum { TT_LEAST_BOUND = 16 };

typedef struct tt_bounds {
  int64_t sizes[TT_MOST_PLACES]; /* 0: the place is no size that is a run-time number */
  uint64_t hash;
} tt_bounds;

/* Of the places of a member that are run-time numbers, bit by bit in `moved`. False where its sizes
 * have to be as they are. */
bool tt_bounds_of(const tt_member *member, const tt_key *key, uint32_t moved, tt_bounds *out);
/* The view of the place's tensor, as wide as its bound if it has one; how it moves. */
tt_motion tt_bounds_view(const tt_member *member, const tt_key *key, uint32_t moved,
                         const tt_bounds *bounds, int place, tt_view *view);

#endif
