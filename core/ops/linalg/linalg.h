/* What the files of the linalg family share. Matrices are the last two dims. */
#ifndef TT_LINALG_H
#define TT_LINALG_H

#include "ops/pointwise/pointwise.h"

/* x where column - row compares to `diagonal` as `keep` says, else 0. */
tt_node *tt_triangle(tt_lower *cx, tt_node *x, tt_cmp keep, int64_t diagonal);
/* 1 on the diagonal, of this type. */
tt_node *tt_identity_matrix(tt_lower *cx, const tt_type *type);
/* The conjugate transpose. */
tt_node *tt_adjoint(tt_lower *cx, tt_node *x);
/* a b, of equal batches. */
tt_node *tt_matrix_product(tt_lower *cx, tt_node *a, tt_node *b);
/* Broadcasts the dims before the matrices to each other. */
void tt_match_batches(tt_lower *cx, tt_node **a, tt_node **b);

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

/* Whether argument i, check_errors, is false: no program raises what depends on numbers; fails the
 * builder else, and _decompositions/linalg.py reads the info back. */
bool tt_leaves_errors(tt_lower *cx, int i);

/* Whether each element is finite. */
tt_node *tt_finite(tt_lower *cx, tt_node *x);

#endif
