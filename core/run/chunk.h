/* The open chunk of a stream in Fused mode: operators recorded and not launched yet.
 *
 * cut.h says where it ends; a host read or a synchronisation ends it early. All functions: under
 * the stream's record lock. */
#ifndef TT_CHUNK_H
#define TT_CHUNK_H

#include "run/cut.h"
#include "run/launch.h"
#include "run/trace.h"
#include "run/value.h"

typedef struct tt_chunk {
  tt_trace trace;
  uint64_t id;       /* of the open chunk; tt_value.chunk refers to it */
  tt_step *at;       /* the last operator; the trace's root when the chunk is empty */
  tt_value **slots;  /* one reference each */
  uint8_t *is_input; /* [slot_count] */
  uint8_t *live;     /* [slot_count] results that somebody besides the chunk holds */
  uint32_t *sites;   /* [at->depth] */
  uint32_t *words;
  size_t slot_capacity, input_capacity, live_capacity, site_capacity, word_capacity;
  int slot_count, word_count;
  int64_t bytes; /* of the results, if all were written */
  tt_cutter cutter;
  tt_cut due; /* the next operator begins a new chunk, for this reason */
} tt_chunk;

void tt_chunk_init(tt_chunk *chunk);
void tt_chunk_deinit(tt_chunk *chunk);
static inline bool tt_chunk_empty(const tt_chunk *chunk) { return chunk->slot_count == 0; }

/* Appends an operator: `inputs` and `outputs` (pending, borrowed) in the call's order. On failure
 * the chunk is as before. */
tt_status tt_chunk_add(tt_chunk *chunk, tt_call *call, tt_value *const *inputs,
                       tt_value *const *outputs, const uint32_t *words, uint32_t site);
/* Once the last operator's results stand in their storages: when the chunk ends after it, it is
 * closed before the next operator is added, so that what only lived until then is not written. At a
 * place where the host has waited before, what lives now counts, whether the host waits again or
 * not; otherwise there would be two programs. */
void tt_chunk_added(tt_chunk *chunk);
/* Ends the chunk. *out is its launch, or NULL when nobody needs any result. The chunk is empty
 * afterwards, also on failure: then its results have failed. Only where new programs are forbidden
 * and it needs one, it stays as it is. */
tt_status tt_chunk_close(tt_chunk *chunk, tt_cut why, tt_launch **out);

#endif
