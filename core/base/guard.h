/* Guards. Interned calls, traces and types are borrowed from tables that are emptied as a whole
 * when they have grown too large. What is borrowed is good within a guard: while any thread but the
 * one that empties is in one, nothing is emptied. A guard is a few stores to memory of the thread's
 * own, which suffices because such pointers come from tables with locks, and the thread that
 * empties them holds these locks while it looks who is in a guard. Thread-safe. */
#ifndef TT_GUARD_H
#define TT_GUARD_H

#include <stdbool.h>
#include <stdint.h>

/* Guards nest. Entering the outermost one calls the reclaimer if one is due: the thread borrows
 * nothing there. It may wait for launches. */
void tt_guard_enter(void);
void tt_guard_leave(void);
/* Whether another thread is in a guard. */
bool tt_guard_others(void);

/* What is called where the tables may be emptied, while it is due. NULL: nothing. Before another
 * one is set, no thread may be in a guard. */
void tt_guard_set_reclaimer(void (*reclaim)(void *user), void *user);
void tt_guard_set_due(bool due);

/* What a thread takes from where other threads may have found it, such as the storage of a tensor
 * that gets another one. The item lies in the caller's memory until it is run. */
typedef struct tt_deferred {
  struct tt_deferred *next;
  uint64_t since;
  void (*run)(struct tt_deferred *item);
} tt_deferred;
/* Has the item run when the calling thread has entered its next outermost guard, or ended, and
 * every thread has left the guard that it is in by then. Who enters a guard runs it. */
void tt_guard_defer(tt_deferred *item);

#endif
