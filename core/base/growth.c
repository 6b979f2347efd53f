#include "base/growth.h"

#include "base/env.h"
#include "base/guard.h"

#include <stdatomic.h>

enum { NODES_A_CALL = 16, TYPES_A_CALL = 2 };
#define MAX_BYTES ((int64_t)1 << 29)

static _Atomic int64_t grown[TT_GROWTHS];

static int64_t limit_of(tt_growth what) {
  int64_t calls = tt_env_int(TT_ENV_CALL_LIMIT);
  if (calls <= 0) return INT64_MAX;
  if (calls > INT32_MAX) calls = INT32_MAX;
  switch (what) {
  case TT_GROWTH_NODES:
    return calls * NODES_A_CALL;
  case TT_GROWTH_TYPES:
    return calls * TYPES_A_CALL;
  case TT_GROWTH_BYTES:
    return MAX_BYTES;
  default:
    return calls;
  }
}

int64_t tt_growth_spared_types(void) { return limit_of(TT_GROWTH_TYPES); }

void tt_growth_note(tt_growth what, int64_t amount) {
  int64_t now = atomic_fetch_add_explicit(&grown[what], amount, memory_order_relaxed) + amount;
  if (now > limit_of(what)) tt_guard_set_due(true);
}

void tt_growth_reset(void) {
  for (int i = 0; i < TT_GROWTHS; i++) atomic_store(&grown[i], 0);
  tt_guard_set_due(false);
}
