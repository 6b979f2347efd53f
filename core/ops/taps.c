#include "ops/taps.h"

#define MAX_TERMS ((int64_t)1 << 24)

tt_map tt_map_make(tt_lower *cx, int64_t in, int64_t out, int64_t capacity) {
  tt_map map = {.in = in, .out = out};
  if (capacity < 0 || capacity > MAX_TERMS) {
    tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED,
                "a map of %lld to %lld elements needs %lld table entries; the limit is %lld",
                (long long)in, (long long)out, (long long)capacity, (long long)MAX_TERMS);
    return map;
  }
  map.terms = tt_arena_alloc(tt_hlo_arena(cx->h), sizeof *map.terms * (size_t)(capacity + 1));
  map.capacity = map.terms ? capacity : 0;
  if (!map.terms) tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "no memory for a table of indices");
  return map;
}

void tt_map_add(tt_map *map, int64_t from, int64_t to, double weight) {
  bool fits = from >= 0 && from < map->in && to >= 0 && to < map->out;
  if (!fits || weight == 0 || map->count >= map->capacity) return;
  map->terms[map->count++] = (tt_term){from, to, weight};
  if (weight != 1) map->weighted = true;
}

void tt_map_transpose(tt_map *map) {
  int64_t in = map->in;
  map->in = map->out;
  map->out = in;
  for (int64_t i = 0; i < map->count; i++) {
    tt_term *term = &map->terms[i];
    int64_t from = term->from;
    term->from = term->to;
    term->to = from;
  }
}

/* The map as tables of [taps, out]: what to read, and with what weight (0: not used). */
typedef struct tables {
  int64_t taps, size;
  int64_t *from;
  double *weight;
  bool full; /* every place is used */
} tables;

static bool tabulate(tt_lower *cx, const tt_map *map, tables *t) {
  int64_t *used = tt_scratch(cx, map->out);
  if (!used || tt_hlo_failed(cx->h)) return false;
  *t = (tables){.taps = 1, .full = true};
  for (int64_t i = 0; i < map->count; i++) {
    int64_t n = ++used[map->terms[i].to];
    if (n > t->taps) t->taps = n;
  }
  if (!tt_mul_i64(t->taps, map->out, &t->size) || t->size > MAX_TERMS) {
    tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "a map to %lld elements needs too many table entries",
                (long long)map->out);
    return false;
  }
  t->from = tt_scratch(cx, t->size);
  t->weight = tt_arena_alloc(tt_hlo_arena(cx->h), sizeof(double) * (size_t)(t->size + 1));
  if (!t->from || !t->weight || tt_hlo_failed(cx->h)) return false;
  for (int64_t o = 0; o < map->out; o++) used[o] = 0;
  for (int64_t i = 0; i < map->count; i++) {
    const tt_term *term = &map->terms[i];
    int64_t at = used[term->to]++ * map->out + term->to;
    t->from[at] = term->from;
    t->weight[at] = term->weight;
  }
  for (int64_t o = 0; o < map->out; o++) t->full &= used[o] == t->taps;
  return true;
}

static bool is_identity(const tt_map *map) {
  if (map->in != map->out || map->count != map->in || map->weighted) return false;
  for (int64_t i = 0; i < map->count; i++) {
    if (map->terms[i].from != map->terms[i].to) return false;
  }
  return true;
}

/* x with `dim` read at t->from: [.., taps, out, ..] */
static tt_node *read_taps(tt_lower *cx, tt_node *x, int dim, const tt_map *map, const tables *t) {
  tt_node *index = tt_hlo_const_i64s(cx->h, TT_I32, t->from, t->size);
  index = tt_hlo_reshape(cx->h, index, 2, (int64_t[]){t->taps, map->out});
  return tt_hlo_take(cx->h, x, index, dim);
}

static tt_node *weights(tt_lower *cx, tt_dtype dtype, const tt_map *map, const tables *t) {
  tt_node *w = tt_hlo_const_f64s(cx->h, dtype, t->weight, t->size);
  return tt_hlo_reshape(cx->h, w, 2, (int64_t[]){t->taps, map->out});
}

static tt_node *over_taps(tt_lower *cx, tt_node *table, int dim, const tt_type *shape) {
  return tt_hlo_broadcast(cx->h, table, (const int[]){dim, dim + 1}, shape->rank, shape->dims);
}

/* Nothing to read: the map of an empty dim. */
static tt_node *zeros_along(tt_lower *cx, tt_node *x, int dim, int64_t size) {
  tt_type type = x->type;
  type.dims[dim] = size;
  return tt_hlo_zeros(cx->h, &type);
}

tt_node *tt_map_apply(tt_lower *cx, tt_node *x, int dim, const tt_map *map) {
  tables t;
  if (is_identity(map)) return x;
  if (map->in == 0 || map->count == 0) return zeros_along(cx, x, dim, map->out);
  if (!tabulate(cx, map, &t)) return x;
  tt_node *y = read_taps(cx, x, dim, map, &t);
  if (!t.full) {
    tt_node *used = weights(cx, TT_BOOL, map, &t);
    y = tt_where_or_zero(cx, over_taps(cx, used, dim, &y->type), y);
  }
  if (map->weighted) {
    tt_node *w = weights(cx, x->type.dtype, map, &t);
    y = tt_hlo_multiply(cx->h, y, over_taps(cx, w, dim, &y->type));
  }
  return t.taps == 1 ? tt_merge_dim(cx, y, dim) : tt_sum(cx, y, &dim, 1);
}

tt_node *tt_map_spread(tt_lower *cx, tt_node *x, int dim, const tt_map *map, tt_node **used) {
  tables t;
  *used = NULL;
  if (map->in == 0) {
    tt_node *wide = tt_unsqueeze(cx, zeros_along(cx, x, dim, map->out), dim);
    *used = tt_hlo_zeros(cx->h, &(tt_type){.dtype = TT_BOOL, .rank = 2, .dims = {1, map->out}});
    return wide;
  }
  if (!tabulate(cx, map, &t)) return x;
  *used = weights(cx, TT_BOOL, map, &t);
  return read_taps(cx, x, dim, map, &t);
}

tt_map tt_map_windows(tt_lower *cx, int64_t in, int64_t out, int64_t size, int64_t stride,
                      int64_t padding, int64_t dilation) {
  int64_t terms = 0;
  if (!tt_mul_i64(out, size, &terms)) terms = -1;
  tt_map map = tt_map_make(cx, in, out, terms);
  for (int64_t o = 0; map.capacity && o < out; o++) {
    for (int64_t j = 0; j < size; j++) {
      tt_map_add(&map, o * stride - padding + j * dilation, o, 1);
    }
  }
  return map;
}

tt_map tt_map_adaptive(tt_lower *cx, int64_t in, int64_t out, bool average) {
  tt_map map = tt_map_make(cx, in, out, in + 2 * out);
  for (int64_t o = 0; map.capacity && o < out; o++) {
    int64_t start = o * in / out, stop = ((o + 1) * in + out - 1) / out;
    double weight = average ? 1 / (double)(stop - start) : 1;
    for (int64_t i = start; i < stop; i++) tt_map_add(&map, i, o, weight);
  }
  return map;
}
