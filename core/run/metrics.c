/* Counters: relaxed atomics, so that counting costs nothing worth counting. */
#include "run/run.h"

#include <stdatomic.h>

static _Atomic int64_t counters[TT_COUNT_LIMIT];

void tt_count_add(tt_counter counter, int64_t amount) {
  atomic_fetch_add_explicit(&counters[counter], amount, memory_order_relaxed);
}

int64_t tt_count_get(tt_counter counter) {
  return atomic_load_explicit(&counters[counter], memory_order_relaxed);
}

const char *tt_count_name(tt_counter counter) {
  static const char *const names[] = {
#define X(name, doc) #name,
      TT_COUNTERS(X)
#undef X
  };
  return names[counter];
}

void tt_count_reset(void) {
  for (int i = 0; i < TT_COUNT_LIMIT; i++) atomic_store(&counters[i], 0);
}
