/* Known calls: the latest of each operator, with which a new one is compared. */
#ifndef TT_CALL_KNOWN_H
#define TT_CALL_KNOWN_H

#include "call/call.h"

#include <pthread.h>

/* Its calls must live until they are cleared. Thread-safe. */
typedef struct tt_known_calls {
  pthread_mutex_t lock;
  tt_intern families; /* by the operator's name */
} tt_known_calls;

void tt_known_calls_init(tt_known_calls *known);
void tt_known_calls_deinit(tt_known_calls *known);
void tt_known_calls_add(tt_known_calls *known, const tt_call *call);
void tt_known_calls_clear(tt_known_calls *known);

/* Why a call is new: "aten::mm, called at train.py:12 in step: operand 0 is f32[3,4], not
 * f32[2,4]", as in the nearest known call. Allocation failures shorten the text. */
void tt_known_calls_explain(tt_known_calls *known, const tt_call_spec *spec, tt_text *text);

#endif
