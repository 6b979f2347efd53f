/* Collectives through memory that the ranks of one host share. */
#ifndef TT_SHARED_H
#define TT_SHARED_H

#include "dist/dist.h"
#include "dist/segment.h"

/* Whether it is a kind that is done so: all but messages. */
bool tt_shared_does(tt_collective_kind kind);
/* Does it, as tt_transport's `run`. Results are the same on all ranks: what is reduced is reduced
 * by rank, from 0. UNAVAILABLE: a rank does not come within `timeout_ms`, or asks for something
 * else; all ranks fail then, and whatever they ask of the segment later. INVALID_ARGUMENT: no such
 * root. */
tt_status tt_shared_run(tt_segment *segment, tt_collective *collective, int64_t timeout_ms);

#endif
