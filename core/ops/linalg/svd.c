/* Singular values, by a polar decomposition and the eigenvalues of its symmetric factor. */
#include "ops/linalg/factorise.h"
#include "ops/linalg/lapack.h"
#include "ops/nn.h"

#include <math.h>

/* The signs of r's diagonal as a vector of n, 1 where it is 0 or ends. */
static tt_node *diagonal_signs(tt_lower *cx, tt_node *r, int64_t n) {
  tt_hlo *h = cx->h;
  tt_node *square = tt_with_rows(cx, tt_with_columns(cx, r, n), n);
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
  tt_qr(cx, x, columns, &q, &r);
  tt_node *signs = diagonal_signs(cx, r, columns);
  return tt_hlo_multiply(cx->h, q, tt_by_column(cx, signs, &q->type, false));
}

/* -- Polar decomposition: Halley's iteration with weights (Nakatsukasa, Bai, Gygi 2010) -- */

enum { MOST_STEPS = 8 };

typedef struct halley {
  tt_lower *cx;
  int steps;
  double root[MOST_STEPS], keep[MOST_STEPS], add[MOST_STEPS];
} halley;

/* Weights of the steps that take all singular values from `least` to 1, up to 1. */
static halley halley_of(tt_lower *cx, double least) {
  halley it = {.cx = cx};
  for (double l = least; it.steps < MOST_STEPS && 1 - l > 1e-15; it.steps++) {
    double square = l * l, d = cbrt(4 * (1 - square) / (square * square)), root = sqrt(1 + d);
    double a = root + sqrt(8 - 4 * d + 8 * (2 - square) / (square * root)) / 2;
    double b = (a - 1) * (a - 1) / 4, c = a + b - 1;
    it.root[it.steps] = sqrt(c);
    it.keep[it.steps] = b / c;
    it.add[it.steps] = (a - b / c) / sqrt(c);
    l = fmin(1, l * (a + b * square) / (1 + c * square));
  }
  return it;
}

static tt_node *weight_of(const halley *it, tt_node *k, const double *weights, tt_node *x) {
  tt_hlo *h = it->cx->h;
  tt_node *weight = tt_like(it->cx, x, weights[0]);
  for (int i = 1; i < it->steps; i++)
    weight = tt_hlo_select(h, tt_hlo_compare(h, TT_EQ, k, tt_hlo_const_i(h, TT_I32, i)),
                           tt_like(it->cx, x, weights[i]), weight);
  return weight;
}

/* args: k, x: q1 q2 = [root x; 1] with orthonormal columns; x becomes keep x + add q1 q2^H. */
static void halley_step(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const halley *it = user;
  tt_lower *cx = it->cx;
  tt_node *k = args[0], *x = args[1], *q, *r;
  int row = x->type.rank - 2;
  int64_t n = tt_columns(x);
  tt_node *parts[2] = {tt_hlo_multiply(h, x, weight_of(it, k, it->root, x)),
                       tt_identity_matrix(cx, &x->type)};
  tt_qr(cx, tt_hlo_concatenate(h, parts, 2, row), n, &q, &r);
  tt_node *q1 = tt_hlo_slice_dim(h, q, row, 0, n, 1),
          *q2 = tt_hlo_slice_dim(h, q, row, n, 2 * n, 1);
  tt_node *product = tt_matrix_product(cx, q1, tt_adjoint(cx, q2));
  results[0] = tt_hlo_add(h, k, tt_hlo_const_i(h, TT_I32, 1));
  results[1] = tt_hlo_add(h, tt_hlo_multiply(h, x, weight_of(it, k, it->keep, x)),
                          tt_hlo_multiply(h, product, weight_of(it, k, it->add, x)));
}

static void halley_more(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  const halley *it = user;
  results[0] = tt_hlo_compare(h, TT_LT, args[0], tt_hlo_const_i(h, TT_I32, it->steps));
}

/* The nearest unitary matrix to x, whose singular values are at most 1; where they are 0, it has
 * nothing. */
static tt_node *polar(tt_lower *cx, tt_node *x) {
  halley it = halley_of(cx, tt_dtype_real(x->type.dtype) == TT_F64 ? 1e-17 : 1e-9);
  tt_node *inits[2] = {tt_hlo_const_i(cx->h, TT_I32, 0), x}, *out[2];
  tt_hlo_while(cx->h, 2, inits, halley_more, halley_step, &it, out);
  return out[1];
}

/* -- Singular values -- */

static tt_node *over_matrix(tt_lower *cx, tt_node *each, const tt_type *type) {
  int map[TT_MAX_RANK];
  for (int i = 0; i < each->type.rank; i++) map[i] = i;
  return tt_hlo_broadcast(cx->h, tt_cast(cx, each, type->dtype), map, type->rank, type->dims);
}

/* x with this measure of each matrix made 1, unless it is 0; *scale is multiplied by it. */
static tt_node *scaled(tt_lower *cx, tt_node *x, tt_node *measure, tt_node **scale) {
  tt_hlo *h = cx->h;
  tt_node *one = tt_hlo_full(h, &measure->type, 1);
  tt_node *none = tt_hlo_compare(h, TT_EQ, measure, tt_like(cx, measure, 0));
  measure = tt_hlo_select(h, none, one, measure);
  *scale = *scale ? tt_hlo_multiply(h, *scale, measure) : measure;
  return tt_hlo_multiply(h, x, over_matrix(cx, tt_hlo_divide(h, one, measure), &x->type));
}

/* Singular values of a square matrix, descending: a = w p, w unitary; p = v s v^H, u = w v. */
static tt_node *square_svd(tt_lower *cx, tt_node *a, tt_node **u, tt_node **v) {
  tt_hlo *h = cx->h;
  int last = a->type.rank - 1, matrix[2] = {last - 1, last};
  tt_node *scale = NULL, *values;
  a = scaled(cx, a, tt_hlo_reduce(h, TT_MAX, tt_hlo_abs(h, a), matrix, 2), &scale);
  tt_node *size = tt_hlo_abs(h, a);
  size = tt_hlo_reduce(h, TT_SUM, tt_hlo_multiply(h, size, size), matrix, 2);
  a = scaled(cx, a, tt_hlo_sqrt(h, size), &scale);
  tt_node *w = polar(cx, a), *p = tt_matrix_product(cx, tt_adjoint(cx, w), a);
  p = tt_hlo_multiply(h, tt_hlo_add(h, p, tt_adjoint(cx, p)), tt_like(cx, p, 0.5));
  tt_node *vectors = tt_eigh(cx, p, &values);
  int value_dim = values->type.rank - 1;
  *v = tt_hlo_reverse(h, vectors, &last, 1);
  *u = orthonormal(cx, tt_matrix_product(cx, w, *v), tt_columns(a));
  values = tt_hlo_maximum(h, tt_hlo_reverse(h, values, &value_dim, 1), tt_like(cx, values, 0));
  return tt_hlo_multiply(h, values, over_matrix(cx, scale, &values->type));
}

/* u of `columns` columns, the values, and v, of a matrix with at least as many rows as columns. */
static tt_node *tall_svd(tt_lower *cx, tt_node *a, int64_t columns, tt_node **u, tt_node **v) {
  tt_node *q, *r, *inner;
  int64_t n = tt_columns(a);
  tt_qr(cx, a, tt_rows(a) == columns ? columns : n, &q, &r);
  tt_node *values =
      square_svd(cx, tt_hlo_slice_dim(cx->h, r, r->type.rank - 2, 0, n, 1), &inner, v);
  int last = q->type.rank - 1;
  *u = tt_matrix_product(cx, tt_hlo_slice_dim(cx->h, q, last, 0, n, 1), inner);
  if (columns > n) {
    tt_node *parts[2] = {*u, tt_hlo_slice_dim(cx->h, q, last, n, columns, 1)};
    *u = tt_hlo_concatenate(cx->h, parts, 2, last);
  }
  return values;
}

/* (a, full_matrices, compute_uv): u, s, v^H. */
void tt_lower_svd(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *u, *v;
  bool full = tt_bool(cx, 1), wanted = tt_has(cx, 2) ? tt_bool(cx, 2) : true;
  if (tt_is_empty(a)) return tt_out_of_nothing(cx, 3);
  tt_type none = {.dtype = a->type.dtype, .rank = 1};
  tt_node *nothing = tt_hlo_zeros(cx->h, &none);
  if (tt_lapack_takes(cx, a)) {
    u = v = nothing;
    tt_out_as(cx, 1, tt_lapack_svd(cx, a, full, wanted ? &u : NULL, wanted ? &v : NULL));
    tt_out(cx, 0, u);
    return tt_out(cx, 2, v);
  }
  tt_check(cx, tt_hlo_not(cx->h, tt_finite(cx, a)), TT_LINALG_ERROR,
           "linalg.svd: the input has elements that are not finite");
  bool wide = tt_rows(a) < tt_columns(a);
  tt_node *tall = wide ? tt_adjoint(cx, a) : a;
  int64_t columns = full ? tt_rows(tall) : tt_columns(tall);
  tt_out_as(cx, 1, tall_svd(cx, tall, columns, &u, &v));
  tt_out(cx, 0, !wanted ? nothing : wide ? v : u);
  tt_out(cx, 2, !wanted ? nothing : tt_adjoint(cx, wide ? u : v));
}
