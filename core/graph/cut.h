/* Where a chunk ends in Fused mode: decided by what the operators are, never by where counting
 * began, so that a loop is cut at the same places in each iteration.
 *
 * Each operator has a rank, a hash of itself and the three before it. A chunk ends where no rank
 * since the same place came last is lower, or none of the last TT_CUT_WINDOW ones. Of a loop body
 * that is the same operator in each iteration, whatever happened before the loop; and equal layers
 * of a model become equal chunks. At a place where the host once waited, chunks end ever after:
 * its rank is 0. So a loop that reads its loss now and then is cut at the same place whether
 * it reads or not.
 *
 * Thread-compatible. */
#ifndef TT_CUT_H
#define TT_CUT_H

#include <stdbool.h>
#include <stdint.h>

enum { TT_CUT_WINDOW = 128, TT_CUT_STOPS = 256, TT_CUT_GRAMS = 4 };

/* Why a chunk ends. */
typedef enum tt_cut {
  TT_CUT_NONE,
  TT_CUT_CONTENT,
  TT_CUT_STOP, /* by content, too: the host has waited at such a place before */
  TT_CUT_LENGTH,
  TT_CUT_BYTES,
  TT_CUT_READ,
  TT_CUT_SYNC,
  TT_CUT_MODE
} tt_cut;

/* What bounds a chunk: operators, and bytes of results. An end looks back `window` operators for
 * lower ranks, at most TT_CUT_WINDOW; a rank depends on `grams` operators, at most TT_CUT_GRAMS. */
typedef struct tt_cut_limits {
  int least, most, window, grams;
  int64_t bytes;
} tt_cut_limits;

/* Of operators. */
#define TT_CUT_OPERATORS                                                                           \
  ((tt_cut_limits){.least = 32,                                                                    \
                   .most = 640,                                                                    \
                   .window = TT_CUT_WINDOW,                                                        \
                   .grams = TT_CUT_GRAMS,                                                          \
                   .bytes = INT64_C(1) << 28})

typedef struct tt_cutter {
  tt_cut_limits limits;
  uint64_t calls[TT_CUT_WINDOW], ranks[TT_CUT_WINDOW]; /* rings: operators' hashes and ranks */
  uint64_t count;                                      /* of operators so far, across chunks */
  uint64_t place;               /* the last operator's rank, if the host had never waited there */
  uint64_t stops[TT_CUT_STOPS]; /* places where the host waited */
} tt_cutter;

/* Takes note of an operator, the `depth`th of its chunk, whose results will take `bytes` so far.
 * Does the chunk end after it? */
tt_cut tt_cutter_add(tt_cutter *cutter, uint64_t call, int depth, int64_t bytes);
/* The host waits for the last operator. */
void tt_cutter_stop(tt_cutter *cutter);

#endif
