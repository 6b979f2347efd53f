/* How a view lies in its storage. */
#ifndef TT_CALL_LAYOUT_H
#define TT_CALL_LAYOUT_H

#include "hlo/types.h"

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
int64_t tt_view_numel(const tt_view *view);
/* Elements from the first that it sees to the last, both included; -1 if 64 bits do not count
 * them. Of a view that sees one at least. */
int64_t tt_view_extent(const tt_view *view);
/* Does the view see every element of the storage exactly once, with the storage's dtype width? */
bool tt_view_covers(const tt_view *view, const tt_type *storage);
/* The dense storage type and the view of it that a new tensor of these sizes and strides gets;
 * strides that are not a permutation of dense ones are replaced by row-major ones, but where
 * there is no element. */
void tt_view_dense(tt_view *view, tt_type *storage);
/* Dims that matter (more than one element, not broadcast), by descending stride; their number. */
int tt_view_order(const tt_view *view, int *order);

/* A strided view of one dtype: the storage is cut into mixed-radix digits so that each dim of the
 * view walks along one digit: digit i has the unit u[i] = gcd(stride[i], u[i-1]) and the radix
 * u[i-1] / u[i]. A view whose dims stay inside their digits is a slice; another starts with a flat
 * slice at its offset; what then still crosses digits (overlapping windows) is gathered. */
typedef struct tt_digits {
  bool ok;   /* each dim stays inside its digit */
  int count; /* digits, the last may be the remainder below the last stride */
  int64_t unit[TT_MAX_RANK], radix[TT_MAX_RANK];
  int64_t start[TT_MAX_RANK], limit[TT_MAX_RANK], step[TT_MAX_RANK];
  int64_t first, length;            /* flat slice taken first, padded with zeros to `length` */
  int dims[TT_MAX_RANK], dim_count; /* the view's dim that walks along digit i */
} tt_digits;

/* Of a storage with `total` elements of the view's dtype. */
tt_digits tt_digits_of(const tt_view *view, int64_t total);
/* The same without a flat slice. Units, radices and steps do not depend on the view's offset. */
tt_digits tt_digits_of_whole(const tt_view *view, int64_t total);

/* A view whose offset is known only at run time. Which of them one program can serve: */
typedef enum tt_motion {
  TT_MOTION_NONE,   /* it does not lie in the storage */
  TT_MOTION_DIGITS, /* its digits are those of the whole storage, each dim inside its own */
  TT_MOTION_FLAT    /* it is looked for in the flat stretch from its first to its last element */
} tt_motion;
tt_motion tt_view_motion(const tt_view *view, int64_t total);
/* The greatest size along `dim` with which the view lies in the storage in the
 * way that it does; of one that moves, with which it does somewhere. */
int64_t tt_view_room(const tt_view *view, int64_t total, int dim, bool moves);
/* Gives it such a size, two at least, and if it moves an offset where it then lies in the storage;
 * says how. */
tt_motion tt_view_widen(tt_view *view, int64_t total, int dim, int64_t size, bool moves);
/* Elements of the view's dtype that the storage has room for. */
int64_t tt_view_total(const tt_view *view, const tt_type *storage);

#endif
