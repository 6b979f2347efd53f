/* Factorisations that other files of the family build on. */
#ifndef TT_FACTORISE_H
#define TT_FACTORISE_H

#include "ops/linalg/linalg.h"

/* a = q r, q of `columns` columns. */
void tt_qr(tt_lower *cx, tt_node *a, int64_t columns, tt_node **q, tt_node **r);
/* Eigenvectors of a Hermitian matrix; *values ascend. */
tt_node *tt_eigh(tt_lower *cx, tt_node *a, tt_node **values);

#endif
