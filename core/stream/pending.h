/* What is recorded and not launched yet, and is wanted now. */
#ifndef TT_PENDING_H
#define TT_PENDING_H

#include "stream/stream.h"

/* Where a value is recorded and not launched yet, launches it; then it has a job. The lock of its
 * device is held. A value that is being captured has no job: FAILED_PRECONDITION. */
tt_status tt_value_launch(tt_value *value, tt_cut why, const tt_policy *policy);
/* Only a capture knows what the value will be. The lock is held. */
bool tt_value_captured(const tt_value *value);

#endif
