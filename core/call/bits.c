#include "call/bits.h"

tt_node *tt_bits_flat(tt_hlo *h, tt_node *x) {
  int64_t n = tt_type_numel(&x->type);
  return tt_hlo_reshape(h, x, 1, &n);
}

/* The bits as a flat tensor of plain numbers (no bool, no complex). */
static tt_node *plain_bits(tt_hlo *h, tt_node *x) {
  x = tt_bits_flat(h, x);
  if (x->type.dtype == TT_BOOL) return tt_hlo_convert(h, x, TT_U8);
  if (!tt_is_complex(x->type.dtype)) return x;
  int64_t n = x->type.dims[0], pair[2] = {n, 1};
  tt_node *parts[2] = {tt_hlo_reshape(h, tt_hlo_real(h, x), 2, pair),
                       tt_hlo_reshape(h, tt_hlo_imag(h, x), 2, pair)};
  return tt_bits_flat(h, tt_hlo_concatenate(h, parts, 2, 1));
}

/* Flat bits of any width as flat bits of `dtype`, which is plain. XLA's CPU compiler mistakes the
 * places of padding where it fuses this for bf16 between a pad and a reshape. */
static tt_node *rewidth(tt_hlo *h, tt_node *x, tt_dtype dtype) {
  int64_t from = tt_dtype_bytes(x->type.dtype), to = tt_dtype_bytes(dtype);
  if (to > from) {
    int64_t ratio = to / from, dims[2] = {x->type.dims[0] / ratio, ratio};
    int64_t start = 0, limit = dims[0] * ratio;
    x = tt_hlo_reshape(h, tt_hlo_slice(h, x, &start, &limit, NULL), 2, dims);
  }
  x = tt_bits_flat(h, tt_hlo_bitcast(h, x, dtype));
  return dtype == TT_BF16 ? tt_hlo_optimization_barrier(h, x) : x;
}

tt_node *tt_bits_retype(tt_hlo *h, tt_node *x, tt_dtype dtype) {
  if (x->type.dtype == dtype) return x;
  x = plain_bits(h, x);
  if (dtype == TT_BOOL) {
    x = rewidth(h, x, TT_U8);
    return tt_hlo_compare(h, TT_NE, x, tt_hlo_const_i(h, TT_U8, 0));
  }
  if (!tt_is_complex(dtype)) return rewidth(h, x, dtype);
  x = rewidth(h, x, tt_dtype_real(dtype));
  int64_t n = x->type.dims[0] / 2, dims[2] = {n, 2};
  x = tt_hlo_reshape(h, tt_hlo_slice_dim(h, x, 0, 0, 2 * n, 1), 2, dims);
  return tt_hlo_complex(h, tt_bits_flat(h, tt_hlo_slice_dim(h, x, 1, 0, 1, 1)),
                        tt_bits_flat(h, tt_hlo_slice_dim(h, x, 1, 1, 2, 1)));
}

tt_node *tt_bits_with_rest(tt_hlo *h, tt_node *x, tt_node *storage) {
  int64_t seen = x->type.dims[0], total = storage->type.dims[0];
  if (seen == total) return x;
  tt_node *parts[2] = {x, tt_hlo_slice_dim(h, storage, 0, seen, total, 1)};
  return tt_hlo_concatenate(h, parts, 2, 0);
}

/* -- Complex numbers of two halves: the real one is in the low bits of a U32 -- */

static tt_node *half_of(tt_hlo *h, tt_node *x, int64_t shift) {
  x = tt_hlo_shift_right_logical(h, x, tt_hlo_const_i(h, TT_U32, shift));
  return tt_hlo_convert(h, tt_hlo_bitcast(h, tt_hlo_convert(h, x, TT_U16), TT_F16), TT_F32);
}

tt_node *tt_bits_decode_halves(tt_hlo *h, tt_node *x) {
  return tt_hlo_complex(h, half_of(h, x, 0), half_of(h, x, 16));
}

static tt_node *bits_of_half(tt_hlo *h, tt_node *x) {
  x = tt_hlo_bitcast(h, tt_hlo_convert(h, x, TT_F16), TT_U16);
  return tt_hlo_convert(h, x, TT_U32);
}

tt_node *tt_bits_encode_halves(tt_hlo *h, tt_node *x) {
  tt_node *high = bits_of_half(h, tt_hlo_imag(h, x));
  high = tt_hlo_shift_left(h, high, tt_hlo_const_i(h, TT_U32, 16));
  return tt_hlo_or(h, bits_of_half(h, tt_hlo_real(h, x)), high);
}
