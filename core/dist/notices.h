/* Notices of messages between ranks that are threads of this process: who has sent some that nobody
 * has asked for yet. A rank that receives from any finds out from whom. */
#ifndef TT_NOTICES_H
#define TT_NOTICES_H

#include "base/status.h"

#include <stdint.h>

/* Counted, thread-safe. */
typedef struct tt_notices tt_notices;

/* Those of the group of this name, which has `size` ranks: made for the first who asks, and gone
 * when the last one has released them. */
tt_status tt_notices_retain(const char *group, int size, tt_notices **out);
void tt_notices_release(tt_notices *notices); /* NULL is allowed */
void tt_notices_sent(tt_notices *notices, int from, int to);
void tt_notices_asked(tt_notices *notices, int from, int to); /* for one; also before it was sent */
/* Asks for one from any rank, and waits until there is one. UNAVAILABLE: there is none within the
 * time-out. CANCELLED: the wait was interrupted, or the devices' meetings are over, so that there
 * never will be one (stream/meeting.h). */
tt_status tt_notices_await(tt_notices *notices, int to, int64_t timeout_ms, int *from);
/* The same without waiting: false where there is none. */
bool tt_notices_find(tt_notices *notices, int to, int *from);

#endif
