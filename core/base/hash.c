#include "base/hash.h"

#include <string.h>

/* Odd constants with about as many ones as zeros (digits of pi, e, the golden ratio, sqrt 2). */
#define TT_K0 UINT64_C(0x243f6a8885a308d3)
#define TT_K1 UINT64_C(0xb7e151628aed2a6b)
#define TT_K2 UINT64_C(0x9e3779b97f4a7c15)
#define TT_K3 UINT64_C(0x6a09e667f3bcc909)

static inline uint64_t load64(const unsigned char *p) {
  uint64_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

static inline uint64_t load32(const unsigned char *p) {
  uint32_t word;
  memcpy(&word, p, sizeof word);
  return word;
}

/* The halves of the 128-bit product, folded: every input bit reaches every output bit. */
static inline uint64_t mix(uint64_t a, uint64_t b) {
  __uint128_t product = (__uint128_t)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t tt_hash_bytes(const void *data, size_t size, uint64_t seed) {
  const unsigned char *p = data;
  uint64_t h = mix(seed ^ TT_K0, TT_K1), a = 0, b = 0;
  size_t left = size;
  if (left > 32) { /* two lanes, so that two multiplications are under way at a time */
    uint64_t lane = h ^ TT_K2;
    for (; left > 32; p += 32, left -= 32) {
      h = mix(load64(p) ^ TT_K0, load64(p + 8) ^ h);
      lane = mix(load64(p + 16) ^ TT_K1, load64(p + 24) ^ lane);
    }
    h ^= lane;
  }
  if (left > 16) {
    h = mix(load64(p) ^ TT_K2, load64(p + 8) ^ h);
    p += 16;
    left -= 16;
  }
  if (left >= 8) { /* the last 1 to 16 bytes; the two reads may overlap */
    a = load64(p);
    b = load64(p + left - 8);
  } else if (left >= 4) {
    a = load32(p);
    b = load32(p + left - 4);
  } else if (left) {
    a = (uint64_t)p[0] << 16 | (uint64_t)p[left / 2] << 8 | p[left - 1];
  }
  return mix(TT_K3 ^ size, mix(a ^ TT_K3, b ^ h));
}
