#include "stream/pending.h"

#include <assert.h>

bool tt_value_captured(const tt_value *value) {
  return tt_value_get_state(value) == TT_VALUE_PENDING && !value->queue &&
         !tt_lane_of(&value->stream->lanes, value);
}

tt_status tt_value_launch(tt_value *value, tt_cut why, const tt_policy *policy) {
  if (tt_value_get_state(value) != TT_VALUE_PENDING || value->queue) return TT_SUCCESS;
  tt_stream *stream = value->stream;
  assert(stream);
  tt_chunk *chunk = tt_lane_of(&stream->lanes, value);
  if (!chunk)
    return tt_error(TT_FAILED_PRECONDITION,
                    "this tensor belongs to a graph that is being captured: it has no value yet");
  return tt_stream_flush_chunk(stream, chunk, why, policy);
}
