/* Philox-4x32-10 as integer operations: the same numbers on every device and in every mode.
 *
 * Key: the call's seed, low word first. Counter: the call's offset plus the number of the block in
 * words 0 and 1, the number of the draw in word 2, zero in word 3. A block gives four words.
 *
 * Every element computes all of its block and keeps what is its own. That repeats work, but it is
 * one loop without a shuffle, which XLA vectorizes: several times faster than interleaving. */
#include "ops/random/philox.h"

#include <assert.h>

enum { ROUNDS = 10 };
static const int64_t multipliers[2] = {0xD2511F53, 0xCD9E8D57};
static const int64_t weyl[2] = {0x9E3779B9, 0xBB67AE85};

static tt_node *low_word(tt_hlo *h, tt_node *x) { return tt_hlo_convert(h, x, TT_U32); }

static tt_node *high_word(tt_hlo *h, tt_node *x) {
  return low_word(h, tt_hlo_shift_right_logical(h, x, tt_hlo_const_i(h, TT_U64, 32)));
}

static tt_node *joined(tt_hlo *h, tt_node *high, tt_node *low) {
  high = tt_hlo_shift_left(h, tt_hlo_convert(h, high, TT_U64), tt_hlo_const_i(h, TT_U64, 32));
  return tt_hlo_or(h, high, tt_hlo_convert(h, low, TT_U64));
}

static tt_node *product(tt_hlo *h, int which, tt_node *x) {
  tt_node *multiplier = tt_hlo_const_i(h, TT_U64, multipliers[which]);
  return tt_hlo_multiply(h, tt_hlo_convert(h, x, TT_U64), multiplier);
}

static void philox_round(tt_hlo *h, tt_node **c, tt_node *const *key) {
  tt_node *p0 = product(h, 0, c[0]), *p1 = product(h, 1, c[2]);
  tt_node *x0 = tt_hlo_xor(h, tt_hlo_xor(h, high_word(h, p1), c[1]), key[0]);
  tt_node *x2 = tt_hlo_xor(h, tt_hlo_xor(h, high_word(h, p0), c[3]), key[1]);
  c[0] = x0;
  c[1] = low_word(h, p1);
  c[2] = x2;
  c[3] = low_word(h, p0);
}

void tt_philox_at(tt_lower *cx, tt_node *blocks, tt_node *word2, tt_node *word3, tt_node **words) {
  tt_hlo *h = cx->h;
  const tt_type *type = &blocks->type;
  if (!cx->seed || !cx->offset) {
    for (int k = 0; k < 4; k++)
      words[k] = tt_hlo_fail(h, TT_INTERNAL, "%s: no seed and offset were given", cx->row->name);
    return;
  }
  tt_node *seed = tt_hlo_convert(h, cx->seed, TT_U64);
  tt_node *counter = tt_hlo_add(h, blocks, tt_hlo_convert(h, cx->offset, TT_U64));
  tt_node *key[2] = {low_word(h, seed), high_word(h, seed)};
  words[0] = low_word(h, counter);
  words[1] = high_word(h, counter);
  words[2] = tt_hlo_broadcast_to(h, word2, type->rank, type->dims);
  words[3] = tt_hlo_broadcast_to(h, word3, type->rank, type->dims);
  for (int i = 0; i < ROUNDS; i++) {
    philox_round(h, words, key);
    for (int k = 0; k < 2; k++) key[k] = tt_hlo_add(h, key[k], tt_hlo_const_i(h, TT_U32, weyl[k]));
  }
}

int64_t tt_philox_blocks(const tt_op_row *row, int64_t numel) {
  int64_t blocks;
  if (row->cls != TT_RANDOM || numel <= 0) return 0;
  return tt_mul_i64(numel / 4 + 1, row->param, &blocks) ? blocks : INT64_MAX;
}

/* -- Draws -- */

void tt_draw_blocks(tt_lower *cx, tt_draws *draws, int64_t count, int64_t sharing, tt_node **words,
                    tt_node **slot) {
  tt_hlo *h = cx->h;
  assert((sharing == 1 || sharing == 2 || sharing == 4) && draws->taken >= 0);
  tt_type type = {.dtype = TT_U64, .rank = 1, .dims = {count}};
  tt_node *i = draws->places ? draws->places : tt_hlo_iota(h, &type, 0), *block = i;
  if (sharing > 1)
    block = tt_hlo_shift_right_logical(h, i, tt_hlo_const_i(h, TT_U64, sharing == 2 ? 1 : 2));
  if (slot) *slot = low_word(h, tt_hlo_and(h, i, tt_hlo_const_i(h, TT_U64, sharing - 1)));
  tt_philox_at(cx, block, tt_hlo_const_i(h, TT_U32, draws->taken), tt_hlo_const_i(h, TT_U32, 0),
               words);
  draws->taken++;
}

/* The slot's own among `count` (2, 4) values. */
static tt_node *own(tt_hlo *h, tt_node *slot, tt_node *const *values, int count) {
  assert(count == 2 || count == 4);
  tt_node *x = values[count - 1];
  for (int k = count - 2; k >= 0; k--)
    x = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, slot, tt_hlo_const_i(h, TT_U32, k)), values[k],
                      x);
  return x;
}

tt_node *tt_draw_u32(tt_lower *cx, tt_draws *draws, int64_t count) {
  tt_node *lanes[4], *slot;
  tt_draw_blocks(cx, draws, count, 4, lanes, &slot);
  return own(cx->h, slot, lanes, 4);
}

tt_node *tt_draw_u64(tt_lower *cx, tt_draws *draws, int64_t count) {
  tt_node *lanes[4], *slot;
  tt_draw_blocks(cx, draws, count, 2, lanes, &slot);
  tt_node *words[2] = {joined(cx->h, lanes[0], lanes[1]), joined(cx->h, lanes[2], lanes[3])};
  return own(cx->h, slot, words, 2);
}

/* -- Floats -- */

/* (the upper `bits` of a U32 or U64 + shift) / 2^bits. Goes by way of a signed integer, which has a
 * fast conversion everywhere. */
static tt_node *fraction(tt_lower *cx, tt_node *word, int bits, double shift) {
  tt_hlo *h = cx->h;
  bool wide = word->type.dtype == TT_U64;
  tt_node *drop = tt_hlo_const_i(h, word->type.dtype, (wide ? 64 : 32) - bits);
  word = tt_hlo_shift_right_logical(h, word, drop);
  tt_node *x =
      tt_hlo_convert(h, tt_hlo_convert(h, word, wide ? TT_I64 : TT_I32), wide ? TT_F64 : TT_F32);
  double unit = 1.0 / (double)(INT64_C(1) << bits);
  x = tt_hlo_multiply(h, x, tt_like(cx, x, unit));
  return shift != 0.0 ? tt_hlo_add(h, x, tt_like(cx, x, shift * unit)) : x;
}

static tt_node *draw_word(tt_lower *cx, tt_draws *draws, int64_t count, tt_dtype dtype) {
  return dtype == TT_F64 ? tt_draw_u64(cx, draws, count) : tt_draw_u32(cx, draws, count);
}

tt_node *tt_draw_unit(tt_lower *cx, tt_draws *draws, int64_t count, tt_dtype dtype) {
  return fraction(cx, draw_word(cx, draws, count, dtype), dtype == TT_F64 ? 53 : 24, 0.0);
}

tt_node *tt_draw_open(tt_lower *cx, tt_draws *draws, int64_t count, tt_dtype dtype) {
  return fraction(cx, draw_word(cx, draws, count, dtype), dtype == TT_F64 ? 52 : 23, 0.5);
}

/* cos(2 pi t) for |t| <= 1 by the Taylor series of the sine on a quarter turn: XLA's own cosine is
 * several times slower on CPUs, since it must reduce any argument. */
static tt_node *cosine_of_turn(tt_lower *cx, tt_node *t) {
  tt_hlo *h = cx->h;
  tt_node *whole = tt_hlo_floor(h, tt_hlo_add(h, t, tt_like(cx, t, 0.5)));
  tt_node *fold = tt_hlo_abs(h, tt_hlo_subtract(h, t, whole));
  tt_node *x = tt_hlo_subtract(h, tt_like(cx, t, 0.25), fold);
  x = tt_hlo_multiply(h, x, tt_like(cx, t, 6.283185307179586));
  tt_node *square = tt_hlo_multiply(h, x, x), *sum = NULL;
  double factor = 1.0; /* +-1 / (2k + 1)! */
  double factors[11];
  int terms = t->type.dtype == TT_F64 ? 11 : 7;
  for (int k = 0; k < terms; k++) {
    factors[k] = factor;
    factor /= -(2.0 * k + 2.0) * (2.0 * k + 3.0);
  }
  for (int k = terms - 1; k >= 0; k--) {
    tt_node *next = tt_like(cx, t, factors[k]);
    sum = sum ? tt_hlo_add(h, tt_hlo_multiply(h, sum, square), next) : next;
  }
  return tt_hlo_multiply(h, sum, x);
}

/* Box and Muller: a radius and an angle give two normals, the second by a quarter turn. The radius
 * gets all the bits that there are, since they decide how far the tails reach. */
static tt_node *box_muller(tt_lower *cx, tt_node *first, tt_node *second, tt_node *odd) {
  tt_hlo *h = cx->h;
  bool wide = first->type.dtype == TT_U64;
  tt_node *radius = tt_hlo_log(h, fraction(cx, first, wide ? 53 : 31, 0.5));
  radius = tt_hlo_sqrt(h, tt_hlo_multiply(h, radius, tt_like(cx, radius, -2.0)));
  tt_node *turn = fraction(cx, second, wide ? 53 : 24, 0.0);
  if (odd) {
    tt_node *quarter =
        tt_hlo_multiply(h, tt_hlo_convert(h, odd, turn->type.dtype), tt_like(cx, turn, 0.25));
    turn = tt_hlo_subtract(h, turn, quarter);
  }
  return tt_hlo_multiply(h, radius, cosine_of_turn(cx, turn));
}

tt_node *tt_draw_normal(tt_lower *cx, tt_draws *draws, int64_t count, tt_dtype dtype) {
  tt_hlo *h = cx->h;
  tt_node *lanes[4], *slot, *first, *second;
  bool wide = dtype == TT_F64;
  tt_draw_blocks(cx, draws, count, wide ? 2 : 4, lanes, &slot);
  if (wide) {
    first = joined(h, lanes[0], lanes[1]);
    second = joined(h, lanes[2], lanes[3]);
  } else {
    tt_node *upper = tt_hlo_compare(h, TT_GE, slot, tt_hlo_const_i(h, TT_U32, 2));
    first = tt_hlo_select(h, upper, lanes[2], lanes[0]);
    second = tt_hlo_select(h, upper, lanes[3], lanes[1]);
  }
  tt_node *odd = tt_hlo_convert(h, tt_hlo_and(h, slot, tt_hlo_const_i(h, TT_U32, 1)), TT_I32);
  return box_muller(cx, first, second, odd);
}

/* The normal takes words 0 and 1 and the uniform word 2; in F64 words 0 to 2 and word 3. */
void tt_split_try(tt_lower *cx, tt_node *const *words, tt_dtype dtype, tt_node **normal,
                  tt_node **unit) {
  tt_hlo *h = cx->h;
  if (dtype != TT_F64) {
    *normal = box_muller(cx, words[0], words[1], NULL);
    *unit = fraction(cx, words[2], 23, 0.5);
    return;
  }
  tt_node *low = tt_hlo_zeros(h, &words[2]->type);
  *normal = box_muller(cx, joined(h, words[0], words[1]), joined(h, words[2], low), NULL);
  *unit = tt_hlo_convert(h, fraction(cx, words[3], 23, 0.5), TT_F64);
}

/* Words 0 and 1; in F64 all four. */
void tt_split_pair(tt_lower *cx, tt_node *const *words, tt_dtype dtype, tt_node **first,
                   tt_node **second) {
  bool wide = dtype == TT_F64;
  *first = wide ? joined(cx->h, words[0], words[1]) : words[0];
  *second = wide ? joined(cx->h, words[2], words[3]) : words[1];
  *first = fraction(cx, *first, wide ? 52 : 23, 0.5);
  *second = fraction(cx, *second, wide ? 52 : 23, 0.5);
}

/* -- What the distributions share -- */

tt_dtype tt_draw_dtype(tt_dtype dtype) {
  return dtype == TT_F64 || dtype == TT_C128 ? TT_F64 : TT_F32;
}

tt_type tt_drawn_type(tt_lower *cx) {
  if (cx->meta_types && cx->meta_count > 0) return cx->meta_types[0];
  return tt_in(cx, 0)->type;
}

tt_node *tt_spread(tt_lower *cx, int arg, tt_dtype dtype, const tt_type *type) {
  return tt_hlo_broadcast_to(cx->h, tt_cast(cx, tt_in(cx, arg), dtype), type->rank, type->dims);
}

bool tt_nothing_drawn(tt_lower *cx, const tt_type *type) {
  if (tt_type_numel(type) != 0) return false;
  tt_out(cx, 0, tt_hlo_zeros(cx->h, type));
  return true;
}

void tt_out_drawn(tt_lower *cx, tt_node *x, const tt_type *type) {
  tt_out_as(cx, 0, tt_cast(cx, x, type->dtype));
}
