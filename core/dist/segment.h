/* Memory that the ranks of one host share. Each has a slot and a card of its own there, which it
 * writes and all read when they have met. Then each turns to other slots, since some may still be
 * reading; when they meet again, nobody reads the first ones any more. */
#ifndef TT_SEGMENT_H
#define TT_SEGMENT_H

#include "base/status.h"

#include <stdint.h>

enum { TT_SEGMENT_SLOT = 512 << 10 /* bytes */, TT_SEGMENT_CARD = 64, TT_SEGMENT_RANKS = 64 };

typedef struct tt_segment tt_segment;

/* Gives each rank's `bytes` bytes to all: all[size * bytes], by rank. */
typedef tt_status (*tt_tell_all)(void *user, const void *own, int64_t bytes, void *all);

/* All ranks call it alike; `tell` is called twice. *out is NULL where they are not all on
 * one host, are too many, or may not share memory. The memory is gone with the last process that
 * has it, however that ends. */
tt_status tt_segment_open(int rank, int size, tt_tell_all tell, void *user, tt_segment **out);
void tt_segment_close(tt_segment *segment); /* NULL is allowed */

char *tt_segment_slot(const tt_segment *segment, int rank);
void *tt_segment_card(const tt_segment *segment, int rank);
/* From now on slots and cards are the other ones. */
void tt_segment_turn(tt_segment *segment);

/* Returns when all ranks have called it as often as this one: they see what each wrote before.
 * `until`: by tt_now_ms(). UNAVAILABLE: a rank did not come by then, has given up, or its process
 * has ended. One thread at a time. */
tt_status tt_segment_meet(tt_segment *segment, int64_t until);
/* This rank gives up: no rank meets another here any more. */
void tt_segment_give_up(tt_segment *segment);

#endif
