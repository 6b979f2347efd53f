#include "dist/tickets.h"

#include <pthread.h>

enum { LAUNCH_BITS = 32 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint64_t clock_now; /* the largest that was proposed or agreed on, without a launch */
static tt_ticket *open_tickets;

void tt_ticket_propose(tt_ticket *ticket, uint32_t launch) {
  pthread_mutex_lock(&lock);
  *ticket = (tt_ticket){.number = ++clock_now << LAUNCH_BITS | launch, .next = open_tickets};
  open_tickets = ticket;
  pthread_mutex_unlock(&lock);
}

static bool is_first(const tt_ticket *ticket) {
  for (const tt_ticket *one = open_tickets; one; one = one->next)
    if (one != ticket && one->number < ticket->number) return false;
  return true;
}

void tt_ticket_await(tt_ticket *ticket, uint64_t agreed) {
  pthread_mutex_lock(&lock);
  ticket->number = agreed;
  if (agreed >> LAUNCH_BITS > clock_now) clock_now = agreed >> LAUNCH_BITS;
  pthread_cond_broadcast(&changed);
  while (!is_first(ticket)) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

void tt_ticket_leave(tt_ticket *ticket) {
  pthread_mutex_lock(&lock);
  tt_ticket **at = &open_tickets;
  while (*at != ticket) at = &(*at)->next;
  *at = ticket->next;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}
