/* Sorting, for other families. */
#ifndef TT_SORT_H
#define TT_SORT_H

#include "ops/lower.h"

/* The first k of a stable sort along `dim` with NaN as the largest value; *indices is I64. */
void tt_first_sorted(tt_lower *cx, tt_node *x, int dim, bool descending, int64_t k,
                     tt_node **values, tt_node **indices);

#endif
