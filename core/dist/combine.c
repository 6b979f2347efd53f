#include "dist/combine.h"

#include <string.h>

/* -- bf16 is the upper half of f32 -- */

static float of_bf16(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to the nearest, ties to even */
}

/* -- A loop for each dtype and reduction: compilers vectorize them -- */

#define KEEP(x) (x)
#define EACH(type, wide, from, to, expression)                                                     \
  for (int64_t i = 0; i < count; i++) {                                                            \
    wide x = from(((const type *)a)[i]), y = from(((const type *)b)[i]);                           \
    ((type *)out)[i] = (type)to(expression);                                                       \
  }                                                                                                \
  return true

#define FLOATS(type, wide, from, to)                                                               \
  switch (op) {                                                                                    \
  case TT_REDUCE_SUM:                                                                              \
    EACH(type, wide, from, to, x + y);                                                             \
  case TT_REDUCE_PRODUCT:                                                                          \
    EACH(type, wide, from, to, x * y);                                                             \
  case TT_REDUCE_MIN:                                                                              \
    EACH(type, wide, from, to, x < y || x != x ? x : y);                                           \
  case TT_REDUCE_MAX:                                                                              \
    EACH(type, wide, from, to, x > y || x != x ? x : y);                                           \
  default:                                                                                         \
    return false;                                                                                  \
  }

#define INTEGERS(type, wide)                                                                       \
  switch (op) {                                                                                    \
  case TT_REDUCE_SUM:                                                                              \
    EACH(type, wide, (wide), (wide), x + y);                                                       \
  case TT_REDUCE_PRODUCT:                                                                          \
    EACH(type, wide, (wide), (wide), x * y);                                                       \
  case TT_REDUCE_MIN:                                                                              \
    EACH(type, type, KEEP, KEEP, x < y ? x : y);                                                   \
  case TT_REDUCE_MAX:                                                                              \
    EACH(type, type, KEEP, KEEP, x > y ? x : y);                                                   \
  case TT_REDUCE_BAND:                                                                             \
    EACH(type, wide, (wide), (wide), x & y);                                                       \
  case TT_REDUCE_BOR:                                                                              \
    EACH(type, wide, (wide), (wide), x | y);                                                       \
  case TT_REDUCE_BXOR:                                                                             \
    EACH(type, wide, (wide), (wide), x ^ y);                                                       \
  default:                                                                                         \
    return false;                                                                                  \
  }

#define COMBINE(name, body)                                                                        \
  static bool name(tt_reduction op, void *out, const void *a, const void *b, int64_t count) { body }

COMBINE(combine_u8, INTEGERS(uint8_t, uint32_t))
COMBINE(combine_i8, INTEGERS(int8_t, uint32_t))
COMBINE(combine_i32, INTEGERS(int32_t, uint32_t))
COMBINE(combine_i64, INTEGERS(int64_t, uint64_t))
COMBINE(combine_f16, FLOATS(_Float16, float, (float), (_Float16)))
COMBINE(combine_bf16, FLOATS(uint16_t, float, of_bf16, to_bf16))
COMBINE(combine_f32, FLOATS(float, float, KEEP, KEEP))
COMBINE(combine_f64, FLOATS(double, double, KEEP, KEEP))

bool tt_combine(tt_dtype dtype, tt_reduction op, void *out, const void *a, const void *b,
                int64_t count) {
  static bool (*const of[])(tt_reduction, void *, const void *, const void *, int64_t) = {
      [TT_U8] = combine_u8,   [TT_I8] = combine_i8,   [TT_I32] = combine_i32,
      [TT_I64] = combine_i64, [TT_F16] = combine_f16, [TT_BF16] = combine_bf16,
      [TT_F32] = combine_f32, [TT_F64] = combine_f64,
  };
  bool known = (size_t)dtype < sizeof of / sizeof *of && of[dtype];
  return known && of[dtype](op, out, a, b, count);
}
