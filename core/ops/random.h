/* Inside the random family: one call's words, taken in order, and the floats made of them. */
#ifndef TT_RANDOM_H
#define TT_RANDOM_H

#include "ops/index.h"

/* The four words of `blocks` Philox blocks as four U32 tensors of rank 1. */
void tt_philox_lanes(tt_lower *cx, int64_t blocks, tt_node **lanes);

typedef struct tt_stream {
  tt_node *words; /* U32, rank 1 */
  int64_t used;
} tt_stream;

tt_stream tt_stream_open(tt_lower *cx, int64_t words);
/* The next `count` words. */
tt_node *tt_draw_words(tt_lower *cx, tt_stream *stream, int64_t count);
/* `count` numbers, rank 1. F32 takes one word each, F64 two; tt_draw_normal an even number. */
tt_node *tt_draw_unit(tt_lower *cx, tt_stream *stream, int64_t count, tt_dtype dtype); /* [0, 1) */
tt_node *tt_draw_open(tt_lower *cx, tt_stream *stream, int64_t count, tt_dtype dtype); /* (0, 1) */
tt_node *tt_draw_normal(tt_lower *cx, tt_stream *stream, int64_t count, tt_dtype dtype);
/* Words that one number of this dtype takes. */
int64_t tt_words_of(tt_dtype dtype);

/* The dtype that a distribution over `dtype` is computed in: F64 for F64 and C128, else F32. */
tt_dtype tt_draw_dtype(tt_dtype dtype);
/* The result's type: as promised, else that of argument 0. */
tt_type tt_drawn_type(tt_lower *cx);
/* A tensor or number argument in this dtype, broadcast to type's dims. */
tt_node *tt_spread(tt_lower *cx, int arg, tt_dtype dtype, const tt_type *type);

#endif
