/* Batch normalization, and the pieces that synchronized batch normalization is made of. Statistics
 * are per channel: over every dim but dim 1. */
#include "ops/nn.h"

typedef struct channel {
  int arg;    /* the input, whose sizes may be bounds */
  tt_node *x; /* in the dtype that PyTorch computes in */
  int dims[TT_MAX_RANK], count;
} channel;

static channel channel_of(tt_lower *cx, int arg) {
  tt_node *input = tt_in(cx, arg);
  channel c = {.arg = arg, .x = tt_cast(cx, input, tt_compute_dtype(input->type.dtype))};
  if (input->type.rank < 2) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "batch_norm: the input needs at least 2 dims, got %d",
                input->type.rank);
  }
  for (int d = 0; d < input->type.rank; d++) {
    if (d != 1) c.dims[c.count++] = d;
  }
  return c;
}

/* One of as many as a channel has elements, but for `fewer` of them. */
static tt_node *share(tt_lower *cx, const channel *c, int fewer) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = c->x->type.dtype;
  if (!tt_padded(cx, c->arg))
    return tt_hlo_const(h, dtype, 1 / (tt_elements_in(c->x, c->dims, c->count) - fewer));
  tt_node *all = tt_count(cx, c->arg, c->dims, c->count, dtype);
  all = tt_hlo_subtract(h, all, tt_hlo_const(h, dtype, fewer));
  return tt_hlo_divide(h, tt_hlo_const(h, dtype, 1), all);
}

static tt_node *total(tt_lower *cx, const channel *c, tt_node *x) {
  return tt_sum(cx, tt_pad(cx, c->arg, x, TT_SUM), c->dims, c->count);
}

static tt_node *spread(tt_lower *cx, const channel *c, tt_node *v) {
  return tt_along(cx, tt_cast(cx, v, c->x->type.dtype), 1, &c->x->type);
}

/* x - mean. Where it is summed it must have no other use, or it is a kernel of its own: XLA's CPU
 * compiler takes the mean behind tt_once for another number. */
static tt_node *centered(tt_lower *cx, const channel *c, tt_node *mean) {
  return tt_hlo_subtract(cx->h, c->x, spread(cx, c, mean));
}

/* The mean, and the sum of squared distances from it. */
static void moments(tt_lower *cx, const channel *c, tt_node **mean, tt_node **squares) {
  *mean = total(cx, c, tt_hlo_multiply(cx->h, c->x, share(cx, c, 0)));
  *squares = total(cx, c, tt_square(cx, centered(cx, c, *mean)));
}

/* rsqrt(variance + eps), eps being number argument `eps_arg` */
static tt_node *inverse_std(tt_lower *cx, tt_node *variance, int eps_arg) {
  tt_node *shifted = tt_hlo_add(cx->h, variance, tt_num(cx, eps_arg, variance->type.dtype));
  return tt_hlo_rsqrt(cx->h, shifted);
}

/* (x - mean) * invstd * weight? + bias? */
static tt_node *affine(tt_lower *cx, const channel *c, tt_node *mean, tt_node *invstd, int weight,
                       int bias) {
  tt_hlo *h = cx->h;
  tt_node *y = tt_hlo_multiply(h, centered(cx, c, tt_once(cx, mean)), spread(cx, c, invstd));
  if (tt_has(cx, weight)) y = tt_hlo_multiply(h, y, spread(cx, c, tt_in(cx, weight)));
  if (tt_has(cx, bias)) y = tt_hlo_add(h, y, spread(cx, c, tt_in(cx, bias)));
  return y;
}

static void out_like(tt_lower *cx, int k, tt_node *y, tt_node *input) {
  tt_out_as(cx, k, tt_cast(cx, y, input->type.dtype));
}

/* (1 - momentum) * running + momentum * factor * now; one kernel for the mean and the variance */
static tt_node *blend(tt_lower *cx, tt_node *running, tt_node *now, tt_node *factor, int momentum) {
  tt_hlo *h = cx->h;
  tt_node *m = tt_num(cx, momentum, now->type.dtype);
  tt_node *kept = tt_hlo_multiply(h, tt_cast(cx, running, now->type.dtype),
                                  tt_hlo_subtract(h, tt_like(cx, m, 1), m));
  m = tt_hlo_multiply(h, m, tt_once(cx, factor));
  return tt_cast(cx, tt_hlo_add(h, kept, tt_hlo_multiply(h, now, m)), running->type.dtype);
}

/* The rows' `param`: NO_STATS lacks the two running statistics; EVAL lacks `training`, which is
 * false; FUNCTIONAL has the new running statistics as results 3 and 4. */
enum { PLAIN, NO_STATS, EVAL, FUNCTIONAL };

/* input, weight?, bias?, running_mean, running_var, training, momentum, eps */
void tt_lower_batch_norm(tt_lower *cx) {
  bool functional = cx->row->param == FUNCTIONAL, eval = cx->row->param == EVAL;
  bool stats = cx->row->param != NO_STATS;
  int training = stats ? 5 : 3, momentum = eval ? 5 : training + 1;
  tt_node *input = tt_in(cx, 0), *mean, *invstd;
  channel c = channel_of(cx, 0);
  if (!eval && tt_bool(cx, training)) {
    tt_node *squares;
    moments(cx, &c, &mean, &squares);
    invstd = inverse_std(cx, tt_hlo_multiply(cx->h, squares, share(cx, &c, 0)), momentum + 1);
    if (functional) {
      tt_node *one = tt_like(cx, mean, 1);
      tt_out_as(cx, 3, blend(cx, tt_in(cx, 3), mean, one, momentum));
      tt_out_as(cx, 4, blend(cx, tt_in(cx, 4), squares, share(cx, &c, 1), momentum));
    }
  } else {
    if (!stats || !tt_has(cx, 3) || !tt_has(cx, 4)) {
      tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT,
                  "batch_norm: running_mean and running_var are needed in evaluation mode");
      return;
    }
    mean = tt_cast(cx, tt_in(cx, 3), c.x->type.dtype);
    invstd = inverse_std(cx, tt_cast(cx, tt_in(cx, 4), c.x->type.dtype), momentum + 1);
    if (functional) {
      tt_out_as(cx, 3, tt_in(cx, 3));
      tt_out_as(cx, 4, tt_in(cx, 4));
    }
  }
  out_like(cx, 0, affine(cx, &c, mean, invstd, 1, 2), input);
  bool saved = !cx->meta_types || tt_type_numel(tt_meta_type(cx, 1)) > 0; /* not in evaluation */
  tt_out_as(cx, 1, saved ? mean : tt_hlo_zeros(cx->h, tt_meta_type(cx, 1)));
  tt_out_as(cx, 2, saved ? invstd : tt_hlo_zeros(cx->h, tt_meta_type(cx, 2)));
}

/* dx = weight * invstd * (dy - mean(dy) - (x - mean) * invstd^2 * mean(dy * (x - mean))) */
static tt_node *train_grad(tt_lower *cx, const channel *c, tt_node *grad, tt_node *mean,
                           tt_node *invstd, tt_node *mean_dy, tt_node *mean_dy_xmu) {
  tt_hlo *h = cx->h;
  tt_node *slope = tt_hlo_multiply(h, mean_dy_xmu, tt_square(cx, invstd));
  tt_node *dx = tt_hlo_subtract(h, grad, spread(cx, c, mean_dy));
  return tt_hlo_subtract(
      h, dx, tt_hlo_multiply(h, centered(cx, c, tt_once(cx, mean)), spread(cx, c, slope)));
}

/* grad_out, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?, train, eps,
 * output_mask[3] */
void tt_lower_batch_norm_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  bool train = tt_bool(cx, 7);
  tt_node *input = tt_in(cx, 1);
  channel c = channel_of(cx, 1);
  tt_dtype dtype = c.x->type.dtype;
  tt_node *grad = tt_cast(cx, tt_in(cx, 0), dtype);
  tt_node *mean = tt_cast(cx, tt_in(cx, train ? 5 : 3), dtype);
  tt_node *invstd = tt_cast(cx, tt_in(cx, train ? 6 : 4), dtype);
  if (!train) invstd = inverse_std(cx, invstd, 8);
  tt_node *sum_dy = total(cx, &c, grad);
  tt_node *sum_dy_xmu = total(cx, &c, tt_hlo_multiply(h, grad, centered(cx, &c, mean)));
  if (tt_flag(cx, 9, 0)) {
    tt_node *dx = grad, *scale = invstd;
    if (train) {
      tt_node *each = share(cx, &c, 0);
      dx = train_grad(cx, &c, grad, mean, invstd, tt_hlo_multiply(h, sum_dy, each),
                      tt_hlo_multiply(h, sum_dy_xmu, each));
    }
    if (tt_has(cx, 2)) scale = tt_hlo_multiply(h, scale, tt_cast(cx, tt_in(cx, 2), dtype));
    out_like(cx, 0, tt_hlo_multiply(h, dx, spread(cx, &c, scale)), input);
  }
  tt_node *parameter = tt_has(cx, 2) ? tt_in(cx, 2) : input;
  if (tt_flag(cx, 9, 1)) out_like(cx, 1, tt_hlo_multiply(h, sum_dy_xmu, invstd), parameter);
  if (tt_flag(cx, 9, 2)) out_like(cx, 2, sum_dy, parameter);
}

/* input, eps -> mean, invstd, in the dtype that PyTorch accumulates in */
void tt_lower_batch_norm_stats(tt_lower *cx) {
  channel c = channel_of(cx, 0);
  tt_node *mean, *squares;
  moments(cx, &c, &mean, &squares);
  tt_out_as(cx, 0, mean);
  tt_out_as(cx, 1, inverse_std(cx, tt_hlo_multiply(cx->h, squares, share(cx, &c, 0)), 1));
}

/* input, weight?, bias?, mean, invstd, eps */
void tt_lower_batch_norm_elemt(tt_lower *cx) {
  channel c = channel_of(cx, 0);
  out_like(cx, 0, affine(cx, &c, tt_in(cx, 3), tt_in(cx, 4), 1, 2), tt_in(cx, 0));
}

/* grad_out, input, mean, invstd, weight?, input_g, weight_g, bias_g
 * -> sum_dy, sum_dy_xmu, grad_weight, grad_bias */
void tt_lower_batch_norm_backward_reduce(tt_lower *cx) {
  channel c = channel_of(cx, 1);
  tt_dtype dtype = c.x->type.dtype;
  tt_node *grad = tt_cast(cx, tt_in(cx, 0), dtype);
  tt_node *distance = centered(cx, &c, tt_in(cx, 2));
  tt_node *sum_dy = total(cx, &c, grad);
  tt_node *sum_dy_xmu = total(cx, &c, tt_hlo_multiply(cx->h, grad, distance));
  tt_node *parameter = tt_has(cx, 4) ? tt_in(cx, 4) : sum_dy;
  if (tt_bool(cx, 5)) {
    tt_out_as(cx, 0, sum_dy);
    tt_out_as(cx, 1, sum_dy_xmu);
  }
  if (tt_bool(cx, 6)) {
    tt_node *invstd = tt_cast(cx, tt_in(cx, 3), dtype);
    out_like(cx, 2, tt_hlo_multiply(cx->h, sum_dy_xmu, invstd), parameter);
  }
  if (tt_bool(cx, 7)) out_like(cx, 3, sum_dy, parameter);
}

/* grad_out, input, mean, invstd, weight?, sum_dy, sum_dy_xmu, count: of each rank [n] or [n, 1] */
void tt_lower_batch_norm_backward_elemt(tt_lower *cx) {
  static const int all[] = {0, 1};
  tt_hlo *h = cx->h;
  tt_node *input = tt_in(cx, 1), *count = tt_in(cx, 7);
  channel c = channel_of(cx, 1);
  tt_dtype dtype = c.x->type.dtype;
  if (count->type.rank > 2)
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "batch_norm_backward_elemt: count has at most two dims");
  if (tt_hlo_failed(h)) return;
  tt_node *n = tt_sum(cx, tt_cast(cx, count, dtype), all, count->type.rank);
  tt_node *invstd = tt_cast(cx, tt_in(cx, 3), dtype), *scale = invstd;
  tt_node *mean_dy = tt_hlo_divide(h, tt_cast(cx, tt_in(cx, 5), dtype), n);
  tt_node *mean_dy_xmu = tt_hlo_divide(h, tt_cast(cx, tt_in(cx, 6), dtype), n);
  tt_node *dx = train_grad(cx, &c, tt_cast(cx, tt_in(cx, 0), dtype), tt_in(cx, 2), invstd, mean_dy,
                           mean_dy_xmu);
  if (tt_has(cx, 4)) scale = tt_hlo_multiply(h, scale, tt_cast(cx, tt_in(cx, 4), dtype));
  out_like(cx, 0, tt_hlo_multiply(h, dx, spread(cx, &c, scale)), input);
}
