/* QR and eigenvalues of symmetric matrices: XLA expands Qr, Eigh, and the product of Householder
 * reflectors on every device. */
#include "ops/linalg/factorise.h"

#include "ops/linalg/lapack.h"

/* The power of two below the largest magnitude of each matrix, spread over its elements. */
static tt_node *magnitude(tt_lower *cx, tt_node *a) {
  tt_hlo *h = cx->h;
  int rank = a->type.rank, matrix[2] = {rank - 2, rank - 1}, batch[TT_MAX_RANK];
  bool wide = tt_dtype_real(a->type.dtype) == TT_F64;
  tt_dtype word = wide ? TT_U64 : TT_U32;
  tt_node *most = tt_hlo_reduce(h, TT_MAX, tt_hlo_abs(h, a), matrix, 2);
  tt_node *exponent = tt_hlo_const_i(h, word, wide ? 0x7ff0000000000000 : 0x7f800000);
  tt_node *power =
      tt_hlo_bitcast(h, tt_hlo_and(h, tt_hlo_bitcast(h, most, word), exponent), most->type.dtype);
  power = tt_hlo_minimum(h, power, tt_like(cx, power, wide ? 0x1p1022 : 0x1p126));
  tt_node *none = tt_hlo_compare(h, TT_EQ, power, tt_like(cx, power, 0));
  power = tt_hlo_select(h, none, tt_hlo_full(h, &power->type, 1), power);
  for (int i = 0; i < rank - 2; i++) batch[i] = i;
  return tt_hlo_broadcast(h, power, batch, rank, a->type.dims);
}

/* Householder's packed form of a, and the factors tau. XLA squares the elements, which must not
 * overflow, nor vanish. */
static tt_node *packed_qr(tt_lower *cx, tt_node *a, tt_node **tau) {
  if (tt_lapack_takes(cx, a)) return tt_lapack_packed_qr(cx, a, tau);
  tt_hlo *h = cx->h;
  int rank = a->type.rank;
  int64_t m = a->type.dims[rank - 2], n = a->type.dims[rank - 1];
  tt_type types[2] = {a->type, a->type};
  types[1].rank = rank - 1;
  types[1].dims[rank - 2] = m < n ? m : n;
  tt_node *scale = magnitude(cx, a), *inverse = tt_hlo_divide(h, tt_like(cx, scale, 1), scale);
  tt_node *out[2];
  a = tt_hlo_multiply(h, a, tt_cast(cx, inverse, a->type.dtype));
  tt_hlo_custom_call(h, "Qr", NULL, 1, &a, 2, types, out);
  *tau = out[1];
  tt_node *r = tt_hlo_multiply(h, out[0], tt_cast(cx, scale, a->type.dtype));
  return tt_hlo_add(h, tt_triangle(cx, r, TT_GE, 0), tt_triangle(cx, out[0], TT_LE, -1));
}

/* The first columns of the product of reflectors, as many as `v` has. */
static tt_node *reflectors(tt_lower *cx, tt_node *v, tt_node *tau) {
  if (tt_lapack_takes(cx, v)) return tt_lapack_reflectors(cx, v, tau);
  tt_node *out;
  tt_hlo_custom_call(cx->h, "ProductOfElementaryHouseholderReflectors", NULL, 2,
                     (tt_node *[]){v, tau}, 1, &v->type, &out);
  return out;
}

void tt_qr(tt_lower *cx, tt_node *a, int64_t columns, tt_node **q, tt_node **r) {
  tt_node *tau, *packed = packed_qr(cx, a, &tau);
  tt_node *upper = tt_triangle(cx, packed, TT_GE, 0);
  *r = tt_with_rows(cx, upper, columns);
  *q = reflectors(cx, tt_with_columns(cx, packed, columns), tau);
}

/* (a, mode): q, r. */
void tt_lower_qr(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *q, *r;
  const char *mode = tt_str(cx, 1);
  int64_t columns = *mode == 'c' ? tt_rows(a) : tt_fewest(a);
  if (tt_is_empty(a)) return tt_out_of_nothing(cx, 2);
  tt_qr(cx, a, columns, &q, &r);
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
  if (tt_is_empty(v) || tt_is_empty(tau)) {
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

/* XLA's vectors are of single precision; a first-order correction of the vectors squares the error.
 */
static tt_node *refined(tt_lower *cx, tt_node *a, tt_node *v, tt_node **values) {
  tt_hlo *h = cx->h;
  tt_node *b = tt_matrix_product(cx, tt_adjoint(cx, v), tt_matrix_product(cx, a, v)), *r;
  tt_node *d = diagonal_of(cx, b), *size = tt_hlo_abs(h, b);
  tt_node *gap =
      tt_hlo_subtract(h, tt_by_column(cx, d, &b->type, false), tt_by_column(cx, d, &b->type, true));
  tt_node *clear =
      tt_hlo_compare(h, TT_LT, tt_hlo_multiply(h, size, tt_like(cx, size, 16)), tt_hlo_abs(h, gap));
  tt_node *turn = tt_hlo_divide(h, b, tt_cast(cx, gap, b->type.dtype));
  turn = tt_hlo_select(h, clear, turn, tt_hlo_zeros(h, &b->type));
  tt_node *better = tt_hlo_add(h, v, tt_matrix_product(cx, v, turn));
  tt_qr(cx, better, tt_columns(better), &v, &r);
  *values = diagonal_of(cx, tt_matrix_product(cx, tt_adjoint(cx, v), tt_matrix_product(cx, a, v)));
  return v;
}

tt_node *tt_eigh(tt_lower *cx, tt_node *a, tt_node **values) {
  tt_type types[2] = {a->type, a->type};
  types[1].rank--;
  types[1].dtype = tt_dtype_real(a->type.dtype);
  tt_node *out[2];
  bool wide = types[1].dtype == TT_F64;
  tt_hlo_custom_call(cx->h, "Eigh", wide ? "\"1,1,100,1e-15\"" : "\"1,1,100,1e-6\"", 1, &a, 2,
                     types, out);
  *values = out[1];
  return wide ? refined(cx, a, out[0], values) : out[0];
}

/* (a, uplo, compute_v): values, vectors. */
void tt_lower_eigh(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *values;
  if (tt_is_empty(a)) return tt_out_of_nothing(cx, 2);
  const char *uplo = tt_str(cx, 1);
  bool wanted = tt_has(cx, 2) ? tt_bool(cx, 2) : true, upper = *uplo == 'U' || *uplo == 'u';
  tt_node *vectors = tt_lapack_takes(cx, a) ? tt_lapack_eigh(cx, a, upper, wanted, &values)
                                            : tt_eigh(cx, hermitian(cx, a, upper), &values);
  tt_type none = {.dtype = a->type.dtype, .rank = 1};
  tt_out_as(cx, 0, values);
  tt_out(cx, 1, wanted ? vectors : tt_hlo_zeros(cx->h, &none));
}
