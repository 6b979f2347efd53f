/* Attention by a loop over blocks of the query's rows, so that the logits of one block at a time
 * are in memory. */
#ifndef TT_ATTENTION_BLOCKS_H
#define TT_ATTENTION_BLOCKS_H

#include "ops/attention/attend.h"

/* How many rows of the query a block should have; 0: all are taken at once, as few logits are, and
 * those that dropout draws for. */
int64_t tt_attention_block(const tt_attention *a);
/* As tt_attend and tt_attend_backward. */
tt_attended tt_attend_blocks(tt_lower *cx, const tt_attention *a, int64_t block);
void tt_attend_blocks_backward(tt_lower *cx, const tt_attention *a, const tt_attention_saved *saved,
                               int64_t block, tt_attention_grads *grads);

#endif
