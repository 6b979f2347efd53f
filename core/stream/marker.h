/* Markers: places in streams, which users see as events. */
#ifndef TT_MARKER_H
#define TT_MARKER_H

#include "stream/stream.h"

typedef struct tt_marker tt_marker;

/* A place behind everything that was recorded on the stream, for which this ends the open chunk.
 * Waits for nothing. *out has one reference. Thread-safe. */
tt_status tt_stream_mark(tt_stream *stream, const tt_policy *policy, tt_marker **out);
tt_marker *tt_marker_retain(tt_marker *marker);
void tt_marker_release(tt_marker *marker); /* thread-safe; NULL is allowed */

/* Has everything before it ended? */
bool tt_marker_passed(tt_marker *marker);
/* Waits for that; CANCELLED when interrupted. */
tt_status tt_marker_await(tt_marker *marker);
/* When it had ended, on a monotonic clock; 0 if it has not. */
int64_t tt_marker_time_ns(tt_marker *marker);
/* What is recorded on the stream from now on begins when the marker was passed. Waits for
 * nothing. */
tt_status tt_stream_wait_marker(tt_stream *stream, tt_marker *marker, const tt_policy *policy);

#endif
