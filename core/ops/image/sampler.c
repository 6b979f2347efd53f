#include "ops/image/sampler.h"

tt_tap tt_tap_at(tt_lower *cx, tt_node *at, tt_node *weight, tt_node *slope, int64_t size) {
  tt_hlo *h = cx->h;
  tt_node *high = tt_like(cx, at, (double)(size - 1)), *low = tt_like(cx, at, 0);
  tt_node *inside =
      tt_hlo_and(h, tt_hlo_compare(h, TT_GE, at, low), tt_hlo_compare(h, TT_LE, at, high));
  return (tt_tap){tt_hlo_minimum(h, tt_hlo_maximum(h, at, low), high), inside, weight, slope};
}

void tt_linear_taps(tt_lower *cx, tt_sampler *s, int d, tt_node *at, tt_node *slope) {
  tt_hlo *h = cx->h;
  tt_node *floor = tt_hlo_floor(h, at), *t = tt_hlo_subtract(h, at, floor);
  tt_node *rest = tt_hlo_subtract(h, tt_hlo_full(h, &t->type, 1), t);
  s->tap[d][0] = tt_tap_at(cx, floor, rest, tt_hlo_negate(h, slope), s->size[d]);
  s->tap[d][1] = tt_tap_at(cx, tt_plus(cx, floor, 1), t, slope, s->size[d]);
}

static int combinations(const tt_sampler *s) {
  int count = 1;
  for (int d = 0; d < s->dims; d++) count *= s->taps;
  return count;
}

/* Combination c: each dim's tap in `chosen`; the flat index, I32 [n, points]; and whether all of
 * its taps are inside. */
static tt_node *choose(tt_lower *cx, const tt_sampler *s, int c, const tt_tap **chosen,
                       tt_node **inside) {
  tt_hlo *h = cx->h;
  tt_node *flat = NULL;
  *inside = NULL;
  for (int d = 0; d < s->dims; d++, c /= s->taps) {
    chosen[d] = &s->tap[d][c % s->taps];
    tt_node *index = tt_cast(cx, chosen[d]->index, TT_I32);
    if (flat) flat = tt_hlo_multiply(h, flat, tt_hlo_const_i(h, TT_I32, s->size[d]));
    flat = flat ? tt_hlo_add(h, flat, index) : index;
    *inside = *inside ? tt_hlo_and(h, *inside, chosen[d]->inside) : chosen[d]->inside;
  }
  return flat;
}

/* The image at flat indices: [n, channels, points] */
static tt_node *read_image(tt_lower *cx, const tt_sampler *s, tt_node *flat) {
  static const int zero[] = {0}, one[] = {1}, two[] = {2};
  tt_gather dims = {.offset_dims = one,
                    .offset_count = 1,
                    .collapsed_dims = two,
                    .collapsed_count = 1,
                    .operand_batch = zero,
                    .index_batch = zero,
                    .batch_count = 1,
                    .start_map = two,
                    .start_count = 1,
                    .index_vector_dim = 2,
                    .slice_sizes = (int64_t[]){s->n > 0, s->channels, 1}};
  return tt_hlo_gather(cx->h, s->image, tt_unsqueeze(cx, flat, 2), &dims);
}

/* The product of the chosen weights, with dim `turned`'s slope for its weight; 0 if not inside. */
static tt_node *product(tt_lower *cx, const tt_sampler *s, const tt_tap *const *chosen, int turned,
                        tt_node *inside) {
  tt_node *w = NULL;
  for (int d = 0; d < s->dims; d++) {
    tt_node *factor = d == turned ? chosen[d]->slope : chosen[d]->weight;
    w = w ? tt_hlo_multiply(cx->h, w, factor) : factor;
  }
  return tt_where_or_zero(cx, inside, w);
}

tt_node *tt_sampler_spread(tt_lower *cx, const tt_sampler *s, tt_node *x) {
  return tt_hlo_broadcast(cx->h, x, (const int[]){0, 2}, 3,
                          (int64_t[]){s->n, s->channels, s->points});
}

static tt_node *plus(tt_lower *cx, tt_node *sum, tt_node *x) {
  return sum ? tt_hlo_add(cx->h, sum, x) : x;
}

tt_node *tt_sampled(tt_lower *cx, const tt_sampler *s) {
  const tt_tap *chosen[TT_SAMPLER_DIMS];
  tt_node *sum = NULL, *inside;
  for (int c = 0; c < combinations(s); c++) {
    tt_node *flat = choose(cx, s, c, chosen, &inside);
    tt_node *value = read_image(cx, s, flat);
    value = tt_where_or_zero(cx, tt_sampler_spread(cx, s, inside), value);
    tt_node *weight = product(cx, s, chosen, -1, inside);
    sum = plus(cx, sum, tt_hlo_multiply(cx->h, value, tt_sampler_spread(cx, s, weight)));
  }
  return sum;
}

/* Adds updates [n, channels, points] to `image` at flat indices; those not inside are dropped. */
static tt_node *add_at(tt_lower *cx, const tt_sampler *s, tt_node *image, tt_node *flat,
                       tt_node *inside, tt_node *updates) {
  static const int zero[] = {0}, one[] = {1}, two[] = {2};
  tt_scatter dims = {.window_dims = one,
                     .window_count = 1,
                     .inserted_dims = two,
                     .inserted_count = 1,
                     .operand_batch = zero,
                     .index_batch = zero,
                     .batch_count = 1,
                     .scatter_map = two,
                     .scatter_count = 1,
                     .index_vector_dim = 2};
  tt_node *nowhere = tt_hlo_full(cx->h, &flat->type, (double)s->plane);
  flat = tt_hlo_select(cx->h, inside, flat, nowhere);
  return tt_hlo_scatter(cx->h, image, tt_unsqueeze(cx, flat, 2), updates, &dims, TT_ADD);
}

void tt_sampled_backward(tt_lower *cx, const tt_sampler *s, tt_node *g, tt_node **image,
                         tt_node **coordinates) {
  const tt_tap *chosen[TT_SAMPLER_DIMS];
  tt_node *inside;
  if (image) *image = tt_hlo_zeros(cx->h, &s->image->type);
  for (int d = 0; coordinates && d < s->dims; d++) coordinates[d] = NULL;
  for (int c = 0; c < combinations(s); c++) {
    tt_node *flat = choose(cx, s, c, chosen, &inside);
    if (image) {
      tt_node *weight = tt_sampler_spread(cx, s, product(cx, s, chosen, -1, inside));
      *image = add_at(cx, s, *image, flat, inside, tt_hlo_multiply(cx->h, g, weight));
    }
    if (!coordinates) continue;
    tt_node *dot = tt_hlo_multiply(cx->h, g, read_image(cx, s, flat));
    dot = tt_sum(cx, dot, (const int[]){1}, 1);
    for (int d = 0; d < s->dims; d++) {
      tt_node *turn = tt_hlo_multiply(cx->h, dot, product(cx, s, chosen, d, inside));
      coordinates[d] = plus(cx, coordinates[d], turn);
    }
  }
}
