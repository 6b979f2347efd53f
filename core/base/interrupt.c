#include "base/interrupt.h"

#include <stddef.h>
#include <time.h>

enum { LOOK_EVERY_NS = 50000000 };

static bool (*user_check)(void);

void tt_interrupt_set_check(bool (*check)(void)) { user_check = check; }

tt_status tt_interrupted(void) {
  if (!user_check || !user_check()) return TT_SUCCESS;
  return tt_error(TT_CANCELLED, "the wait was interrupted; what was launched goes on");
}

void tt_interrupt_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += LOOK_EVERY_NS;
  if (until.tv_nsec >= 1000000000) {
    until.tv_sec++;
    until.tv_nsec -= 1000000000;
  }
  (void)pthread_cond_timedwait(cond, lock, &until);
}
