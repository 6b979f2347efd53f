/* Captures on computed.h's stream, under the test's policy. */
#ifndef TT_CAPTURES_H
#define TT_CAPTURES_H

#include "computed.h"

void touch(tt_storage *storage);
void begin(void);
tt_captured *end(void);
void replay(tt_captured *captured, const tt_philox_place *places);

#endif
