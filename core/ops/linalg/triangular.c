/* Triangles and what is solved with them. */
#include "ops/linalg/lapack.h"
#include "ops/linalg/linalg.h"

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
  tt_out_in(cx, 0,
            tt_hlo_reduce(cx->h, TT_SUM, tt_triangle(cx, x, TT_EQ, 0), (const int[]){0, 1}, 2),
            dtype);
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

/* (a, *, upper, check_errors): factor, info. */
void tt_lower_cholesky(tt_lower *cx) {
  if (!tt_leaves_errors(cx, 2)) return;
  tt_node *info, *y = cholesky(cx, tt_in(cx, 0), tt_bool(cx, 1), &info);
  tt_out_as(cx, 0, y);
  tt_out_as(cx, 1, info);
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
  tt_operands(cx, &a, &b, tt_compute_dtype(cx->result_type));
  int dim = tt_has(cx, 2) ? tt_dim(cx, 2, a->type.rank) : a->type.rank - 1;
  tt_node *first = tt_hlo_multiply(h, rotated(cx, a, dim, 1), rotated(cx, b, dim, 2));
  tt_node *second = tt_hlo_multiply(h, rotated(cx, a, dim, 2), rotated(cx, b, dim, 1));
  first = tt_rounded(cx, first, cx->result_type);
  second = tt_rounded(cx, second, cx->result_type);
  tt_out_in(cx, 0, tt_hlo_subtract(h, first, second), cx->result_type);
}
