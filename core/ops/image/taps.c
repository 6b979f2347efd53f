#include "ops/image/taps.h"

#include <assert.h>

#define MAX_TERMS ((int64_t)1 << 24)
#define UNROLL 8 /* maps with up to this many taps are sums of reads, others reductions */

tt_map tt_map_make(tt_lower *cx, int64_t in, int64_t out, int64_t capacity) {
  tt_map map = {.in = in, .out = out};
  if (capacity < 0 || capacity > MAX_TERMS) {
    tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED,
                "a map of %lld to %lld elements needs more than %lld table entries", (long long)in,
                (long long)out, (long long)MAX_TERMS);
    return map;
  }
  map.terms = tt_arena_alloc(tt_hlo_arena(cx->h), sizeof *map.terms * (size_t)(capacity + 1));
  map.capacity = map.terms ? capacity : 0;
  if (!map.terms) tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "no memory for a table of indices");
  return map;
}

void tt_map_add(tt_map *map, int64_t from, int64_t to, int64_t tap, double weight) {
  bool fits = from >= 0 && from < map->in && to >= 0 && to < map->out;
  if (!fits || map->count >= map->capacity) return;
  assert(map->terms);
  map->terms[map->count++] = (tt_term){from, to, tap, weight};
  if (weight != 1) map->weighted = true;
}

void tt_map_transpose(tt_map *map) {
  int64_t in = map->in;
  map->in = map->out;
  map->out = in;
  for (int64_t i = 0; i < map->count; i++) {
    tt_term *term = &map->terms[i];
    *term = (tt_term){term->to, term->from, TT_ANY_TAP, term->weight};
  }
}

/* Numbers the terms that left it open, and returns how many taps there are. */
static int64_t number_taps(const tt_map *map, int64_t *count_of) {
  int64_t taps = 0;
  for (int64_t i = 0; i < map->count; i++) {
    tt_term *term = &map->terms[i];
    int64_t next = count_of[term->to]++;
    if (term->tap == TT_ANY_TAP) term->tap = next;
    if (term->tap >= taps) taps = term->tap + 1;
  }
  return taps;
}

bool tt_map_table(tt_lower *cx, const tt_map *map, tt_taps *t) {
  int64_t *count_of = tt_scratch(cx, map->out), size;
  if (tt_hlo_failed(cx->h)) return false;
  *t = (tt_taps){.in = map->in, .out = map->out, .weighted = map->weighted};
  t->taps = number_taps(map, count_of);
  if (!tt_mul_i64(t->taps, map->out, &size) || size > MAX_TERMS) {
    tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "a map to %lld elements needs too many table entries",
                (long long)map->out);
    return false;
  }
  t->from = tt_scratch(cx, size);
  t->used = tt_scratch(cx, size);
  t->weight = tt_arena_alloc(tt_hlo_arena(cx->h), sizeof(double) * (size_t)(size + 1));
  if (!t->weight) tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "no memory for a table of weights");
  if (!t->weight || tt_hlo_failed(cx->h)) return false;
  for (int64_t i = 0; i < map->count; i++) {
    const tt_term *term = &map->terms[i];
    int64_t at = term->tap * map->out + term->to;
    t->from[at] = term->from;
    t->weight[at] = term->weight;
    t->used[at] = 1;
  }
  t->full = map->count == size;
  return true;
}

/* Whether a tap reads from[o] = o * step + start exactly where that is inside x. */
static bool at_constant_step(const tt_taps *t, int64_t tap, int64_t *step, int64_t *start) {
  const int64_t *from = t->from + tap * t->out, *used = t->used + tap * t->out;
  int64_t first = 0, next;
  while (first < t->out && !used[first]) first++;
  if (first == t->out) return false;
  next = first + 1;
  *step = next < t->out && used[next] ? from[next] - from[first] : 1;
  if (*step < 1) return false;
  *start = from[first] - first * *step;
  for (int64_t o = 0; o < t->out; o++) {
    int64_t at = o * *step + *start;
    bool inside = at >= 0 && at < t->in;
    if (inside != (used[o] != 0) || (inside && at != from[o])) return false;
  }
  return true;
}

static tt_node *sliced(tt_lower *cx, tt_node *x, int dim, int64_t out, int64_t step, int64_t start,
                       tt_node *fill) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0}, reach = (out - 1) * step + 1;
  low[dim] = -start;
  high[dim] = start + reach - x->type.dims[dim];
  if (low[dim] || high[dim]) x = tt_hlo_pad(cx->h, x, fill, low, high, NULL);
  return step == 1 ? x : tt_hlo_slice_dim(cx->h, x, dim, 0, reach, step);
}

/* Replaces what is not used by `fill`; `flags` covers x's dims dim .. dim + rank - 1. */
static tt_node *fill_unused(tt_lower *cx, tt_node *x, int dim, const int64_t *flags, int rank,
                            tt_node *fill) {
  const tt_type *type = &x->type;
  int64_t count = 1;
  int map[] = {dim, dim + 1};
  for (int d = 0; d < rank; d++) count *= type->dims[dim + d];
  tt_node *used = tt_hlo_const_i64s(cx->h, TT_BOOL, flags, count);
  used = tt_hlo_reshape(cx->h, used, rank, type->dims + dim);
  used = tt_hlo_broadcast(cx->h, used, map, type->rank, type->dims);
  fill = tt_hlo_broadcast_to(cx->h, fill, type->rank, type->dims);
  return tt_hlo_select(cx->h, used, x, fill);
}

/* A dim that has nothing to read. */
static tt_node *filled(tt_lower *cx, tt_node *x, int dim, int64_t size, tt_node *fill) {
  tt_type type = x->type;
  type.dims[dim] = size;
  return tt_hlo_broadcast_to(cx->h, fill, type.rank, type.dims);
}

tt_node *tt_taps_read(tt_lower *cx, tt_node *x, int dim, const tt_taps *t, int64_t tap,
                      tt_node *fill) {
  int64_t step, start, unused = 0;
  if (t->in == 0 || t->taps == 0) return filled(cx, x, dim, t->out, fill);
  if (at_constant_step(t, tap, &step, &start)) return sliced(cx, x, dim, t->out, step, start, fill);
  const int64_t *flags = t->used + tap * t->out;
  tt_node *index = tt_hlo_const_i64s(cx->h, TT_I32, t->from + tap * t->out, t->out);
  tt_node *y = tt_hlo_take(cx->h, x, index, dim);
  for (int64_t o = 0; o < t->out; o++) unused += !flags[o];
  return unused ? fill_unused(cx, y, dim, flags, 1, fill) : y;
}

tt_node *tt_taps_spread(tt_lower *cx, tt_node *x, int dim, const tt_taps *t, tt_node *fill) {
  if (t->in == 0 || t->taps == 0) {
    return tt_unsqueeze(cx, filled(cx, x, dim, t->out, fill), dim);
  }
  tt_node *index = tt_hlo_const_i64s(cx->h, TT_I32, t->from, t->taps * t->out);
  index = tt_hlo_reshape(cx->h, index, 2, (int64_t[]){t->taps, t->out});
  tt_node *y = tt_hlo_take(cx->h, x, index, dim);
  return t->full ? y : fill_unused(cx, y, dim, t->used, 2, fill);
}

static tt_node *sum_of_reads(tt_lower *cx, tt_node *x, int dim, const tt_taps *t) {
  tt_node *sum = NULL, *zero = tt_like(cx, x, 0);
  for (int64_t tap = 0; tap < t->taps; tap++) {
    tt_node *y = tt_taps_read(cx, x, dim, t, tap, zero);
    if (t->weighted) {
      tt_node *w = tt_hlo_const_f64s(cx->h, x->type.dtype, t->weight + tap * t->out, t->out);
      y = tt_hlo_multiply(cx->h, y, tt_along(cx, w, dim, &y->type));
    }
    sum = sum ? tt_hlo_add(cx->h, sum, y) : y;
  }
  return sum ? sum : filled(cx, x, dim, t->out, zero);
}

tt_node *tt_map_apply(tt_lower *cx, tt_node *x, int dim, const tt_map *map) {
  tt_taps t;
  if (!tt_map_table(cx, map, &t)) return x;
  if (t.taps <= UNROLL) return sum_of_reads(cx, x, dim, &t);
  tt_node *y = tt_taps_spread(cx, x, dim, &t, tt_like(cx, x, 0));
  if (t.weighted) {
    tt_node *w = tt_hlo_const_f64s(cx->h, x->type.dtype, t.weight, t.taps * t.out);
    w = tt_hlo_reshape(cx->h, w, 2, (int64_t[]){t.taps, t.out});
    w = tt_hlo_broadcast(cx->h, w, (const int[]){dim, dim + 1}, y->type.rank, y->type.dims);
    y = tt_hlo_multiply(cx->h, y, w);
  }
  return tt_sum(cx, y, &dim, 1);
}

static tt_map window_terms(tt_lower *cx, const tt_windows *w, bool grads) {
  int64_t terms = 0;
  if (!tt_mul_i64(w->out, w->size, &terms)) terms = -1;
  tt_map map = tt_map_make(cx, grads ? w->out : w->in, grads ? w->in : w->out, terms);
  for (int64_t o = 0; map.capacity && o < w->out; o++) {
    for (int64_t j = 0; j < w->size; j++) {
      int64_t at = o * w->stride - w->padding + j * w->dilation;
      if (!grads) tt_map_add(&map, at, o, j, 1);
      if (grads) tt_map_add(&map, o, at, w->dilation == 1 ? j / w->stride : j, 1);
    }
  }
  return map;
}

tt_map tt_map_windows(tt_lower *cx, const tt_windows *w) { return window_terms(cx, w, false); }

tt_map tt_map_window_grads(tt_lower *cx, const tt_windows *w) { return window_terms(cx, w, true); }

tt_map tt_map_adaptive(tt_lower *cx, int64_t in, int64_t out, bool average) {
  tt_map map = tt_map_make(cx, in, out, in + 2 * out);
  for (int64_t o = 0; map.capacity && o < out; o++) {
    int64_t start = o * in / out, stop = ((o + 1) * in + out - 1) / out;
    double weight = average ? 1 / (double)(stop - start) : 1;
    for (int64_t i = start; i < stop; i++) tt_map_add(&map, i, o, i - start, weight);
  }
  return map;
}
