/* Memory of the host that copies of queues read or write in their turn. Copies of one queue that
 * meet there, and do not both read, keep their order; users keep that of different queues. */
#ifndef TT_LENT_H
#define TT_LENT_H

#include "stream/queue.h"

/* Part of a copy: where it reads, or writes, until it is removed. */
typedef struct tt_lent {
  struct tt_lent *next, **link; /* link NULL: not added */
  const char *begin, *end;
  bool written;
  const tt_queue *queue;
  uint64_t ticket;
} tt_lent;

/* All: thread-safe. Queue and ticket are the copy's. */
void tt_lent_add(tt_lent *lent, const void *data, int64_t size, bool written, const tt_queue *queue,
                 uint64_t ticket);
void tt_lent_remove(tt_lent *lent); /* one that was not added is left alone */
/* The ticket of the queue's last copy that must have ended before this memory is read, or written;
 * 0: none. */
uint64_t tt_lent_last(const tt_queue *queue, const void *data, int64_t size, bool written);

#endif
