#include "graph/cut.h"

#include "base/hash.h"

/* From half of a limit on, a low rank among few will do, so that the limit itself, which counts
 * from the chunk's beginning, hardly ever decides. */
enum { FEW = 6 };

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

/* Is no rank lower since this one came last, just now or a chunk ago, or else of the last `window`?
 * Of fewer it must be one that would be the lowest of most windows, so that the first iteration is
 * cut as later ones. */
static bool lowest(const tt_cutter *cutter, uint64_t window) {
  uint64_t rank = rank_of(cutter, 0), least = (uint64_t)cutter->limits.least;
  for (uint64_t back = 1; back < known(cutter, window); back++) {
    if (rank_of(cutter, back) < rank) return false;
    bool again = back == 1 || back + 1 >= least;
    if (rank_of(cutter, back) == rank && again) return true;
  }
  return cutter->count >= window || rank < UINT64_MAX / window * 2;
}

/* Did the last operator occur shortly before, too? Then it is one of a uniform stretch. */
static bool recurs(const tt_cutter *cutter) {
  for (uint64_t back = 1; back < known(cutter, (uint64_t)cutter->limits.least); back++)
    if (call_of(cutter, back) == call_of(cutter, 0)) return true;
  return false;
}

/* Appends an operator; is it at a place where the host once waited? */
static bool append(tt_cutter *cutter, uint64_t call) {
  cutter->count++;
  cutter->calls[(cutter->count - 1) % TT_CUT_WINDOW] = call;
  uint64_t last[TT_CUT_GRAMS] = {0}, grams = known(cutter, (uint64_t)cutter->limits.grams);
  for (uint64_t back = 0; back < grams; back++) last[back] = call_of(cutter, back);
  cutter->place = tt_hash_bytes(last, sizeof last, 0) | 1;
  bool stop = cutter->stops[cutter->place % TT_CUT_STOPS] == cutter->place;
  cutter->ranks[(cutter->count - 1) % TT_CUT_WINDOW] = stop ? 0 : cutter->place;
  return stop;
}

tt_cut tt_cutter_add(tt_cutter *cutter, uint64_t call, int depth, int64_t bytes) {
  const tt_cut_limits *limits = &cutter->limits;
  bool stop = append(cutter, call);
  if (stop && (depth >= limits->least || !recurs(cutter))) return TT_CUT_STOP;
  if (depth >= limits->most) return TT_CUT_LENGTH;
  if (bytes >= limits->bytes) return TT_CUT_BYTES;
  if (bytes >= limits->bytes / 2 && lowest(cutter, FEW)) return TT_CUT_BYTES;
  if (depth >= limits->most / 2 && lowest(cutter, FEW)) return TT_CUT_LENGTH;
  bool ends = depth >= limits->least && lowest(cutter, (uint64_t)limits->window);
  return ends ? TT_CUT_CONTENT : TT_CUT_NONE;
}

void tt_cutter_stop(tt_cutter *cutter) {
  if (cutter->count == 0) return;
  cutter->stops[cutter->place % TT_CUT_STOPS] = cutter->place;
  cutter->ranks[(cutter->count - 1) % TT_CUT_WINDOW] = 0;
}
