/* Reclaiming. Calls, the trees of traces, types and programs that are not loaded are kept for the
 * next time; in a process that makes new shapes all the time they would fill the memory. When there
 * are too many (base/growth.h) all are dropped at once, where a chunk ends and nobody is in a guard
 * (base/guard.h), and made again as they are needed. Loaded programs stay, so what is in use is not
 * compiled again. */
#ifndef TT_RECLAIM_H
#define TT_RECLAIM_H

#include "session/session.h"

/* The session's tables are what is reclaimed, until it stops. */
void tt_reclaim_start(tt_session *session);
void tt_reclaim_stop(tt_session *session);

#endif
