/* A stream, as its user sees it: operators are recorded by any thread and computed in order. It is
 * a recorder (the open chunks, or a graph that is being captured) and a queue. The streams of a
 * device are ordered by what depends on what: who reads a value waits for the job that makes it. */
#ifndef TT_STREAM_H
#define TT_STREAM_H

#include "stream/lanes.h"
#include "stream/observer.h"
#include "stream/operation.h"

struct tt_capture;

typedef struct tt_stream {
  tt_device *device;
  int id; /* among the device's; 0 is the default one */
  tt_queue *queue;
  tt_lanes lanes;                /* guarded by the device's lock, as the next */
  struct tt_capture *capture;    /* what is being captured, or NULL */
  int64_t given;                 /* bytes by the host since `paced` */
  uint64_t paced, paced_section; /* the ticket pushed last then, and a number behind all chunks */
} tt_stream;

/* The device's stream with this number, which is made when it is asked for first.
 * INVALID_ARGUMENT: no such number. Thread-safe. */
tt_status tt_stream_get(tt_device *device, int64_t id, tt_stream **out);
/* Waits for what was recorded, and ends all streams of the device. Its storages must be gone, and
 * nobody may use it any more. */
void tt_device_end_streams(tt_device *device);

/* An unwritten storage of this type on the stream's device, with one reference. Thread-safe. */
tt_status tt_stream_new_storage(tt_stream *stream, const tt_type *type, tt_storage **out);

/* Records an operator. New storages are written to `results` (one entry per result of the call;
 * NULL for targets and undefined results), owned by the caller. Blocks while the queue is full. In
 * Debug mode waits for the launch and returns its error; in Strict mode errors surface at
 * tt_stream_sync or tt_storage_read. CANCELLED when interrupted. Thread-safe. */
tt_status tt_stream_record(tt_stream *stream, const tt_operation *operation, tt_storage **results);
/* For what is launched whoever waits: anything may be compiled. */
extern const tt_policy tt_policy_any;

/* -- Waiting; thread-safe; CANCELLED when interrupted. The policy is the waiting thread's: where
 * nothing new may be compiled, what needs it stays recorded, which is an error. -- */
/* Ends an open chunk, or all of them. The lock is held. Fails when one stays open, for want of a
 * program that must not be compiled. */
tt_status tt_stream_flush_chunk(tt_stream *stream, tt_chunk *chunk, tt_cut why,
                                const tt_policy *policy);
tt_status tt_stream_flush(tt_stream *stream, tt_cut why, const tt_policy *policy);
/* A ticket for everything recorded so far, which this ends the open chunks for. A stream that is
 * captured has none: FAILED_PRECONDITION. */
tt_status tt_stream_ticket(tt_stream *stream, const tt_policy *policy, uint64_t *out);
/* Waits for everything recorded before the call; returns, once, the first error since the last
 * synchronisation. */
tt_status tt_stream_sync(tt_stream *stream, const tt_policy *policy);
/* The same, and leaves the error to the next synchronisation. */
tt_status tt_stream_drain(tt_stream *stream, const tt_policy *policy);
/* The host is about to give the device so many bytes: what is recorded is launched where it would
 * hold many of them. With `wait`, returns when the device is not too far behind. */
tt_status tt_stream_keep_pace(tt_stream *stream, int64_t bytes, bool wait, const tt_policy *policy);
/* Nothing is pending. */
bool tt_stream_idle(tt_stream *stream, const tt_policy *policy);
/* The same for all streams of a device; errors are joined. */
tt_status tt_device_sync(tt_device *device, const tt_policy *policy);
#endif
