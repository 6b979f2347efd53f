/* Copying between tensors of one device: cast and broadcast to the target. */
#include "ops/ops.h"

void tt_lower_copy(tt_lower *cx) {
  const tt_type *target = tt_promised(cx, 0);
  tt_node *x = tt_in(cx, 1);
  if (tt_is_complex(x->type.dtype) && tt_is_integer(target->dtype)) x = tt_hlo_real(cx->h, x);
  x = tt_cast_wrapping(cx, x, target->dtype);
  tt_out(cx, 0, tt_hlo_broadcast_to(cx->h, x, target->rank, target->dims));
}
