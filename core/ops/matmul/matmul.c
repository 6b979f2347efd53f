/* Products of matrices and vectors. Half precision accumulates in f32 and is rounded once. */
#include "ops/pointwise/pointwise.h"

/* Contracts a's dims ca with b's dims cb; the first `batch` dims of both are batch dims. */
static tt_node *dot(tt_lower *cx, tt_node *a, tt_node *b, int batch, int contract, const int *ca,
                    const int *cb, tt_dtype result) {
  static const int batches[] = {0};
  return tt_hlo_dot_general(cx->h, a, b, batches, batches, batch, ca, cb, contract, result);
}

/* [batch] m x k times [batch] k x n. */
static tt_node *product(tt_lower *cx, tt_node *a, tt_node *b, int batch, tt_dtype result) {
  return tt_contract(cx, a, b, batch, batch + 1, batch, result);
}

/* beta * self + alpha * product, arguments `at` and `at + 1` being beta and alpha. A beta of 0
 * leaves self out, NaN and all. */
static void out_scaled(tt_lower *cx, tt_node *y, int at, tt_dtype dtype) {
  tt_hlo *h = cx->h;
  if (tt_has(cx, at + 1) && !tt_static_equals(cx, at + 1, 1))
    y = tt_hlo_multiply(h, y, tt_num(cx, at + 1, y->type.dtype));
  if (!tt_static_equals(cx, at, 0)) {
    tt_node *x = tt_in_as(cx, 0, y->type.dtype);
    if (tt_has(cx, at) && !tt_static_equals(cx, at, 1)) {
      tt_node *beta = tt_num(cx, at, y->type.dtype);
      tt_node *scaled = tt_hlo_multiply(h, x, beta);
      bool varies = cx->args[at].kind == TT_ARG_SCALAR;
      tt_node *none = varies ? tt_hlo_compare(h, TT_EQ, beta, tt_like(cx, beta, 0)) : NULL;
      x = none ? tt_hlo_select(h, none, tt_hlo_zeros(h, &x->type), scaled) : scaled;
    }
    tt_broadcast_pair(cx, &x, &y, y->type.dtype);
    y = tt_hlo_add(h, x, y);
  }
  tt_out_in(cx, 0, y, dtype);
}

/* mm, bmm; param: number of batch dims. */
void tt_lower_mm(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *b = tt_in(cx, 1);
  tt_dtype dtype = tt_dtype_arg(cx, 2, a->type.dtype);
  tt_out_in(cx, 0, product(cx, a, b, cx->row->param, tt_compute_dtype(dtype)), dtype);
}

void tt_lower_int_mm(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *b = tt_in(cx, 1);
  tt_out_as(cx, 0, product(cx, a, b, 0, TT_I32));
}

/* addmm, baddbmm; param: number of batch dims. */
void tt_lower_addmm(tt_lower *cx) {
  tt_node *a = tt_in(cx, 1), *b = tt_in(cx, 2);
  tt_dtype dtype = a->type.dtype;
  out_scaled(cx, product(cx, a, b, cx->row->param, tt_compute_dtype(dtype)), 3, dtype);
}

/* The same with the result's dtype as argument 3. */
void tt_lower_addmm_dtype(tt_lower *cx) {
  tt_node *a = tt_in(cx, 1), *b = tt_in(cx, 2);
  tt_dtype dtype = tt_dtype_arg(cx, 3, a->type.dtype);
  out_scaled(cx, product(cx, a, b, cx->row->param, tt_compute_dtype(dtype)), 4, dtype);
}

/* Half precision is rounded after each product, as PyTorch does. */
static void add_one_by_one(tt_lower *cx, tt_node *a, tt_node *b) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = a->type.dtype, wide = tt_compute_dtype(dtype);
  tt_node *y = NULL;
  for (int64_t i = 0; i < a->type.dims[0]; i++) {
    tt_node *one = tt_hlo_reshape(h, tt_hlo_slice_dim(h, a, 0, i, i + 1, 1), 2, &a->type.dims[1]);
    tt_node *two = tt_hlo_reshape(h, tt_hlo_slice_dim(h, b, 0, i, i + 1, 1), 2, &b->type.dims[1]);
    one = product(cx, one, two, 0, wide);
    if (y) {
      if (tt_has(cx, 4) && !tt_static_equals(cx, 4, 1))
        one = tt_hlo_multiply(h, one, tt_num(cx, 4, wide));
      tt_out_in(cx, 0, tt_hlo_add(h, tt_cast(cx, y, wide), one), dtype);
    } else {
      out_scaled(cx, one, 3, dtype);
    }
    y = cx->results[0];
  }
}

enum { MOST_ROUNDED = 64 };

/* The sum of the batch's products is one product that contracts the batch, too. */
void tt_lower_addbmm(tt_lower *cx) {
  tt_node *a = tt_in(cx, 1), *b = tt_in(cx, 2);
  tt_dtype dtype = a->type.dtype;
  bool some = a->type.dims[0] > 0 && a->type.dims[0] <= MOST_ROUNDED;
  if (dtype != tt_compute_dtype(dtype) && some) {
    add_one_by_one(cx, a, b);
    return;
  }
  tt_node *y =
      dot(cx, a, b, 0, 2, (const int[]){0, 2}, (const int[]){0, 1}, tt_compute_dtype(dtype));
  out_scaled(cx, y, 3, dtype);
}

static tt_node *matrix_vector(tt_lower *cx, tt_node *a, tt_node *v) {
  return dot(cx, a, v, 0, 1, (const int[]){1}, (const int[]){0}, tt_compute_dtype(a->type.dtype));
}

void tt_lower_mv(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0);
  tt_out_in(cx, 0, matrix_vector(cx, a, tt_in(cx, 1)), a->type.dtype);
}

void tt_lower_addmv(tt_lower *cx) {
  tt_node *a = tt_in(cx, 1);
  out_scaled(cx, matrix_vector(cx, a, tt_in(cx, 2)), 3, a->type.dtype);
}

/* dot, and vdot when param is 1: the first operand conjugated. */
void tt_lower_dot(tt_lower *cx) {
  tt_node *a = tt_in(cx, 0), *b = tt_in(cx, 1);
  tt_dtype dtype = a->type.dtype;
  if (cx->row->param) a = tt_conjugate(cx, a);
  const int zero[] = {0};
  tt_out_in(cx, 0, dot(cx, a, b, 0, 1, zero, zero, tt_compute_dtype(dtype)), dtype);
}

/* (self, vec1, vec2): beta * self + alpha * outer(vec1, vec2), each step in the operands' dtype. */
void tt_lower_addr(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_dtype dtype = cx->result_type, wide = tt_compute_dtype(dtype);
  tt_node *a = tt_in_as(cx, 1, dtype), *b = tt_in_as(cx, 2, dtype), *x = tt_in_as(cx, 0, dtype);
#define TIMES(a, b)                                                                                \
  tt_settled(cx, tt_hlo_multiply(h, tt_cast(cx, a, wide), tt_cast(cx, b, wide)), dtype)
  a = tt_hlo_reshape(h, a, 2, (const int64_t[]){a->type.dims[0], 1});
  if (tt_has(cx, 4) && !tt_static_equals(cx, 4, 1)) a = TIMES(a, tt_num(cx, 4, dtype));
  tt_broadcast_pair(cx, &a, &b, dtype);
  tt_node *y = TIMES(a, b);
  if (!tt_static_equals(cx, 3, 0)) {
    if (tt_has(cx, 3) && !tt_static_equals(cx, 3, 1)) x = TIMES(x, tt_num(cx, 3, dtype));
    tt_broadcast_pair(cx, &x, &y, wide);
    y = tt_hlo_add(h, x, y);
  }
#undef TIMES
  tt_out_in(cx, 0, y, dtype);
}
