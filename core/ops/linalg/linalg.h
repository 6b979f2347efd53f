/* What the files of the linalg family share. Matrices are the last two dims. */
#ifndef TT_LINALG_H
#define TT_LINALG_H

#include "ops/pointwise/pointwise.h"

/* x where column - row compares to `diagonal` as `keep` says, else 0. */
tt_node *tt_triangle(tt_lower *cx, tt_node *x, tt_cmp keep, int64_t diagonal);
/* 1 on the diagonal, of this type. */
tt_node *tt_identity_matrix(tt_lower *cx, const tt_type *type);
/* The transpose, and the conjugate transpose. */
tt_node *tt_swap_last(tt_lower *cx, tt_node *x);
tt_node *tt_adjoint(tt_lower *cx, tt_node *x);
/* a b, of equal batches. */
tt_node *tt_matrix_product(tt_hlo *h, tt_node *a, tt_node *b);
/* Broadcasts the dims before the matrices to each other. */
void tt_match_batches(tt_lower *cx, tt_node **a, tt_node **b);

typedef struct tt_lu {
  tt_node *lu, *pivots, *perm, *info; /* pivots from 1; perm: row i of P^T a is row perm[i] of a */
} tt_lu;
tt_lu tt_lu_factor(tt_lower *cx, tt_node *a, bool pivot);
/* The permutation that LAPACK's pivots stand for, of m rows. */
tt_node *tt_permutation(tt_lower *cx, tt_node *pivots, int64_t m);
/* Solves a x = b, or a^H x = b, of equal batches. */
tt_node *tt_lu_solve(tt_lower *cx, tt_node *lu, tt_node *perm, tt_node *b, bool adjoint);
static inline int64_t tt_rows(const tt_node *x) { return x->type.dims[x->type.rank - 2]; }
static inline int64_t tt_columns(const tt_node *x) { return x->type.dims[x->type.rank - 1]; }
static inline int64_t tt_fewest(const tt_node *x) { /* the smaller of both */
  return tt_rows(x) < tt_columns(x) ? tt_rows(x) : tt_columns(x);
}
static inline bool tt_is_empty(const tt_node *x) { return tt_type_numel(&x->type) == 0; }
/* The factors of an empty matrix: what is not empty itself is an identity. */
void tt_out_of_nothing(tt_lower *cx, int count);
/* x with its last dim cut or filled with zeros to n; the one before it. */
tt_node *tt_with_columns(tt_lower *cx, tt_node *x, int64_t n);
tt_node *tt_with_rows(tt_lower *cx, tt_node *x, int64_t m);
/* v spread over matrices: element (i, j) is v[j], or v[i]. */
tt_node *tt_by_column(tt_lower *cx, tt_node *v, const tt_type *matrix, bool by_row);

/* -- By LAPACK (lapack.c), where the program may call it and it has x's dtype -- */
static inline bool tt_lapack_takes(const tt_lower *cx, const tt_node *x) {
  tt_dtype real = tt_dtype_real(x->type.dtype);
  return cx->target->lapack && (real == TT_F32 || real == TT_F64);
}
tt_lu tt_lapack_lu(tt_lower *cx, tt_node *a);
/* The lower factor of a Hermitian matrix's lower triangle; *info as LAPACK's. */
tt_node *tt_lapack_cholesky(tt_lower *cx, tt_node *a, tt_node **info);
tt_node *tt_lapack_packed_qr(tt_lower *cx, tt_node *a, tt_node **tau);
tt_node *tt_lapack_reflectors(tt_lower *cx, tt_node *v, tt_node *tau);
/* Of the triangle that `upper` names; vectors that are not wanted may be anything. */
tt_node *tt_lapack_eigh(tt_lower *cx, tt_node *a, bool upper, bool vectors, tt_node **values);
/* Values, descending; u and vh, square if `full`, unless they are NULL. */
tt_node *tt_lapack_svd(tt_lower *cx, tt_node *a, bool full, tt_node **u, tt_node **vh);

/* a = q r, q of `columns` columns. */
void tt_qr(tt_lower *cx, tt_node *a, int64_t columns, tt_node **q, tt_node **r);
/* Eigenvectors of a Hermitian matrix; *values ascend. */
tt_node *tt_eigh(tt_lower *cx, tt_node *a, tt_node **values);
/* Whether each element is. */
tt_node *tt_finite(tt_lower *cx, tt_node *x);
/* A sort's comparison of its first operand. */
void tt_sort_ascending(tt_hlo *h, tt_node *const *args, tt_node **results, void *user);

#endif
