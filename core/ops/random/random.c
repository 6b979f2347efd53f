/* Random operators. A row's `param` is the number of Philox words that an element takes at most in
 * one draw, so that the generator's offset moves by (numel / 4 + 1) * param blocks, whatever the
 * dtype and the mode:
 *
 *   uniform, bernoulli, normal, integers   one word; two in F64 and for ranges beyond 2^32
 *   permutations                           two words
 *   samplers (sample.c)                    four words, and as many draws as it tries
 *
 * In one draw element i takes word i, or words 2i and 2i + 1, or the whole block i. */
#include "ops/random/philox.h"

#include "ops/pointwise/pointwise.h"

#include <math.h>

tt_draws tt_draws_of(tt_lower *cx, const tt_type *type) {
  tt_axis axes[TT_MAX_RANK];
  for (int d = 0; d < type->rank; d++) axes[d] = (tt_axis){0, d};
  return (tt_draws){.places = tt_padded(cx, 0) ? tt_places_counted(cx, type, axes) : NULL};
}

static tt_node *unit_like(tt_lower *cx, const tt_type *type, tt_dtype compute, tt_draws draws) {
  tt_node *x = tt_draw_unit(cx, &draws, tt_type_numel(type), compute);
  return tt_hlo_reshape(cx->h, x, type->rank, type->dims);
}

static tt_node *open_like(tt_lower *cx, const tt_type *type, tt_dtype compute) {
  tt_draws draws = tt_draws_of(cx, type);
  tt_node *x = tt_draw_open(cx, &draws, tt_type_numel(type), compute);
  return tt_hlo_reshape(cx->h, x, type->rank, type->dims);
}

/* -- Uniform -- */

/* A float of few digits would round up to 1; so the surplus bits are cut off first. */
static tt_node *cut_to_digits(tt_lower *cx, tt_node *unit, tt_dtype dtype) {
  if (dtype != TT_F16 && dtype != TT_BF16) return unit;
  double steps = dtype == TT_F16 ? 2048.0 : 256.0;
  unit = tt_hlo_floor(cx->h, tt_hlo_multiply(cx->h, unit, tt_like(cx, unit, steps)));
  return tt_hlo_multiply(cx->h, unit, tt_like(cx, unit, 1.0 / steps));
}

static tt_node *uniform_of(tt_lower *cx, const tt_type *type) {
  return cut_to_digits(cx, unit_like(cx, type, tt_draw_dtype(type->dtype), tt_draws_of(cx, type)),
                       type->dtype);
}

void tt_lower_uniform(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_node *x = uniform_of(cx, &type);
  tt_node *from = tt_num(cx, 1, x->type.dtype), *to = tt_num(cx, 2, x->type.dtype);
  tt_check(cx, tt_hlo_compare(h, TT_GT, from, to), TT_INVALID_ARGUMENT,
           "uniform_ expects to return a [from, to) range, but found from > to");
  x = tt_hlo_multiply(h, x, tt_hlo_subtract(h, to, from));
  tt_out_drawn(cx, tt_hlo_add(h, x, from), &type);
}

void tt_lower_rand(tt_lower *cx) {
  tt_type type = tt_drawn_type(cx);
  if (!tt_nothing_drawn(cx, &type)) tt_out_drawn(cx, uniform_of(cx, &type), &type);
}

/* -- Normal -- */

/* A complex normal number has half the variance in each part. */
static tt_node *standard_normal(tt_lower *cx, const tt_type *type) {
  tt_hlo *h = cx->h;
  tt_draws draws = tt_draws_of(cx, type);
  tt_dtype compute = tt_draw_dtype(type->dtype);
  int64_t n = tt_type_numel(type);
  tt_node *x = tt_draw_normal(cx, &draws, n, compute);
  if (tt_is_complex(type->dtype)) {
    x = tt_hlo_complex(h, x, tt_draw_normal(cx, &draws, n, compute));
    x = tt_hlo_multiply(h, x, tt_like(cx, x, 0.7071067811865476));
  }
  return tt_hlo_reshape(h, x, type->rank, type->dims);
}

static tt_node *normal_of(tt_lower *cx, const tt_type *type, int mean_arg, int std_arg) {
  tt_hlo *h = cx->h;
  tt_node *x = standard_normal(cx, type);
  tt_node *mean = tt_spread(cx, mean_arg, x->type.dtype, type);
  tt_node *std = tt_spread(cx, std_arg, x->type.dtype, type);
  if (!tt_is_complex(x->type.dtype))
    tt_check(cx, tt_hlo_compare(h, TT_LT, std, tt_like(cx, std, 0.0)), TT_INVALID_ARGUMENT,
             "normal expects all elements of std >= 0.0");
  return tt_hlo_add(h, tt_hlo_multiply(h, x, std), mean);
}

void tt_lower_normal(tt_lower *cx) {
  tt_type type = tt_drawn_type(cx);
  if (!tt_nothing_drawn(cx, &type)) tt_out_drawn(cx, normal_of(cx, &type, 1, 2), &type);
}

/* Mean and std are arguments 0 and 1, each a tensor or a number. */
void tt_lower_normal_by(tt_lower *cx) {
  tt_type type = *tt_meta_type(cx, 0);
  if (!tt_nothing_drawn(cx, &type)) tt_out_drawn(cx, normal_of(cx, &type, 0, 1), &type);
}

void tt_lower_randn(tt_lower *cx) {
  tt_type type = tt_drawn_type(cx);
  if (!tt_nothing_drawn(cx, &type)) tt_out_drawn(cx, standard_normal(cx, &type), &type);
}

void tt_lower_log_normal(tt_lower *cx) {
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_out_drawn(cx, tt_hlo_exponential(cx->h, normal_of(cx, &type, 1, 2)), &type);
}

/* -- Others by inversion -- */

void tt_lower_exponential(tt_lower *cx) {
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_node *x = tt_hlo_log(cx->h, open_like(cx, &type, tt_draw_dtype(type.dtype)));
  tt_node *rate = tt_num(cx, 1, x->type.dtype);
  tt_out_drawn(cx, tt_hlo_negate(cx->h, tt_hlo_divide(cx->h, x, rate)), &type);
}

void tt_lower_geometric(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_node *x = tt_hlo_log(h, open_like(cx, &type, tt_draw_dtype(type.dtype)));
  tt_node *p = tt_num(cx, 1, x->type.dtype);
  x = tt_hlo_ceil(h, tt_hlo_divide(h, x, tt_hlo_log_plus_one(h, tt_hlo_negate(h, p))));
  tt_out_drawn(cx, tt_hlo_maximum(h, x, tt_like(cx, x, 1.0)), &type);
}

void tt_lower_cauchy(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_node *x = open_like(cx, &type, tt_draw_dtype(type.dtype));
  tt_node *median = tt_num(cx, 1, x->type.dtype), *sigma = tt_num(cx, 2, x->type.dtype);
  x = tt_hlo_multiply(h, tt_hlo_subtract(h, x, tt_like(cx, x, 0.5)),
                      tt_like(cx, x, 3.141592653589793));
  tt_out_drawn(cx, tt_hlo_add(h, tt_hlo_multiply(h, tt_hlo_tan(h, x), sigma), median), &type);
}

/* -- Bernoulli and dropout -- */

static tt_node *happens(tt_lower *cx, const tt_type *type, tt_node *p, tt_draws draws) {
  tt_hlo *h = cx->h;
  tt_node *low = tt_hlo_compare(h, TT_GE, p, tt_like(cx, p, 0.0));
  tt_node *high = tt_hlo_compare(h, TT_LE, p, tt_like(cx, p, 1.0));
  tt_check(cx, tt_hlo_not(h, tt_hlo_and(h, low, high)), TT_INVALID_ARGUMENT,
           "%s: expected probabilities between 0 and 1", cx->row->name);
  return tt_hlo_compare(h, TT_LT, unit_like(cx, type, p->type.dtype, draws), p);
}

/* The tensor itself holds the probabilities. */
void tt_lower_bernoulli(tt_lower *cx) {
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_node *p = tt_cast(cx, tt_in(cx, 0), tt_draw_dtype(type.dtype));
  tt_out_drawn(cx, happens(cx, &type, p, tt_draws_of(cx, &type)), &type);
}

/* Argument 1, a number or a tensor, holds them. */
void tt_lower_bernoulli_by(tt_lower *cx) {
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_dtype given = tt_in(cx, 1)->type.dtype;
  bool wide = cx->args[1].kind == TT_ARG_TENSOR && given == TT_F64;
  tt_node *p = tt_spread(cx, 1, wide ? TT_F64 : TT_F32, &type);
  tt_out_drawn(cx, happens(cx, &type, p, tt_draws_of(cx, &type)), &type);
}

static bool training(tt_lower *cx, int arg) { return !tt_has(cx, arg) || tt_bool(cx, arg); }

tt_node *tt_dropout_mask(tt_lower *cx, const tt_type *type, tt_node *keep, tt_node *places) {
  return happens(cx, type, tt_hlo_broadcast_to(cx->h, keep, type->rank, type->dims),
                 (tt_draws){.places = places});
}

/* input, p, train -> output, mask */
void tt_lower_dropout(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0);
  tt_type mask_type = x->type;
  mask_type.dtype = TT_BOOL;
  if (tt_type_numel(&x->type) == 0 || !training(cx, 2)) {
    tt_out_as(cx, 0, x);
    tt_out_as(cx, 1, tt_hlo_full(h, &mask_type, 1.0));
    return;
  }
  tt_dtype compute = tt_compute_dtype(x->type.dtype);
  tt_node *keep = tt_hlo_subtract(h, tt_hlo_const(h, TT_F64, 1.0), tt_num(cx, 1, TT_F64));
  tt_node *places = tt_draws_of(cx, &mask_type).places;
  tt_node *mask = tt_dropout_mask(cx, &mask_type, tt_hlo_convert(h, keep, TT_F32), places);
  mask = tt_once(cx, mask);
  tt_node *none = tt_hlo_compare(h, TT_EQ, keep, tt_like(cx, keep, 0.0));
  tt_node *divisor = tt_hlo_select(h, none, tt_like(cx, keep, (double)INFINITY), keep);
  tt_node *y = tt_hlo_multiply(h, tt_cast(cx, x, compute), tt_hlo_convert(h, mask, compute));
  y = tt_quotient(cx, y, tt_hlo_convert(h, divisor, compute));
  tt_out_as(cx, 0, tt_cast(cx, y, x->type.dtype));
  tt_out_as(cx, 1, mask);
}

/* grad_output, mask, scale */
void tt_lower_dropout_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *grad = tt_in(cx, 0);
  tt_dtype compute = tt_compute_dtype(grad->type.dtype);
  tt_node *x = tt_cast(cx, grad, compute), *mask = tt_cast(cx, tt_in(cx, 1), compute);
  x = tt_hlo_multiply(h, tt_hlo_multiply(h, x, mask), tt_num(cx, 2, compute));
  tt_out_as(cx, 0, tt_cast(cx, x, grad->type.dtype));
}

/* self, noise, lower, upper, training -> output, noise */
void tt_lower_rrelu(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0), *noise = tt_in(cx, 1);
  tt_type type = x->type;
  tt_dtype compute = tt_compute_dtype(type.dtype);
  tt_node *wide = tt_cast(cx, x, compute), *zero = tt_like(cx, wide, 0.0);
  tt_node *lower = tt_num(cx, 2, compute), *upper = tt_num(cx, 3, compute);
  tt_node *negative = tt_hlo_compare(h, TT_LE, wide, zero), *slope;
  if (tt_type_numel(&type) > 0 && tt_bool(cx, 4)) {
    slope = unit_like(cx, &type, compute, tt_draws_of(cx, &type));
    slope = tt_hlo_multiply(h, slope, tt_hlo_subtract(h, upper, lower));
    slope =
        tt_hlo_select(h, negative, tt_hlo_add(h, slope, lower), tt_hlo_full(h, &slope->type, 1.0));
    slope = tt_rounded(cx, slope, type.dtype);
    noise = tt_cast(cx, slope, type.dtype);
  } else {
    slope = tt_hlo_multiply(h, tt_hlo_add(h, lower, upper), tt_like(cx, lower, 0.5));
    slope = tt_hlo_broadcast_to(h, slope, type.rank, type.dims);
  }
  tt_node *y = tt_hlo_select(h, negative, tt_hlo_multiply(h, wide, slope), wide);
  tt_out_as(cx, 0, tt_cast(cx, y, type.dtype));
  tt_out_as(cx, 1, noise);
}

/* -- Integers -- */

/* `range` values from `from` on; a range of 0 means all 64 bits. */
static void integers(tt_lower *cx, const tt_type *type, int64_t from, uint64_t range) {
  tt_hlo *h = cx->h;
  int64_t n = tt_type_numel(type);
  if (tt_nothing_drawn(cx, type)) return;
  tt_draws draws = tt_draws_of(cx, type);
  tt_node *span = tt_hlo_const_i(h, TT_U64, (int64_t)range), *x;
  if (range != 0 && range <= UINT64_C(1) << 32) {
    x = tt_hlo_convert(h, tt_draw_u32(cx, &draws, n), TT_U64);
    x = tt_hlo_multiply(h, x, span);
    x = tt_hlo_shift_right_logical(h, x, tt_hlo_const_i(h, TT_U64, 32));
  } else {
    x = tt_draw_u64(cx, &draws, n);
    if (range != 0) x = tt_hlo_remainder(h, x, span);
  }
  x = tt_hlo_convert(h, x, TT_I64);
  if (from != 0) x = tt_hlo_add(h, x, tt_hlo_const_i(h, TT_I64, from));
  tt_out_drawn(cx, tt_hlo_reshape(h, x, type->rank, type->dims), type);
}

/* The greatest whole number up to which the dtype has them all. */
static uint64_t greatest(tt_dtype dtype) {
  int bits = (int)tt_dtype_bytes(dtype) * 8;
  switch (dtype) {
  case TT_BOOL:
    return 1;
  case TT_F16:
    return UINT64_C(1) << 11;
  case TT_BF16:
    return UINT64_C(1) << 8;
  case TT_F32:
    return UINT64_C(1) << 24;
  case TT_F64:
    return UINT64_C(1) << 53;
  default:
    if (tt_dtype_kind(dtype) == TT_KIND_SIGNED) bits--;
    return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
  }
}

void tt_lower_random(tt_lower *cx) {
  tt_type type = tt_drawn_type(cx);
  integers(cx, &type, 0, greatest(type.dtype) + 1);
}

/* Whether the dtype, if it is an integer's, can hold from and to - 1. */
static bool fits(tt_dtype dtype, int64_t from, int64_t to) {
  bool is_signed = tt_dtype_kind(dtype) == TT_KIND_SIGNED;
  if (tt_is_float(dtype) || dtype == TT_I64) return true;
  if (dtype == TT_U64) return from >= 0;
  int64_t high = (int64_t)greatest(dtype), low = is_signed ? -high - 1 : 0;
  return from >= low && to - 1 <= high;
}

static bool check_bounds(tt_lower *cx, tt_dtype dtype, int64_t from, int64_t to) {
  if (from < to && fits(dtype, from, to)) return true;
  const char *expected =
      from < to ? "bounds that the dtype can hold" : "'from' to be less than 'to'";
  tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "random_ expects %s, but got from=%lld %s to=%lld",
              expected, (long long)from, from < to ? "and" : ">=", (long long)to);
  return false;
}

static void between(tt_lower *cx, int from_arg, int to_arg) {
  tt_type type = tt_drawn_type(cx);
  int64_t from = from_arg >= 0 ? tt_int(cx, from_arg) : 0;
  uint64_t end = greatest(type.dtype) + 1;
  if (tt_has(cx, to_arg)) {
    end = (uint64_t)tt_int(cx, to_arg);
    if (!check_bounds(cx, type.dtype, from, (int64_t)end)) return;
  } else if (from == INT64_MIN) {
    end = (uint64_t)from;
  }
  integers(cx, &type, from, end - (uint64_t)from);
}

void tt_lower_random_from(tt_lower *cx) { between(cx, 1, 2); }
void tt_lower_random_to(tt_lower *cx) { between(cx, -1, 1); }
void tt_lower_randint(tt_lower *cx) { between(cx, -1, 0); }
void tt_lower_randint_low(tt_lower *cx) { between(cx, 0, 1); }
