/* The members of a group: which ranks of the whole program they are, and a board where they leave
 * words for one another, about what collectives cannot tell since they do not happen. */
#ifndef TT_MEMBERS_H
#define TT_MEMBERS_H

#include "base/board.h"
#include "dist/issue.h"

/* Puts them there, packed. A key of NULL is one that memory ran out for. */
tt_status tt_board_tell(const tt_board *board, const char *key, const tt_issues *issues);

/* Counted, thread-safe. */
typedef struct tt_members {
  /* Read-only. */
  const char *name;     /* of the group */
  int rank, size;       /* in the group */
  const int64_t *ranks; /* [size] by their numbers in the whole program */
  tt_board board;
  int64_t number; /* -1 until tt_members_take_number */
  /* -- Theirs alone: -- */
  TT_ATOMIC(int64_t) timeout_ms;
  TT_ATOMIC(int) refs;
  struct tt_members *next;
} tt_members;

/* Takes the board, also on failure; the rest is copied. */
tt_status tt_members_create(const char *name, int rank, int size, const int64_t *ranks,
                            const tt_board *board, tt_members **out);
tt_members *tt_members_retain(tt_members *members);
void tt_members_release(tt_members *members); /* NULL is allowed */
/* Once for each that lives, under a lock that they need for their end. */
void tt_members_visit(void (*visit)(const tt_members *members));
/* Between the numbers of one rank and the next; -1 where it is not always the same. */
int64_t tt_members_step(const tt_members *members);
/* How long to wait for one another; 10 minutes at first. */
void tt_members_set_timeout(tt_members *members, int64_t ms);
int64_t tt_members_timeout(const tt_members *members);

/* All members call these three alike. They wait until each one's word is on the board. CANCELLED:
 * the wait was interrupted; UNAVAILABLE: a word did not come in time, or never will, since the
 * devices' meetings are over (stream/meeting.h). */

/* Debug's handshake: tells what this rank is about to issue. UNAVAILABLE, too, where the ranks
 * part. Of `c` the arrays are not looked at. */
tt_status tt_members_compare(tt_members *members, const tt_collective *c);
/* The largest of the members' numbers. `what` names them, and is not used again. */
tt_status tt_members_most(tt_members *members, const char *what, int64_t own, int64_t *most);
/* Sets the number, which is equal for all of them and no other living group's that any of them is a
 * member of. */
tt_status tt_members_take_number(tt_members *members);

#endif
