/* How marks (call.h) spread from a call's operands to its results: what of a row's results is
 * padding if this of its operands is, and which padding its lowering must leave out. */
#ifndef TT_CALL_SPREAD_H
#define TT_CALL_SPREAD_H

#include "call/spreading.h"

/* Of operands of which some are marked; false: the row does not allow it. */
bool tt_spread_operands(const tt_call_spec *spec, tt_spread *out);
/* Marks the results, whose views (of the padded operands, by the Meta kernel) are known; false: a
 * result would have too many bounded dims, or a target has not those of its result. */
bool tt_spread_results(const tt_spread *spread, const tt_call_spec *spec, tt_call_result *results);

#endif
