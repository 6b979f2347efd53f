/* The lanes of a stream: its open chunks in Fused mode. Each thread records into a lane of its own,
 * so that what one does makes the same chunks whatever the others do meanwhile. Operators follow
 * their data: one on a value that is in an open chunk goes into that lane, and so does what its
 * thread records next. Where one thread alone has recorded, those that work for it (autograd's)
 * begin in its lane. All functions: under the device's lock. */
#ifndef TT_LANES_H
#define TT_LANES_H

#include "stream/chunk.h"

enum {
  TT_LANES = 16,          /* threads beyond so many share theirs */
  TT_LANE_PATIENCE = 1024 /* a chunk ends when so many others did since it got an operator */
};

typedef struct tt_lanes {
  tt_device *device;
  unsigned number;            /* by which threads find their lane sooner */
  int count, used;            /* no chunk is at `count` or behind; how many there are */
  tt_chunk *chunks[TT_LANES]; /* made when they are used first */
} tt_lanes;

void tt_lanes_init(tt_lanes *lanes, tt_device *device, int stream);
void tt_lanes_deinit(tt_lanes *lanes);
/* All of them are empty: see tt_chunk_reclaim. */
void tt_lanes_reclaim(tt_lanes *lanes);
/* Where an operator of the calling thread on these values is recorded: the lane of one that is in
 * an open chunk, the thread's own if possible; else the thread's own. */
tt_status tt_lane_for(tt_lanes *lanes, const tt_policy *policy, tt_value *const *inputs, int count,
                      tt_chunk **out);
/* The open chunk of the calling thread, or NULL where it has recorded nothing yet. */
tt_chunk *tt_lane_own(const tt_lanes *lanes, const tt_policy *policy);
/* The open chunk that makes a value; NULL: none, it was launched or is captured. */
tt_chunk *tt_lane_of(const tt_lanes *lanes, const tt_value *value);
/* The calling thread is about to wait for something. */
void tt_lanes_note_wait(tt_lanes *lanes, const tt_policy *policy);
/* A chunk of these has ended. Returns another that was forgotten, if there is one. */
tt_chunk *tt_lanes_forgotten(tt_lanes *lanes, const tt_chunk *ended);

#endif
