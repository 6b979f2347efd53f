/* Copies of what describes a call. */
#ifndef TT_CALL_SPEC_H
#define TT_CALL_SPEC_H

#include "call/call.h"

/* Deep copy; *to lives as long as the arena. */
tt_status tt_spec_copy(tt_arena *arena, const tt_call_spec *from, tt_call_spec *to);

#endif
