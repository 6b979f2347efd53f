/* Submitting launches to a queue, and what becomes of those that fail. */
#ifndef TT_SUBMIT_H
#define TT_SUBMIT_H

#include "stream/launch.h"

/* Takes the launch. On the queue's thread it is executed; a chunk that fails is replayed
 * (replay.h); of one that fails all the same, the outputs carry the error, which the queue keeps,
 * unless an input carried it already (then it was told before). The device's lock is held. */
void tt_submit(tt_queue *queue, tt_launch *launch);

#endif
