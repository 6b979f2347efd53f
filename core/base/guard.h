/* Guards. Interned calls, traces and types are borrowed from tables that are emptied as a whole
 * when they have grown too large. What is borrowed is good within a guard: while any thread but the
 * one that empties is in one, nothing is emptied. A guard is two stores to memory of the thread's
 * own, which suffices because such pointers come from tables with locks, and the thread that
 * empties them holds these locks while it looks who is in a guard. Thread-safe. */
#ifndef TT_GUARD_H
#define TT_GUARD_H

#include <stdbool.h>

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

#endif
