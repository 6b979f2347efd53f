/* In which order a process launches programs that other processes launch as well: in the same one
 * everywhere, or else the devices of one would wait in one program for those of another, which wait
 * for them in a second one. Each launch gets a ticket, which its processes agree on: the largest of
 * those that they propose (the total order of Skeen's multicast). A launch whose ticket is known
 * waits for those of smaller ones, and for those that may still get one: these are known soon, as
 * tickets are proposed only when all of a launch's processes have come. */
#ifndef TT_TICKETS_H
#define TT_TICKETS_H

#include "base/base.h"

/* One launch; the caller's memory, until tt_ticket_leave. */
typedef struct tt_ticket {
  uint64_t number; /* proposed, then agreed on */
  struct tt_ticket *next;
} tt_ticket;

/* Proposes one for a launch; `launch` tells it apart from others with equal numbers. Numbers are
 * below 2^63. Thread-safe, as the others are. */
void tt_ticket_propose(tt_ticket *ticket, uint32_t launch);
/* Waits for its turn. */
void tt_ticket_await(tt_ticket *ticket, uint64_t agreed);
/* It was launched, or never will be. */
void tt_ticket_leave(tt_ticket *ticket);

#endif
