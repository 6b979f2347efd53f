/* LU factors with partial pivoting, column by column, and what is solved with them. */
#include "ops/linalg/lapack.h"
#include "ops/linalg/linalg.h"

typedef struct lu_task {
  tt_type matrix; /* [.., m, n] */
  bool pivot;
} lu_task;

static tt_type row_type(const tt_type *matrix, int drop, tt_dtype dtype) {
  tt_type type = {.dtype = dtype};
  for (int i = 0; i < matrix->rank; i++)
    if (i != matrix->rank - drop) type.dims[type.rank++] = matrix->dims[i];
  return type;
}

/* A vector along the rows (drop 1) or columns (drop 2) of a matrix, spread over the matrix. */
static tt_node *spread(tt_hlo *h, tt_node *v, const tt_type *matrix, int drop) {
  int map[TT_MAX_RANK], rank = 0;
  for (int i = 0; i < matrix->rank; i++)
    if (i != matrix->rank - drop) map[rank++] = i;
  return tt_hlo_broadcast(h, v, map, matrix->rank, matrix->dims);
}

/* One value for each batch, along a vector. */
static tt_node *along(tt_hlo *h, tt_node *x, const tt_type *vector) {
  int map[TT_MAX_RANK];
  for (int i = 0; i < x->type.rank; i++) map[i] = i;
  return tt_hlo_broadcast(h, x, map, vector->rank, vector->dims);
}

static tt_node *sum_where(tt_hlo *h, tt_node *mask, tt_node *x, int dim) {
  return tt_hlo_reduce(h, TT_SUM, tt_hlo_select(h, mask, x, tt_hlo_zeros(h, &x->type)), &dim, 1);
}

/* What LAPACK compares: |re| + |im|. */
static tt_node *weight(tt_hlo *h, tt_node *x) {
  if (!tt_is_complex(x->type.dtype)) return tt_hlo_abs(h, x);
  return tt_hlo_add(h, tt_hlo_abs(h, tt_hlo_real(h, x)), tt_hlo_abs(h, tt_hlo_imag(h, x)));
}

/* The first row at or below k whose element of col weighs most; k itself without pivoting. */
static tt_node *choose_pivot(tt_hlo *h, const lu_task *task, tt_node *col, tt_node *rows,
                             tt_node *k) {
  int last = col->type.rank - 1;
  tt_node *none = tt_hlo_const(h, tt_dtype_real(col->type.dtype), -1);
  tt_node *allowed =
      task->pivot ? tt_hlo_compare(h, TT_GE, rows, k) : tt_hlo_compare(h, TT_EQ, rows, k);
  tt_node *size = tt_hlo_select(h, allowed, weight(h, col), none);
  tt_node *most = along(h, tt_hlo_reduce(h, TT_MAX, size, &last, 1), &rows->type);
  tt_node *hit = tt_hlo_compare(h, TT_EQ, size, most);
  tt_node *end = tt_hlo_const_i(h, TT_I32, rows->type.dims[last] - 1);
  return tt_hlo_reduce(h, TT_MIN, tt_hlo_select(h, hit, rows, end), &last, 1);
}

/* v with its elements at the masks exchanged. */
static tt_node *exchange(tt_hlo *h, tt_node *v, tt_node *at_k, tt_node *at_p) {
  int last = v->type.rank - 1;
  tt_node *vk = along(h, sum_where(h, at_k, v, last), &v->type);
  tt_node *vp = along(h, sum_where(h, at_p, v, last), &v->type);
  return tt_hlo_select(h, at_k, vp, tt_hlo_select(h, at_p, vk, v));
}

/* args: k, the matrix, the pivots, the permutation. */
static void lu_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const lu_task *task = user;
  const tt_type *m = &task->matrix;
  tt_node *k = args[0], *a = args[1], *perm = args[3];
  tt_type index = *m, rows_type = row_type(m, 1, TT_I32);
  index.dtype = TT_I32;
  tt_node *rows = tt_hlo_iota(h, &rows_type, rows_type.rank - 1);
  tt_node *in_col = tt_hlo_compare(h, TT_EQ, tt_hlo_iota(h, &index, m->rank - 1), k);
  tt_node *col = sum_where(h, in_col, a, m->rank - 1);
  tt_node *p = choose_pivot(h, task, col, rows, k), *wide_p = along(h, p, &rows_type);
  tt_node *at_k = tt_hlo_compare(h, TT_EQ, rows, k), *at_p = tt_hlo_compare(h, TT_EQ, rows, wide_p);
  tt_node *k_rows = spread(h, at_k, m, 1), *p_rows = spread(h, at_p, m, 1);
  tt_node *row_p = sum_where(h, p_rows, a, m->rank - 2),
          *row_k = sum_where(h, k_rows, a, m->rank - 2);
  tt_node *wide_row_p = spread(h, row_p, m, 2);
  a = tt_hlo_select(h, k_rows, wide_row_p, tt_hlo_select(h, p_rows, spread(h, row_k, m, 2), a));
  col = exchange(h, col, at_k, at_p);
  tt_node *pivot = along(h, sum_where(h, at_k, col, rows_type.rank - 1), &rows_type);
  tt_node *zero = tt_hlo_zeros(h, &col->type), *below = tt_hlo_compare(h, TT_GT, rows, k);
  tt_node *usable = tt_hlo_and(h, below, tt_hlo_compare(h, TT_NE, pivot, zero));
  tt_node *l = tt_hlo_select(h, usable, tt_hlo_divide(h, col, pivot), zero);
  tt_node *right = tt_hlo_compare(h, TT_GT, tt_hlo_iota(h, &index, m->rank - 1), k);
  tt_node *step = tt_hlo_multiply(h, spread(h, l, m, 1),
                                  tt_hlo_select(h, right, wide_row_p, tt_hlo_zeros(h, m)));
  a = tt_hlo_subtract(h, a, step);
  a = tt_hlo_select(h, tt_hlo_and(h, in_col, spread(h, usable, m, 1)), spread(h, l, m, 1), a);
  tt_node *places = tt_hlo_iota(h, &args[2]->type, args[2]->type.rank - 1);
  tt_node *one = tt_hlo_const_i(h, TT_I32, 1);
  results[1] = a;
  results[2] = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, places, k),
                             along(h, tt_hlo_add(h, p, one), &args[2]->type), args[2]);
  results[3] = exchange(h, perm, at_k, at_p);
}

static tt_lu lu_factor(tt_lower *cx, tt_node *a, bool pivot) {
  if (pivot && tt_lapack_takes(cx, a)) return tt_lapack_lu(cx, a);
  tt_hlo *h = cx->h;
  lu_task task = {a->type, pivot};
  int rank = a->type.rank;
  int64_t m = a->type.dims[rank - 2], n = a->type.dims[rank - 1];
  tt_type perm_type = row_type(&a->type, 1, TT_I32), pivots_type = perm_type;
  pivots_type.dims[rank - 2] = m < n ? m : n;
  tt_node *inits[4] = {tt_hlo_const_i(h, TT_I32, 0), a, tt_hlo_zeros(h, &pivots_type),
                       tt_hlo_iota(h, &perm_type, rank - 2)};
  tt_node *out[4];
  tt_hlo_count_up(h, m < n ? m : n, 4, inits, lu_step, &task, out);
  tt_lu lu = {.lu = out[1], .pivots = out[2], .perm = out[3]};
  /* info: the first zero on the diagonal, from 1; 0 if there is none. */
  tt_type index = a->type;
  index.dtype = TT_I32;
  tt_node *i = tt_hlo_iota(h, &index, rank - 2), *j = tt_hlo_iota(h, &index, rank - 1);
  tt_node *bad = tt_hlo_and(h, tt_hlo_compare(h, TT_EQ, i, j),
                            tt_hlo_compare(h, TT_EQ, lu.lu, tt_hlo_zeros(h, &a->type)));
  tt_node *end = tt_hlo_broadcast_to(h, tt_hlo_const_i(h, TT_I32, m + n), rank, index.dims);
  tt_node *first =
      tt_hlo_reduce(h, TT_MIN, tt_hlo_select(h, bad, i, end), (const int[]){rank - 2, rank - 1}, 2);
  tt_node *none = tt_hlo_compare(h, TT_GE, first, tt_hlo_const_i(h, TT_I32, m + n));
  lu.info = tt_hlo_select(h, none, tt_hlo_zeros(h, &first->type),
                          tt_hlo_add(h, first, tt_hlo_const_i(h, TT_I32, 1)));
  return lu;
}

/* args: k, the permutation, the pivots. */
static void perm_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  tt_node *k = args[0], *perm = args[1], *pivots = args[2], *one = tt_hlo_const_i(h, TT_I32, 1);
  tt_node *places = tt_hlo_iota(h, &pivots->type, pivots->type.rank - 1);
  tt_node *p = sum_where(h, tt_hlo_compare(h, TT_EQ, places, k), pivots, pivots->type.rank - 1);
  tt_node *rows = tt_hlo_iota(h, &perm->type, perm->type.rank - 1);
  tt_node *at_p = tt_hlo_compare(h, TT_EQ, rows, along(h, tt_hlo_subtract(h, p, one), &perm->type));
  results[1] = exchange(h, perm, tt_hlo_compare(h, TT_EQ, rows, k), at_p);
  results[2] = pivots;
}

static tt_node *permutation_of(tt_lower *cx, tt_node *pivots, int64_t m) {
  tt_hlo *h = cx->h;
  tt_type type = pivots->type;
  type.dtype = TT_I32;
  const int64_t count = type.dims[type.rank - 1];
  type.dims[type.rank - 1] = m;
  tt_node *inits[3] = {tt_hlo_const_i(h, TT_I32, 0), tt_hlo_iota(h, &type, type.rank - 1),
                       tt_cast(cx, pivots, TT_I32)};
  tt_node *out[3];
  tt_hlo_count_up(h, count, 3, inits, perm_step, NULL, out);
  return out[1];
}

/* One-hot rows: element (i, perm[i]) is 1. */
static tt_node *permutation_matrix(tt_lower *cx, tt_node *perm, tt_dtype dtype) {
  tt_type type = perm->type;
  int64_t m = type.dims[type.rank - 1];
  type.dims[type.rank++] = m;
  tt_node *columns = tt_hlo_iota(cx->h, &type, type.rank - 1);
  return tt_cast(cx, tt_hlo_compare(cx->h, TT_EQ, columns, spread(cx->h, perm, &type, 1)), dtype);
}

/* A sort's comparison of its first operand. */
static void ascending(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_compare(h, TT_LT, args[0], args[1]);
}

/* b's rows in the order of perm, or put back into it. */
static tt_node *permute_rows(tt_lower *cx, tt_node *perm, tt_node *b, bool back) {
  tt_type type = b->type;
  type.dtype = TT_I32;
  tt_node *order = perm;
  if (back) {
    tt_node *parts[2] = {perm, tt_hlo_iota(cx->h, &perm->type, perm->type.rank - 1)}, *sorted[2];
    tt_hlo_sort(cx->h, 2, parts, perm->type.rank - 1, true, ascending, NULL, sorted);
    order = sorted[1];
  }
  return tt_hlo_take_along(cx->h, b, spread(cx->h, order, &type, 1), type.rank - 2);
}

static tt_node *lu_solve(tt_lower *cx, tt_node *lu, tt_node *perm, tt_node *b, bool adjoint) {
  tt_hlo *h = cx->h;
  if (adjoint) {
    tt_node *y = tt_hlo_triangular_solve(h, lu, b, true, false, false, 2);
    y = tt_hlo_triangular_solve(h, lu, y, true, true, true, 2);
    return permute_rows(cx, perm, y, true);
  }
  tt_node *y = permute_rows(cx, perm, b, false);
  y = tt_hlo_triangular_solve(h, lu, y, true, true, true, 0);
  return tt_hlo_triangular_solve(h, lu, y, true, false, false, 0);
}

/* (a, *, pivot, check_errors): lu, pivots, info. */
void tt_lower_lu_factor(tt_lower *cx) {
  if (!tt_leaves_errors(cx, 2)) return;
  tt_lu lu = lu_factor(cx, tt_in(cx, 0), tt_has(cx, 1) ? tt_bool(cx, 1) : true);
  tt_out_as(cx, 0, lu.lu);
  tt_out_as(cx, 1, lu.pivots);
  tt_out_as(cx, 2, lu.info);
}

static tt_node *lower_factor(tt_lower *cx, tt_node *lu) {
  tt_type type = lu->type;
  int64_t m = type.dims[type.rank - 2], n = type.dims[type.rank - 1], k = m < n ? m : n;
  type.dims[type.rank - 1] = k;
  tt_node *part = tt_hlo_slice_dim(cx->h, lu, type.rank - 1, 0, k, 1);
  return tt_hlo_add(cx->h, tt_triangle(cx, part, TT_LE, -1), tt_identity_matrix(cx, &type));
}

static tt_node *upper_factor(tt_lower *cx, tt_node *lu) {
  const tt_type *type = &lu->type;
  int64_t m = type->dims[type->rank - 2], n = type->dims[type->rank - 1], k = m < n ? m : n;
  return tt_triangle(cx, tt_hlo_slice_dim(cx->h, lu, type->rank - 2, 0, k, 1), TT_GE, 0);
}

static tt_node *empty_as_promised(tt_lower *cx, int k, tt_dtype dtype) {
  tt_type none = {.dtype = dtype, .rank = 1};
  return tt_hlo_zeros(cx->h, cx->meta_types && k < cx->meta_count ? &cx->meta_types[k] : &none);
}

/* (a, *, pivot): p, l, u. */
void tt_lower_lu(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0);
  bool pivot = tt_has(cx, 1) ? tt_bool(cx, 1) : true;
  tt_lu lu = lu_factor(cx, a, pivot);
  tt_node *p = permutation_matrix(cx, lu.perm, a->type.dtype);
  tt_out(cx, 0, pivot ? tt_swap_last(cx, p) : empty_as_promised(cx, 0, a->type.dtype));
  tt_out_as(cx, 1, lower_factor(cx, lu.lu));
  tt_out_as(cx, 2, upper_factor(cx, lu.lu));
}

/* (lu, pivots, unpack_data, unpack_pivots): p, l, u. */
void tt_lower_lu_unpack(tt_lower *cx) {
  tt_node *lu = tt_in(cx, 0);
  tt_dtype dtype = lu->type.dtype;
  bool data = tt_has(cx, 2) ? tt_bool(cx, 2) : true, pivots = tt_has(cx, 3) ? tt_bool(cx, 3) : true;
  tt_node *p = NULL;
  if (pivots) {
    tt_node *perm = permutation_of(cx, tt_in(cx, 1), lu->type.dims[lu->type.rank - 2]);
    p = tt_swap_last(cx, permutation_matrix(cx, perm, dtype));
  }
  tt_out(cx, 0, p ? p : empty_as_promised(cx, 0, dtype));
  tt_out(cx, 1, data ? lower_factor(cx, lu) : empty_as_promised(cx, 1, dtype));
  tt_out(cx, 2, data ? upper_factor(cx, lu) : empty_as_promised(cx, 2, dtype));
}

/* (lu, pivots, b, *, left, adjoint) */
void tt_lower_lu_solve(tt_lower *cx) {
  tt_node *lu = tt_in(cx, 0), *pivots = tt_in(cx, 1), *b = tt_in(cx, 2);
  bool left = tt_has(cx, 3) ? tt_bool(cx, 3) : true, adjoint = tt_bool(cx, 4);
  if (!left) b = tt_adjoint(cx, b);
  tt_match_batches(cx, &lu, &b);
  if (!tt_need_rank(cx, lu, 2)) return;
  int rank = lu->type.rank;
  pivots = tt_hlo_broadcast_to(cx->h, pivots, rank - 1, lu->type.dims);
  tt_node *perm = permutation_of(cx, pivots, lu->type.dims[rank - 2]);
  tt_node *y = lu_solve(cx, lu, perm, b, left ? adjoint : !adjoint);
  tt_out_as(cx, 0, left ? y : tt_adjoint(cx, y));
}

/* (a, b, *, left, check_errors): result, lu, pivots, info. */
void tt_lower_solve(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *a = tt_in(cx, 0), *b = tt_in(cx, 1);
  if (!tt_leaves_errors(cx, 3)) return;
  bool left = tt_has(cx, 2) ? tt_bool(cx, 2) : true;
  tt_type ta = a->type, tb = b->type;
  bool vector = tb.rank == 1 || (tb.rank == ta.rank - 1);
  for (int i = 0; vector && tb.rank > 1 && i < tb.rank; i++) vector = tb.dims[i] == ta.dims[i];
  if (vector) {
    tb.dims[tb.rank++] = 1;
    b = tt_hlo_reshape(h, b, tb.rank, tb.dims);
  }
  tt_lu lu = lu_factor(cx, a, true);
  tt_node *wide = lu.lu, *perm = lu.perm;
  if (!left) b = tt_adjoint(cx, b);
  tt_match_batches(cx, &wide, &b);
  int64_t dims[TT_MAX_RANK];
  for (int i = 0; i < wide->type.rank - 1; i++) dims[i] = wide->type.dims[i];
  perm = tt_hlo_broadcast_to(h, perm, wide->type.rank - 1, dims);
  tt_node *y = lu_solve(cx, wide, perm, b, !left);
  if (!left) y = tt_adjoint(cx, y);
  if (vector) y = tt_hlo_reshape(h, y, y->type.rank - 1, y->type.dims);
  tt_out_as(cx, 0, y);
  tt_out_as(cx, 1, lu.lu);
  tt_out_as(cx, 2, lu.pivots);
  tt_out_as(cx, 3, lu.info);
}

/* (a, *, check_errors): inverse, info. */
void tt_lower_inverse(tt_lower *cx) {
  if (!tt_leaves_errors(cx, 1)) return;
  tt_node *a = tt_in(cx, 0);
  tt_lu lu = lu_factor(cx, a, true);
  tt_out_as(cx, 0, lu_solve(cx, lu.lu, lu.perm, tt_identity_matrix(cx, &a->type), false));
  tt_out_as(cx, 1, lu.info);
}
