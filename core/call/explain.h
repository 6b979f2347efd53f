/* Why a call was new: a sentence that names what the nearest known one has instead. */
#ifndef TT_CALL_EXPLAIN_H
#define TT_CALL_EXPLAIN_H

#include "call/call.h"

#include <pthread.h>

/* The latest calls of each operator, which must live until they are cleared. Thread-safe. */
typedef struct tt_known_calls {
  pthread_mutex_t lock;
  tt_intern families; /* by the operator's name */
} tt_known_calls;

void tt_known_calls_init(tt_known_calls *known);
void tt_known_calls_deinit(tt_known_calls *known);
void tt_known_calls_add(tt_known_calls *known, const tt_call *call);
void tt_known_calls_clear(tt_known_calls *known);

/* "aten::mm, called at train.py:12 in step: operand 0 is f32[3,4], not f32[2,4]", as in the
 * nearest known call. Allocation failures shorten the text. */
void tt_explain_call(tt_known_calls *known, const tt_call_spec *spec, tt_text *text);
/* Only what differs: "operand 0 is f32[3,4], not f32[2,4]". */
void tt_explain_difference(const tt_call_spec *now, const tt_call_spec *known, tt_text *text);

#endif
