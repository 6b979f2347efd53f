/* Settling: a bounded value (call/bounded.h) is replaced by what counts of it, for all who do not
 * know of bounds. */
#ifndef TT_SETTLE_H
#define TT_SETTLE_H

#include "stream/stream.h"

/* Nothing is done if the storage holds none. Thread-safe; no lock is held. */
tt_status tt_storage_settle(tt_stream *stream, tt_storage *storage, const tt_policy *policy,
                            uint32_t site);
/* The same by a launch of its own, though the stream is being captured. */
tt_status tt_storage_settle_apart(tt_stream *stream, tt_storage *storage, const tt_policy *policy);

#endif
