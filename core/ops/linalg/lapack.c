/* Factorisations by the host's LAPACK. Its routines take matrices by columns: transposes of ours.
 */
#include "ops/linalg/lapack.h"

#include "ops/linalg/linalg.h"

/* A result like the one of type `x`, with another dtype and its last `drop` dims left away, then
 * `more` of them. */
static tt_type shaped(const tt_type *x, tt_dtype dtype, int drop, int more, int64_t first,
                      int64_t second) {
  tt_type type = *x;
  type.dtype = dtype;
  type.rank -= drop;
  if (more > 0) type.dims[type.rank++] = first;
  if (more > 1) type.dims[type.rank++] = second;
  return type;
}

static tt_node *by_columns(tt_lower *cx, tt_node *x) { return tt_swap_last(cx, x); }

/* In Debug: raises what the CPU raises if no result was found. */
static void check_info(tt_lower *cx, tt_node *info) {
  tt_node *failed = tt_hlo_compare(cx->h, TT_NE, info, tt_hlo_zeros(cx->h, &info->type));
  tt_check(cx, failed, TT_LINALG_ERROR,
           "%s: the algorithm failed to converge, or the input has elements that are not finite",
           cx->row->name);
}

tt_lu tt_lapack_lu(tt_lower *cx, tt_node *a) {
  tt_node *x = by_columns(cx, a), *out[4];
  const tt_type *type = &x->type;
  tt_type types[4] = {*type, shaped(type, TT_I32, 2, 1, tt_fewest(a), 0),
                      shaped(type, TT_I32, 2, 1, tt_rows(a), 0), shaped(type, TT_I32, 2, 0, 0, 0)};
  tt_hlo_custom_call(cx->h, "torch_tpu.getrf", NULL, 1, &x, 4, types, out);
  return (tt_lu){by_columns(cx, out[0]), out[1], out[2], out[3]};
}

tt_node *tt_lapack_cholesky(tt_lower *cx, tt_node *a, tt_node **info) {
  tt_node *x = by_columns(cx, a), *out[2];
  tt_type types[2] = {x->type, shaped(&x->type, TT_I32, 2, 0, 0, 0)};
  tt_hlo_custom_call(cx->h, "torch_tpu.potrf", NULL, 1, &x, 2, types, out);
  *info = out[1];
  return tt_triangle(cx, by_columns(cx, out[0]), TT_LE, 0);
}

tt_node *tt_lapack_packed_qr(tt_lower *cx, tt_node *a, tt_node **tau) {
  tt_node *x = by_columns(cx, a), *out[2];
  tt_type types[2] = {x->type, shaped(&x->type, a->type.dtype, 2, 1, tt_fewest(a), 0)};
  tt_hlo_custom_call(cx->h, "torch_tpu.geqrf", NULL, 1, &x, 2, types, out);
  *tau = out[1];
  return by_columns(cx, out[0]);
}

tt_node *tt_lapack_reflectors(tt_lower *cx, tt_node *v, tt_node *tau) {
  tt_node *xs[2] = {by_columns(cx, v), tau}, *out;
  tt_hlo_custom_call(cx->h, "torch_tpu.orgqr", NULL, 2, xs, 1, &xs[0]->type, &out);
  return by_columns(cx, out);
}

tt_node *tt_lapack_eigh(tt_lower *cx, tt_node *a, bool upper, bool vectors, tt_node **values) {
  tt_node *x = by_columns(cx, a), *out[3];
  tt_type types[3] = {x->type, shaped(&x->type, tt_dtype_real(a->type.dtype), 1, 0, 0, 0),
                      shaped(&x->type, TT_I32, 2, 0, 0, 0)};
  const char *flags[2][2] = {{NULL, "upper = 1 : i64"},
                             {"vectors = 1 : i64", "upper = 1 : i64, vectors = 1 : i64"}};
  tt_hlo_custom_call(cx->h, "torch_tpu.syevd", flags[vectors][upper], 1, &x, 3, types, out);
  check_info(cx, out[2]);
  *values = out[1];
  return by_columns(cx, out[0]);
}

tt_node *tt_lapack_svd(tt_lower *cx, tt_node *a, bool full, tt_node **u, tt_node **vh) {
  tt_node *x = by_columns(cx, a), *out[4];
  const tt_type *type = &x->type;
  int64_t m = tt_rows(a), n = tt_columns(a), few = tt_fewest(a);
  tt_dtype dtype = type->dtype, real = tt_dtype_real(dtype);
  tt_type types[4] = {shaped(type, dtype, 2, 2, full ? m : few, m),
                      shaped(type, dtype, 2, 2, n, full ? n : few),
                      shaped(type, real, 2, 1, few, 0), shaped(type, TT_I32, 2, 0, 0, 0)};
  int first = u ? 0 : 2;
  tt_hlo_custom_call(cx->h, "torch_tpu.gesdd", u ? "vectors = 1 : i64" : NULL, 1, &x, 4 - first,
                     types + first, out + first);
  check_info(cx, out[3]);
  if (u) *u = by_columns(cx, out[0]);
  if (u) *vh = by_columns(cx, out[1]);
  return out[2];
}

/* -- What nothing but LAPACK has -- */

/* Elsewhere these operators run on the host. */
static bool takes(tt_lower *cx, tt_node *x) {
  bool can = tt_lapack_takes(cx, x);
  if (!can)
    tt_hlo_fail(cx->h, TT_UNIMPLEMENTED,
                "LAPACK, which alone computes it, has no %s, or is not at hand: only what the CPU "
                "plugin runs in this process may call it",
                tt_dtype_name(x->type.dtype));
  return can;
}

/* (a): values, and vectors (param 1). */
void tt_lower_eig(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *x = by_columns(cx, a), *out[3];
  bool vectors = cx->row->param;
  if (!takes(cx, a)) return;
  if (tt_is_empty(a)) return tt_out_of_nothing(cx, vectors ? 2 : 1);
  tt_check(cx, tt_hlo_not(cx->h, tt_finite(cx, a)), TT_INTERNAL,
           "linalg.eig: the input has elements that are not finite");
  tt_dtype dtype = tt_dtype_complex(a->type.dtype);
  tt_type types[3] = {shaped(&x->type, dtype, 0, 0, 0, 0), shaped(&x->type, dtype, 1, 0, 0, 0),
                      shaped(&x->type, TT_I32, 2, 0, 0, 0)};
  int first = vectors ? 0 : 1;
  tt_hlo_custom_call(cx->h, "torch_tpu.geev", vectors ? "vectors = 1 : i64" : NULL, 1, &x,
                     3 - first, types + first, out + first);
  check_info(cx, out[2]);
  tt_out_as(cx, 0, out[1]);
  if (vectors) tt_out_as(cx, 1, by_columns(cx, out[0]));
}

static const char *symmetry(bool hermitian) { return hermitian ? "hermitian = 1 : i64" : NULL; }

/* (a, *, hermitian, check_errors): factors, pivots, info. */
void tt_lower_ldl_factor(tt_lower *cx) {
  tt_node *x = by_columns(cx, tt_in(cx, 0)), *out[3];
  if (!tt_leaves_errors(cx, 2) || !takes(cx, x)) return;
  if (tt_is_empty(x)) return tt_out_of_nothing(cx, 3);
  tt_type types[3] = {x->type, shaped(&x->type, TT_I32, 1, 0, 0, 0),
                      shaped(&x->type, TT_I32, 2, 0, 0, 0)};
  tt_hlo_custom_call(cx->h, "torch_tpu.sytrf", symmetry(tt_bool(cx, 1)), 1, &x, 3, types, out);
  tt_out_as(cx, 0, tt_triangle(cx, by_columns(cx, out[0]), TT_LE, 0));
  tt_out_as(cx, 1, out[1]);
  tt_out_as(cx, 2, out[2]);
}

/* (factors, pivots, b, *, hermitian) */
void tt_lower_ldl_solve(tt_lower *cx) {
  tt_node *ld = tt_in(cx, 0), *pivots = tt_in(cx, 1), *b = tt_in(cx, 2), *out;
  if (!takes(cx, ld) || !takes(cx, b)) return;
  if (tt_is_empty(ld) || tt_is_empty(b)) return tt_out_of_nothing(cx, 1);
  tt_match_batches(cx, &ld, &b);
  if (!tt_need_rank(cx, ld, 2)) return;
  pivots =
      tt_hlo_broadcast_to(cx->h, tt_cast(cx, pivots, TT_I32), ld->type.rank - 1, ld->type.dims);
  tt_node *xs[3] = {by_columns(cx, ld), pivots, by_columns(cx, b)};
  tt_hlo_custom_call(cx->h, "torch_tpu.sytrs", symmetry(tt_bool(cx, 3)), 3, xs, 1, &xs[2]->type,
                     &out);
  tt_out_as(cx, 0, by_columns(cx, out));
}
