/* Searching in ascending sequences. */
#ifndef TT_SEARCH_H
#define TT_SEARCH_H

#include "ops/lower.h"

/* How many elements of the ascending `sequence` (along its last dim) come before each value.
 * The sequence has rank 1, or the dims of `values` but for the last. `count` of its elements there
 * are (I64, rank 0; NULL: all). */
tt_node *tt_search(tt_lower *cx, tt_node *sequence, tt_node *count, tt_node *values, bool right);

#endif
