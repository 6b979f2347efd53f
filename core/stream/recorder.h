/* Recording an operator on values rather than storages. */
#ifndef TT_RECORDER_H
#define TT_RECORDER_H

#include "stream/stream.h"

/* As tt_stream_record, for values: takes the references of `inputs`, those of the call; `outputs`
 * receives as many new ones as it has outputs, the caller's. targets[i], if it is not NULL, holds
 * output i from then on. Observers are not told. */
tt_status tt_stream_record_values(tt_stream *stream, const tt_operation *operation,
                                  tt_value **inputs, tt_storage **targets, tt_value **outputs);

#endif
