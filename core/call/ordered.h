/* Which calls may be ordered of a kernel of the host's, in place of their rows' lowering, and what
 * their orders say. */
#ifndef TT_CALL_ORDERED_H
#define TT_CALL_ORDERED_H

#include "call/call.h"
#include "ops/order.h"

/* Whether an order can say all of the call, and the target's host has a kernel for it that may
 * stand in for the row's lowering (tt_op_orders). The call keeps the answer. */
bool tt_call_orders(tt_call *call, const tt_target *target);
/* From now on it does not: the kernel has failed. */
void tt_call_refuse_orders(tt_call *call);

/* Where a call meets the others of its program. */
typedef struct tt_call_places {
  const int *inputs;  /* [input_count] the slots of the storages that it reads */
  const int *outputs; /* [output_count] of those that it makes, or -1: nobody wants a new one */
  int word_at;        /* where its numbers begin among the words */
} tt_call_places;

/* The order of a call that orders. Nothing takes the memory of what was before, and nothing is
 * dropped. *out lives as long as the arena and the call. */
tt_status tt_call_order(const tt_call *call, const tt_call_places *places, tt_arena *arena,
                        tt_order *out);

#endif
