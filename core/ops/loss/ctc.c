/* Connectionist temporal classification: the forward and backward recursions over time, each one
 * loop. States alternate blanks and labels: blank, label 0, blank, label 1, .., blank. */
#include "ops/nn.h"

typedef struct ctc {
  int64_t time, batch, classes, labels, states; /* states = 2 * labels + 1 */
  tt_node *log_probs;                           /* [time, batch, classes] */
  tt_node *input_length, *target_length;        /* I32 [batch] */
  tt_node *label;                               /* I32 [batch, states]: the class of each state */
  tt_node *skip; /* bool [batch, states]: may be reached from s - 2 */
  tt_node *emit; /* [time, batch, states]: log_probs by state */
  tt_type plane; /* [batch, states] */
} ctc;

static tt_node *lengths(tt_lower *cx, int i, int64_t *longest) {
  int count = 0;
  if (cx->row->param) return tt_cast(cx, tt_in(cx, i), TT_I32);
  const int64_t *list = tt_ints(cx, i, &count);
  *longest = 0;
  for (int k = 0; k < count; k++) {
    if (list[k] > *longest) *longest = list[k];
  }
  return tt_hlo_const_i64s(cx->h, TT_I32, list, count);
}

/* Targets as [batch, labels]; one-dimensional ones lie one after the other. */
static tt_node *label_matrix(tt_lower *cx, const ctc *c, tt_node *targets) {
  static const int columns[] = {1};
  tt_hlo *h = cx->h;
  tt_type ids = {.dtype = TT_I32, .rank = 2, .dims = {c->batch, c->labels}};
  tt_node *index = tt_hlo_iota(h, &ids, 1);
  int64_t size = tt_type_numel(&targets->type);
  if (size == 0) return tt_hlo_zeros(h, &ids);
  if (targets->type.rank == 1) {
    tt_type pairs = {.dtype = TT_I32, .rank = 2, .dims = {c->batch, c->batch}};
    tt_node *before =
        tt_hlo_compare(h, TT_GT, tt_hlo_iota(h, &pairs, 0), tt_hlo_iota(h, &pairs, 1));
    tt_node *sizes = tt_along(cx, c->target_length, 1, &pairs);
    tt_node *start = tt_sum(cx, tt_where_or_zero(cx, before, sizes), columns, 1);
    index = tt_hlo_add(h, index, tt_along(cx, start, 0, &ids));
  } else {
    tt_node *row = tt_hlo_iota(h, &ids, 0);
    row = tt_hlo_multiply(h, row, tt_hlo_const_i(h, TT_I32, targets->type.dims[1]));
    index = tt_hlo_add(h, index, row);
  }
  index = tt_hlo_minimum(h, index, tt_hlo_const_i(h, TT_I32, size - 1));
  return tt_hlo_take(h, tt_cast(cx, tt_flatten(cx, targets), TT_I32), index, 0);
}

/* x [batch, states] moved by `by` states, `fill` coming in. */
static tt_node *shifted(tt_hlo *h, tt_node *x, int64_t by, tt_node *fill) {
  return tt_hlo_pad(h, x, fill, (int64_t[]){0, by}, (int64_t[]){0, -by}, NULL);
}

/* log_probs, targets, input_lengths, target_lengths at `first`; param: lengths are tensors.
 * `alpha`, when not NULL, has the number of states as its last dim. */
static bool ctc_of(tt_lower *cx, int first, int blank_arg, tt_node *alpha, ctc *c) {
  tt_hlo *h = cx->h;
  int64_t longest = 0, ignored = 0, blank = tt_int(cx, blank_arg);
  tt_node *targets = tt_in(cx, first + 1);
  *c = (ctc){.log_probs = tt_in(cx, first)};
  if (c->log_probs->type.rank != 3 || targets->type.rank < 1 || targets->type.rank > 2) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                "ctc_loss: expected log_probs of 3 dims and targets of 1 or 2");
    return false;
  }
  c->time = c->log_probs->type.dims[0];
  c->batch = c->log_probs->type.dims[1];
  c->classes = c->log_probs->type.dims[2];
  c->input_length = lengths(cx, first + 2, &ignored);
  longest = targets->type.dims[targets->type.rank - 1];
  c->target_length = lengths(cx, first + 3, &longest);
  c->labels = alpha ? (alpha->type.dims[2] - 1) / 2 : longest;
  c->states = 2 * c->labels + 1;
  tt_node *label = tt_unsqueeze(cx, label_matrix(cx, c, targets), 2);
  tt_node *blanks = tt_hlo_full(h, &label->type, (double)blank);
  label = tt_merge_dim(cx, tt_hlo_concatenate(h, (tt_node *[]){blanks, label}, 2, 2), 1);
  c->label = tt_hlo_pad(h, label, tt_hlo_const_i(h, TT_I32, blank), (int64_t[]){0, 0},
                        (int64_t[]){0, 1}, NULL);
  tt_node *is_label = tt_hlo_compare(h, TT_NE, c->label, tt_hlo_const_i(h, TT_I32, blank));
  tt_node *two_before = shifted(h, c->label, 2, tt_hlo_const_i(h, TT_I32, blank));
  c->skip = tt_hlo_and(h, is_label, tt_hlo_compare(h, TT_NE, c->label, two_before));
  tt_node *index = tt_hlo_broadcast(h, c->label, (const int[]){1, 2}, 3,
                                    (int64_t[]){c->time, c->batch, c->states});
  c->emit = tt_hlo_take_along(h, c->log_probs, index, 2);
  c->plane = (tt_type){.dtype = c->log_probs->type.dtype, .rank = 2, .dims = {c->batch, c->states}};
  return !tt_hlo_failed(h);
}

static tt_node *log_sum(tt_hlo *h, tt_node *a, tt_node *b) {
  tt_node *max = tt_hlo_maximum(h, a, b), *zero = tt_hlo_zeros(h, &max->type);
  tt_node *lowest = tt_hlo_lowest(h, max->type.dtype);
  max = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, max, lowest), zero, max);
  tt_node *sum = tt_hlo_add(h, tt_hlo_exponential(h, tt_hlo_subtract(h, a, max)),
                            tt_hlo_exponential(h, tt_hlo_subtract(h, b, max)));
  return tt_hlo_add(h, max, tt_hlo_log(h, sum));
}

static tt_node *at_time(tt_hlo *h, tt_node *x, tt_node *t) {
  tt_node *zero = tt_hlo_const_i(h, TT_I32, 0);
  const tt_type *type = &x->type;
  tt_node *y = tt_hlo_dynamic_slice(h, x, (tt_node *[]){t, zero, zero},
                                    (int64_t[]){1, type->dims[1], type->dims[2]});
  return tt_hlo_reshape(h, y, 2, type->dims + 1);
}

static tt_node *put_at(tt_hlo *h, tt_node *all, tt_node *x, tt_node *t) {
  tt_node *zero = tt_hlo_const_i(h, TT_I32, 0);
  x = tt_hlo_reshape(h, x, 3, (int64_t[]){1, x->type.dims[0], x->type.dims[1]});
  return tt_hlo_dynamic_update_slice(h, all, x, (tt_node *[]){t, zero, zero});
}

/* The loop carries: step, the last state plane, all of them, and what does not change. */
enum { STEP, LAST, ALL, EMIT, SKIP, START, FINAL, CARRIED };

typedef struct direction {
  bool forward;
  int64_t time;
} direction;

/* One step of either recursion: from s, from its neighbour, and, where allowed, from the one
 * after that. START is the plane to begin with where FINAL[n] is this step. */
static void step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const direction *way = user;
  int64_t by = way->forward ? 1 : -1;
  tt_node *last = args[LAST], *t = args[STEP], *lowest = tt_hlo_lowest(h, last->type.dtype);
  if (!way->forward) t = tt_hlo_subtract(h, tt_hlo_const_i(h, TT_I32, way->time - 1), t);
  tt_node *far = shifted(h, last, 2 * by, lowest);
  far = tt_hlo_select(h, args[SKIP], far,
                      tt_hlo_broadcast_to(h, lowest, far->type.rank, far->type.dims));
  tt_node *sum = log_sum(h, log_sum(h, last, shifted(h, last, by, lowest)), far);
  tt_node *first = tt_hlo_compare(h, TT_EQ, args[FINAL], t);
  first = tt_hlo_broadcast(h, first, (const int[]){0}, 2, last->type.dims);
  sum = tt_hlo_select(h, first, args[START], sum);
  sum = tt_hlo_add(h, sum, at_time(h, args[EMIT], t));
  for (int i = LAST; i < CARRIED; i++) results[i] = args[i];
  results[LAST] = sum;
  results[ALL] = put_at(h, args[ALL], sum, t);
}

/* log alpha or log beta: [time, batch, states] */
static tt_node *recursion(tt_lower *cx, const ctc *c, bool forward, tt_node *skip, tt_node *start,
                          tt_node *final) {
  tt_hlo *h = cx->h;
  direction way = {forward, c->time};
  tt_node *lowest = tt_hlo_lowest(h, c->plane.dtype), *results[CARRIED];
  tt_node *inits[CARRIED] = {[STEP] = tt_hlo_const_i(h, TT_I32, 0),
                             [LAST] = tt_hlo_broadcast_to(h, lowest, 2, c->plane.dims),
                             [ALL] = tt_hlo_broadcast_to(h, lowest, 3, c->emit->type.dims),
                             [EMIT] = c->emit,
                             [SKIP] = skip,
                             [START] = start,
                             [FINAL] = final};
  if (c->time == 0) return inits[ALL];
  tt_hlo_count_up(h, c->time, CARRIED, inits, step, &way, results);
  return results[ALL];
}

/* [batch, states]: 0 where `here`, -inf elsewhere */
static tt_node *start_plane(tt_lower *cx, const ctc *c, tt_node *here) {
  tt_node *lowest =
      tt_hlo_broadcast_to(cx->h, tt_hlo_lowest(cx->h, c->plane.dtype), 2, c->plane.dims);
  return tt_hlo_select(cx->h, here, tt_hlo_zeros(cx->h, &c->plane), lowest);
}

/* s - 2 * target_length: 0 at the last state, -1 at the last label */
static tt_node *from_end(tt_lower *cx, const ctc *c) {
  tt_type ids = c->plane;
  ids.dtype = TT_I32;
  tt_node *end = tt_hlo_multiply(cx->h, c->target_length, tt_hlo_const_i(cx->h, TT_I32, 2));
  return tt_hlo_subtract(cx->h, tt_hlo_iota(cx->h, &ids, 1), tt_along(cx, end, 0, &ids));
}

/* The two states that a path may end in: the last blank and the last label. */
static tt_node *is_end(tt_lower *cx, const ctc *c) {
  tt_hlo *h = cx->h;
  tt_node *at = from_end(cx, c);
  return tt_hlo_or(h, tt_hlo_compare(h, TT_EQ, at, tt_hlo_const_i(h, TT_I32, 0)),
                   tt_hlo_compare(h, TT_EQ, at, tt_hlo_const_i(h, TT_I32, -1)));
}

/* log_probs, targets, input_lengths, target_lengths, blank, zero_infinity
 * -> negative log likelihood [batch], log_alpha [batch, time, states] */
void tt_lower_ctc_loss(tt_lower *cx) {
  static const int states[] = {1};
  tt_hlo *h = cx->h;
  ctc c;
  if (!ctc_of(cx, 0, 4, NULL, &c)) return;
  tt_type ids = c.plane, ones = {.dtype = TT_I32, .rank = 1, .dims = {c.batch}};
  ids.dtype = TT_I32;
  tt_node *state = tt_hlo_iota(h, &ids, 1), *one = tt_hlo_const_i(h, TT_I32, 1);
  tt_node *begin = tt_hlo_compare(h, TT_LE, state, one);
  tt_node *reached = tt_hlo_compare(h, TT_LE, from_end(cx, &c), tt_hlo_const_i(h, TT_I32, 0));
  begin = start_plane(cx, &c, tt_hlo_and(h, begin, reached));
  tt_node *alpha = recursion(cx, &c, true, c.skip, begin, tt_hlo_zeros(h, &ones));
  alpha = tt_hlo_transpose(h, alpha, (const int[]){1, 0, 2});
  tt_type cube = {.dtype = TT_I32, .rank = 3, .dims = {c.batch, c.time, c.states}};
  tt_node *last = tt_hlo_subtract(h, c.input_length, one);
  tt_node *now = tt_hlo_compare(h, TT_EQ, tt_hlo_iota(h, &cube, 1), tt_along(cx, last, 0, &cube));
  tt_node *lowest = tt_hlo_lowest(h, c.plane.dtype);
  tt_node *ending = tt_hlo_select(h, now, alpha, tt_hlo_broadcast_to(h, lowest, 3, cube.dims));
  ending = tt_hlo_reduce(h, TT_MAX, ending, states, 1);
  ending = tt_hlo_add(h, ending, start_plane(cx, &c, is_end(cx, &c)));
  tt_node *max = tt_hlo_reduce(h, TT_MAX, ending, states, 1);
  max = tt_where_or_zero(cx, tt_hlo_compare(h, TT_NE, max, lowest), max);
  tt_node *sum = tt_hlo_exponential(h, tt_hlo_subtract(h, ending, tt_along(cx, max, 0, &c.plane)));
  sum = tt_hlo_add(h, max, tt_hlo_log(h, tt_sum(cx, sum, states, 1)));
  /* no time at all is enough for no labels */
  tt_node *zero = tt_hlo_const_i(h, TT_I32, 0);
  tt_node *nothing = tt_hlo_and(h, tt_hlo_compare(h, TT_EQ, c.input_length, zero),
                                tt_hlo_compare(h, TT_EQ, c.target_length, zero));
  sum = tt_where_or_zero(cx, tt_hlo_not(h, nothing), sum);
  tt_out_as(cx, 0, tt_hlo_negate(h, sum));
  tt_out_as(cx, 1, alpha);
}

/* grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank,
 * zero_infinity */
void tt_lower_ctc_loss_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  ctc c;
  if (!ctc_of(cx, 1, 7, tt_in(cx, 6), &c)) return;
  tt_node *one = tt_hlo_const_i(h, TT_I32, 1), *loss = tt_in(cx, 5), *grad = tt_in(cx, 0);
  tt_node *skip = shifted(h, c.skip, -2, tt_hlo_const_i(h, TT_BOOL, 0));
  tt_node *beta = recursion(cx, &c, false, skip, start_plane(cx, &c, is_end(cx, &c)),
                            tt_hlo_subtract(h, c.input_length, one));
  tt_node *alpha = tt_hlo_transpose(h, tt_in(cx, 6), (const int[]){1, 0, 2});
  /* the probability of being in a state at a time, given the targets */
  tt_node *p = tt_hlo_subtract(h, tt_hlo_add(h, alpha, beta), c.emit);
  p = tt_hlo_exponential(h, tt_hlo_add(h, p, tt_along(cx, loss, 1, &p->type)));
  tt_node *within = tt_hlo_compare(h, TT_LE, from_end(cx, &c), tt_hlo_const_i(h, TT_I32, 0));
  within = tt_hlo_broadcast(h, within, (const int[]){1, 2}, 3, p->type.dims);
  p = tt_where_or_zero(cx, within, p);
  tt_type hot = {.dtype = TT_I32, .rank = 3, .dims = {c.batch, c.states, c.classes}};
  tt_node *own = tt_hlo_broadcast(h, c.label, (const int[]){0, 1}, 3, hot.dims);
  own = tt_cast(cx, tt_hlo_compare(h, TT_EQ, tt_hlo_iota(h, &hot, 2), own), p->type.dtype);
  p = tt_hlo_dot_general(h, p, own, (const int[]){1}, (const int[]){0}, 1, (const int[]){2},
                         (const int[]){1}, 1, p->type.dtype); /* [batch, time, classes] */
  p = tt_hlo_transpose(h, p, (const int[]){1, 0, 2});
  const tt_type *type = &p->type;
  tt_node *g = tt_hlo_subtract(h, tt_hlo_exponential(h, c.log_probs), p);
  g = tt_hlo_multiply(h, g, tt_along(cx, grad, 1, type));
  tt_type ids = *type;
  ids.dtype = TT_I32;
  tt_node *on =
      tt_hlo_compare(h, TT_LT, tt_hlo_iota(h, &ids, 0), tt_along(cx, c.input_length, 1, &ids));
  if (tt_bool(cx, 8)) {
    tt_node *finite = tt_hlo_compare(h, TT_NE, loss, tt_hlo_highest(h, loss->type.dtype));
    on = tt_hlo_and(h, on, tt_along(cx, finite, 1, type));
  }
  tt_out_as(cx, 0, tt_where_or_zero(cx, on, g));
}
