/* One operator that is to be recorded. */
#ifndef TT_OPERATION_H
#define TT_OPERATION_H

#include "call/call.h"
#include "stream/policy.h"
#include "stream/storage.h"

/* What a random call draws. */
typedef struct tt_draw {
  const void *generator; /* by which generators are told apart; NULL: the device's default one */
  int64_t blocks;
} tt_draw;

struct tt_inner;

/* Everything is borrowed. */
typedef struct tt_operation {
  tt_call *call;
  tt_storage *const *tensors; /* of one device; [call->spec.tensor_count] */
  const uint32_t *scalars;    /* packed; [call->word_count] */
  const tt_draw *draw;        /* of a random call, whose last four words are its place; else NULL */
  const tt_policy *policy;
  uint32_t site;                /* the Python line */
  bool apart;                   /* launched by itself where the stream is being captured */
  const struct tt_inner *inner; /* of a call that holds others (graph/region.h); else NULL */
} tt_operation;

#endif
