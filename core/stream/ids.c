#include "stream/ids.h"

#include <stdatomic.h>

uint64_t tt_next_section(void) {
  static _Atomic uint64_t last;
  return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}
