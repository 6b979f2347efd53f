/* Collectives as operators: one row, whose arguments say what the ranks of a group do together.
 *
 *   collective_(turn!, inputs, outputs!, kind, op, root, tag, site, splits)
 *
 * `turn` is a tensor that each collective of a group reads and writes, so that these happen in the
 * order in which they were recorded, in one program or in several, and none is left out. It says
 * which group it is, too: no program's text has anything in it that differs from rank to rank.
 *
 * The tensors of a list are of one dtype, and are packed one behind the other: x for `inputs` (of
 * those that work in place, for `outputs`), y for `outputs`. */
#ifndef TT_COLLECTIVE_H
#define TT_COLLECTIVE_H

#include <stdbool.h>

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

/* PyTorch's ReduceOp, in its order. AVG is never asked of a transport. */
typedef enum tt_reduction {
  TT_REDUCE_SUM,
  TT_REDUCE_AVG,
  TT_REDUCE_PRODUCT,
  TT_REDUCE_MIN,
  TT_REDUCE_MAX,
  TT_REDUCE_BAND,
  TT_REDUCE_BOR,
  TT_REDUCE_BXOR
} tt_reduction;

/* What a turn holds: I64s. */
enum { TT_TURN_GROUP, TT_TURN_SEQUENCE, TT_TURN_SIZE, TT_TURN_RANK, TT_TURN_WORDS };

/* The function that programs call where the plugin leaves collectives to us: operands are the turn,
 * [root, tag, line, splits of x and y if they differ], and x; results the next turn, and y; x and y
 * only if there are such elements. Flags: `kind`, `op`. */
#define TT_COLLECTIVE_TARGET "torch_tpu.collective"

#endif
