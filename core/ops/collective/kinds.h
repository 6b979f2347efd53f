/* The kinds of collectives, and of reductions. */
#ifndef TT_COLLECTIVE_KINDS_H
#define TT_COLLECTIVE_KINDS_H

#include "hlo/types.h"

/* name, in words, whether it works in place, whether it computes */
#define TT_COLLECTIVES(X)                                                                          \
  X(ALL_REDUCE, "all_reduce", true, true)                                                          \
  X(BROADCAST, "broadcast", true, false)                                                           \
  X(REDUCE, "reduce", true, true)                  /* y of the others is x */                      \
  X(ALL_GATHER, "all_gather", false, false)        /* y: each rank's x */                          \
  X(REDUCE_SCATTER, "reduce_scatter", false, true) /* y: this rank's part of the reduced x */      \
  X(ALL_TO_ALL, "all_to_all", false, false)        /* x: a part for each rank, y: one from each */ \
  X(GATHER, "gather", false, false)                /* y, of the root alone: as all_gather */       \
  X(SCATTER, "scatter", false, false)              /* x, of the root alone: a part for each */     \
  X(SEND, "send", false, false)                                                                    \
  X(RECV, "recv", false, false) /* root -1: from any rank */                                       \
  X(BARRIER, "barrier", false, false)
typedef enum tt_collective_kind {
#define X(name, words, in_place, reduces) TT_COLLECTIVE_##name,
  TT_COLLECTIVES(X)
#undef X
      TT_COLLECTIVE_KINDS
} tt_collective_kind;

const char *tt_collective_name(tt_collective_kind kind); /* in words; "unknown" for others */
bool tt_collective_in_place(tt_collective_kind kind);    /* false for others, as the next */
bool tt_collective_reduces(tt_collective_kind kind);
/* Of two ranks, and not of the whole group. */
bool tt_collective_is_message(tt_collective_kind kind);

/* PyTorch's ReduceOp, in its order. AVG and PREMUL_SUM are never asked of a transport. */
#define TT_REDUCTIONS(X) X(SUM) X(AVG) X(PRODUCT) X(MIN) X(MAX) X(BAND) X(BOR) X(BXOR) X(PREMUL_SUM)
typedef enum tt_reduction {
#define X(name) TT_REDUCE_##name,
  TT_REDUCTIONS(X)
#undef X
      TT_REDUCTION_KINDS
} tt_reduction;

const char *tt_reduction_name(tt_reduction op); /* "SUM"; "unknown" for others */
/* INVALID_ARGUMENT: what is not reduced so. */
tt_status tt_reduction_check(tt_reduction op, tt_dtype dtype);

#endif
