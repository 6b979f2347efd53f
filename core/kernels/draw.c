#include "kernels/draw.h"

enum { ROUNDS = 10, WORDS = 4 };

static uint32_t low(uint64_t product) { return (uint32_t)product; }
static uint32_t high(uint64_t product) { return (uint32_t)(product >> 32); }

static void philox(uint64_t seed, uint64_t counter, uint32_t *c) {
  uint32_t key[2] = {low(seed), high(seed)};
  c[0] = low(counter);
  c[1] = high(counter);
  c[2] = c[3] = 0;
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t p0 = UINT64_C(0xD2511F53) * c[0], p1 = UINT64_C(0xCD9E8D57) * c[2];
    c[0] = high(p1) ^ c[1] ^ key[0];
    c[1] = low(p1);
    c[2] = high(p0) ^ c[3] ^ key[1];
    c[3] = low(p0);
    key[0] += UINT32_C(0x9E3779B9);
    key[1] += UINT32_C(0xBB67AE85);
  }
}

void tt_draw_units(uint64_t seed, uint64_t offset, int64_t first, int64_t count, float *out) {
  uint32_t words[WORDS];
  for (int64_t i = first; i < first + count; i++) {
    if (i == first || i % WORDS == 0) philox(seed, offset + (uint64_t)(i / WORDS), words);
    out[i - first] = (float)(words[i % WORDS] >> 8) * 0x1p-24F;
  }
}
