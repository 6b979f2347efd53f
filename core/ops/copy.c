/* Copying between tensors of one device: cast and broadcast to the target. */
#include "ops/ops.h"

/* Floats to integers as x86 does it: through a signed integer of 32 bits, or of 64, whose least
 * number stands for what it cannot hold, and whose low bits remain. XLA would saturate. */
static tt_node *to_integers(tt_lower *cx, tt_node *x, tt_dtype dtype) {
  tt_hlo *h = cx->h;
  bool wide = tt_dtype_bytes(dtype) == 8 || dtype == TT_U32 || dtype == TT_U8;
  tt_dtype through = wide ? TT_I64 : TT_I32;
  x = tt_hlo_convert(h, x, tt_compute_dtype(x->type.dtype));
  tt_node *least = tt_like(cx, x, wide ? -0x1p63 : -0x1p31);
  tt_node *fits = tt_hlo_compare(h, TT_LT, tt_hlo_abs(h, x), tt_hlo_negate(h, least));
  least = tt_hlo_broadcast_to(h, least, x->type.rank, x->type.dims);
  x = tt_hlo_convert(h, tt_hlo_select(h, fits, x, least), through);
  return tt_hlo_convert(h, x, dtype);
}

void tt_lower_copy(tt_lower *cx) {
  const tt_type *target = tt_promised(cx, 0);
  tt_node *x = tt_in(cx, 1);
  if (tt_is_complex(x->type.dtype) && tt_is_integer(target->dtype)) x = tt_hlo_real(cx->h, x);
  bool rounds = tt_is_float(x->type.dtype) && tt_is_integer(target->dtype);
  x = rounds && target->dtype != TT_U64 ? to_integers(cx, x, target->dtype)
                                        : tt_hlo_convert(cx->h, x, target->dtype);
  tt_out(cx, 0, tt_hlo_broadcast_to(cx->h, x, target->rank, target->dims));
}
