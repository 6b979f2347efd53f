/* What the files of this room share; nobody else includes it. */
#ifndef TT_DIST_INTERNAL_H
#define TT_DIST_INTERNAL_H

#include "dist/dist.h"

/* Its number in the flight record. */
int64_t tt_flight_begin(const char *group, const tt_collective *collective);
void tt_flight_end(int64_t number, bool failed);

#endif
