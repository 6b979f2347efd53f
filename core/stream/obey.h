/* Orders carried out (kernels/kernels.h) where a program would be executed. */
#ifndef TT_OBEY_H
#define TT_OBEY_H

#include "stream/launch.h"

/* Carries out the launch's orders on the calling thread, a queue's, and fulfils the outputs, unless
 * it fails: then the inputs are as they were. Its inputs are ready. Where memory is out, what the
 * queue has under way is waited for first. */
tt_status tt_launch_obey(tt_launch *launch);

#endif
