/* A monotonic clock, and waiting by it. Thread-safe. */
#ifndef TT_CLOCK_H
#define TT_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

int64_t tt_now_ns(void);
int64_t tt_now_ms(void);
void tt_sleep_ms(int64_t ms); /* a signal may end it early */

/* A condition whose timed waits go by this clock; it is destroyed as any other. */
void tt_cond_init(pthread_cond_t *cond);
/* When such a wait of that many milliseconds, none less than 0, ends if it begins now. */
struct timespec tt_deadline(int64_t ms);

#endif
