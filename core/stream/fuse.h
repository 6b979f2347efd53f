/* Fusing: chunks that follow one another again and again become one program.
 *
 * Where a chunk would end by its content, it may go on instead; what lies between such ends is a
 * piece. Pieces are grouped as operators are into chunks: by content (cut.h), so a loop is grouped
 * the same way in each iteration. The first times that a group comes again, its pieces are kept
 * together and then launched one by one; if each of them has come before, the fused program is
 * made. It is compiled when the device turns out to be behind again and again where the group
 * comes, and from then on launched whenever that is so: then launching later delays nothing.
 *
 * Never fused: what took long to compile, or would be too large or take too much memory; and
 * nothing under deterministic algorithms, as the last bits of a sum could then depend on when the
 * compiler was done.
 *
 * All functions: under the device's lock. */
#ifndef TT_FUSE_H
#define TT_FUSE_H

#include "stream/section.h"

enum { TT_FUSE_PIECES = 32, TT_FUSE_GROUPS = 256 };

/* A group, known by its first piece and the one before that. */
typedef struct tt_group {
  uint64_t key;
  tt_program *program; /* the last that was made or launched, or NULL */
  uint8_t tries, lags, misses;
  uint8_t pause, skips; /* how often it is left out once more, as it was when that last began */
  bool fits, apart;     /* the program was ready and is not too large; is the group never fused? */
} tt_group;

typedef struct tt_fusing {
  tt_cutter cutter;      /* of pieces */
  uint64_t hash, before; /* of the open piece's operators, and the last piece's */
  int pieces;            /* of the open group that have ended */
  bool passing, trying;  /* the open group goes through its ends; to learn about it */
  tt_group *group;       /* the open one */
  /* Of the open chunk: the ends that it went through, and what came before the open piece. */
  tt_trace_node *ends[TT_FUSE_PIECES];
  int count, depth;
  int64_t bytes;
  tt_group groups[TT_FUSE_GROUPS];
} tt_fusing;

void tt_fuse_init(tt_fusing *fuse);
/* An operator was added. */
static inline void tt_fuse_add(tt_fusing *fuse, uint64_t call) {
  fuse->hash = (fuse->hash ^ call) * UINT64_C(0x9E3779B97F4A7C15);
}
/* The open chunk, whose results would take `bytes`, is due to end by its content: does it go on?
 * `behind`: the device is. */
bool tt_fuse_pass(tt_fusing *fuse, const tt_section *section, int64_t bytes,
                  const tt_policy *policy, bool behind);
/* The launches, a list, of a chunk that went through ends; `live` is filled in. */
tt_status tt_fuse_close(tt_fusing *fuse, tt_section *section, tt_cut why, const tt_policy *policy,
                        tt_launch **out);
/* The chunk has ended. */
void tt_fuse_reset(tt_fusing *fuse, tt_cut why);

#endif
