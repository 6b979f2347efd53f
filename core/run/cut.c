#include "run/cut.h"

#include "base/hash.h"

#include <string.h>

/* A chunk has at least MIN_LENGTH operators, and at most MAX_LENGTH. From half of a limit on, a low
 * rank among few will do, so that the limit itself, which counts from the chunk's beginning, hardly
 * ever decides. */
enum { MIN_LENGTH = 24, MAX_LENGTH = 320, FEW = 6 };
#define MAX_BYTES ((int64_t)1 << 28)

static uint64_t *at(uint64_t *ring, uint64_t i) { return &ring[i % TT_CUT_WINDOW]; }

/* Is the last rank the lowest of the last `window`? */
static bool lowest(const tt_cutter *cutter, uint64_t window) {
  uint64_t last = cutter->count - 1, first = cutter->count < window ? 0 : cutter->count - window;
  uint64_t rank = cutter->ranks[last % TT_CUT_WINDOW];
  for (uint64_t i = first; i < last; i++)
    if (cutter->ranks[i % TT_CUT_WINDOW] < rank) return false;
  return true;
}

/* Did the last place occur shortly before, too? Then it is one of a uniform stretch. */
static bool recurs(const tt_cutter *cutter) {
  uint64_t last = cutter->count - 1;
  for (uint64_t i = last; i > 0 && last - i < MIN_LENGTH; i--)
    if (cutter->places[(i - 1) % TT_CUT_WINDOW] == cutter->places[last % TT_CUT_WINDOW]) return true;
  return false;
}

tt_cut tt_cutter_add(tt_cutter *cutter, uint64_t call, int depth, int64_t bytes) {
  memmove(cutter->calls, cutter->calls + 1, sizeof cutter->calls - sizeof *cutter->calls);
  cutter->calls[3] = call;
  uint64_t place = tt_hash_bytes(cutter->calls, sizeof cutter->calls, 0) | 1;
  bool stop = cutter->stops[place % TT_CUT_STOPS] == place;
  *at(cutter->places, cutter->count) = place;
  *at(cutter->ranks, cutter->count) = stop ? 0 : place;
  cutter->count++;
  if (stop && (depth >= MIN_LENGTH || !recurs(cutter))) return TT_CUT_STOP;
  if (depth >= MAX_LENGTH) return TT_CUT_LENGTH;
  if (bytes >= MAX_BYTES) return TT_CUT_BYTES;
  if (bytes >= MAX_BYTES / 2 && lowest(cutter, FEW)) return TT_CUT_BYTES;
  if (depth >= MAX_LENGTH / 2 && lowest(cutter, FEW)) return TT_CUT_LENGTH;
  return depth >= MIN_LENGTH && lowest(cutter, TT_CUT_WINDOW) ? TT_CUT_CONTENT : TT_CUT_NONE;
}

void tt_cutter_stop(tt_cutter *cutter) {
  if (cutter->count == 0) return;
  uint64_t place = *at(cutter->places, cutter->count - 1);
  cutter->stops[place % TT_CUT_STOPS] = place;
  *at(cutter->ranks, cutter->count - 1) = 0;
}
