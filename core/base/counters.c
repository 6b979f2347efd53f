#include "base/counters.h"

#include "base/site.h"

#include <stdatomic.h>

static _Atomic int64_t counters[TT_COUNT_LIMIT], chunks[TT_CHUNK_SIZES];
static _Atomic uint32_t waits[TT_SITE_LIMIT];

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

void tt_count_chunk(int operators) {
  int i = 0;
  while (i < TT_CHUNK_SIZES - 1 && operators >> (i + 1)) i++;
  tt_count_add(TT_COUNT_CHUNKS, 1);
  tt_count_add(TT_COUNT_CHUNK_OPS, operators);
  atomic_fetch_add_explicit(&chunks[i], 1, memory_order_relaxed);
}

int64_t tt_count_chunks(int i) {
  return i < 0 || i >= TT_CHUNK_SIZES ? 0 : atomic_load(&chunks[i]);
}

void tt_count_wait(uint32_t site) {
  if (site < TT_SITE_LIMIT) atomic_fetch_add_explicit(&waits[site], 1, memory_order_relaxed);
}

int64_t tt_count_waits(uint32_t site) {
  return site < TT_SITE_LIMIT ? atomic_load(&waits[site]) : 0;
}

void tt_count_reset(void) {
  for (int i = 0; i < TT_CHUNK_SIZES; i++) atomic_store(&chunks[i], 0);
  for (int i = 0; i < TT_SITE_LIMIT; i++) atomic_store(&waits[i], 0);
  for (int i = 0; i < TT_COUNT_LIMIT; i++) atomic_store(&counters[i], 0);
}
