/* Capturing: a stream records into a graph instead of launching, over storages that have a type and
 * no value; the graph is replayed as one launch, or divided into few (divided.h).
 *
 * While a stream is captured, the storages that its operators touch have *symbols* for values:
 * pending values that only the capture knows. A storage from before is an input: at each replay the
 * graph reads what it then holds. What was written in the capture, and somebody still holds at its
 * end, is an output: at each replay its storage gets the new value, in the memory of the old one if
 * nobody else needs that. Nothing is computed meanwhile, and afterwards all storages hold what they
 * held before.
 *
 * Any thread may end it. Until then nothing is reclaimed (session/reclaim.h).
 *
 * Scalars are constants, but for the places of random numbers: at each replay these are taken from
 * the generators anew. */
#ifndef TT_CAPTURE_H
#define TT_CAPTURE_H

#include "stream/captured.h"

typedef struct tt_capture tt_capture;

/* -- Thread-safe -- */
/* FAILED_PRECONDITION: the stream is captured already. */
tt_status tt_capture_begin(tt_stream *stream, const tt_policy *policy);
/* Ends it. *out, the caller's, is NULL where nothing was computed; its programs are being compiled.
 * FAILED_PRECONDITION: the stream is not captured, or policy forbids new programs. */
tt_status tt_capture_end(tt_stream *stream, const tt_policy *policy, tt_captured **out);
/* Ends it, and forgets what was recorded. */
void tt_capture_abandon(tt_stream *stream);
void tt_device_abandon_captures(tt_device *device); /* on all its streams */
/* The stream's capture, as a number that new storages are born in; 0: none. */
uint64_t tt_stream_captured(const tt_stream *stream);
/* An operator is about to be recorded on these storages: gives those from before a symbol, so that
 * the call is specialised for storages that were written. */
tt_status tt_capture_touch(tt_stream *stream, tt_storage *storage, const tt_policy *policy);

#endif
