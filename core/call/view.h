/* A view: how a tensor looks at its storage. Reading one is arithmetic on the storage's value
 * inside the program that needs it; writing one makes a new value of the whole storage. */
#ifndef TT_VIEW_H
#define TT_VIEW_H

#include "call/layout.h"
#include "hlo/hlo.h"

/* The tensor that `view` sees: slice, reshape, transpose, broadcast, bitcast; in the last resort
 * gather. `storage` has any dtype and dims. `offset`, a rank-0 I64, stands for the view's own where
 * that is known only at run time, and moves it as tt_view_motion says; else it is NULL. */
tt_node *tt_view_read(tt_hlo *h, tt_node *storage, const tt_view *view, tt_node *offset);
/* The same where the size along `dim` is a bound: behind what is in the storage it sees anything.
 */
tt_node *tt_view_read_on(tt_hlo *h, tt_node *storage, const tt_view *view, tt_node *offset, int dim,
                         tt_motion motion);
/* The storage's new value after `value` (of the view's type) was written through `view`.
 * `storage` may be NULL when the view covers it; `type` is the storage's type, and the result's,
 * except that a covering write of another dtype retypes the storage. */
tt_node *tt_view_write(tt_hlo *h, tt_node *storage, const tt_type *type, const tt_view *view,
                       tt_node *offset, tt_node *value);

#endif
