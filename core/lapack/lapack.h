/* The lapack room: LAPACK's factorisations, called from programs that run in host memory.
 *
 * The routines come from a library that the process has loaded (PyTorch's); this room finds them by
 * name and offers each as a function that programs call, "torch_tpu.<name>". All arrays hold
 * matrices by columns in their last two dims, [.., columns, rows]: the transposes of what they
 * stand for; vectors in the last dim. Dims before those count matrices. f32, f64, c64, c128.
 *
 *   name   operands      flags (i64)        results
 *   getrf  a             -                  LU factors, pivots from 1, rows' order from 0, info
 *   potrf  a             -                  lower Cholesky factor and a's upper triangle, info
 *   geqrf  a             -                  R and Householder's reflectors below it, tau
 *   orgqr  q, tau        -                  the product of tau's reflectors, of q's columns
 *   syevd  a             upper, vectors     eigenvectors (or scratch), values, info
 *   gesdd  a             vectors            [vectors: U, V^H by their sizes,] values, info
 *   geev   a             vectors            [vectors: eigenvectors,] values, info
 *   sytrf  a             hermitian          Bunch-Kaufman factors, lower triangle; pivots, info
 *   sytrs  ld, pivots, b hermitian          the solution
 *
 * Pivots, orders and info are i32. info is LAPACK's: 0, or what went wrong; where an iteration does
 * not converge (or gesdd meets a NaN) it is above 0 and the other results are NaN. */
#ifndef TT_LAPACK_H
#define TT_LAPACK_H

#include "pjrt/pjrt.h"

/* The address of a Fortran routine ("sgetrf_"), or NULL. */
typedef void *(*tt_lapack_find)(const char *symbol);

/* Looks up all routines; false if one is missing: then there are none. Once, before any use. */
bool tt_lapack_bind(tt_lapack_find find);
bool tt_lapack_bound(void);

/* Makes them known to programs of the CPU platform. UNIMPLEMENTED: the plugin takes none. */
tt_status tt_lapack_offer(tt_plugin *plugin);

#endif
