/* Mail: what a rank sends to itself, by tags, in order; transports know others only. */
#ifndef TT_MAIL_H
#define TT_MAIL_H

#include "base/status.h"

#include <pthread.h>

/* Thread-safe between init and deinit. */
typedef struct tt_mail {
  pthread_mutex_t lock;
  pthread_cond_t came;
  struct tt_letter *first; /* the oldest one; guarded by the lock */
} tt_mail;

void tt_mail_init(tt_mail *mail);
void tt_mail_deinit(tt_mail *mail); /* with what nobody took */

tt_status tt_mail_post(tt_mail *mail, int64_t tag, const void *data, int64_t size);
/* Waits for the next one of this tag. UNAVAILABLE: none came within the time-out;
 * INVALID_ARGUMENT: it has another size, and stays. */
tt_status tt_mail_take(tt_mail *mail, int64_t tag, void *data, int64_t size, int64_t timeout_ms);

#endif
