/* What is said of a collective that failed: who was not there, and where the ranks have parted. A
 * rank that fails ends its group, and says on the board what its last collectives were. */
#ifndef TT_FAILURE_H
#define TT_FAILURE_H

#include "dist/members.h"

/* The error, UNAVAILABLE, of a collective of which its transport says `what`. Takes up to ten
 * seconds, in which the members tell one another what they did. `order`: the name of the sequence
 * of collectives that it is of, if a group has several; where all members take part it is "all". */
tt_status tt_members_explain(tt_members *members, const char *order, const tt_collective *c,
                             const char *what) __attribute__((returns_nonnull));
/* Tells the other members why this process ends, in words. */
tt_status tt_members_leave(tt_members *members, const char *why);
/* Tells the members of all groups what this process's last collectives were, since it ends; nobody
 * can ask it then. Takes up to two seconds; the boards are called under a lock. */
void tt_members_farewell(void);

#endif
