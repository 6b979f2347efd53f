/* What describes a call: copies of it, and places in it. */
#ifndef TT_CALL_SPEC_H
#define TT_CALL_SPEC_H

#include "call/call.h"

/* Deep copy; *to lives as long as the arena. */
tt_status tt_spec_copy(tt_arena *arena, const tt_call_spec *from, tt_call_spec *to);
/* The first tensor with the same storage. */
int tt_spec_root_of(const tt_call_spec *spec, int tensor);
/* Where a number begins among the call's packed words. */
int tt_spec_word_of(const tt_call_spec *spec, int scalar);

#endif
