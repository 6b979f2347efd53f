/* Settling: a bounded value (call/bounded.h) is replaced by what counts of it, for all who do not
 * know of bounds. Thread-safe; no lock is held. Where nothing is bounded nothing is done. */
#ifndef TT_SETTLE_H
#define TT_SETTLE_H

#include "stream/captured.h"
#include "stream/operation.h"

/* By a launch of its own where the stream is being captured. */
tt_status tt_storage_settle(tt_stream *stream, tt_storage *storage, const tt_policy *policy,
                            uint32_t site);
/* Those operands that the call was specialised to see as exact values. */
tt_status tt_operands_settle(tt_stream *stream, const tt_operation *operation);
/* What a replay reads. */
tt_status tt_captured_settle(const tt_captured *captured, tt_stream *stream,
                             const tt_captured_storages *on, const tt_policy *policy,
                             uint32_t site);

#endif
