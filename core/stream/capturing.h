/* A capture under way, for those who record, and for those who capture parts of it. */
#ifndef TT_CAPTURING_H
#define TT_CAPTURING_H

#include "stream/stream.h"

/* A storage that has a symbol. */
typedef struct tt_touched {
  tt_storage *storage; /* one reference */
  bool from_before;    /* an input */
  int slot;            /* of the input */
  tt_value *original;  /* of one from before: what it held; one reference */
  const tt_type *type; /* likewise */
  tt_value *symbol;    /* at the end: what it held; one reference */
} tt_touched;

typedef struct tt_capture {
  uint64_t id;
  struct tt_capture *outer; /* that this is a part of (nested.h), or NULL */
  tt_arena own, *arena;     /* the outermost capture's, which all that is made lives in */
  tt_step *steps;
  size_t step_capacity, touched_capacity, scalar_capacity, draw_capacity;
  tt_touched *touched;
  tt_scalar *scalars;
  tt_draw *draws;
  int step_count, slot_count, touched_count, scalar_count, draw_count, word_count;
  int argument_count; /* of a part: its first inputs */
} tt_capture;

/* Where the scalars of a call that holds others come from: CONSTANT, or PHILOX with a stream that
 * is one of `draws`, each of which gives `blocks` in all. Borrowed. */
typedef struct tt_inner {
  const tt_scalar *scalars;
  const tt_draw *draws;
  int scalar_count, draw_count;
} tt_inner;

/* NULL: memory is out. */
tt_capture *tt_capture_create(tt_capture *outer);
void tt_capture_destroy(tt_capture *capture);

/* -- The lock is held -- */
/* Adds a step; the outputs become its symbols. */
tt_status tt_capture_record(tt_stream *stream, const tt_operation *operation,
                            tt_value *const *inputs, tt_value *const *outputs);
/* The storage is about to be written. */
tt_status tt_capture_keep(tt_stream *stream, tt_storage *storage);
/* Gives the storage a symbol as an input of the stream's capture. */
tt_status tt_capture_input(tt_stream *stream, tt_capture *capture, tt_storage *storage);
bool tt_capture_has(const tt_capture *capture, const tt_storage *storage); /* it has its symbol */
/* The stream's capture, of which it is rid, and has the one around it; NULL: there is none.
 * Storages from before hold again what they held, when they were touched first; others nothing. The
 * caller destroys it without the lock. */
tt_capture *tt_capture_take(tt_stream *stream);

#endif
