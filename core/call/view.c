#include "call/view.h"

#include "call/bits.h"
#include "call/window.h"

tt_node *tt_view_read(tt_hlo *h, tt_node *storage, const tt_view *view, tt_node *offset) {
  tt_type type = tt_view_type(view);
  if (tt_type_numel(&type) == 0) return tt_hlo_zeros(h, &type);
  if (view->dtype == TT_C32) {
    tt_view bits = *view;
    bits.dtype = TT_U32;
    return tt_bits_decode_halves(h, tt_view_read(h, storage, &bits, offset));
  }
  return tt_window_read(h, tt_bits_retype(h, storage, view->dtype), view, offset);
}

tt_node *tt_view_read_on(tt_hlo *h, tt_node *storage, const tt_view *view, tt_node *offset, int dim,
                         tt_motion motion) {
  if (view->dtype == TT_C32) {
    tt_view bits = *view;
    bits.dtype = TT_U32;
    return tt_bits_decode_halves(h, tt_view_read_on(h, storage, &bits, offset, dim, motion));
  }
  return tt_window_read_on(h, tt_bits_retype(h, storage, view->dtype), view, offset, dim, motion);
}

/* The storage's new value where all of it is written. */
static tt_node *cover(tt_hlo *h, const tt_type *type, const tt_view *view, tt_node *value) {
  tt_view own = *view;
  tt_type dense;
  tt_view_dense(&own, &dense);
  int order[TT_MAX_RANK], perm[TT_MAX_RANK], at = 0;
  bool placed[TT_MAX_RANK] = {false};
  int count = tt_view_order(view, order);
  for (int i = 0; i < count; i++) placed[order[i]] = true;
  for (int i = 0; i < view->rank; i++)
    if (!placed[i]) perm[at++] = i;
  for (int i = 0; i < count; i++) perm[at++] = order[i];
  value = tt_hlo_transpose(h, value, perm);
  if (type->dtype == view->dtype) return tt_hlo_reshape(h, value, type->rank, type->dims);
  return tt_hlo_reshape(h, value, dense.rank, dense.dims);
}

tt_node *tt_view_write(tt_hlo *h, tt_node *storage, const tt_type *type, const tt_view *view,
                       tt_node *offset, tt_node *value) {
  if (view->dtype == TT_C32) {
    tt_view bits = *view;
    bits.dtype = TT_U32;
    return tt_view_write(h, storage, type, &bits, offset, tt_bits_encode_halves(h, value));
  }
  if (tt_view_covers(view, type)) return cover(h, type, view, value);
  if (tt_view_numel(view) == 0) return storage;
  if (view->dtype == type->dtype) return tt_window_write(h, storage, view, offset, value);
  tt_node *other = tt_bits_retype(h, storage, view->dtype);
  other = tt_window_write(h, other, view, offset, value);
  other = tt_bits_with_rest(h, tt_bits_retype(h, other, type->dtype), tt_bits_flat(h, storage));
  return tt_hlo_reshape(h, other, type->rank, type->dims);
}
