/* Philox-4x32-10 as integer operations: the same numbers on every device and in every mode.
 *
 * Key: the call's seed, low word first. Counter: the call's offset plus the number of the block in
 * words 0 and 1, zeros in words 2 and 3. A block gives four words. */
#include "ops/random.h"

enum { ROUNDS = 10, MULTIPLIER_0 = 0, MULTIPLIER_1 = 1 };
static const int64_t multipliers[2] = {0xD2511F53, 0xCD9E8D57};
static const int64_t weyl[2] = {0x9E3779B9, 0xBB67AE85};

static tt_node *low_word(tt_hlo *h, tt_node *x) { return tt_hlo_convert(h, x, TT_U32); }

static tt_node *high_word(tt_hlo *h, tt_node *x) {
  return low_word(h, tt_hlo_shift_right_logical(h, x, tt_hlo_const_i(h, TT_U64, 32)));
}

static tt_node *product(tt_hlo *h, int which, tt_node *x) {
  return tt_hlo_multiply(h, tt_hlo_convert(h, x, TT_U64),
                         tt_hlo_const_i(h, TT_U64, multipliers[which]));
}

static void round_of(tt_hlo *h, tt_node **c, tt_node *const *key) {
  tt_node *p0 = product(h, MULTIPLIER_0, c[0]), *p1 = product(h, MULTIPLIER_1, c[2]);
  tt_node *x0 = tt_hlo_xor(h, tt_hlo_xor(h, high_word(h, p1), c[1]), key[0]);
  tt_node *x2 = tt_hlo_xor(h, tt_hlo_xor(h, high_word(h, p0), c[3]), key[1]);
  c[0] = x0;
  c[1] = low_word(h, p1);
  c[2] = x2;
  c[3] = low_word(h, p0);
}

void tt_philox_lanes(tt_lower *cx, int64_t blocks, tt_node **lanes) {
  tt_hlo *h = cx->h;
  tt_type wide = {.dtype = TT_U64, .rank = 1, .dims = {blocks}}, word = wide;
  word.dtype = TT_U32;
  if (!cx->seed || !cx->offset) {
    tt_hlo_fail(h, TT_INTERNAL, "%s: no seed and offset were given", cx->row->name);
    for (int i = 0; i < 4; i++) lanes[i] = tt_hlo_zeros(h, &word);
    return;
  }
  tt_node *seed = tt_hlo_convert(h, cx->seed, TT_U64);
  tt_node *counter = tt_hlo_add(h, tt_hlo_iota(h, &wide, 0), tt_hlo_convert(h, cx->offset, TT_U64));
  tt_node *key[2] = {low_word(h, seed), high_word(h, seed)};
  lanes[0] = low_word(h, counter);
  lanes[1] = high_word(h, counter);
  lanes[2] = lanes[3] = tt_hlo_zeros(h, &word);
  for (int i = 0; i < ROUNDS; i++) {
    round_of(h, lanes, key);
    for (int k = 0; k < 2; k++) key[k] = tt_hlo_add(h, key[k], tt_hlo_const_i(h, TT_U32, weyl[k]));
  }
}

tt_node *tt_philox(tt_lower *cx, int64_t count) {
  tt_hlo *h = cx->h;
  int64_t blocks = (count + 3) / 4;
  tt_node *lanes[4];
  tt_philox_lanes(cx, blocks, lanes);
  for (int i = 0; i < 4; i++) lanes[i] = tt_hlo_reshape(h, lanes[i], 2, (int64_t[]){blocks, 1});
  tt_node *words = tt_hlo_concatenate(h, lanes, 4, 1);
  words = tt_hlo_reshape(h, words, 1, (int64_t[]){4 * blocks});
  return tt_hlo_slice_dim(h, words, 0, 0, count, 1);
}

int64_t tt_philox_blocks(const tt_op_row *row, int64_t numel) {
  int64_t blocks;
  if (row->cls != TT_RANDOM || numel < 0) return 0;
  return tt_mul_i64(numel / 4 + 1, row->param, &blocks) ? blocks : INT64_MAX;
}

/* -- Floats made of words -- */

tt_stream tt_stream_open(tt_lower *cx, int64_t words) {
  return (tt_stream){.words = tt_philox(cx, words)};
}

tt_node *tt_draw_words(tt_lower *cx, tt_stream *stream, int64_t count) {
  int64_t start = stream->used;
  stream->used += count;
  return tt_hlo_slice_dim(cx->h, stream->words, 0, start, start + count, 1);
}

int64_t tt_words_of(tt_dtype dtype) { return dtype == TT_F64 ? 2 : 1; }

/* The upper `bits` of each number's words, as a float. F32 takes at most 31 bits. */
static tt_node *draw_bits(tt_lower *cx, tt_stream *stream, int64_t count, tt_dtype dtype, int bits) {
  tt_hlo *h = cx->h;
  tt_node *word = tt_draw_words(cx, stream, count);
  if (dtype != TT_F64) {
    word = tt_hlo_shift_right_logical(h, word, tt_hlo_const_i(h, TT_U32, 32 - bits));
    return tt_hlo_convert(h, tt_hlo_convert(h, word, TT_I32), dtype);
  }
  tt_node *high = tt_hlo_convert(h, word, TT_U64);
  tt_node *low = tt_hlo_convert(h, tt_draw_words(cx, stream, count), TT_U64);
  tt_node *wide = tt_hlo_or(h, tt_hlo_shift_left(h, high, tt_hlo_const_i(h, TT_U64, 32)), low);
  wide = tt_hlo_shift_right_logical(h, wide, tt_hlo_const_i(h, TT_U64, 64 - bits));
  return tt_hlo_convert(h, tt_hlo_convert(h, wide, TT_I64), dtype);
}

static tt_node *scaled(tt_lower *cx, tt_node *x, double scale, double shift) {
  x = tt_hlo_multiply(cx->h, x, tt_like(cx, x, scale));
  return shift != 0.0 ? tt_hlo_add(cx->h, x, tt_like(cx, x, shift)) : x;
}

tt_node *tt_draw_unit(tt_lower *cx, tt_stream *stream, int64_t count, tt_dtype dtype) {
  if (dtype == TT_F64) return scaled(cx, draw_bits(cx, stream, count, dtype, 53), 0x1p-53, 0.0);
  return scaled(cx, draw_bits(cx, stream, count, TT_F32, 24), 0x1p-24, 0.0);
}

tt_node *tt_draw_open(tt_lower *cx, tt_stream *stream, int64_t count, tt_dtype dtype) {
  if (dtype == TT_F64) return scaled(cx, draw_bits(cx, stream, count, dtype, 52), 0x1p-52, 0x1p-53);
  return scaled(cx, draw_bits(cx, stream, count, TT_F32, 23), 0x1p-23, 0x1p-24);
}

/* Box and Muller: each pair of uniforms gives a pair of normals, of which the first halves of the
 * result take one and the second halves the other. The radius gets all the bits there are, since
 * they decide how far the tails reach. */
tt_node *tt_draw_normal(tt_lower *cx, tt_stream *stream, int64_t count, tt_dtype dtype) {
  tt_hlo *h = cx->h;
  int64_t pairs = (count + 1) / 2;
  tt_node *u = dtype == TT_F64
                   ? scaled(cx, draw_bits(cx, stream, pairs, dtype, 53), 0x1p-53, 0x1p-54)
                   : scaled(cx, draw_bits(cx, stream, pairs, TT_F32, 31), 0x1p-31, 0x1p-32);
  tt_node *angle = scaled(cx, tt_draw_unit(cx, stream, pairs, dtype), 6.283185307179586, 0.0);
  tt_node *radius = tt_hlo_sqrt(h, scaled(cx, tt_hlo_log(h, u), -2.0, 0.0));
  tt_node *both[2] = {tt_hlo_multiply(h, radius, tt_hlo_cosine(h, angle)),
                      tt_hlo_multiply(h, radius, tt_hlo_sine(h, angle))};
  return tt_hlo_slice_dim(h, tt_hlo_concatenate(h, both, 2, 0), 0, 0, count, 1);
}

tt_dtype tt_draw_dtype(tt_dtype dtype) {
  return dtype == TT_F64 || dtype == TT_C128 ? TT_F64 : TT_F32;
}

tt_type tt_drawn_type(tt_lower *cx) {
  if (cx->promised && cx->promised_count > 0) return cx->promised[0];
  return tt_in(cx, 0)->type;
}

tt_node *tt_spread(tt_lower *cx, int arg, tt_dtype dtype, const tt_type *type) {
  return tt_hlo_broadcast_to(cx->h, tt_cast(cx, tt_in(cx, arg), dtype), type->rank, type->dims);
}
