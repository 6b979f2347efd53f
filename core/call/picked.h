/* How marks spread (call/spread.h) where elements are read or written by index: "index", "put",
 * "select", "add", "gather", "scatter" and "masked" of the rules. Each notes its operands' marks;
 * false: it does not allow them. An index that is padding may be anything: what it reads is
 * padding, and it writes nowhere. */
#ifndef TT_CALL_PICKED_H
#define TT_CALL_PICKED_H

#include "call/spreading.h"

bool tt_picked_index(tt_spread *s, const tt_call_spec *spec);
bool tt_picked_put(tt_spread *s, const tt_call_spec *spec);
bool tt_picked_select(tt_spread *s, const tt_call_spec *spec);
bool tt_picked_add(tt_spread *s, const tt_call_spec *spec);
bool tt_picked_gather(tt_spread *s, const tt_call_spec *spec);
bool tt_picked_scatter(tt_spread *s, const tt_call_spec *spec);
bool tt_picked_masked(tt_spread *s, const tt_call_spec *spec);
bool tt_picked_by_mask(tt_spread *s, const tt_call_spec *spec); /* "?" */
/* The codes (call/spreading.h) of the dims of x[indices], which has that rank. */
void tt_picked_codes(const tt_call_spec *spec, int rank, int *codes);

#endif
