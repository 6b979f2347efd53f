/* QR, eigenvalues of symmetric matrices, singular values: XLA expands Qr, Eigh, and the product of
 * Householder reflectors on every device. */
#include "ops/linalg.h"

/* Householder's packed form of a, and the factors tau. */
static tt_node *packed_qr(tt_lower *cx, tt_node *a, tt_node **tau) {
  int rank = a->type.rank;
  int64_t m = a->type.dims[rank - 2], n = a->type.dims[rank - 1];
  tt_type types[2] = {a->type, a->type};
  types[1].rank = rank - 1;
  types[1].dims[rank - 2] = m < n ? m : n;
  tt_node *out[2];
  tt_hlo_custom_call(cx->h, "Qr", NULL, 1, &a, 2, types, out);
  *tau = out[1];
  return out[0];
}

/* The first columns of the product of reflectors, as many as `v` has. */
static tt_node *reflectors(tt_lower *cx, tt_node *v, tt_node *tau) {
  tt_node *out;
  tt_hlo_custom_call(cx->h, "ProductOfElementaryHouseholderReflectors", NULL, 2,
                     (tt_node *[]){v, tau}, 1, &v->type, &out);
  return out;
}

/* x with its last dim cut or filled with zeros to n. */
static tt_node *with_columns(tt_lower *cx, tt_node *x, int64_t n) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  high[x->type.rank - 1] = n - x->type.dims[x->type.rank - 1];
  return tt_hlo_pad(cx->h, x, tt_like(cx, x, 0), low, high, NULL);
}

static tt_node *with_rows(tt_lower *cx, tt_node *x, int64_t m) {
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  high[x->type.rank - 2] = m - x->type.dims[x->type.rank - 2];
  return tt_hlo_pad(cx->h, x, tt_like(cx, x, 0), low, high, NULL);
}

static int64_t rows_of(const tt_node *x) { return x->type.dims[x->type.rank - 2]; }
static int64_t columns_of(const tt_node *x) { return x->type.dims[x->type.rank - 1]; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* a = q r, q of `columns` columns. */
static void qr(tt_lower *cx, tt_node *a, int64_t columns, tt_node **q, tt_node **r) {
  tt_node *tau, *packed = packed_qr(cx, a, &tau);
  tt_node *upper = tt_triangle(cx, packed, TT_GE, 0);
  *r = with_rows(cx, upper, columns);
  *q = reflectors(cx, with_columns(cx, packed, columns), tau);
}

static bool nothing_there(const tt_node *x) { return tt_type_numel(&x->type) == 0; }

/* The factors of an empty matrix: what is not empty itself is an identity. */
static void out_of_nothing(tt_lower *cx, int count) {
  for (int k = 0; k < count; k++) {
    const tt_type *type = tt_promised(cx, k);
    bool matrix = type->rank >= 2 && tt_type_numel(type) > 0;
    tt_out(cx, k, matrix ? tt_identity_matrix(cx, type) : tt_hlo_zeros(cx->h, type));
  }
}

/* (a, mode): q, r. */
void tt_lower_qr(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *q, *r;
  const char *mode = tt_str(cx, 1);
  int64_t m = rows_of(a), columns = *mode == 'c' ? m : smaller(m, columns_of(a));
  if (nothing_there(a)) return out_of_nothing(cx, 2);
  qr(cx, a, columns, &q, &r);
  tt_type none = {.dtype = a->type.dtype, .rank = 1};
  bool only_r = *mode == 'r' && mode[1] == '\0';
  tt_out(cx, 0, only_r ? tt_hlo_zeros(cx->h, &none) : q);
  tt_out_as(cx, 1, r);
}

void tt_lower_geqrf(tt_lower *cx) {
  tt_node *tau, *packed = packed_qr(cx, tt_in(cx, 0), &tau);
  tt_out_as(cx, 0, packed);
  tt_out_as(cx, 1, tau);
}

/* (v, tau) */
void tt_lower_householder(tt_lower *cx) {
  tt_node *v = tt_in(cx, 0), *tau = tt_in(cx, 1);
  if (nothing_there(v) || nothing_there(tau)) {
    tt_node *eye = tt_identity_matrix(cx, &v->type);
    tt_out_as(cx, 0, eye);
    return;
  }
  tt_out_as(cx, 0, reflectors(cx, v, tau));
}

/* The lower triangle with its mirror image. */
static tt_node *hermitian(tt_lower *cx, tt_node *a, bool upper) {
  tt_hlo *h = cx->h;
  tt_node *below = tt_triangle(cx, upper ? tt_adjoint(cx, a) : a, TT_LE, -1);
  tt_node *sum = tt_hlo_add(h, below, tt_adjoint(cx, below));
  tt_node *diagonal = tt_triangle(cx, a, TT_EQ, 0);
  if (tt_is_complex(a->type.dtype)) diagonal = tt_cast(cx, tt_hlo_real(h, diagonal), a->type.dtype);
  return tt_hlo_add(h, sum, diagonal);
}

static tt_node *diagonal_of(tt_lower *cx, tt_node *x) {
  int dim = x->type.rank - 2;
  return tt_hlo_reduce(cx->h, TT_SUM, tt_hlo_real(cx->h, tt_triangle(cx, x, TT_EQ, 0)), &dim, 1);
}

/* v spread over matrices: element (i, j) is v[j], or v[i]. */
static tt_node *by_column(tt_lower *cx, tt_node *v, const tt_type *matrix, bool by_row) {
  int map[TT_MAX_RANK], rank = v->type.rank;
  if (!tt_need_rank(cx, v, 1)) return v;
  for (int i = 0; i < rank; i++) map[i] = i;
  map[rank - 1] = by_row ? rank - 1 : rank;
  return tt_hlo_broadcast(cx->h, v, map, matrix->rank, matrix->dims);
}

/* XLA stops at single precision; a first-order correction of the vectors squares the error. */
static tt_node *refined(tt_lower *cx, tt_node *a, tt_node *v, tt_node **values) {
  tt_hlo *h = cx->h;
  tt_node *b = tt_matrix_product(h, tt_adjoint(cx, v), tt_matrix_product(h, a, v)), *r;
  tt_node *d = diagonal_of(cx, b), *size = tt_hlo_abs(h, b);
  tt_node *gap =
      tt_hlo_subtract(h, by_column(cx, d, &b->type, false), by_column(cx, d, &b->type, true));
  tt_node *clear =
      tt_hlo_compare(h, TT_LT, tt_hlo_multiply(h, size, tt_like(cx, size, 16)), tt_hlo_abs(h, gap));
  tt_node *turn = tt_hlo_divide(h, b, tt_cast(cx, gap, b->type.dtype));
  turn = tt_hlo_select(h, clear, turn, tt_hlo_zeros(h, &b->type));
  tt_node *better = tt_hlo_add(h, v, tt_matrix_product(h, v, turn));
  qr(cx, better, columns_of(better), &v, &r);
  *values = diagonal_of(cx, tt_matrix_product(h, tt_adjoint(cx, v), tt_matrix_product(h, a, v)));
  return v;
}

/* Eigenvectors of a Hermitian matrix; *values ascend. */
static tt_node *eigh(tt_lower *cx, tt_node *a, tt_node **values) {
  tt_type types[2] = {a->type, a->type};
  types[1].rank--;
  types[1].dtype = tt_dtype_real(a->type.dtype);
  tt_node *out[2];
  tt_hlo_custom_call(cx->h, "Eigh", "\"1,1,100,1e-6\"", 1, &a, 2, types, out);
  *values = out[1];
  return types[1].dtype == TT_F64 ? refined(cx, a, out[0], values) : out[0];
}

/* (a, uplo, compute_v): values, vectors. */
void tt_lower_eigh(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *values;
  if (nothing_there(a)) return out_of_nothing(cx, 2);
  const char *uplo = tt_str(cx, 1);
  tt_node *vectors = eigh(cx, hermitian(cx, a, *uplo == 'U' || *uplo == 'u'), &values);
  tt_type none = {.dtype = a->type.dtype, .rank = 1};
  tt_out_as(cx, 0, values);
  bool wanted = tt_has(cx, 2) ? tt_bool(cx, 2) : true;
  tt_out(cx, 1, wanted ? vectors : tt_hlo_zeros(cx->h, &none));
}

/* The signs of r's diagonal as a vector of n, 1 where it is 0 or ends. */
static tt_node *diagonal_signs(tt_lower *cx, tt_node *r, int64_t n) {
  tt_hlo *h = cx->h;
  tt_node *square = with_rows(cx, with_columns(cx, r, n), n);
  int dim = square->type.rank - 2;
  tt_node *kept = tt_triangle(cx, square, TT_EQ, 0);
  tt_node *d = tt_hlo_reduce(h, TT_SUM, kept, &dim, 1), *size = tt_hlo_abs(h, d);
  tt_node *none = tt_hlo_compare(h, TT_EQ, size, tt_like(cx, size, 0));
  tt_node *one = tt_hlo_full(h, &d->type, 1);
  tt_node *unit = tt_hlo_divide(
      h, d,
      tt_cast(cx, tt_hlo_select(h, none, tt_hlo_full(h, &size->type, 1), size), d->type.dtype));
  return tt_hlo_select(h, none, one, unit);
}

/* An orthonormal matrix of `columns` columns, the first ones along x's, which may vanish. */
static tt_node *orthonormal(tt_lower *cx, tt_node *x, int64_t columns) {
  tt_node *q, *r;
  qr(cx, x, columns, &q, &r);
  tt_node *signs = diagonal_signs(cx, r, columns);
  return tt_hlo_multiply(cx->h, q, by_column(cx, signs, &q->type, false));
}

/* Singular values of a square matrix, descending, from the eigenvalues of [0 a; a^H 0], which are
 * plus and minus these; its vectors are the singular vectors one upon the other. */
static tt_node *square_svd(tt_lower *cx, tt_node *a, tt_node **u, tt_node **v) {
  tt_hlo *h = cx->h;
  int rank = a->type.rank, row = rank - 2;
  int64_t n = columns_of(a), low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  low[rank - 1] = n;
  high[row] = n;
  tt_node *corner = tt_hlo_pad(h, a, tt_like(cx, a, 0), low, high, NULL), *values;
  tt_node *vectors = eigh(cx, tt_hlo_add(h, corner, tt_adjoint(cx, corner)), &values);
  int last = rank - 1, value_dim = values->type.rank - 1;
  values = tt_hlo_reverse(h, tt_hlo_slice_dim(h, values, value_dim, n, 2 * n, 1), &value_dim, 1);
  vectors = tt_hlo_reverse(h, tt_hlo_slice_dim(h, vectors, last, n, 2 * n, 1), &last, 1);
  *u = orthonormal(cx, tt_hlo_slice_dim(h, vectors, row, 0, n, 1), n);
  *v = orthonormal(cx, tt_hlo_slice_dim(h, vectors, row, n, 2 * n, 1), n);
  return tt_hlo_maximum(h, values, tt_like(cx, values, 0));
}

/* u of `columns` columns, the values, and v, of a matrix with at least as many rows as columns. */
static tt_node *tall_svd(tt_lower *cx, tt_node *a, int64_t columns, tt_node **u, tt_node **v) {
  tt_node *q, *r, *inner;
  int64_t n = columns_of(a);
  qr(cx, a, rows_of(a) == columns ? columns : n, &q, &r);
  tt_node *values =
      square_svd(cx, tt_hlo_slice_dim(cx->h, r, r->type.rank - 2, 0, n, 1), &inner, v);
  int last = q->type.rank - 1;
  *u = tt_matrix_product(cx->h, tt_hlo_slice_dim(cx->h, q, last, 0, n, 1), inner);
  if (columns > n) {
    tt_node *parts[2] = {*u, tt_hlo_slice_dim(cx->h, q, last, n, columns, 1)};
    *u = tt_hlo_concatenate(cx->h, parts, 2, last);
  }
  return values;
}

static tt_node *is_finite(tt_lower *cx, tt_node *x) {
  tt_hlo *h = cx->h;
  if (!tt_is_complex(x->type.dtype)) return tt_hlo_is_finite(h, x);
  return tt_hlo_and(h, tt_hlo_is_finite(h, tt_hlo_real(h, x)),
                    tt_hlo_is_finite(h, tt_hlo_imag(h, x)));
}

/* (a, full_matrices, compute_uv): u, s, v^H. */
void tt_lower_svd(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *u, *v;
  bool full = tt_bool(cx, 1), wanted = tt_has(cx, 2) ? tt_bool(cx, 2) : true;
  if (nothing_there(a)) return out_of_nothing(cx, 3);
  tt_check(cx, tt_hlo_not(cx->h, is_finite(cx, a)), TT_LINALG_ERROR,
           "linalg.svd: the input has elements that are not finite");
  bool wide = rows_of(a) < columns_of(a);
  tt_node *tall = wide ? tt_adjoint(cx, a) : a;
  int64_t columns = full ? rows_of(tall) : columns_of(tall);
  tt_out_as(cx, 1, tall_svd(cx, tall, columns, &u, &v));
  tt_type none = {.dtype = a->type.dtype, .rank = 1};
  tt_node *nothing = tt_hlo_zeros(cx->h, &none);
  tt_out(cx, 0, !wanted ? nothing : wide ? v : u);
  tt_out(cx, 2, !wanted ? nothing : tt_adjoint(cx, wide ? u : v));
}
