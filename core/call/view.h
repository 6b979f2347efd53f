/* A view: how a tensor looks at its storage. Reading one is arithmetic on the storage's value
 * inside the program that needs it; writing one makes a new value of the whole storage. */
#ifndef TT_VIEW_H
#define TT_VIEW_H

#include "hlo/hlo.h"

typedef struct tt_view {
  tt_dtype dtype;
  int rank;
  int64_t offset; /* in elements of dtype, like strides */
  int64_t sizes[TT_MAX_RANK], strides[TT_MAX_RANK];
} tt_view;

/* The row-major view of a whole storage. */
tt_view tt_view_whole(const tt_type *storage);
/* What a program sees through it, and what a storage of just these elements holds. */
tt_type tt_view_type(const tt_view *view);
tt_type tt_view_held(const tt_view *view);
/* Does the view see every element of the storage exactly once, with the storage's dtype width? */
bool tt_view_covers(const tt_view *view, const tt_type *storage);
/* The dense storage type and the view of it that a new tensor of these sizes and strides gets;
 * strides that are not a permutation of dense ones are replaced by row-major ones. */
void tt_view_dense(tt_view *view, tt_type *storage);

/* The tensor that `view` sees: slice, reshape, transpose, broadcast, bitcast; in the last resort
 * gather. `storage` has any dtype and dims. */
tt_node *tt_view_read(tt_hlo *h, tt_node *storage, const tt_view *view);
/* The storage's new value after `value` (of the view's type) was written through `view`.
 * `storage` may be NULL when the view covers it; `type` is the storage's type, and the result's,
 * except that a covering write of another dtype retypes the storage. */
tt_node *tt_view_write(tt_hlo *h, tt_node *storage, const tt_type *type, const tt_view *view,
                       tt_node *value);

#endif
