/* Operators that write elements by index. In Debug an index out of range is an error; otherwise
 * the write is dropped. */
#include "ops/index/index.h"

#include <string.h>

/* Where updates go in x. Either `match` marks the elements of x that an update of x's own dims
 * replaces, or the rest describes a StableHLO scatter. */
typedef struct target {
  tt_node *match;
  tt_node *indices;
  int window[TT_MAX_RANK], inserted[TT_MAX_RANK];
  int window_count, inserted_count;
  bool flat; /* x and the updates are scattered as rank 1 */
} target;

static tt_node *combine(tt_hlo *h, tt_combiner combiner, tt_node *a, tt_node *b) {
  bool is_bool = a->type.dtype == TT_BOOL;
  switch (combiner) {
  case TT_ADD:
    return is_bool ? tt_hlo_or(h, a, b) : tt_hlo_add(h, a, b);
  case TT_MUL:
    return is_bool ? tt_hlo_and(h, a, b) : tt_hlo_multiply(h, a, b);
  case TT_SMAX:
    return tt_hlo_maximum(h, a, b);
  case TT_SMIN:
    return tt_hlo_minimum(h, a, b);
  default:
    return b;
  }
}

static tt_node *write(tt_lower *cx, const target *to, tt_node *x, tt_node *updates,
                      tt_combiner combiner) {
  tt_hlo *h = cx->h;
  tt_type type = x->type;
  if (to->match) {
    updates = tt_hlo_broadcast_to(h, updates, type.rank, type.dims);
    return tt_hlo_select(h, to->match, combine(h, combiner, x, updates), x);
  }
  if (tt_type_numel(&updates->type) == 0 || tt_type_numel(&type) == 0) return x;
  if (to->flat) {
    x = tt_flatten(cx, x);
    updates = tt_flatten(cx, updates);
  }
  tt_scatter dims = {.window_dims = to->window,
                     .window_count = to->window_count,
                     .inserted_dims = to->inserted,
                     .inserted_count = to->inserted_count,
                     .scatter_map = to->inserted,
                     .scatter_count = to->inserted_count,
                     .index_vector_dim = to->indices->type.rank - 1};
  x = tt_hlo_scatter(h, x, to->indices, updates, &dims, combiner);
  return tt_hlo_reshape(h, x, type.rank, type.dims);
}

/* -- Advanced indexing -- */

static target at_picks(const tt_picks *picks) {
  target to = {.indices = picks->indices,
               .window_count = picks->window_count,
               .inserted_count = picks->count};
  memcpy(to.window, picks->window, sizeof to.window);
  memcpy(to.inserted, picks->dims, sizeof to.inserted);
  return to;
}

void tt_lower_index_put(tt_lower *cx) {
  tt_picks picks;
  tt_node *x = tt_in(cx, 0), *values = tt_cast(cx, tt_in(cx, 2), x->type.dtype);
  bool unsafe = cx->row->param == 1 || tt_bool(cx, 4), accumulate = tt_bool(cx, 3);
  tt_pick(cx, 1, &x->type, TT_TO_WRITE, !unsafe, &picks);
  values = tt_hlo_broadcast_to(cx->h, values, picks.result.rank, picks.result.dims);
  if (tt_hlo_failed(cx->h)) return;
  target to = at_picks(&picks);
  tt_out_as(cx, 0, write(cx, &to, x, values, accumulate ? TT_ADD : TT_SET));
}

void tt_lower_masked_index_put(tt_lower *cx) {
  tt_picks picks;
  tt_node *x = tt_in(cx, 0), *mask = tt_cast(cx, tt_in(cx, 1), TT_BOOL);
  tt_node *values = tt_cast(cx, tt_in(cx, 3), x->type.dtype);
  tt_pick(cx, 2, &x->type, TT_TO_WRITE, false, &picks);
  mask = tt_hlo_broadcast_to(cx->h, mask, picks.result.rank, picks.result.dims);
  values = tt_hlo_broadcast_to(cx->h, values, picks.result.rank, picks.result.dims);
  if (tt_hlo_failed(cx->h)) return;
  values = tt_hlo_select(cx->h, mask, values, tt_hlo_zeros(cx->h, &values->type));
  target to = at_picks(&picks);
  tt_out_as(cx, 0, write(cx, &to, x, values, TT_ADD));
}

/* -- Slices along one dim -- */

static target at_slices(tt_lower *cx, const tt_type *x, int dim, tt_node *index) {
  target to = {.inserted = {dim}, .inserted_count = 1};
  index = tt_cast(cx, index, TT_I64);
  int64_t column[2] = {tt_type_numel(&index->type), 1};
  to.indices = tt_hlo_reshape(cx->h, index, 2, column);
  for (int i = 0; i < x->rank; i++)
    if (i != dim) to.window[to.window_count++] = i;
  return to;
}

/* x (argument 0), dim (1), and index (2) of the index_* operators; source gets x's rank. */
static tt_node *slice_operands(tt_lower *cx, bool negative, tt_code code, tt_node **source,
                               target *to) {
  tt_node *x = tt_in(cx, 0), *index = tt_in(cx, 2);
  int dim = tt_dim(cx, 1, x->type.rank);
  x = tt_at_least_1d(cx, x);
  tt_check_index(cx, index, x->type.dims[dim], negative, code, "index");
  if (negative) index = tt_wrap_index(cx, index, x->type.dims[dim]);
  index = tt_pad(cx, 2, index, TT_MAX);
  *to = at_slices(cx, &x->type, dim, index);
  tt_type part = x->type;
  part.dims[dim] = tt_type_numel(&index->type);
  *source = tt_cast(cx, *source, x->type.dtype);
  if (tt_type_numel(&(*source)->type) == tt_type_numel(&part))
    *source = tt_hlo_reshape(cx->h, *source, part.rank, part.dims);
  *source = tt_hlo_broadcast_to(cx->h, *source, part.rank, part.dims);
  return x;
}

static void state(tt_lower *cx, tt_node *x) {
  tt_type type = tt_in(cx, 0)->type;
  tt_out_as(cx, 0, tt_hlo_reshape(cx->h, x, type.rank, type.dims));
}

static bool is_one(const tt_lower *cx, int i) {
  return !tt_has(cx, i) || (cx->args[i].kind == TT_ARG_INT && cx->args[i].i == 1);
}

static bool same_but(const tt_type *a, const tt_type *b, int dim) {
  for (int i = 0; i < a->rank; i++)
    if (i != dim && a->dims[i] != b->dims[i]) return false;
  return true;
}

void tt_lower_index_add(tt_lower *cx) {
  target to;
  const tt_type *self = &tt_in(cx, 0)->type, *other = &tt_in(cx, 3)->type;
  int rank = tt_in(cx, 0)->type.rank, dim = tt_dim(cx, 1, rank);
  bool outer = rank > 1 && (dim == 0 || dim == rank - 1); /* the CPU's other kernel */
  tt_code code = outer ? TT_INVALID_ARGUMENT : TT_OUT_OF_RANGE;
  bool same_rank = (rank > 0 ? rank : 1) == (other->rank > 0 ? other->rank : 1);
  if (!same_rank || (rank == other->rank && !same_but(self, other, dim))) {
    tt_hlo_fail(cx->h, TT_INVALID_ARGUMENT, "index_add: source has another shape than self");
    return;
  }
  tt_node *source = tt_in(cx, 3), *x = slice_operands(cx, false, code, &source, &to);
  if (!is_one(cx, 4)) source = tt_hlo_multiply(cx->h, source, tt_num(cx, 4, source->type.dtype));
  state(cx, write(cx, &to, x, source, TT_ADD));
}

void tt_lower_index_copy(tt_lower *cx) {
  target to;
  tt_node *source = tt_in(cx, 3), *x = slice_operands(cx, false, TT_OUT_OF_RANGE, &source, &to);
  state(cx, write(cx, &to, x, source, TT_SET));
}

void tt_lower_index_fill(tt_lower *cx) {
  target to;
  tt_node *value = tt_num(cx, 3, tt_in(cx, 0)->type.dtype);
  tt_node *x = slice_operands(cx, true, TT_OUT_OF_RANGE, &value, &to);
  state(cx, write(cx, &to, x, value, TT_SET));
}

/* -- Elements along one dim -- */

/* Index [.., 1, ..] names one element of each line of x: a compare, no scatter. Else the elements
 * are numbered in the flattened x, and a bad index becomes -1. */
static target at_elements(tt_lower *cx, const tt_type *x, int dim, tt_node *index) {
  tt_hlo *h = cx->h;
  target to = {.flat = true, .inserted_count = 1};
  tt_type type = *x;
  type.dtype = TT_I64;
  index = tt_cast(cx, index, TT_I64);
  if (index->type.dims[dim] == 1 && same_but(&index->type, x, dim)) {
    tt_node *here = tt_hlo_broadcast_to(h, index, type.rank, type.dims);
    to.match = tt_hlo_compare(h, TT_EQ, tt_hlo_iota(h, &type, dim), here);
    return to;
  }
  tt_node *ok =
      tt_hlo_and(h, tt_hlo_compare(h, TT_GE, index, tt_hlo_const_i(h, TT_I64, 0)),
                 tt_hlo_compare(h, TT_LT, index, tt_hlo_const_i(h, TT_I64, x->dims[dim])));
  tt_node *flat = NULL;
  int64_t stride = 1;
  for (int i = x->rank - 1; i >= 0; i--) {
    tt_node *at = i == dim ? index : tt_hlo_iota(h, &index->type, i);
    if (stride != 1) at = tt_hlo_multiply(h, at, tt_hlo_const_i(h, TT_I64, stride));
    flat = flat ? tt_hlo_add(h, flat, at) : at;
    stride *= x->dims[i];
  }
  flat = tt_hlo_select(h, ok, flat, tt_hlo_full(h, &index->type, -1.0));
  to.indices = tt_hlo_reshape(h, flat, 2, (int64_t[]){tt_type_numel(&index->type), 1});
  return to;
}

/* x (argument 0), dim (1), index (2), and source or number (3) of the scatter operators. */
static tt_node *element_operands(tt_lower *cx, tt_node **source, target *to) {
  tt_node *x = tt_in(cx, 0), *index = tt_at_least_1d(cx, tt_in(cx, 2)), *src;
  int dim = tt_dim(cx, 1, x->type.rank);
  x = tt_at_least_1d(cx, x);
  tt_check_index(cx, index, x->type.dims[dim], false, TT_INVALID_ARGUMENT, "index");
  if (cx->args[3].kind == TT_ARG_TENSOR) {
    src = tt_at_least_1d(cx, tt_cast(cx, tt_in(cx, 3), x->type.dtype));
    for (int i = 0; i < index->type.rank && i < src->type.rank; i++)
      if (index->type.dims[i] < src->type.dims[i])
        src = tt_hlo_slice_dim(cx->h, src, i, 0, index->type.dims[i], 1);
  } else {
    src = tt_hlo_broadcast_to(cx->h, tt_num(cx, 3, x->type.dtype), index->type.rank,
                              index->type.dims);
  }
  *source = src;
  if (tt_hlo_failed(cx->h) || tt_type_numel(&index->type) == 0) return NULL;
  *to = at_elements(cx, &x->type, dim, tt_pad(cx, 2, index, TT_MAX)); /* padding is out of range */
  return x;
}

void tt_lower_scatter(tt_lower *cx) {
  target to;
  tt_node *source, *x = element_operands(cx, &source, &to);
  if (x) x = write(cx, &to, x, source, cx->row->param == 1 ? TT_ADD : TT_SET);
  state(cx, x ? x : tt_in(cx, 0));
}

/* -- Reductions by name -- */

typedef struct reduction {
  const char *name;
  tt_combiner combiner;
  tt_reducer reducer; /* whose identity the untouched start has */
} reduction;

static const reduction reductions[] = {
    {"sum", TT_ADD, TT_SUM},   {"add", TT_ADD, TT_SUM},       {"prod", TT_MUL, TT_PROD},
    {"mean", TT_ADD, TT_SUM},  {"multiply", TT_MUL, TT_PROD}, {"amax", TT_SMAX, TT_MAX},
    {"amin", TT_SMIN, TT_MIN},
};

static tt_node *divide_by_count(tt_lower *cx, tt_node *sum, tt_node *count) {
  tt_hlo *h = cx->h;
  tt_node *none = tt_hlo_compare(h, TT_EQ, count, tt_like(cx, count, 0.0));
  count = tt_hlo_select(h, none, tt_like(cx, count, 1.0), count);
  if (!tt_is_integer(sum->type.dtype)) return tt_quotient(cx, sum, count);
  tt_node *quotient = tt_hlo_divide(h, sum, count);
  tt_node *back = tt_hlo_multiply(h, quotient, count);
  tt_node *over = tt_hlo_compare(h, TT_GT, back, sum);
  return tt_hlo_subtract(h, quotient, tt_hlo_convert(h, over, sum->type.dtype));
}

static tt_node *reduce_into(tt_lower *cx, const target *to, tt_node *x, tt_node *source,
                            const char *name, bool include_self) {
  tt_hlo *h = cx->h;
  const reduction *how = NULL;
  for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
    if (strcmp(reductions[i].name, name) == 0) how = &reductions[i];
  if (!how)
    return tt_hlo_fail(h, TT_INVALID_ARGUMENT,
                       "%s: reduce must be sum, prod, mean, amax, or amin, but is '%s'",
                       cx->row->name, name);
  bool mean = strcmp(name, "mean") == 0;
  tt_dtype compute = how->combiner == TT_SMAX || how->combiner == TT_SMIN
                         ? x->type.dtype
                         : tt_compute_dtype(x->type.dtype);
  x = tt_cast(cx, x, compute);
  source = tt_cast(cx, source, compute);
  tt_type part = source->type;
  if (!include_self) {
    bool one = how->reducer == TT_PROD || how->reducer == TT_MIN;
    tt_node *identity = compute == TT_BOOL ? tt_hlo_const(h, TT_BOOL, one)
                                           : tt_hlo_identity(h, how->reducer, compute);
    x = write(cx, to, x, tt_hlo_broadcast_to(h, identity, part.rank, part.dims), TT_SET);
  }
  tt_node *sum = write(cx, to, x, source, how->combiner);
  if (!mean) return sum;
  tt_node *count = tt_hlo_full(h, &x->type, include_self ? 1.0 : 0.0);
  count = write(cx, to, count, tt_hlo_full(h, &part, 1.0), TT_ADD);
  return divide_by_count(cx, sum, count);
}

/* scatter.reduce and scatter.value_reduce name add or multiply; scatter_reduce.two (param 1) any,
 * and whether x itself counts. */
void tt_lower_scatter_reduce(tt_lower *cx) {
  target to;
  tt_node *source, *x = element_operands(cx, &source, &to);
  bool include_self = cx->row->param == 0 || !tt_has(cx, 5) || tt_bool(cx, 5);
  if (x) x = reduce_into(cx, &to, x, source, tt_str(cx, 4), include_self);
  state(cx, x ? x : tt_in(cx, 0));
}

void tt_lower_index_reduce(tt_lower *cx) {
  target to;
  tt_node *source = tt_in(cx, 3), *x = slice_operands(cx, false, TT_OUT_OF_RANGE, &source, &to);
  bool include_self = !tt_has(cx, 5) || tt_bool(cx, 5);
  state(cx, reduce_into(cx, &to, x, source, tt_str(cx, 4), include_self));
}

/* -- The flattened tensor -- */

void tt_lower_put(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *flat = tt_flatten(cx, x), *index = tt_flatten(cx, tt_in(cx, 1));
  tt_node *source = tt_flatten(cx, tt_cast(cx, tt_in(cx, 2), x->type.dtype));
  if (index->type.dims[0] != source->type.dims[0]) {
    tt_hlo_fail(cx->h, TT_OUT_OF_RANGE,
                "put_(): Expected source and index to have the same number of elements, but got "
                "source.numel() = %lld, index.numel() = %lld",
                (long long)source->type.dims[0], (long long)index->type.dims[0]);
    return;
  }
  tt_check_index(cx, index, flat->type.dims[0], true, TT_OUT_OF_RANGE, "index");
  index = tt_wrap_index(cx, index, flat->type.dims[0]);
  target to = at_slices(cx, &flat->type, 0, index);
  state(cx, write(cx, &to, flat, source, tt_bool(cx, 3) ? TT_ADD : TT_SET));
}

/* -- Masks -- */

void tt_lower_masked_scatter(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0), *mask = tt_in_counted(cx, 1);
  if (mask->type.dtype != TT_BOOL) {
    tt_hlo_fail(h, TT_INVALID_ARGUMENT, "masked_scatter: the mask must be bool, got %s",
                tt_dtype_name(mask->type.dtype));
    return;
  }
  tt_broadcast_pair(cx, &x, &mask, TT_BOOL);
  tt_type type = mask->type;
  type.dtype = tt_in(cx, 0)->type.dtype;
  x = tt_hlo_broadcast_to(h, tt_in(cx, 0), type.rank, type.dims);
  tt_node *source = tt_flatten(cx, tt_cast(cx, tt_in(cx, 2), type.dtype));
  tt_node *ones =
      tt_hlo_reduce(h, TT_SUM, tt_hlo_convert(h, tt_flatten(cx, mask), TT_I64), (int[]){0}, 1);
  tt_check(cx, tt_hlo_compare(h, TT_GT, ones, tt_hlo_const_i(h, TT_I64, source->type.dims[0])),
           TT_INVALID_ARGUMENT, "Number of elements of source < number of ones in mask");
  if (tt_type_numel(&type) == 0 || source->type.dims[0] == 0) {
    tt_out_as(cx, 0, x);
    return;
  }
  tt_node *before = tt_count_before(cx, tt_flatten(cx, mask));
  tt_node *values = tt_hlo_take(h, source, before, 0);
  values = tt_hlo_reshape(h, values, type.rank, type.dims);
  tt_out_as(cx, 0, tt_hlo_select(h, mask, values, x));
}

void tt_lower_masked_scatter_backward(tt_lower *cx) {
  if (tt_out_empty(cx)) return;
  tt_hlo *h = cx->h;
  tt_node *grad = tt_in(cx, 0), *mask = tt_cast(cx, tt_in_counted(cx, 1), TT_BOOL);
  tt_type type = *tt_meta_type(cx, 0), flat = {.dtype = TT_I64, .rank = 1};
  mask = tt_flatten(cx, tt_hlo_broadcast_to(h, mask, grad->type.rank, grad->type.dims));
  flat.dims[0] = mask->type.dims[0];
  tt_node *at = tt_hlo_select(h, mask, tt_count_before(cx, mask), tt_hlo_full(h, &flat, -1.0));
  flat.dims[0] = tt_type_numel(&type);
  target to = at_slices(cx, &flat, 0, at);
  to.flat = true;
  tt_node *y = write(cx, &to, tt_hlo_zeros(h, &type), tt_flatten(cx, grad), TT_ADD);
  tt_out_as(cx, 0, y);
}

/* -- Rows of a table -- */

tt_node *tt_scatter_rows(tt_lower *cx, tt_node *table, tt_node *index, tt_node *rows,
                         tt_combiner combiner) {
  target to = at_slices(cx, &table->type, 0, index);
  return write(cx, &to, table, rows, combiner);
}
