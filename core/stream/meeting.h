/* Where the launches of a program that several devices run at once meet. Each device's queue comes
 * with its own arguments, as it would alone; the last one starts the program for all. A device's
 * n-th launch of a program meets the n-th of the others. */
#ifndef TT_MEETING_H
#define TT_MEETING_H

#include "program/program.h"

/* What one device brings, and takes away. */
typedef struct tt_seat {
  tt_pjrt_device *device;
  uint32_t site; /* the Python line */
  tt_buffer *const *arguments;
  int count;
  const int64_t *keep; /* as of tt_execute; what one device keeps, all do */
  int keep_count;
  tt_buffer **outputs;
  tt_event *end; /* the caller's */
} tt_seat;

/* Waits for the other devices of this process that the program, which is ready, runs on, and has it
 * run. Where they do not come within the time-out, or it fails, the meeting is over for all: this
 * and all later calls return the error. Thread-safe. */
tt_status tt_meeting_execute(tt_program *program, tt_seat *seat);
/* Has `run` launch a program that devices of other processes run as well, when they have come; set
 * once, before the first such program. Its errors end no meeting. */
typedef tt_status (*tt_launch_together)(const tt_program *program, uint32_t site,
                                        tt_status (*run)(void *user), void *user);
void tt_meeting_set_others(tt_launch_together launch);
/* Who waits, and whoever comes later, gets an error with these words; the first ones stay.
 * Thread-safe. */
void tt_meeting_end(const char *why);
/* Why nobody meets any more, a clone; success while they do. Thread-safe. */
tt_status tt_meeting_error(void);
/* All begins anew, with a time-out in milliseconds. Nobody may be waiting. */
void tt_meeting_reopen(int64_t timeout);

#endif
