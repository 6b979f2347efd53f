/* A call whose program orders it of a kernel of the host's, in place of its row's lowering. */
#ifndef TT_CALL_ORDERED_H
#define TT_CALL_ORDERED_H

#include "call/lower.h"
#include "call/order.h"

#define TT_KERNEL_TARGET "torch_tpu.kernel"

/* The call is one of tt_call_orders. Errors stick to the builder. */
tt_status tt_call_lower_ordered(tt_call *call, const tt_target *target, tt_hlo *h,
                                const tt_call_io *io);

#endif
