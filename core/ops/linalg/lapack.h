/* Factorisations by LAPACK, where the program may call it and it has the operand's dtype. */
#ifndef TT_OPS_LAPACK_H
#define TT_OPS_LAPACK_H

#include "ops/lower.h"

typedef struct tt_lu {
  tt_node *lu, *pivots, *perm, *info; /* pivots from 1; perm: row i of P^T a is row perm[i] of a */
} tt_lu;

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

#endif
