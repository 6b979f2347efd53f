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
