/* A region (subgraph.h) as a call: its row is its own, and lowers the bodies into the program as
 * branches or as a loop. So whoever knows graphs of calls knows regions. Thread-compatible. */
#ifndef TT_REGION_H
#define TT_REGION_H

#include "graph/subgraph.h"

/* How often a body is run for each run of the region; 0: that is not known. */
int64_t tt_region_times(const tt_region *region);
/* The region's call, which lives in the arena: its tensors are the operands and the values from
 * outside, its results are new, its words are those of its bodies, one after the other.
 * INVALID_ARGUMENT: the bodies do not fit each other or the operands; UNIMPLEMENTED: a loop whose
 * number of steps is not known draws random numbers; OOM. */
tt_status tt_region_call(tt_arena *arena, const tt_region *region, tt_call **out);

#endif
