/* Triangles and what is solved with them. */
#include "ops/linalg/linalg.h"

/* column - row of each element of the last two dims, as i32. */
static tt_node *offsets(tt_lower *cx, const tt_type *shape) {
  tt_type type = *shape;
  type.dtype = TT_I32;
  return tt_hlo_subtract(cx->h, tt_hlo_iota(cx->h, &type, type.rank - 1),
                         tt_hlo_iota(cx->h, &type, type.rank - 2));
}

tt_node *tt_triangle(tt_lower *cx, tt_node *x, tt_cmp keep, int64_t diagonal) {
  int64_t limit = INT32_MAX;
  int64_t bound = diagonal > limit ? limit : diagonal < -limit ? -limit : diagonal;
  tt_node *inside =
      tt_hlo_compare(cx->h, keep, offsets(cx, &x->type), tt_hlo_const_i(cx->h, TT_I32, bound));
  return tt_hlo_select(cx->h, inside, x, tt_hlo_zeros(cx->h, &x->type));
}

tt_node *tt_identity_matrix(tt_lower *cx, const tt_type *type) {
  tt_node *same = tt_hlo_compare(cx->h, TT_EQ, offsets(cx, type), tt_hlo_const_i(cx->h, TT_I32, 0));
  return tt_cast(cx, same, type->dtype);
}

tt_node *tt_swap_last(tt_lower *cx, tt_node *x) {
  int perm[TT_MAX_RANK], rank = x->type.rank;
  if (!tt_need_rank(cx, x, 2)) return x;
  for (int i = 0; i < rank; i++) perm[i] = i;
  perm[rank - 1] = rank - 2;
  perm[rank - 2] = rank - 1;
  return tt_hlo_transpose(cx->h, x, perm);
}

tt_node *tt_adjoint(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  x = tt_swap_last(cx, x);
  if (!tt_is_complex(x->type.dtype)) return x;
  return tt_hlo_complex(h, tt_hlo_real(h, x), tt_hlo_negate(h, tt_hlo_imag(h, x)));
}

tt_node *tt_matrix_product(tt_hlo *h, tt_node *a, tt_node *b) {
  int rank = a->type.rank, batch[TT_MAX_RANK];
  for (int i = 0; i < rank - 2; i++) batch[i] = i;
  return tt_hlo_dot_general(h, a, b, batch, batch, rank - 2, (const int[]){rank - 1},
                            (const int[]){rank - 2}, 1, a->type.dtype);
}

tt_node *tt_finite(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  if (!tt_is_complex(x->type.dtype)) return tt_hlo_is_finite(h, x);
  return tt_hlo_and(h, tt_hlo_is_finite(h, tt_hlo_real(h, x)),
                    tt_hlo_is_finite(h, tt_hlo_imag(h, x)));
}

void tt_match_batches(tt_lower *cx, tt_node **a, tt_node **b) {
  if (!tt_need_rank(cx, *a, 2) || !tt_need_rank(cx, *b, 2)) return;
  tt_type ta = (*a)->type, tb = (*b)->type;
  int rank = ta.rank > tb.rank ? ta.rank : tb.rank;
  int64_t da[TT_MAX_RANK], db[TT_MAX_RANK];
  for (int i = 0; i < rank - 2; i++) {
    int ia = i - (rank - ta.rank), ib = i - (rank - tb.rank);
    int64_t na = ia < 0 ? 1 : ta.dims[ia], nb = ib < 0 ? 1 : tb.dims[ib];
    da[i] = db[i] = na == 1 ? nb : na;
  }
  for (int i = 1; i <= 2; i++) {
    da[rank - i] = ta.dims[ta.rank - i];
    db[rank - i] = tb.dims[tb.rank - i];
  }
  *a = tt_hlo_broadcast_to(cx->h, *a, rank, da);
  *b = tt_hlo_broadcast_to(cx->h, *b, rank, db);
}

/* triu and tril; param: a tt_cmp of column - row with the diagonal. */
void tt_lower_triangle(tt_lower *cx) {
  int64_t diagonal = tt_has(cx, 1) ? tt_int(cx, 1) : 0;
  tt_out_as(cx, 0, tt_triangle(cx, tt_in(cx, 0), (tt_cmp)cx->row->param, diagonal));
}

void tt_lower_trace(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  bool whole = tt_is_integer(x->type.dtype) || x->type.dtype == TT_BOOL;
  tt_dtype dtype = whole ? TT_I64 : x->type.dtype;
  x = tt_cast(cx, x, tt_compute_dtype(dtype));
  tt_node *same =
      tt_hlo_compare(cx->h, TT_EQ, offsets(cx, &x->type), tt_hlo_const_i(cx->h, TT_I32, 0));
  tt_node *kept = tt_hlo_select(cx->h, same, x, tt_hlo_zeros(cx->h, &x->type));
  tt_out_in(cx, 0, tt_hlo_reduce(cx->h, TT_SUM, kept, (const int[]){0, 1}, 2), dtype);
}

/* The factor, of the triangle that `upper` names, and the first pivot that failed, or 0. */
static tt_node *cholesky(tt_lower *cx, tt_node *a, bool upper, tt_node **info) {
  tt_hlo *h = cx->h;
  tt_node *lower = tt_triangle(cx, upper ? tt_adjoint(cx, a) : a, TT_LE, 0);
  if (tt_lapack_takes(cx, a)) {
    tt_node *l = tt_lapack_cholesky(cx, lower, info);
    return upper ? tt_adjoint(cx, l) : l;
  }
  tt_node *l = tt_triangle(cx, tt_hlo_cholesky(h, lower, true), TT_LE, 0);
  int rank = l->type.rank;
  tt_type order = l->type;
  order.dtype = TT_I32;
  int64_t n = order.dims[rank - 1];
  tt_node *bad = tt_hlo_or(h, tt_hlo_compare(h, TT_NE, tt_hlo_real(h, l), tt_hlo_real(h, l)),
                           tt_hlo_compare(h, TT_NE, tt_hlo_imag(h, l), tt_hlo_imag(h, l)));
  tt_node *place =
      tt_hlo_select(h, bad, tt_hlo_iota(h, &order, rank - 2), tt_hlo_full(h, &order, (double)n));
  tt_node *first = tt_hlo_reduce(h, TT_MIN, place, (const int[]){rank - 2, rank - 1}, 2);
  tt_node *fine = tt_hlo_compare(h, TT_GE, first, tt_hlo_const_i(h, TT_I32, n));
  *info = tt_hlo_select(h, fine, tt_hlo_zeros(h, &first->type),
                        tt_hlo_add(h, first, tt_hlo_const_i(h, TT_I32, 1)));
  return upper ? tt_adjoint(cx, l) : l;
}

/* linalg_cholesky_ex, and cholesky (param 1), which has no info. */
void tt_lower_cholesky(tt_lower *cx) {
  tt_node *info, *y = cholesky(cx, tt_in(cx, 0), tt_bool(cx, 1), &info);
  if (cx->row->param || tt_bool(cx, 2))
    tt_check(cx, tt_hlo_compare(cx->h, TT_NE, info, tt_like(cx, info, 0)), TT_INVALID_ARGUMENT,
             "%s: the matrix is not positive-definite", cx->row->name);
  tt_out_as(cx, 0, y);
  if (!cx->row->param) tt_out_as(cx, 1, info);
}

/* (b, a, upper): solves (a a^H) x = b, or (a^H a) x = b. */
void tt_lower_cholesky_solve(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *b = tt_in(cx, 0), *a = tt_in(cx, 1);
  bool lower = !tt_bool(cx, 2);
  tt_match_batches(cx, &a, &b);
  tt_node *y = tt_hlo_triangular_solve(h, a, b, true, lower, false, lower ? 0 : 2);
  tt_out_as(cx, 0, tt_hlo_triangular_solve(h, a, y, true, lower, false, lower ? 2 : 0));
}

void tt_lower_cholesky_inverse(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *a = tt_in(cx, 0), *b = tt_identity_matrix(cx, &a->type);
  bool lower = !tt_bool(cx, 1);
  tt_node *y = tt_hlo_triangular_solve(h, a, b, true, lower, false, lower ? 0 : 2);
  tt_out_as(cx, 0, tt_hlo_triangular_solve(h, a, y, true, lower, false, lower ? 2 : 0));
}

/* (a, b, *, upper, left, unitriangular) */
void tt_lower_solve_triangular(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *b = tt_in(cx, 1);
  bool left = tt_has(cx, 3) ? tt_bool(cx, 3) : true;
  tt_match_batches(cx, &a, &b);
  tt_out_as(cx, 0, tt_hlo_triangular_solve(cx->h, a, b, left, !tt_bool(cx, 2), tt_bool(cx, 4), 0));
}

/* (b, a, upper, transpose, unitriangular): the solution, and a copy of a. */
void tt_lower_triangular_solve(tt_lower *cx) {
  tt_node *b = tt_in(cx, 0), *a = tt_in(cx, 1);
  bool upper = tt_has(cx, 2) ? tt_bool(cx, 2) : true;
  tt_match_batches(cx, &a, &b);
  tt_out_as(
      cx, 0,
      tt_hlo_triangular_solve(cx->h, a, b, true, !upper, tt_bool(cx, 4), tt_bool(cx, 3) ? 1 : 0));
  tt_out_as(cx, 1, a);
}

/* x rotated by `by` along a dim of size 3. */
static tt_node *rotated(tt_lower *cx, tt_node *x, int dim, int64_t by) {
  tt_node *parts[2] = {tt_hlo_slice_dim(cx->h, x, dim, by, 3, 1),
                       tt_hlo_slice_dim(cx->h, x, dim, 0, by, 1)};
  return tt_hlo_concatenate(cx->h, parts, 2, dim);
}

void tt_lower_cross(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *a, *b;
  tt_operands(cx, &a, &b, tt_compute_dtype(cx->common));
  int dim = tt_has(cx, 2) ? tt_dim(cx, 2, a->type.rank) : a->type.rank - 1;
  tt_node *first = tt_hlo_multiply(h, rotated(cx, a, dim, 1), rotated(cx, b, dim, 2));
  tt_node *second = tt_hlo_multiply(h, rotated(cx, a, dim, 2), rotated(cx, b, dim, 1));
  first = tt_rounded(cx, first, cx->common);
  second = tt_rounded(cx, second, cx->common);
  tt_out_in(cx, 0, tt_hlo_subtract(h, first, second), cx->common);
}
