/* hash_tensor: the exclusive or of the bits of all elements, each widened to 64. */
#include "ops/pointwise/pointwise.h"

static void exclusive_or(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_xor(h, args[0], args[1]);
}

/* (x, dim, keepdim, mode) */
void tt_lower_hash(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0), *y;
  int dims[TT_MAX_RANK], count = tt_dims(cx, 1, x->type.rank, true, dims);
  tt_dtype wide = tt_is_float(x->type.dtype) ? TT_F64 : TT_I64;
  if (x->type.dtype != TT_U64) x = tt_hlo_bitcast(h, tt_cast(cx, x, wide), TT_U64);
  tt_type kept = x->type;
  for (int i = 0; i < count; i++) kept.dims[dims[i]] = 1;
  tt_node *none = tt_hlo_const_i(h, TT_U64, 0);
  tt_hlo_reduce_n(h, 1, &x, &none, dims, count, exclusive_or, NULL, &y);
  tt_out_as(cx, 0, tt_bool(cx, 2) ? tt_hlo_reshape(h, y, kept.rank, kept.dims) : y);
}
