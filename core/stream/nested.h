/* Control flow in captured graphs: parts of a capture are captured by themselves, as the bodies of
 * a region (graph/region.h), which is then recorded as an operator is.
 *
 * A part reads the storages that its arguments have, and any from outside; it writes none but those
 * and its own. Its results are storages. Parts nest. */
#ifndef TT_NESTED_H
#define TT_NESTED_H

#include "graph/subgraph.h"
#include "stream/stream.h"

/* A part that was captured; borrowed until the outermost capture ends. */
typedef struct tt_nested tt_nested;

/* -- Thread-safe; one thread captures a part -- */
/* FAILED_PRECONDITION: the stream is not being captured. */
tt_status tt_nested_begin(tt_stream *stream);
/* Before anything is recorded: an unwritten storage stands for an argument. */
tt_status tt_nested_argument(tt_stream *stream, tt_storage *storage);
/* Whether the part that is being captured wrote this storage, which is none that it made. */
bool tt_nested_wrote(tt_stream *stream, const tt_storage *storage);
/* Ends it, also on failure. INVALID_ARGUMENT: a result was not computed; FAILED_PRECONDITION: a
 * storage from outside was written, or there is no such part. */
tt_status tt_nested_end(tt_stream *stream, tt_storage *const *results, int count, tt_nested **out);
void tt_nested_abandon(tt_stream *stream);

/* Everything is borrowed. */
typedef struct tt_nested_region {
  tt_region_kind kind;
  const char *name; /* for messages */
  const tt_nested *bodies[2];
  tt_storage *const *operands;
  int operand_count, carried;
  int64_t length;
} tt_nested_region;

/* Records a region of parts of the stream's capture; `results` are new storages, the caller's, one
 * for each of the last body's.
 * Branches draw random numbers from the same place, and the generator moves on by what the
 * greediest one draws; each round of a scan draws behind the one before. Errors as of
 * tt_region_call. */
tt_status tt_nested_record(tt_stream *stream, const tt_nested_region *region,
                           const tt_policy *policy, uint32_t site, tt_storage **results);

#endif
