/* The exponential of a matrix: a Taylor polynomial of the matrix divided by a power of two, squared
 * as often. */
#include "ops/linalg/linalg.h"

#include <math.h>

enum { MOST_SQUARINGS = 1100, BLOCK = 3 };

/* One number for each matrix, spread over it. */
static tt_node *over_matrices(tt_hlo *h, tt_node *x, const tt_type *type) {
  int map[TT_MAX_RANK];
  for (int i = 0; i < x->type.rank; i++) map[i] = i;
  return tt_hlo_broadcast(h, x, map, type->rank, type->dims);
}

/* The greatest sum of sizes along rows (back 1) or columns (back 2). */
static tt_node *norm_along(tt_lower *cx, tt_node *a, int back) {
  int dim = a->type.rank - back, rest = a->type.rank - 2;
  tt_node *sums = tt_hlo_reduce(cx->h, TT_SUM, tt_hlo_abs(cx->h, a), &dim, 1);
  return tt_hlo_reduce(cx->h, TT_MAX, sums, &rest, 1);
}

/* How often each matrix is halved until a norm of it is at most `most`. */
static tt_node *halvings(tt_lower *cx, tt_node *a, double most) {
  tt_hlo *h = cx->h;
  tt_node *norm = tt_hlo_minimum(h, norm_along(cx, a, 1), norm_along(cx, a, 2));
  tt_node *ratio = tt_hlo_multiply(h, norm, tt_like(cx, norm, 1 / most));
  tt_node *count = tt_hlo_multiply(h, tt_hlo_log(h, ratio), tt_like(cx, norm, 1 / log(2)));
  count = tt_hlo_ceil(h, count);
  tt_node *some = tt_hlo_compare(h, TT_GT, count, tt_like(cx, norm, 0)); /* not so for NaN */
  count = tt_hlo_minimum(h, count, tt_like(cx, norm, MOST_SQUARINGS));
  return tt_hlo_select(h, some, count, tt_hlo_zeros(h, &norm->type));
}

/* The sum of a^k / k! for k up to `degree`, three terms at a time. */
static tt_node *polynomial(tt_lower *cx, tt_node *a, int degree) {
  tt_hlo *h = cx->h;
  tt_node *square = tt_matrix_product(cx, a, a), *cube = tt_matrix_product(cx, square, a),
          *sum = NULL;
  tt_node *powers[BLOCK] = {tt_identity_matrix(cx, &a->type), a, square};
  double factors[32] = {1};
  for (int k = 1; k <= degree; k++) factors[k] = factors[k - 1] / k;
  for (int first = degree - degree % BLOCK; first >= 0; first -= BLOCK) {
    if (sum) sum = tt_matrix_product(cx, sum, cube);
    for (int k = 0; k < BLOCK && first + k <= degree; k++) {
      tt_node *term = tt_hlo_multiply(h, powers[k], tt_like(cx, a, factors[first + k]));
      sum = sum ? tt_hlo_add(h, sum, term) : term;
    }
  }
  return sum;
}

/* args: step, halvings of each matrix, the greatest, the matrices. */
static void squaring_left(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  (void)user;
  results[0] = tt_hlo_compare(h, TT_LT, args[0], args[2]);
}

static void squaring(tt_hlo *h, tt_node *const *args, tt_node **results, void *user) {
  tt_lower *cx = user;
  tt_node *step = args[0], *x = args[3];
  tt_node *due = over_matrices(h, tt_hlo_compare(h, TT_GT, args[1], step), &x->type);
  results[0] = tt_hlo_add(h, step, tt_hlo_const(h, step->type.dtype, 1));
  results[1] = args[1];
  results[2] = args[2];
  results[3] = tt_hlo_select(h, due, tt_matrix_product(cx, x, x), x);
}

void tt_lower_matrix_exp(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *x = tt_in(cx, 0), *out[4];
  tt_dtype dtype = x->type.dtype;
  tt_node *a = tt_cast(cx, x, tt_is_complex(dtype) ? dtype : tt_compute_dtype(dtype));
  int dims[TT_MAX_RANK];
  if (!tt_need_rank(cx, a, 2)) return;
  if (tt_type_numel(&a->type) == 0) {
    tt_out_as(cx, 0, x);
    return;
  }
  tt_precision before = tt_hlo_precision(h, TT_PRECISION_HIGHEST);
  bool fine = tt_dtype_real(a->type.dtype) == TT_F64;
  tt_node *count = halvings(cx, a, fine ? 1 : 2);
  for (int i = 0; i < count->type.rank; i++) dims[i] = i;
  tt_node *half = tt_hlo_const(h, count->type.dtype, 0.5);
  tt_node *scale =
      tt_hlo_power(h, tt_hlo_broadcast_to(h, half, count->type.rank, count->type.dims), count);
  a = tt_hlo_multiply(h, a, over_matrices(h, tt_cast(cx, scale, a->type.dtype), &a->type));
  tt_node *inits[4] = {tt_like(cx, count, 0), count,
                       tt_hlo_reduce(h, TT_MAX, count, dims, count->type.rank),
                       polynomial(cx, a, fine ? 20 : 17)};
  tt_hlo_while(h, 4, inits, squaring_left, squaring, cx, out);
  (void)tt_hlo_precision(h, before);
  tt_out_in(cx, 0, out[3], dtype);
}
