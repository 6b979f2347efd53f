/* Interrupts: what ends a wait early, since the user asked for it (Ctrl-C). */
#ifndef TT_INTERRUPT_H
#define TT_INTERRUPT_H

#include "base/status.h"

#include <pthread.h>

/* `check` is called by waiting threads, with no lock, some twenty times a second; true ends the
 * wait. Set once, before anybody waits; NULL: nothing ends a wait. */
void tt_interrupt_set_check(bool (*check)(void));
/* CANCELLED if the user asks for the calling thread's wait to end. */
tt_status tt_interrupted(void);
/* As pthread_cond_wait, but returns now and then, so that the caller looks whether it was
 * interrupted (without the lock). */
void tt_interrupt_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);

#endif
