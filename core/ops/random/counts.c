/* Counts: Poisson and binomial variables. Small means by inversion, large ones by rejection. */
#include "ops/random/sample.h"

enum { SMALL_MEAN = 10, MOST_STEPS = 200 };

/* -- Small counts by inversion: one number u runs down the probabilities of 0, 1, 2, .. -- */

/* state: k (rank 0), u left over, probability of k, value */
static void still_running(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  int dim = 0;
  tt_node *zero = tt_hlo_const(h, args[1]->type.dtype, 0.0);
  (void)user;
  tt_node *running = tt_hlo_compare(h, TT_GE, args[1], zero);
  tt_node *early =
      tt_hlo_compare(h, TT_LT, args[0], tt_hlo_const(h, args[0]->type.dtype, MOST_STEPS));
  results[0] = tt_hlo_and(h, tt_hlo_reduce(h, TT_OR, running, &dim, 1), early);
}

/* operands: the factor r and the count n (NULL: none) of p(k + 1) = p(k) r (n - k) / (k + 1). */
static void run_down(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const tt_sampler *s = user;
  tt_node *next = tt_hlo_add(h, args[0], tt_sampler_num(s, 1.0)), *zero = tt_sampler_num(s, 0.0);
  tt_node *running = tt_hlo_compare(h, TT_GE, args[1], zero);
  tt_node *ratio = tt_hlo_divide(h, s->operands[0], next);
  if (s->operands[1])
    ratio = tt_hlo_multiply(h, ratio, tt_hlo_subtract(h, s->operands[1], args[0]));
  results[0] = next;
  results[2] = tt_hlo_multiply(h, args[2], ratio);
  tt_node *left = tt_hlo_subtract(h, args[1], results[2]);
  tt_node *end = tt_hlo_or(h, tt_hlo_compare(h, TT_LT, left, zero),
                           tt_hlo_not(h, tt_hlo_compare(h, TT_GT, results[2], zero)));
  results[1] = tt_hlo_select(h, tt_hlo_and(h, running, tt_hlo_not(h, end)), left,
                             tt_hlo_full(h, &left->type, -1.0));
  results[3] = tt_hlo_select(h, running, tt_hlo_broadcast_to(h, next, 1, &s->count), args[3]);
}

/* `first` is the probability of 0. */
static tt_node *count_by_inversion(tt_sampler *s, tt_node *first) {
  tt_hlo *h = s->cx->h;
  tt_node *words[4], *u;
  tt_draws draws = {0};
  tt_draw_blocks(s->cx, &draws, s->count, 1, words, NULL);
  tt_split_pair(s->cx, words, s->dtype, &u, &words[1]);
  tt_node *state[4] = {tt_sampler_num(s, 0.0), tt_hlo_subtract(h, u, first), first,
                       tt_hlo_zeros(h, &first->type)},
          *end[4];
  tt_hlo_while(h, 4, state, still_running, run_down, s, end);
  return end[3];
}

/* -- Poisson: beyond 10 by Hormann's transformed rejection, 1993 (PTRS) -- */

/* -x + k log x - log k!, in a form that loses no digits where k is near x. */
static tt_node *log_poisson(const tt_sampler *s, tt_node *x, tt_node *k) {
  tt_hlo *h = s->cx->h;
  tt_node *one = tt_sampler_num(s, 1.0), *safe = tt_hlo_maximum(h, k, one);
  tt_node *d = tt_hlo_divide(h, tt_hlo_subtract(h, x, safe), safe);
  tt_node *y = tt_hlo_multiply(h, safe, tt_hlo_subtract(h, tt_hlo_log_plus_one(h, d), d));
  tt_node *root = tt_hlo_log(h, tt_hlo_multiply(h, safe, tt_sampler_num(s, 6.283185307179586)));
  y = tt_hlo_subtract(h, y, tt_hlo_multiply(h, root, tt_sampler_num(s, 0.5)));
  tt_node *inverse = tt_hlo_divide(h, one, safe), *square = tt_hlo_multiply(h, inverse, inverse);
  tt_node *series = tt_hlo_multiply(h, square, tt_sampler_num(s, 1.0 / 1260.0));
  series = tt_hlo_multiply(h, square, tt_hlo_subtract(h, series, tt_sampler_num(s, 1.0 / 360.0)));
  series = tt_hlo_multiply(h, inverse, tt_hlo_add(h, series, tt_sampler_num(s, 1.0 / 12.0)));
  y = tt_hlo_subtract(h, y, series);
  return tt_hlo_select(h, tt_hlo_compare(h, TT_LT, k, one), tt_hlo_negate(h, x), y);
}

/* What both transformed rejections propose: floor((2 a / us + b) u + c), us = 1/2 - |u|. */
typedef struct proposal {
  tt_node *k, *v, *us, *quick; /* quick: accepted by the squeeze */
} proposal;

static proposal propose(const tt_sampler *s, tt_node *const *words, tt_node *a, tt_node *b,
                        tt_node *centre, tt_node *squeeze) {
  tt_hlo *h = s->cx->h;
  proposal p;
  tt_node *u;
  tt_split_pair(s->cx, words, s->dtype, &u, &p.v);
  u = tt_hlo_subtract(h, u, tt_sampler_num(s, 0.5));
  p.us = tt_hlo_subtract(h, tt_sampler_num(s, 0.5), tt_hlo_abs(h, u));
  tt_node *slope = tt_hlo_divide(h, tt_hlo_multiply(h, tt_sampler_num(s, 2.0), a), p.us);
  slope = tt_hlo_multiply(h, tt_hlo_add(h, slope, b), u);
  p.k = tt_hlo_floor(h, tt_hlo_add(h, slope, centre));
  p.quick = tt_hlo_and(h, tt_hlo_compare(h, TT_GE, p.us, tt_sampler_num(s, 0.07)),
                       tt_hlo_compare(h, TT_LE, p.v, squeeze));
  return p;
}

/* log(v alpha / (a / us^2 + b)) */
static tt_node *height(const tt_sampler *s, const proposal *p, tt_node *alpha, tt_node *a,
                       tt_node *b) {
  tt_hlo *h = s->cx->h;
  tt_node *hat = tt_hlo_add(h, tt_hlo_divide(h, a, tt_hlo_multiply(h, p->us, p->us)), b);
  return tt_hlo_log(h, tt_hlo_divide(h, tt_hlo_multiply(h, p->v, alpha), hat));
}

/* c0 + c1 x */
static tt_node *linear(const tt_sampler *s, double c0, double c1, tt_node *x) {
  return tt_hlo_add(s->cx->h, tt_hlo_multiply(s->cx->h, x, tt_sampler_num(s, c1)),
                    tt_sampler_num(s, c0));
}

/* c0 + c1 / x */
static tt_node *hyperbola(const tt_sampler *s, double c0, double c1, tt_node *x) {
  return tt_hlo_add(s->cx->h, tt_hlo_divide(s->cx->h, tt_sampler_num(s, c1), x),
                    tt_sampler_num(s, c0));
}

/* operands: rate */
static void attempt_poisson(const tt_sampler *s, tt_node *const *words, tt_node **value,
                            tt_node **accepted) {
  tt_hlo *h = s->cx->h;
  tt_node *rate = s->operands[0], *b = linear(s, 0.931, 2.53, tt_hlo_sqrt(h, rate));
  tt_node *a = linear(s, -0.059, 0.02483, b);
  tt_node *alpha = hyperbola(s, 1.1239, 1.1328, tt_hlo_subtract(h, b, tt_sampler_num(s, 3.4)));
  tt_node *squeeze = hyperbola(s, 0.9277, -3.6224, tt_hlo_subtract(h, b, tt_sampler_num(s, 2.0)));
  proposal p = propose(s, words, a, b, tt_hlo_add(h, rate, tt_sampler_num(s, 0.43)), squeeze);
  tt_node *exact = tt_hlo_compare(h, TT_LE, height(s, &p, alpha, a, b), log_poisson(s, rate, p.k));
  exact = tt_hlo_and(h, exact, tt_hlo_compare(h, TT_GE, p.k, tt_sampler_num(s, 0.0)));
  *accepted = tt_hlo_or(h, p.quick, exact);
  *value = p.k;
}

void tt_lower_poisson(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_type type = tt_drawn_type(cx);
  if (tt_nothing_drawn(cx, &type)) return;
  tt_node *rate = tt_flat_operand(cx, 0, tt_draw_dtype(type.dtype), &type);
  tt_sampler s = {.cx = cx,
                  .count = rate->type.dims[0],
                  .dtype = rate->type.dtype,
                  .first_draw = 1,
                  .attempt = attempt_poisson};
  tt_check(cx, tt_hlo_compare(h, TT_LT, rate, tt_sampler_num(&s, 0.0)), TT_INVALID_ARGUMENT,
           "invalid Poisson rate, expected rate to be non-negative");
  tt_node *limit = tt_sampler_num(&s, SMALL_MEAN);
  tt_node *large = tt_hlo_compare(h, TT_GE, rate, limit);
  s.operands[0] = tt_hlo_minimum(h, tt_hlo_maximum(h, rate, tt_sampler_num(&s, 0.0)), limit);
  tt_node *few = count_by_inversion(&s, tt_hlo_exponential(h, tt_hlo_negate(h, s.operands[0])));
  s.operands[0] = tt_hlo_maximum(h, rate, limit);
  tt_node *x = tt_sample(&s, tt_hlo_not(h, large), few);
  tt_out_drawn(cx, tt_hlo_reshape(h, x, type.rank, type.dims), &type);
}

/* -- Binomial: for means beyond 10 by Hormann's transformed rejection, 1993 (BTRS) -- */

/* What Stirling's formula leaves of log k!. */
static tt_node *stirling_rest(const tt_sampler *s, tt_node *k) {
  tt_hlo *h = s->cx->h;
  tt_node *x = tt_hlo_add(h, k, tt_sampler_num(s, 1.0)),
          *inverse = tt_hlo_divide(h, tt_sampler_num(s, 1.0), x);
  tt_node *square = tt_hlo_multiply(h, inverse, inverse);
  tt_node *y = linear(s, 1.0 / 1260.0, -1.0 / 1680.0, square);
  y = tt_hlo_subtract(h, tt_sampler_num(s, 1.0 / 360.0), tt_hlo_multiply(h, square, y));
  y = tt_hlo_subtract(h, tt_sampler_num(s, 1.0 / 12.0), tt_hlo_multiply(h, square, y));
  return tt_hlo_multiply(h, inverse, y);
}

/* (x + 1/2) log y */
static tt_node *scaled_log(const tt_sampler *s, tt_node *x, double shift, tt_node *y) {
  tt_hlo *h = s->cx->h;
  return tt_hlo_multiply(h, tt_hlo_add(h, x, tt_sampler_num(s, shift)), tt_hlo_log(h, y));
}

/* log p(k) / p(m), where m is the mode */
static tt_node *log_binomial(const tt_sampler *s, tt_node *n, tt_node *odds, tt_node *m,
                             tt_node *k) {
  tt_hlo *h = s->cx->h;
  tt_node *one = tt_sampler_num(s, 1.0), *nm = tt_hlo_subtract(h, n, m),
          *nk = tt_hlo_subtract(h, n, k);
  tt_node *m1 = tt_hlo_add(h, m, one), *k1 = tt_hlo_add(h, k, one);
  tt_node *nm1 = tt_hlo_add(h, nm, one), *nk1 = tt_hlo_add(h, nk, one);
  tt_node *y = scaled_log(s, m, 0.5, tt_hlo_divide(h, m1, tt_hlo_multiply(h, odds, nm1)));
  y = tt_hlo_add(h, y, scaled_log(s, n, 1.0, tt_hlo_divide(h, nm1, nk1)));
  y = tt_hlo_add(h, y, scaled_log(s, k, 0.5, tt_hlo_divide(h, tt_hlo_multiply(h, odds, nk1), k1)));
  tt_node *rest = tt_hlo_add(h, stirling_rest(s, m), stirling_rest(s, nm));
  rest = tt_hlo_subtract(h, rest, tt_hlo_add(h, stirling_rest(s, k), stirling_rest(s, nk)));
  return tt_hlo_add(h, y, rest);
}

/* operands: n, p <= 1/2 */
static void attempt_binomial(const tt_sampler *s, tt_node *const *words, tt_node **value,
                             tt_node **accepted) {
  tt_hlo *h = s->cx->h;
  tt_node *n = s->operands[0], *prob = s->operands[1], *one = tt_sampler_num(s, 1.0),
          *zero = tt_sampler_num(s, 0.0);
  tt_node *q = tt_hlo_subtract(h, one, prob), *mean = tt_hlo_multiply(h, n, prob);
  tt_node *spread = tt_hlo_sqrt(h, tt_hlo_multiply(h, mean, q));
  tt_node *b = linear(s, 1.15, 2.53, spread);
  tt_node *a = tt_hlo_add(h, linear(s, -0.0873, 0.0248, b),
                          tt_hlo_multiply(h, prob, tt_sampler_num(s, 0.01)));
  tt_node *alpha = tt_hlo_multiply(h, hyperbola(s, 2.83, 5.1, b), spread);
  proposal p = propose(s, words, a, b, tt_hlo_add(h, mean, tt_sampler_num(s, 0.5)),
                       hyperbola(s, 0.92, -4.2, b));
  tt_node *inside =
      tt_hlo_and(h, tt_hlo_compare(h, TT_GE, p.k, zero), tt_hlo_compare(h, TT_LE, p.k, n));
  tt_node *k = tt_hlo_minimum(h, tt_hlo_maximum(h, p.k, zero), n);
  tt_node *mode = tt_hlo_floor(h, tt_hlo_add(h, mean, prob));
  tt_node *bound = log_binomial(s, n, tt_hlo_divide(h, prob, q), mode, k);
  tt_node *exact = tt_hlo_compare(h, TT_LE, height(s, &p, alpha, a, b), bound);
  *accepted = tt_hlo_and(h, inside, tt_hlo_or(h, p.quick, exact));
  *value = k;
}

/* count, prob */
void tt_lower_binomial(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *n = tt_in(cx, 0), *prob = tt_in(cx, 1);
  tt_dtype dtype = tt_meta_dtype(cx, 0, n->type.dtype);
  tt_broadcast_pair(cx, &n, &prob, tt_draw_dtype(dtype));
  tt_type type = n->type;
  type.dtype = dtype;
  if (tt_hlo_failed(h) || tt_nothing_drawn(cx, &type)) return;
  tt_sampler s = {.cx = cx,
                  .count = tt_type_numel(&type),
                  .dtype = n->type.dtype,
                  .first_draw = 1,
                  .attempt = attempt_binomial};
  tt_node *one = tt_sampler_num(&s, 1.0), *zero = tt_sampler_num(&s, 0.0);
  n = tt_hlo_maximum(h, tt_hlo_floor(h, tt_flatten(cx, n)), zero);
  prob = tt_hlo_clamp(h, zero, tt_flatten(cx, prob), one);
  tt_node *flip = tt_hlo_compare(h, TT_GT, prob, tt_sampler_num(&s, 0.5));
  prob = tt_hlo_select(h, flip, tt_hlo_subtract(h, one, prob), prob);
  tt_node *small =
      tt_hlo_compare(h, TT_LT, tt_hlo_multiply(h, n, prob), tt_sampler_num(&s, SMALL_MEAN));
  s.operands[0] = tt_hlo_divide(h, prob, tt_hlo_subtract(h, one, prob));
  s.operands[1] = n;
  tt_node *log_miss = tt_hlo_log_plus_one(h, tt_hlo_negate(h, prob));
  tt_node *no_hit = tt_hlo_exponential(h, tt_hlo_multiply(h, n, log_miss));
  no_hit = tt_hlo_select(h, small, no_hit, tt_hlo_full(h, &no_hit->type, 1.0));
  tt_node *few = count_by_inversion(&s, no_hit);
  s.operands[0] = tt_hlo_select(h, small, tt_hlo_full(h, &n->type, 100.0), n);
  s.operands[1] = tt_hlo_select(h, small, tt_hlo_full(h, &n->type, 0.5), prob);
  tt_node *x = tt_sample(&s, small, few);
  x = tt_hlo_minimum(h, x, n);
  x = tt_hlo_select(h, flip, tt_hlo_subtract(h, n, x), x);
  tt_out_as(cx, 0, tt_cast(cx, tt_hlo_reshape(h, x, type.rank, type.dims), dtype));
}
