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
/* Broadcasts the dims before the matrices to each other. */
void tt_match_batches(tt_lower *cx, tt_node **a, tt_node **b);

#endif
