/* The host's access to storages. Thread-safe; CANCELLED when interrupted. What is recorded and not
 * launched yet is launched as the policy says: FAILED_PRECONDITION if it must not be compiled, and
 * then it stays recorded. */
#ifndef TT_HOST_H
#define TT_HOST_H

#include "call/table.h"
#include "stream/stream.h"

/* Replaces the storage's value by row-major host bytes of `type`, which are copied at once. Waits
 * for what is recorded on `stream`, of the storage's device, where the device's memory is full, and
 * where the host is too far ahead. `site`: the Python line. */
tt_status tt_storage_write(tt_stream *stream, tt_storage *storage, const tt_type *type,
                           const void *data, const tt_policy *policy, uint32_t site);
/* The same, copied in its turn on `stream`, of the storage's device: returns at once. `data` must
 * stay as it is until `release(user)` is called, once, from any thread, also on failure, which
 * tt_stream_sync tells. */
tt_status tt_storage_write_later(tt_stream *stream, tt_storage *storage, const tt_type *type,
                                 const void *data, void (*release)(void *user), void *user,
                                 const tt_policy *policy, uint32_t site);
/* Waits for the copies in turn on `stream` that write this memory, or read it where it shall be
 * `written`. */
tt_status tt_stream_await_host(tt_stream *stream, const void *data, int64_t size, bool written);
#define TT_WRITE_IN_CAPTURE                                                                        \
  "the host cannot write to a tensor that a graph which is being captured has used: what it "      \
  "writes would not be part of the graph"
/* Waits for the storage's value and for nothing else, and copies it out. `size` is at least
 * tt_storage_bytes; what lies beyond reads as zeros. */
tt_status tt_storage_read(tt_storage *storage, void *data, int64_t size, const tt_policy *policy);
/* The same, copied in its turn on `stream`: returns at once. `release(user)` is called, once, from
 * any thread, when `data` has been written, also on failure, which tt_stream_sync tells. */
tt_status tt_storage_read_later(tt_stream *stream, tt_storage *storage, void *data, int64_t size,
                                const tt_policy *policy, void (*release)(void *user), void *user);
/* Gives `target`, whose device is the stream's, the value of `source`, of another device of the
 * same client, in its turn on `stream`. UNIMPLEMENTED: the plugin does not copy between devices. */
tt_status tt_storage_transfer(tt_stream *stream, tt_storage *target, tt_storage *source,
                              const tt_policy *policy, uint32_t site);
/* Grows or shrinks to `bytes`, by an operator of the stream; the common prefix keeps its content.
 */
tt_status tt_storage_resize(tt_stream *stream, tt_call_table *calls, tt_storage *storage,
                            int64_t bytes, const tt_policy *policy);

#endif
