/* One call's Philox blocks, taken in order, and what distributions make of them. */
#ifndef TT_PHILOX_H
#define TT_PHILOX_H

#include "ops/index/index.h"

/* A call's draws. Draw k has k in word 2 of its counters, so that draws never share a block however
 * many a call makes, and the generator's offset need only move by what the largest takes. */
typedef struct tt_draws {
  int64_t taken;
  tt_node *places; /* of each element, in the order of the numbers (U64, flat); NULL: as they lie */
} tt_draws;

/* Draws for each element of such a type, which is argument 0's where that is a tensor, else the
 * first result's: the same numbers whether its sizes are bounds or not. */
tt_draws tt_draws_of(tt_lower *cx, const tt_type *type);
/* Four words for each of `blocks` (U64, any shape), numbered from the call's offset on; `word2`
 * and `word3` (U32 of that shape, or rank 0) complete the counter. */
void tt_philox_at(tt_lower *cx, tt_node *blocks, tt_node *word2, tt_node *word3, tt_node **words);
/* The words of the blocks that `count` elements use, `sharing` (1, 2, 4) of them one block each
 * time; *slot, unless NULL, is an element's number among those that share its block (U32). */
void tt_draw_blocks(tt_lower *cx, tt_draws *draws, int64_t count, int64_t sharing, tt_node **words,
                    tt_node **slot);
/* `count` numbers, rank 1, from the call's seed and offset. */
tt_node *tt_draw_u32(tt_lower *cx, tt_draws *draws, int64_t count);
tt_node *tt_draw_u64(tt_lower *cx, tt_draws *draws, int64_t count);
/* Here `dtype` is F32, which takes one word a number, or F64, which takes two. */
tt_node *tt_draw_unit(tt_lower *cx, tt_draws *draws, int64_t count, tt_dtype dtype); /* [0, 1) */
tt_node *tt_draw_open(tt_lower *cx, tt_draws *draws, int64_t count, tt_dtype dtype); /* (0, 1) */
tt_node *tt_draw_normal(tt_lower *cx, tt_draws *draws, int64_t count, tt_dtype dtype);
/* Made of a block's words: a normal number and one in (0, 1); two numbers in (0, 1). */
void tt_split_try(tt_lower *cx, tt_node *const *words, tt_dtype dtype, tt_node **normal,
                  tt_node **unit);
void tt_split_pair(tt_lower *cx, tt_node *const *words, tt_dtype dtype, tt_node **first,
                   tt_node **second);

/* The dtype that a distribution over `dtype` is computed in: F64 for F64 and C128, else F32. */
tt_dtype tt_draw_dtype(tt_dtype dtype);
/* The result's type: as Meta says, else that of argument 0. */
tt_type tt_drawn_type(tt_lower *cx);
/* A tensor or number argument in this dtype, broadcast to type's dims. */
tt_node *tt_spread(tt_lower *cx, int arg, tt_dtype dtype, const tt_type *type);
/* BOOL of type's dims: dropout keeps an element with probability `keep` (F32, rank 0). `places`:
 * see tt_draws. */
tt_node *tt_dropout_mask(tt_lower *cx, const tt_type *type, tt_node *keep, tt_node *places);
/* States an empty result and returns true when there is nothing to draw. */
bool tt_nothing_drawn(tt_lower *cx, const tt_type *type);
/* States result 0, converted to the type's dtype. */
void tt_out_drawn(tt_lower *cx, tt_node *x, const tt_type *type);

#endif
