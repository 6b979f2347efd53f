/* The priority of threads that compile. XLA spreads a compilation over threads that it keeps for
 * all of them; each has the name and the priority of the thread of ours that first needed it. */
#ifndef TT_PRIORITY_H
#define TT_PRIORITY_H

#include <stdbool.h>
#include <sys/types.h>

/* Whether this process may raise a priority that it has lowered (CAP_SYS_NICE, RLIMIT_NICE). The
 * calling thread tries it on itself and is left as it was. */
bool tt_priority_may_rise(void);
/* Gives that nice value (0 to 19) to every thread of this process whose name begins with `prefix`,
 * but for `except`. A thread for which the system refuses it stays as it is. */
void tt_priority_set(const char *prefix, pid_t except, int nice);

#endif
