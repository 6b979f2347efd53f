/* Attention of long rows. Causal rows see no keys behind them: a stretch of them is given the keys
 * up to its end alone, so that most of what would be masked is not computed. */
#ifndef TT_ATTENTION_STRETCHES_H
#define TT_ATTENTION_STRETCHES_H

#include "ops/attention/blocks.h"

/* As tt_attend_blocks and tt_attend_blocks_backward. */
tt_attended tt_attend_stretches(tt_lower *cx, const tt_attention *a, int64_t block);
void tt_attend_stretches_backward(tt_lower *cx, const tt_attention *a,
                                  const tt_attention_saved *saved, int64_t block,
                                  tt_attention_grads *grads);

#endif
