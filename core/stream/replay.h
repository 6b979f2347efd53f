/* Replaying: a chunk that failed as a whole is run again operator by operator, so that the error
 * names the operator, and results that do not need it are computed. */
#ifndef TT_REPLAY_H
#define TT_REPLAY_H

#include "stream/launch.h"

/* `launch` is a chunk that failed, or one of whose inputs had; *status says how, without naming
 * the chunk. True: every output is ready or carries an error, the inputs are gone from the launch,
 * and *status is the first error that was not reported before, or success. False: nothing was run,
 * and *status says why, if that is of interest. On the queue's thread. */
bool tt_replay(tt_launch *launch, tt_status *status);

#endif
