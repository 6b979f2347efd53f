/* Reading and writing a view of the storage's own dtype. */
#ifndef TT_CALL_WINDOW_H
#define TT_CALL_WINDOW_H

#include "call/layout.h"
#include "hlo/hlo.h"

/* `offset` (rank-0 I64) stands for the view's offset, which then is one of those that have the same
 * motion; NULL: the offset is known. The view sees at least one element. */
tt_node *tt_window_read(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset);
/* The same of a view that has such a motion and an offset from which on it may end behind its
 * storage, or behind `dim`'s digit: what is there reads as anything. */
tt_node *tt_window_read_on(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset, int dim,
                           tt_motion motion);
/* x with `value` in the window. */
tt_node *tt_window_write(tt_hlo *h, tt_node *x, const tt_view *view, tt_node *offset,
                         tt_node *value);

#endif
