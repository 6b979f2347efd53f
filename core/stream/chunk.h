/* An open chunk of a stream in Fused mode: operators recorded and not launched yet.
 *
 * cut.h says where it ends; a host read or a synchronisation ends it early. All functions: under
 * the device's lock. */
#ifndef TT_CHUNK_H
#define TT_CHUNK_H

#include "stream/fuse.h"

typedef struct tt_chunk {
  tt_section section;
  uint64_t id;   /* of the open chunk; tt_value.section refers to it */
  int64_t bytes; /* of the results, if all were written that no later one replaces */
  bool shares;   /* other lanes may have used its inputs, too, and left their slots there */
  int idle;      /* chunks of other lanes that ended since it got an operator */
  tt_cutter cutter;
  tt_cut due; /* the next operator begins a new chunk, for this reason; the open one is closed only
               * then, so that what lived no longer is not written */
  bool
      overdue; /* it was due to end by its content among operators on lists, and ends behind them */
  tt_fusing fuse;
} tt_chunk;

void tt_chunk_init(tt_chunk *chunk, tt_device *device);
void tt_chunk_deinit(tt_chunk *chunk);
/* Forgets what was learnt of fusing; this one is empty, and the device's trace is, too. */
void tt_chunk_reclaim(tt_chunk *chunk);
static inline bool tt_chunk_empty(const tt_chunk *chunk) { return chunk->section.slot_count == 0; }

/* Appends an operator: `inputs` and `outputs` (pending, borrowed) in the call's order. On failure
 * the chunk is as before. */
tt_status tt_chunk_add(tt_chunk *chunk, tt_call *call, tt_value *const *inputs,
                       tt_value *const *outputs, const uint32_t *words, uint32_t site);
/* The chunk is due to end: may the next operator be added all the same, since it goes on to be
 * fused with what follows, or since it is amid operators on lists? These are an optimizer's step,
 * whose pieces should be the same in the first iteration and later. `behind`: the device is. */
bool tt_chunk_goes_on(tt_chunk *chunk, const tt_call *next, const tt_policy *policy, bool behind);
/* The host waits here, whether for what is recorded last or for something older: which of the two
 * it is may change when chunks end elsewhere. */
void tt_chunk_note_wait(tt_chunk *chunk, const tt_policy *policy);
/* Ends the chunk. *out is its launch, a list of them, or NULL when nobody needs any result. The
 * chunk is empty afterwards, also on failure: then its results have failed. Only where new programs
 * are forbidden and it needs one, it stays as it is. */
tt_status tt_chunk_close(tt_chunk *chunk, tt_cut why, const tt_policy *policy, tt_launch **out);

#endif
