/* Lowering regions (subgraph.h): branches and loops in a program. */
#ifndef TT_CONTROL_H
#define TT_CONTROL_H

#include "graph/subgraph.h"

/* Lowers the region, whose operands and values from outside are the call's tensors, and states its
 * results, for which there is room. What Debug's checks find in its bodies is one check of the
 * region, with the words of the first one. Errors stick to the builder. */
void tt_region_lower(tt_lower *cx, const tt_region *region);
/* `length` of them, one after the other along a new first dim. */
tt_type tt_type_stack(const tt_type *slice, int64_t length);
/* The body whose results the region's are made of. */
const tt_subgraph *tt_region_last(const tt_region *region);

#endif
