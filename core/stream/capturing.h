/* What a capture is told of by those who record. */
#ifndef TT_CAPTURING_H
#define TT_CAPTURING_H

#include "stream/stream.h"

/* -- The lock is held -- */
/* Adds a step; the outputs become its symbols. */
tt_status tt_capture_record(tt_stream *stream, const tt_operation *operation,
                            tt_value *const *inputs, tt_value *const *outputs);
/* The storage is about to be written. */
tt_status tt_capture_keep(tt_stream *stream, tt_storage *storage);

#endif
