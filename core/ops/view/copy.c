/* Copying between tensors of one device, and resizing what they lie in. */
#include "ops/lower.h"

void tt_lower_copy(tt_lower *cx) {
  const tt_type *target = tt_meta_type(cx, 0);
  tt_node *x = tt_in(cx, 1);
  if (tt_is_complex(x->type.dtype) && tt_is_integer(target->dtype)) x = tt_hlo_real(cx->h, x);
  x = tt_cast_wrapping(cx, x, target->dtype);
  tt_out(cx, 0, tt_hlo_broadcast_to(cx->h, x, target->rank, target->dims));
}

void tt_lower_resize(tt_lower *cx) {
  tt_node *bytes = tt_in(cx, 0);
  int64_t low = 0, high = tt_meta_type(cx, 0)->dims[0] - bytes->type.dims[0];
  tt_node *zero = tt_hlo_const_i(cx->h, bytes->type.dtype, 0);
  tt_out(cx, 0, tt_hlo_pad(cx->h, bytes, zero, &low, &high, NULL));
}
