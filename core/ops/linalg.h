/* What the files of the linalg family share. Matrices are the last two dims. */
#ifndef TT_LINALG_H
#define TT_LINALG_H

#include "ops/pointwise.h"

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
/* A sort's comparison of its first operand. */
void tt_sort_ascending(tt_hlo *h, tt_node *const *args, tt_node **results, void *user);

#endif
