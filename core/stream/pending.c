#include "stream/pending.h"

#include <assert.h>

bool tt_value_captured(const tt_value *value) {
  return tt_value_get_state(value) == TT_VALUE_PENDING && !value->queue &&
         value->section != value->stream->chunk.id;
}

tt_status tt_value_launch(tt_value *value, tt_cut why, const tt_policy *policy) {
  if (tt_value_get_state(value) != TT_VALUE_PENDING || value->queue) return TT_SUCCESS;
  tt_stream *stream = value->stream;
  assert(stream);
  if (tt_value_captured(value))
    return tt_error(TT_FAILED_PRECONDITION,
                    "this tensor belongs to a graph that is being captured: it has no value yet");
  return tt_stream_flush(stream, why, policy);
}
