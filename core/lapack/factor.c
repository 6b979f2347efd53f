/* Factorisations that end after a known number of steps. */
#include "lapack/internal.h"

#include <string.h>

static tt_dtype dtype_of(const tt_ffi_call *call) { return call->operands[0].type.dtype; }

/* -- LU -- */

/* The order of rows that the exchanges of `pivots` lead to. */
static void order_rows(const int *pivots, int count, int *order, int m) {
  for (int i = 0; i < m; i++) order[i] = i;
  for (int i = 0; i < count; i++) {
    int other = pivots[i] - 1, kept = order[i];
    if (other < 0 || other >= m) continue; /* of a matrix with NaNs */
    order[i] = order[other];
    order[other] = kept;
  }
}

tt_status tt_lapack_getrf(const tt_ffi_call *call) {
  typedef void getrf_fn(const int *, const int *, void *, const int *, int *, int *);
  getrf_fn *getrf = (getrf_fn *)tt_lapack_routine(TT_GETRF, dtype_of(call));
  tt_matrices a;
  TT_TRY(tt_matrices_copied(&call->operands[0], &call->results[0], &a));
  for (int64_t i = 0; i < a.count; i++) {
    int *pivots = tt_vector_at(&call->results[1], i, a.few);
    int *order = tt_vector_at(&call->results[2], i, a.m);
    int *info = tt_vector_at(&call->results[3], i, 1);
    getrf(&a.m, &a.n, tt_matrix_at(&a, i), &a.lead, pivots, info);
    TT_TRY(tt_lapack_argument("getrf", *info));
    order_rows(pivots, a.few, order, a.m);
  }
  return TT_SUCCESS;
}

/* -- Cholesky -- */

tt_status tt_lapack_potrf(const tt_ffi_call *call) {
  typedef void potrf_fn(const char *, const int *, void *, const int *, int *);
  potrf_fn *potrf = (potrf_fn *)tt_lapack_routine(TT_POTRF, dtype_of(call));
  tt_matrices a;
  TT_TRY(tt_matrices_copied(&call->operands[0], &call->results[0], &a));
  for (int64_t i = 0; i < a.count; i++) {
    int *info = tt_vector_at(&call->results[1], i, 1);
    potrf("L", &a.n, tt_matrix_at(&a, i), &a.lead, info);
    TT_TRY(tt_lapack_argument("potrf", *info));
  }
  return TT_SUCCESS;
}

/* -- QR -- */

typedef void geqrf_fn(const int *, const int *, void *, const int *, void *, void *, const int *,
                      int *);

tt_status tt_lapack_geqrf(const tt_ffi_call *call) {
  geqrf_fn *geqrf = (geqrf_fn *)tt_lapack_routine(TT_GEQRF, dtype_of(call));
  tt_matrices a;
  TT_TRY(tt_matrices_copied(&call->operands[0], &call->results[0], &a));
  tt_asked asked;
  tt_workspace work;
  int ask = -1, info = 0;
  geqrf(&a.m, &a.n, a.data, &a.lead, call->results[1].data, asked.bytes, &ask, &info);
  TT_TRY(tt_workspace_of(&asked, dtype_of(call), &work));
  for (int64_t i = 0; i < a.count && info == 0; i++)
    geqrf(&a.m, &a.n, tt_matrix_at(&a, i), &a.lead, tt_vector_at(&call->results[1], i, a.few),
          work.data, &work.size, &info);
  tt_lapack_free(work.data);
  return tt_lapack_argument("geqrf", info);
}

typedef void orgqr_fn(const int *, const int *, const int *, void *, const int *, const void *,
                      void *, const int *, int *);

tt_status tt_lapack_orgqr(const tt_ffi_call *call) {
  orgqr_fn *orgqr = (orgqr_fn *)tt_lapack_routine(TT_ORGQR, dtype_of(call));
  const tt_ffi_array *tau = &call->operands[1];
  tt_matrices q;
  TT_TRY(tt_matrices_copied(&call->operands[0], &call->results[0], &q));
  int count = tau->type.rank ? (int)tau->type.dims[tau->type.rank - 1] : 0;
  tt_asked asked;
  tt_workspace work;
  int ask = -1, info = 0;
  orgqr(&q.m, &q.n, &count, q.data, &q.lead, tau->data, asked.bytes, &ask, &info);
  TT_TRY(tt_workspace_of(&asked, dtype_of(call), &work));
  for (int64_t i = 0; i < q.count && info == 0; i++)
    orgqr(&q.m, &q.n, &count, tt_matrix_at(&q, i), &q.lead, tt_vector_at(tau, i, count), work.data,
          &work.size, &info);
  tt_lapack_free(work.data);
  return tt_lapack_argument("orgqr", info);
}

/* -- Bunch-Kaufman -- */

static bool hermitian(const tt_ffi_call *call) {
  return tt_ffi_int(call, "hermitian") && tt_is_complex(dtype_of(call));
}

typedef void sytrf_fn(const char *, const int *, void *, const int *, int *, void *, const int *,
                      int *);

tt_status tt_lapack_sytrf(const tt_ffi_call *call) {
  tt_routine routine = hermitian(call) ? TT_HETRF : TT_SYTRF;
  sytrf_fn *sytrf = (sytrf_fn *)tt_lapack_routine(routine, dtype_of(call));
  tt_matrices a;
  TT_TRY(tt_matrices_copied(&call->operands[0], &call->results[0], &a));
  tt_asked asked;
  tt_workspace work;
  int ask = -1, first = 0, info = 0;
  sytrf("L", &a.n, a.data, &a.lead, call->results[1].data, asked.bytes, &ask, &info);
  TT_TRY(tt_workspace_of(&asked, dtype_of(call), &work));
  for (int64_t i = 0; i < a.count; i++) {
    sytrf("L", &a.n, tt_matrix_at(&a, i), &a.lead, tt_vector_at(&call->results[1], i, a.n),
          work.data, &work.size, &info);
    memcpy(tt_vector_at(&call->results[2], i, 1), &info, sizeof info);
    first = info < first ? info : first;
  }
  tt_lapack_free(work.data);
  return tt_lapack_argument("sytrf", first);
}

tt_status tt_lapack_sytrs(const tt_ffi_call *call) {
  typedef void sytrs_fn(const char *, const int *, const int *, const void *, const int *,
                        const int *, void *, const int *, int *);
  tt_routine routine = hermitian(call) ? TT_HETRS : TT_SYTRS;
  sytrs_fn *sytrs = (sytrs_fn *)tt_lapack_routine(routine, dtype_of(call));
  tt_matrices a, b;
  TT_TRY(tt_matrices_of(&call->operands[0], &a));
  TT_TRY(tt_matrices_copied(&call->operands[2], &call->results[0], &b));
  for (int64_t i = 0; i < b.count; i++) {
    int info = 0;
    sytrs("L", &a.n, &b.n, tt_matrix_at(&a, i), &a.lead, tt_vector_at(&call->operands[1], i, a.n),
          tt_matrix_at(&b, i), &b.lead, &info);
    TT_TRY(tt_lapack_argument("sytrs", info));
  }
  return TT_SUCCESS;
}
