/* How marks spread (call/spread.h) where elements are moved: "cat", "stack", "repeat", "pad", and
 * "@1" of the rules. Each notes its operands' marks; false: it does not allow them. */
#ifndef TT_CALL_MOVED_H
#define TT_CALL_MOVED_H

#include "call/spreading.h"

bool tt_moved_cat(tt_spread *s, const tt_call_spec *spec);
bool tt_moved_stack(tt_spread *s, const tt_call_spec *spec);
bool tt_moved_repeat(tt_spread *s, const tt_call_spec *spec);
bool tt_moved_pad(tt_spread *s, const tt_call_spec *spec);
bool tt_moved_back(tt_spread *s, const tt_call_spec *spec);
/* The result has room for the call's bound along the dim that cat, or padding, is about. False: it
 * does not lie by rows. */
bool tt_moved_cat_result(const tt_call_spec *spec, tt_call_result *result);
bool tt_moved_pad_result(const tt_call_spec *spec, tt_call_result *result);
/* Along the dims of the only tensor the result is as long as it is, or several times so. */
bool tt_moved_repeated(const tt_call_spec *spec, tt_call_result *result);
/* Which dim of the tensors a dim of the stack is; -1: none. */
int tt_moved_stacked(const tt_call_spec *spec, int rank, int dim);

#endif
