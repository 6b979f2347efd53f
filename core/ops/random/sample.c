/* Distributions without a formula: elements try until they accept, all of them in one loop. Round
 * k draws with k in word 2 of the counters, so that what an element gets does not depend on how
 * long the others take. */
#include "ops/random/sample.h"

enum { MAX_ROUNDS = 200 };

tt_node *tt_sampler_num(const tt_sampler *s, double value) {
  return tt_hlo_const(s->cx->h, s->dtype, value);
}

static void any_left(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  int dim = 0;
  tt_node *left = tt_hlo_reduce(h, TT_OR, tt_hlo_not(h, args[1]), &dim, 1);
  tt_node *early = tt_hlo_compare(h, TT_LT, args[0], tt_hlo_const_i(h, TT_U32, MAX_ROUNDS));
  results[0] = tt_hlo_and(h, left, early);
}

static void try_again(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const tt_sampler *s = user;
  tt_type type = {.dtype = TT_U64, .rank = 1, .dims = {s->count}};
  tt_node *words[4], *value, *accepted;
  tt_node *draw = tt_hlo_add(h, args[0], tt_hlo_const_i(h, TT_U32, s->first_draw));
  tt_philox_at(s->cx, tt_hlo_iota(h, &type, 0), draw, tt_hlo_const_i(h, TT_U32, 0), words);
  s->attempt(s, words, &value, &accepted);
  results[0] = tt_hlo_add(h, args[0], tt_hlo_const_i(h, TT_U32, 1));
  results[1] = tt_hlo_or(h, args[1], accepted);
  results[2] = tt_hlo_select(h, args[1], args[2], tt_hlo_select(h, accepted, value, args[2]));
}

tt_node *tt_sample(tt_sampler *s, tt_node *done, tt_node *start) {
  tt_node *state[3] = {tt_hlo_const_i(s->cx->h, TT_U32, 0), done, start}, *end[3];
  tt_hlo_while(s->cx->h, 3, state, any_left, try_again, s, end);
  return end[2];
}

tt_node *tt_flat_operand(tt_lower *cx, int arg, tt_dtype dtype, const tt_type *type) {
  return tt_flatten(cx, tt_spread(cx, arg, dtype, type));
}

/* -- Gamma: Marsaglia and Tsang, 2000. operands: d = shape - 1/3, c = 1 / sqrt(9 d) -- */

static void attempt_gamma(const tt_sampler *s, tt_node *const *words, tt_node **value,
                          tt_node **accepted) {
  tt_hlo *h = s->cx->h;
  tt_node *x, *u, *d = s->operands[0], *one = tt_sampler_num(s, 1.0);
  tt_split_try(s->cx, words, s->dtype, &x, &u);
  tt_node *root = tt_hlo_add(h, one, tt_hlo_multiply(h, s->operands[1], x));
  tt_node *positive = tt_hlo_compare(h, TT_GT, root, tt_sampler_num(s, 0.0));
  tt_node *v = tt_hlo_multiply(h, root, tt_hlo_multiply(h, root, root));
  tt_node *safe = tt_hlo_select(h, positive, v, one);
  tt_node *bound = tt_hlo_add(h, tt_hlo_subtract(h, one, safe), tt_hlo_log(h, safe));
  bound = tt_hlo_multiply(h, d, bound);
  bound =
      tt_hlo_add(h, bound, tt_hlo_multiply(h, tt_sampler_num(s, 0.5), tt_hlo_multiply(h, x, x)));
  *accepted = tt_hlo_and(h, positive, tt_hlo_compare(h, TT_LT, tt_hlo_log(h, u), bound));
  *value = tt_hlo_multiply(h, d, v);
}

/* The logarithm of a gamma variable, which shapes near 0 need; `shape` has rank 1. */
static tt_node *log_gamma_variable(tt_lower *cx, tt_node *shape) {
  tt_hlo *h = cx->h;
  tt_sampler s = {.cx = cx,
                  .count = shape->type.dims[0],
                  .dtype = shape->type.dtype,
                  .first_draw = 1,
                  .attempt = attempt_gamma};
  tt_node *one = tt_sampler_num(&s, 1.0), *small = tt_hlo_compare(h, TT_LT, shape, one), *words[4],
          *boost;
  tt_node *raised = tt_hlo_select(h, small, tt_hlo_add(h, shape, one), shape);
  tt_node *d = tt_hlo_subtract(h, raised, tt_sampler_num(&s, 1.0 / 3.0));
  s.operands[0] = d;
  s.operands[1] = tt_hlo_rsqrt(h, tt_hlo_multiply(h, d, tt_sampler_num(&s, 9.0)));
  tt_node *bad = tt_hlo_not(h, tt_hlo_compare(h, TT_GT, shape, tt_sampler_num(&s, 0.0)));
  tt_node *x = tt_hlo_log(h, tt_sample(&s, bad, d));
  tt_draws draws = {0};
  tt_draw_blocks(cx, &draws, s.count, 1, words, NULL);
  tt_split_pair(cx, words, s.dtype, &boost, &words[1]);
  boost = tt_hlo_divide(h, tt_hlo_log(h, boost), shape);
  return tt_hlo_select(h, small, tt_hlo_add(h, x, boost), x);
}

static double tiniest(tt_dtype dtype) {
  return dtype == TT_F64 ? 0x1p-1022 : dtype == TT_F16 ? 0x1p-14 : 0x1p-126;
}

/* Not below the dtype's smallest normal number, as in PyTorch. */
void tt_lower_standard_gamma(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_node *shape = tt_flat_operand(cx, 0, tt_draw_dtype(type.dtype), &type);
  tt_node *x = tt_hlo_exponential(h, log_gamma_variable(cx, shape));
  x = tt_hlo_maximum(h, x, tt_like(cx, x, tiniest(type.dtype)));
  x = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, shape, tt_like(cx, x, 0.0)),
                    tt_hlo_zeros(h, &x->type), x);
  tt_out_drawn(cx, tt_hlo_reshape(h, x, type.rank, type.dims), &type);
}

/* Gamma variables divided by their sum along the last dim; in logarithms, so that small shapes do
 * not all round to 0. */
void tt_lower_sample_dirichlet(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_node *x = log_gamma_variable(cx, tt_flat_operand(cx, 0, tt_draw_dtype(type.dtype), &type));
  x = tt_hlo_reshape(h, x, type.rank, type.dims);
  int last = type.rank - 1;
  int count = type.rank > 0 ? 1 : 0;
  tt_node *most = tt_reduce_keep(cx, TT_MAX, x, &last, count, true);
  x = tt_hlo_exponential(h,
                         tt_hlo_subtract(h, x, tt_hlo_broadcast_to(h, most, type.rank, type.dims)));
  tt_node *sum = tt_reduce_keep(cx, TT_SUM, x, &last, count, true);
  x = tt_hlo_divide(h, x, tt_hlo_broadcast_to(h, sum, type.rank, type.dims));
  tt_out_drawn(cx, x, &type);
}
