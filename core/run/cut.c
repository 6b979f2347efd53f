#include "run/cut.h"

#include "base/hash.h"

/* A chunk has at least MIN_LENGTH operators, and at most MAX_LENGTH. From half of a limit on, a low
 * rank among few will do, so that the limit itself, which counts from the chunk's beginning, hardly
 * ever decides. */
enum { MIN_LENGTH = 32, MAX_LENGTH = 640, FEW = 6 };
#define MAX_BYTES ((int64_t)1 << 28)

/* Of the operator `back` before the last. */
static uint64_t call_of(const tt_cutter *cutter, uint64_t back) {
  return cutter->calls[(cutter->count - 1 - back) % TT_CUT_WINDOW];
}

static uint64_t rank_of(const tt_cutter *cutter, uint64_t back) {
  return cutter->ranks[(cutter->count - 1 - back) % TT_CUT_WINDOW];
}

static uint64_t known(const tt_cutter *cutter, uint64_t window) {
  return cutter->count < window ? cutter->count : window;
}

/* Is no rank lower since this one came last, or else of the last `window`? Of fewer it must be one
 * that would be the lowest of most windows, so that the first iteration is cut as later ones. */
static bool lowest(const tt_cutter *cutter, uint64_t window) {
  uint64_t rank = rank_of(cutter, 0);
  for (uint64_t back = 1; back < known(cutter, window); back++) {
    if (rank_of(cutter, back) < rank) return false;
    if (rank_of(cutter, back) == rank) return true;
  }
  return cutter->count >= window || rank < UINT64_MAX / window * 2;
}

/* Did the last operator occur shortly before, too? Then it is one of a uniform stretch. */
static bool recurs(const tt_cutter *cutter) {
  for (uint64_t back = 1; back < known(cutter, MIN_LENGTH); back++)
    if (call_of(cutter, back) == call_of(cutter, 0)) return true;
  return false;
}

/* Appends an operator; is it at a place where the host once waited? */
static bool append(tt_cutter *cutter, uint64_t call) {
  cutter->count++;
  cutter->calls[(cutter->count - 1) % TT_CUT_WINDOW] = call;
  uint64_t last[4] = {0};
  for (uint64_t back = 0; back < known(cutter, 4); back++) last[back] = call_of(cutter, back);
  cutter->place = tt_hash_bytes(last, sizeof last, 0) | 1;
  bool stop = cutter->stops[cutter->place % TT_CUT_STOPS] == cutter->place;
  cutter->ranks[(cutter->count - 1) % TT_CUT_WINDOW] = stop ? 0 : cutter->place;
  return stop;
}

tt_cut tt_cutter_add(tt_cutter *cutter, uint64_t call, int depth, int64_t bytes) {
  bool stop = append(cutter, call);
  if (stop && (depth >= MIN_LENGTH || !recurs(cutter))) return TT_CUT_STOP;
  if (depth >= MAX_LENGTH) return TT_CUT_LENGTH;
  if (bytes >= MAX_BYTES) return TT_CUT_BYTES;
  if (bytes >= MAX_BYTES / 2 && lowest(cutter, FEW)) return TT_CUT_BYTES;
  if (depth >= MAX_LENGTH / 2 && lowest(cutter, FEW)) return TT_CUT_LENGTH;
  return depth >= MIN_LENGTH && lowest(cutter, TT_CUT_WINDOW) ? TT_CUT_CONTENT : TT_CUT_NONE;
}

void tt_cutter_stop(tt_cutter *cutter) {
  if (cutter->count == 0) return;
  cutter->stops[cutter->place % TT_CUT_STOPS] = cutter->place;
  cutter->ranks[(cutter->count - 1) % TT_CUT_WINDOW] = 0;
}
