/* What tells two calls apart, in words. */
#ifndef TT_CALL_EXPLAIN_H
#define TT_CALL_EXPLAIN_H

#include "call/call.h"

/* "operand 0 is f32[3,4], not f32[2,4]"; returns how many differences there are. `text` NULL: only
 * counts. Allocation failures shorten the text. */
int tt_explain_difference(const tt_call_spec *now, const tt_call_spec *known, tt_text *text);

#endif
