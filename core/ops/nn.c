/* Small expressions that the neural-network families share. */
#include "ops/nn.h"

#include <string.h>

tt_node *tt_along(tt_lower *cx, tt_node *v, int dim, const tt_type *shape) {
  return tt_hlo_broadcast(cx->h, v, &dim, shape->rank, shape->dims);
}

tt_node *tt_unreduce(tt_lower *cx, tt_node *x, const int *dims, int count, const tt_type *shape) {
  int map[TT_MAX_RANK], n = 0;
  for (int d = 0; d < shape->rank; d++) {
    bool dropped = false;
    for (int i = 0; i < count; i++) dropped |= dims[i] == d;
    if (!dropped) map[n++] = d;
  }
  return tt_hlo_broadcast(cx->h, x, map, shape->rank, shape->dims);
}

tt_node *tt_sum(tt_lower *cx, tt_node *x, const int *dims, int count) {
  return tt_hlo_reduce(cx->h, TT_SUM, x, dims, count);
}

double tt_elements_in(const tt_node *x, const int *dims, int count) {
  int64_t n = 1;
  for (int i = 0; i < count; i++) {
    if (dims[i] < x->type.rank) n *= x->type.dims[dims[i]];
  }
  return (double)n;
}

tt_node *tt_mean(tt_lower *cx, tt_node *x, const int *dims, int count) {
  tt_node *sum = tt_sum(cx, x, dims, count);
  return tt_quotient(cx, sum, tt_like(cx, sum, tt_elements_in(x, dims, count)));
}

tt_node *tt_average(tt_lower *cx, tt_node *x, const int *dims, int count) {
  double n = tt_elements_in(x, dims, count);
  return n > 0 ? tt_sum(cx, tt_times(cx, x, 1 / n), dims, count) : tt_mean(cx, x, dims, count);
}

tt_node *tt_square(tt_lower *cx, tt_node *x) { return tt_hlo_multiply(cx->h, x, x); }

tt_node *tt_where_or_zero(tt_lower *cx, tt_node *keep, tt_node *x) {
  return tt_hlo_select(cx->h, keep, x, tt_hlo_zeros(cx->h, &x->type));
}

bool tt_flag(tt_lower *cx, int i, int k) {
  int count = 0;
  const int64_t *flags = tt_ints(cx, i, &count);
  return k < count && flags[k];
}

int64_t *tt_scratch(tt_lower *cx, int64_t count) {
  static _Thread_local int64_t spare[TT_MAX_RANK];
  size_t size;
  if (count >= 0 && tt_mul_size((size_t)count + 1, sizeof(int64_t), &size)) {
    int64_t *block = tt_arena_alloc(tt_hlo_arena(cx->h), size);
    if (block) return block;
  }
  tt_hlo_fail(cx->h, TT_RESOURCE_EXHAUSTED, "no memory for a table of %lld indices",
              (long long)count);
  return count <= TT_MAX_RANK ? spare : NULL;
}

tt_node *tt_unsqueeze(tt_lower *cx, tt_node *x, int dim) {
  tt_type type = x->type;
  if (type.rank == TT_MAX_RANK || dim > type.rank) {
    return tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "a tensor of rank %d is too large", type.rank);
  }
  memmove(type.dims + dim + 1, type.dims + dim, sizeof *type.dims * (size_t)(type.rank - dim));
  type.dims[dim] = 1;
  return tt_hlo_reshape(cx->h, x, type.rank + 1, type.dims);
}

tt_node *tt_split_dim(tt_lower *cx, tt_node *x, int dim, int64_t outer, int64_t inner) {
  tt_node *wider = tt_unsqueeze(cx, x, dim);
  if (tt_hlo_failed(cx->h)) return wider;
  tt_type type = wider->type;
  type.dims[dim] = outer;
  type.dims[dim + 1] = inner;
  return tt_hlo_reshape(cx->h, x, type.rank, type.dims);
}

tt_node *tt_merge_dim(tt_lower *cx, tt_node *x, int dim) {
  tt_type type = x->type;
  if (dim + 1 >= type.rank) return tt_hlo_fail(cx->h, TT_INTERNAL, "no dims %d, %d", dim, dim + 1);
  type.dims[dim] *= type.dims[dim + 1];
  memmove(type.dims + dim + 1, type.dims + dim + 2,
          sizeof *type.dims * (size_t)(type.rank - dim - 2));
  return tt_hlo_reshape(cx->h, x, type.rank - 1, type.dims);
}

tt_node *tt_move_dim(tt_lower *cx, tt_node *x, int from, int to) {
  int perm[TT_MAX_RANK], n = 0;
  for (int d = 0; d < x->type.rank; d++) {
    if (n == to) perm[n++] = from;
    if (d != from) perm[n++] = d;
  }
  if (n == to) perm[n] = from;
  return tt_hlo_transpose(cx->h, x, perm);
}
