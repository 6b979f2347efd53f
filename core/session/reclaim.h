/* Reclaiming. Calls, the trees of traces, types and programs that are not loaded are kept for the
 * next time; in a process that makes new shapes all the time they would fill the memory. When there
 * are too many (base/growth.h) all are dropped at once, where a chunk ends and nobody is in a guard
 * (base/guard.h), and made again as they are needed. Loaded programs stay, so what is in use is not
 * compiled again. */
#ifndef TT_RECLAIM_H
#define TT_RECLAIM_H

#include "call/table.h"
#include "stream/stream.h"

/* A session's tables. */
typedef struct tt_reclaimed {
  tt_call_table *calls;
  tt_program_table *programs;
  tt_device *const *devices; /* [device_count] */
  int device_count;
} tt_reclaimed;

/* These, which are copied, are what is reclaimed, until that stops; nothing is while another
 * session's have started. Each start is followed by a stop. */
void tt_reclaim_start(const tt_reclaimed *tables);
void tt_reclaim_stop(tt_call_table *calls);

#endif
