/* Random orders and choices. */
#include <inttypes.h>

#include "ops/random/philox.h"
#include "ops/sort/search.h"
#include "ops/sort/sort.h"

static void smaller_key(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_compare(h, TT_LT, args[0], args[1]);
}

/* Up to which number PyTorch lets a dtype count, or -1. */
static int64_t most_counted(tt_dtype dtype) {
  if (dtype == TT_F16) return (1 << 11) + 1;
  if (dtype == TT_F32) return (1 << 24) + 1;
  return dtype == TT_F64 ? ((int64_t)1 << 53) + 1 : -1;
}

/* The order of random 64-bit keys; equal ones keep theirs. What does not count comes last. */
void tt_lower_randperm(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_type type = *tt_meta_type(cx, 0), index = type;
  if (tt_nothing_drawn(cx, &type)) return;
  int64_t n = tt_type_numel(&type), most = most_counted(type.dtype);
  if (most >= 0 && n > most) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                "%s: n cannot be greater than %" PRId64 " in %s, not %" PRId64, cx->row->name, most,
                tt_dtype_name(type.dtype), n);
    return;
  }
  index.dtype = n <= INT32_MAX ? TT_I32 : TT_I64;
  tt_draws draws = tt_draws_of(cx, &type);
  tt_node *keys = tt_pad(cx, 0, tt_draw_u64(cx, &draws, n), TT_MIN);
  tt_node *xs[2] = {keys, tt_hlo_iota(h, &index, 0)}, *sorted[2];
  tt_hlo_sort(h, 2, xs, 0, true, smaller_key, NULL, sorted);
  tt_out_drawn(cx, sorted[1], &type);
}

/* -- Multinomial -- */

/* An exponential race: the k smallest of E / p win, each place in proportion to what is left. Row
 * and category number the blocks, so that the offset need not move by the number of categories. */
static tt_node *without_replacement(tt_lower *cx, tt_node *p, int64_t k) {
  tt_hlo *h = cx->h;
  tt_type wide = p->type, word = p->type;
  wide.dtype = TT_U64;
  word.dtype = TT_U32;
  tt_node *words[4], *u, *times, *winners;
  tt_philox_at(cx, tt_hlo_iota(h, &wide, 0), tt_hlo_const_i(h, TT_U32, 0), tt_hlo_iota(h, &word, 1),
               words);
  tt_split_pair(cx, words, p->type.dtype, &u, &words[1]);
  tt_node *race = tt_hlo_divide(h, tt_hlo_negate(h, tt_hlo_log(h, u)), p);
  tt_first_sorted(cx, race, 1, false, k, &times, &winners);
  return winners;
}

/* By inversion. The probabilities become whole numbers, so that their partial sums are exact and
 * what has none is never chosen. */
static tt_node *with_replacement(tt_lower *cx, tt_node *p, int64_t k) {
  tt_hlo *h = cx->h;
  int64_t rows = p->type.dims[0], n = p->type.dims[1];
  int last = 1;
  tt_draws draws = {0};
  p = tt_cast(cx, p, TT_F64);
  tt_node *sum = tt_reduce_keep(cx, TT_SUM, p, &last, 1, true);
  p = tt_hlo_divide(h, p, tt_hlo_broadcast_to(h, sum, 2, p->type.dims));
  p = tt_hlo_floor(h, tt_hlo_multiply(h, p, tt_like(cx, p, 0x1p52)));
  tt_node *ends = tt_prefix_sum(cx, p), *total = tt_hlo_slice_dim(h, ends, 1, n - 1, n, 1);
  tt_node *u = tt_draw_unit(cx, &draws, rows * k, TT_F64);
  int64_t dims[2] = {rows, k};
  u = tt_hlo_multiply(h, tt_hlo_reshape(h, u, 2, dims), tt_hlo_broadcast_to(h, total, 2, dims));
  tt_node *chosen = tt_search(cx, ends, NULL, tt_hlo_floor(h, u), true);
  return tt_hlo_minimum(h, chosen, tt_hlo_const_i(h, TT_I64, n - 1));
}

enum { MOST_CATEGORIES = 1 << 24 };

/* probabilities, num_samples, replacement */
void tt_lower_multinomial(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *p = tt_in(cx, 0), *zero;
  int64_t k = tt_int(cx, 1), n = p->type.dims[p->type.rank > 0 ? p->type.rank - 1 : 0];
  bool enough = tt_bool(cx, 2) || k <= n;
  if (!tt_is_float(p->type.dtype) || k <= 0 || n > MOST_CATEGORIES || !enough) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                "multinomial: expected floating probabilities of at most %d categories, and a "
                "positive number of samples, no more than categories unless with replacement",
                MOST_CATEGORIES);
    return;
  }
  if (tt_out_empty(cx)) return;
  p = tt_cast(cx, p, tt_draw_dtype(p->type.dtype));
  p = tt_hlo_reshape(h, p, 2, (int64_t[]){n > 0 ? tt_type_numel(&p->type) / n : 0, n});
  zero = tt_like(cx, p, 0.0);
  tt_node *fine = tt_hlo_and(h, tt_hlo_is_finite(h, p), tt_hlo_compare(h, TT_GE, p, zero));
  tt_check(cx, tt_hlo_not(h, fine), TT_INVALID_ARGUMENT,
           "probability tensor contains either `inf`, `nan` or element < 0");
  tt_node *sum = tt_hlo_reduce(h, TT_SUM, p, (int[]){1}, 1);
  tt_check(cx, tt_hlo_compare(h, TT_LE, sum, zero), TT_INVALID_ARGUMENT,
           "invalid multinomial distribution (sum of probabilities <= 0)");
  tt_node *chosen = tt_bool(cx, 2) ? with_replacement(cx, p, k) : without_replacement(cx, p, k);
  const tt_type *type = tt_meta_type(cx, 0);
  tt_out_as(cx, 0, tt_hlo_reshape(h, chosen, type->rank, type->dims));
}
