/* Eigenvalues and singular values: iterations that end when they converge. */
#include "lapack/internal.h"

#include <math.h>
#include <string.h>

/* One call's matrices, and what the routine needs besides its results. */
typedef struct job {
  const tt_ffi_call *call;
  tt_dtype dtype;
  bool complex, vectors;
  tt_matrices a;     /* the operand; syevd: its copy in the first result */
  tt_workspace work; /* size -1: the routine is asked how much it wants */
  int reals_count, ints_count;
  void *reals, *ints; /* rwork (complex) or geev's two parts of the values; iwork */
  void *copy;         /* of one matrix that the routine destroys */
} job;

/* For matrix i, with this work array. */
typedef void solve_fn(job *j, int64_t i, void *work, int *info);

static tt_status job_init(job *j, const tt_ffi_call *call) {
  *j = (job){.call = call, .dtype = call->operands[0].type.dtype};
  j->complex = tt_is_complex(j->dtype);
  j->vectors = tt_ffi_int(call, "vectors") != 0;
  return tt_matrices_of(&call->operands[0], &j->a);
}

static tt_status job_scratch(job *j, int64_t reals, int64_t ints, bool copy) {
  if (reals > INT32_MAX || ints > INT32_MAX)
    return tt_error(TT_INVALID_ARGUMENT, "a matrix of %d rows is too large for LAPACK", j->a.m);
  j->reals_count = (int)reals;
  j->ints_count = (int)ints;
  size_t real = (size_t)tt_dtype_bytes(tt_dtype_real(j->dtype));
  TT_TRY(tt_lapack_scratch(reals, real, &j->reals));
  TT_TRY(tt_lapack_scratch(ints, sizeof(int), &j->ints));
  if (!copy) return TT_SUCCESS;
  return tt_lapack_scratch((int64_t)j->a.m * j->a.n, j->a.element, &j->copy);
}

static void job_deinit(job *j) {
  tt_lapack_free(j->work.data);
  tt_lapack_free(j->reals);
  tt_lapack_free(j->ints);
  tt_lapack_free(j->copy);
}

/* The part of the k-th result that belongs to matrix i, and its size. */
static size_t part_bytes(const job *j, int k) {
  const tt_type *type = &j->call->results[k].type;
  return (size_t)(tt_type_numel(type) / j->a.count * tt_dtype_bytes(type->dtype));
}

static void *part(const job *j, int k, int64_t i) {
  return (char *)j->call->results[k].data + (size_t)i * part_bytes(j, k);
}

/* The info is the last result; where it is not 0, the others become NaN, whose bits are all set. */
static void solve_one(job *j, int64_t i, solve_fn *solve, int *info) {
  int last = j->call->result_count - 1;
  solve(j, i, j->work.data, info);
  memcpy(part(j, last, i), info, sizeof *info);
  for (int k = 0; *info && k < last; k++) memset(part(j, k, i), 0xff, part_bytes(j, k));
}

static tt_status solve_all(job *j, const char *routine, solve_fn *solve) {
  if (!j->a.count) return TT_SUCCESS;
  tt_asked asked;
  int info = 0;
  j->work.size = -1;
  solve(j, 0, asked.bytes, &info);
  TT_TRY(tt_lapack_argument(routine, info));
  TT_TRY(tt_workspace_of(&asked, j->dtype, &j->work));
  for (int64_t i = 0; i < j->a.count; i++) {
    solve_one(j, i, solve, &info);
    TT_TRY(tt_lapack_argument(routine, info));
  }
  return TT_SUCCESS;
}

/* The matrix as scratch, which the routine may destroy. */
static void *taken(job *j, int64_t i) {
  if (j->work.size >= 0) memcpy(j->copy, tt_matrix_at(&j->a, i), j->a.stride);
  return j->copy;
}

/* -- Hermitian matrices -- */

static void syevd(job *j, int64_t i, void *work, int *info) {
  typedef void real_fn(const char *, const char *, const int *, void *, const int *, void *, void *,
                       const int *, int *, const int *, int *);
  typedef void complex_fn(const char *, const char *, const int *, void *, const int *, void *,
                          void *, const int *, void *, const int *, int *, const int *, int *);
  tt_fortran *routine = tt_lapack_routine(TT_SYEVD, j->dtype);
  const char *wanted = j->vectors ? "V" : "N";
  const char *triangle = tt_ffi_int(j->call, "upper") ? "U" : "L";
  const tt_matrices *a = &j->a;
  void *matrix = tt_matrix_at(a, i), *values = part(j, 1, i);
  if (j->complex)
    ((complex_fn *)routine)(wanted, triangle, &a->n, matrix, &a->lead, values, work, &j->work.size,
                            j->reals, &j->reals_count, j->ints, &j->ints_count, info);
  else
    ((real_fn *)routine)(wanted, triangle, &a->n, matrix, &a->lead, values, work, &j->work.size,
                         j->ints, &j->ints_count, info);
}

tt_status tt_lapack_syevd(const tt_ffi_call *call) {
  job j;
  TT_TRY(job_init(&j, call));
  TT_TRY(tt_matrices_copied(&call->operands[0], &call->results[0], &j.a));
  int64_t n = j.a.n;
  int64_t reals = j.vectors ? 1 + 5 * n + 2 * n * n : n + 1;
  tt_status status = job_scratch(&j, j.complex ? reals : 0, 3 + 5 * n, false);
  if (!status) status = solve_all(&j, "syevd", syevd);
  job_deinit(&j);
  return status;
}

/* -- Singular values -- */

static void gesdd(job *j, int64_t i, void *work, int *info) {
  typedef void real_fn(const char *, const int *, const int *, void *, const int *, void *, void *,
                       const int *, void *, const int *, void *, const int *, int *, int *);
  typedef void complex_fn(const char *, const int *, const int *, void *, const int *, void *,
                          void *, const int *, void *, const int *, void *, const int *, void *,
                          int *, int *);
  tt_fortran *routine = tt_lapack_routine(TT_GESDD, j->dtype);
  const tt_matrices *a = &j->a;
  const char *wanted = "N";
  void *matrix = taken(j, i), *u = NULL, *vh = NULL, *values = part(j, j->vectors ? 2 : 0, i);
  int vh_rows = 1, has_nans = -4; /* the info of a matrix that */
  if (j->vectors) {
    const tt_type *vh_type = &j->call->results[1].type;
    vh_rows = (int)vh_type->dims[vh_type->rank - 1];
    const tt_type *u_type = &j->call->results[0].type;
    bool square = u_type->dims[u_type->rank - 2] == a->m && vh_rows == a->n;
    wanted = square ? "A" : "S";
    u = part(j, 0, i);
    vh = part(j, 1, i);
  }
  if (j->complex)
    ((complex_fn *)routine)(wanted, &a->m, &a->n, matrix, &a->lead, values, u, &a->lead, vh,
                            &vh_rows, work, &j->work.size, j->reals, j->ints, info);
  else
    ((real_fn *)routine)(wanted, &a->m, &a->n, matrix, &a->lead, values, u, &a->lead, vh, &vh_rows,
                         work, &j->work.size, j->ints, info);
  if (*info == has_nans) *info = 1;
}

tt_status tt_lapack_gesdd(const tt_ffi_call *call) {
  job j;
  TT_TRY(job_init(&j, call));
  int64_t few = j.a.few, many = (int64_t)j.a.m + j.a.n - few, reals = 7 * few;
  if (j.vectors) reals = few * (5 * few + 7 + 2 * (many + few) + 1);
  tt_status status = job_scratch(&j, j.complex ? reals : 0, 8 * few, true);
  if (!status) status = solve_all(&j, "gesdd", gesdd);
  job_deinit(&j);
  return status;
}

/* -- Matrices without symmetry -- */

static double get(const job *j, const void *numbers, int64_t i) {
  return j->a.element == sizeof(double) ? ((const double *)numbers)[i]
                                        : ((const float *)numbers)[i];
}

static void put(const job *j, void *numbers, int64_t i, double re, double im) {
  if (j->a.element == sizeof(double)) {
    ((double *)numbers)[2 * i] = re;
    ((double *)numbers)[2 * i + 1] = im;
  } else {
    ((float *)numbers)[2 * i] = (float)re;
    ((float *)numbers)[2 * i + 1] = (float)im;
  }
}

/* What LAPACK says of a real matrix: the values' real parts, then their imaginary ones, then the
 * vectors; a pair of conjugate vectors as the two parts of the first, whose value is above. */
static void unpack(const job *j, void *values, void *vectors) {
  int64_t n = j->a.n;
  for (int64_t k = 0; k < n; k++) {
    double im = get(j, j->reals, n + k);
    put(j, values, k, get(j, j->reals, k), im);
    int64_t re_at = (im < 0 && k > 0 ? k + 1 : k + 2) * n, im_at = re_at + n;
    for (int64_t i = 0; vectors && i < n; i++)
      put(j, vectors, k * n + i, get(j, j->reals, re_at + i),
          im > 0   ? get(j, j->reals, im_at + i)
          : im < 0 ? -get(j, j->reals, im_at + i)
                   : 0);
  }
}

/* How large element k of the matrix that was taken is, about. */
static double size_at(const job *j, int64_t k) {
  int64_t parts = j->complex ? 2 : 1;
  const double *doubles = (const double *)j->copy + parts * k;
  const float *floats = (const float *)j->copy + parts * k;
  bool wide = (size_t)j->a.element == (size_t)parts * sizeof(double);
  double size = 0;
  for (int64_t i = 0; i < parts; i++) size += fabs(wide ? doubles[i] : (double)floats[i]);
  return size;
}

/* Whether the k-th element of the matrix is an eigenvalue: all else of its row and column is 0. */
static bool is_apart(const job *j, int64_t k) {
  int64_t n = j->a.n, row = k % n, column = k / n;
  bool apart = row == column;
  for (int64_t i = 0; i < n && apart; i++)
    apart = i == row || (size_at(j, row + i * n) == 0 && size_at(j, i + column * n) == 0);
  return apart;
}

/* Some LAPACKs end the process when they balance a matrix that is not finite. */
static bool can_be_balanced(const job *j) {
  int64_t count = (int64_t)j->a.m * j->a.n;
  bool can = true;
  for (int64_t k = 0; k < count && can; k++)
    can = isfinite(size_at(j, k)) || (!j->vectors && is_apart(j, k));
  return can;
}

static void geev(job *j, int64_t i, void *work, int *info) {
  typedef void real_fn(const char *, const char *, const int *, void *, const int *, void *, void *,
                       void *, const int *, void *, const int *, void *, const int *, int *);
  typedef void complex_fn(const char *, const char *, const int *, void *, const int *, void *,
                          void *, const int *, void *, const int *, void *, const int *, void *,
                          int *);
  tt_fortran *routine = tt_lapack_routine(TT_GEEV, j->dtype);
  const char *wanted = j->vectors ? "V" : "N";
  const tt_matrices *a = &j->a;
  void *matrix = taken(j, i), *vectors = j->vectors ? part(j, 0, i) : NULL;
  void *values = part(j, j->vectors ? 1 : 0, i);
  *info = 1;
  if (j->work.size >= 0 && !can_be_balanced(j)) return;
  if (j->complex) {
    ((complex_fn *)routine)("N", wanted, &a->n, matrix, &a->lead, values, NULL, &a->lead, vectors,
                            &a->lead, work, &j->work.size, j->reals, info);
  } else {
    char *re = j->reals, *im = re + (size_t)a->n * a->element, *vr = im + (size_t)a->n * a->element;
    ((real_fn *)routine)("N", wanted, &a->n, matrix, &a->lead, re, im, NULL, &a->lead, vr, &a->lead,
                         work, &j->work.size, info);
    if (j->work.size >= 0 && *info == 0) unpack(j, values, vectors);
  }
}

tt_status tt_lapack_geev(const tt_ffi_call *call) {
  job j;
  TT_TRY(job_init(&j, call));
  int64_t n = j.a.n;
  int64_t reals = 2 * n + (j.vectors && !j.complex ? n * n : 0);
  tt_status status = job_scratch(&j, reals, 0, true);
  if (!status) status = solve_all(&j, "geev", geev);
  job_deinit(&j);
  return status;
}
