/* What the files of this room share; nobody else includes it. */
#ifndef TT_LAPACK_INTERNAL_H
#define TT_LAPACK_INTERNAL_H

#include "lapack/lapack.h"
#include "pjrt/ffi.h"

/* name, and the routine's after s or d, and after c or z; "" where there is none */
#define TT_LAPACK_ROUTINES(X)                                                                      \
  X(GETRF, "getrf", "getrf")                                                                       \
  X(POTRF, "potrf", "potrf")                                                                       \
  X(GEQRF, "geqrf", "geqrf")                                                                       \
  X(ORGQR, "orgqr", "ungqr")                                                                       \
  X(SYEVD, "syevd", "heevd")                                                                       \
  X(GESDD, "gesdd", "gesdd")                                                                       \
  X(GEEV, "geev", "geev")                                                                          \
  X(SYTRF, "sytrf", "sytrf")                                                                       \
  X(SYTRS, "sytrs", "sytrs")                                                                       \
  X(HETRF, "", "hetrf")                                                                            \
  X(HETRS, "", "hetrs")
typedef enum tt_routine {
#define X(name, real, complex) TT_##name,
  TT_LAPACK_ROUTINES(X)
#undef X
      TT_ROUTINES
} tt_routine;

/* Fortran's procedures take addresses alone, so their signatures differ by dtype only in what these
 * point to. Callers cast to the signature; the pointer is never NULL for a routine of that dtype.
 */
typedef void tt_fortran(void);
tt_fortran *tt_lapack_routine(tt_routine routine, tt_dtype dtype);

/* Many matrices of m rows by n columns, one after the other, by columns. */
typedef struct tt_matrices {
  char *data;
  int m, n, few; /* few: the smaller of m and n */
  int lead;      /* max(m, 1), what LAPACK calls lda */
  int64_t count;
  size_t element, stride; /* bytes */
} tt_matrices;
/* INVALID_ARGUMENT: fewer than two dims, or more rows or columns than Fortran's integers count. */
tt_status tt_matrices_of(const tt_ffi_array *array, tt_matrices *out);
/* The same, with `from` copied in. They are of equal type. */
tt_status tt_matrices_copied(const tt_ffi_array *from, const tt_ffi_array *to, tt_matrices *out);
/* The i-th matrix, and the i-th row of a vector of `n` elements each. */
static inline void *tt_matrix_at(const tt_matrices *all, int64_t i) {
  return all->data + (size_t)i * all->stride;
}
static inline void *tt_vector_at(const tt_ffi_array *array, int64_t i, int n) {
  size_t bytes = (size_t)tt_dtype_bytes(array->type.dtype);
  return (char *)array->data + (size_t)i * (size_t)n * bytes;
}

/* Scratch of count elements, for vector registers; at least one byte. RESOURCE_EXHAUSTED. */
tt_status tt_lapack_scratch(int64_t count, size_t element, void **out);
void tt_lapack_free(void *scratch); /* NULL is allowed */
/* A routine's work array, of the size that it wrote into `asked`'s first element (lwork = -1). */
typedef struct tt_workspace {
  void *data; /* the caller's to free */
  int size;
} tt_workspace;
typedef struct tt_asked {
  _Alignas(16) char bytes[16];
} tt_asked;
tt_status tt_workspace_of(const tt_asked *asked, tt_dtype dtype, tt_workspace *out);
/* INTERNAL: the routine objects to an argument of ours. */
tt_status tt_lapack_argument(const char *routine, int info);

#define TT_LAPACK_CALLS(X)                                                                         \
  X(getrf) X(potrf) X(geqrf) X(orgqr) X(syevd) X(gesdd) X(geev) X(sytrf) X(sytrs)
#define X(name) tt_status tt_lapack_##name(const tt_ffi_call *call);
TT_LAPACK_CALLS(X)
#undef X

#endif
