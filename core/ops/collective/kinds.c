#include "ops/collective/kinds.h"

#include <stddef.h>

static const struct {
  const char *name;
  bool in_place, reduces;
} kinds[] = {
#define X(name, words, in_place, reduces) {words, in_place, reduces},
    TT_COLLECTIVES(X)
#undef X
};

static bool known(tt_collective_kind kind) { return (size_t)kind < TT_COLLECTIVE_KINDS; }
const char *tt_collective_name(tt_collective_kind kind) {
  return known(kind) ? kinds[kind].name : "unknown";
}
bool tt_collective_in_place(tt_collective_kind kind) { return known(kind) && kinds[kind].in_place; }
bool tt_collective_reduces(tt_collective_kind kind) { return known(kind) && kinds[kind].reduces; }
bool tt_collective_is_message(tt_collective_kind kind) {
  return kind == TT_COLLECTIVE_SEND || kind == TT_COLLECTIVE_RECV;
}

const char *tt_reduction_name(tt_reduction op) {
  static const char *const names[] = {
#define X(name) #name,
      TT_REDUCTIONS(X)
#undef X
  };
  return (size_t)op < TT_REDUCTION_KINDS ? names[op] : "unknown";
}

tt_status tt_reduction_check(tt_reduction op, tt_dtype dtype) {
  bool linear = op == TT_REDUCE_SUM || op == TT_REDUCE_AVG, bits = op >= TT_REDUCE_BAND;
  if (tt_is_complex(dtype) && !linear)
    return tt_error(TT_INVALID_ARGUMENT, "complex tensors can be reduced by SUM and AVG only");
  if (tt_is_float(dtype) && bits)
    return tt_error(TT_INVALID_ARGUMENT,
                    "ReduceOp.BAND, BOR and BXOR are for integers and bools, not for %s",
                    tt_dtype_name(dtype));
  if (dtype == TT_BOOL && op == TT_REDUCE_AVG)
    return tt_error(TT_INVALID_ARGUMENT, "ReduceOp.AVG is not for bool tensors");
  return TT_SUCCESS;
}
