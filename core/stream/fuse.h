/* Joining: chunks that follow one another again and again become one program.
 *
 * Where a chunk would end by its content, it may go on instead; what lies between such ends is a
 * piece. Pieces are grouped as operators are into chunks: by content (cut.h), so a loop is grouped
 * the same way in each iteration. The first times that a group comes again, its pieces are kept
 * together and then launched one by one; if each of them has come before, the joined program is
 * asked for. It is compiled when the device turns out to be behind again and again where the group
 * comes, and from then on launched whenever that is so: then launching later delays nothing.
 *
 * Never joined: what took long to compile, or would be too large or take too much memory; and
 * nothing under deterministic algorithms, as the last bits of a sum could then depend on when the
 * compiler was done.
 *
 * All functions: under the stream's record lock. */
#ifndef TT_JOIN_H
#define TT_JOIN_H

#include "run/section.h"

enum { TT_JOIN_PIECES = 32, TT_JOIN_GROUPS = 256 };

/* A group, known by its first piece and the one before that. */
typedef struct tt_group {
  uint64_t key;
  tt_program *program; /* the last that was asked for or launched, or NULL */
  uint8_t tries, lags, misses;
  bool fits, apart; /* the program was ready and is not too large; is the group never joined? */
} tt_group;

typedef struct tt_joining {
  tt_cutter cutter;      /* of pieces */
  uint64_t hash, before; /* of the open piece's operators, and the last piece's */
  int pieces;            /* of the open group that have ended */
  bool passing, trying;  /* the open group goes through its ends; to learn about it */
  tt_group *group;       /* the open one */
  /* Of the open chunk: the ends that it went through, and what came before the open piece. */
  tt_step *ends[TT_JOIN_PIECES];
  int count, depth;
  int64_t bytes;
  tt_group groups[TT_JOIN_GROUPS];
} tt_joining;

void tt_join_init(tt_joining *join);
/* An operator was added. */
static inline void tt_join_add(tt_joining *join, uint64_t call) {
  join->hash = (join->hash ^ call) * UINT64_C(0x9E3779B97F4A7C15);
}
/* The open chunk, whose results would take `bytes`, is due to end by its content: does it go on?
 * `behind`: the device is. */
bool tt_join_pass(tt_joining *join, const tt_section *section, int64_t bytes, bool behind);
/* The launches, a list, of a chunk that went through ends; `live` is filled in. */
tt_status tt_join_close(tt_joining *join, tt_section *section, tt_cut why, tt_launch **out);
/* The chunk has ended. */
void tt_join_reset(tt_joining *join, tt_cut why);

#endif
