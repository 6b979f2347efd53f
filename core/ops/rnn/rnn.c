/* The fused cells of LSTM and GRU: everything after the two matrix products. */
#include "ops/nn.h"

/* Gate k of n: columns k * size .. (k + 1) * size */
static tt_node *gate(tt_lower *cx, tt_node *x, int k, int64_t size) {
  return tt_hlo_slice_dim(cx->h, x, 1, k * size, (k + 1) * size, 1);
}

/* x + bias?, in the dtype computed in */
static tt_node *biased(tt_lower *cx, int x_arg, int bias_arg) {
  tt_node *x = tt_in(cx, x_arg);
  x = tt_cast(cx, x, tt_compute_dtype(x->type.dtype));
  if (!tt_has(cx, bias_arg)) return x;
  tt_node *bias = tt_cast(cx, tt_in(cx, bias_arg), x->type.dtype);
  return tt_hlo_add(cx->h, x, tt_along(cx, bias, 1, &x->type));
}

static tt_node *one_minus(tt_lower *cx, tt_node *x) {
  return tt_hlo_subtract(cx->h, tt_hlo_full(cx->h, &x->type, 1), x);
}

static tt_node *mul3(tt_lower *cx, tt_node *a, tt_node *b, tt_node *c) {
  return tt_hlo_multiply(cx->h, tt_hlo_multiply(cx->h, a, b), c);
}

static void out_cast(tt_lower *cx, int k, tt_node *x, tt_node *like) {
  tt_out_as(cx, k, tt_cast(cx, x, like->type.dtype));
}

static tt_node *sum_batch(tt_lower *cx, tt_node *x) { return tt_sum(cx, x, (const int[]){0}, 1); }

/* input_gates [n, 4h], hidden_gates, cx, input_bias?, hidden_bias?
 * -> hy, cy, workspace: the gates i, f, g, o after their nonlinearities */
void tt_lower_lstm_cell(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *cell = tt_in(cx, 2), *gates = tt_hlo_add(h, biased(cx, 0, 3), biased(cx, 1, 4));
  int64_t size = cell->type.dims[1];
  tt_node *i = tt_hlo_logistic(h, gate(cx, gates, 0, size));
  tt_node *f = tt_hlo_logistic(h, gate(cx, gates, 1, size));
  tt_node *g = tt_hlo_tanh(h, gate(cx, gates, 2, size));
  tt_node *o = tt_hlo_logistic(h, gate(cx, gates, 3, size));
  tt_node *cy = tt_hlo_multiply(h, f, tt_cast(cx, cell, f->type.dtype));
  cy = tt_hlo_add(h, cy, tt_hlo_multiply(h, i, g));
  out_cast(cx, 0, tt_hlo_multiply(h, o, tt_hlo_tanh(h, cy)), cell);
  out_cast(cx, 1, cy, cell);
  out_cast(cx, 2, tt_hlo_concatenate(h, (tt_node *[]){i, f, g, o}, 4, 1), cell);
}

static tt_node *grad_or_zero(tt_lower *cx, int i, tt_node *like) {
  if (!tt_has(cx, i)) return tt_hlo_zeros(cx->h, &like->type);
  return tt_cast(cx, tt_in(cx, i), like->type.dtype);
}

/* grad_hy?, grad_cy?, cx, cy, workspace, has_bias -> grad_gates, grad_cx, grad_bias */
void tt_lower_lstm_cell_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *cell = tt_in(cx, 2), *work = tt_in(cx, 4);
  tt_dtype dtype = tt_compute_dtype(work->type.dtype);
  int64_t size = cell->type.dims[1];
  tt_node *all = tt_cast(cx, work, dtype), *before = tt_cast(cx, cell, dtype);
  tt_node *i = gate(cx, all, 0, size), *f = gate(cx, all, 1, size), *g = gate(cx, all, 2, size),
          *o = gate(cx, all, 3, size);
  tt_node *bent = tt_hlo_tanh(h, tt_cast(cx, tt_in(cx, 3), dtype));
  tt_node *grad_hy = grad_or_zero(cx, 0, before);
  tt_node *through = mul3(cx, grad_hy, o, one_minus(cx, tt_square(cx, bent)));
  tt_node *grad = tt_hlo_add(h, grad_or_zero(cx, 1, before), through);
  tt_node *slopes[] = {
      mul3(cx, tt_hlo_multiply(h, grad, g), i, one_minus(cx, i)),
      mul3(cx, tt_hlo_multiply(h, grad, before), f, one_minus(cx, f)),
      mul3(cx, grad, i, one_minus(cx, tt_square(cx, g))),
      mul3(cx, tt_hlo_multiply(h, grad_hy, bent), o, one_minus(cx, o)),
  };
  tt_node *gates = tt_hlo_concatenate(h, slopes, 4, 1);
  out_cast(cx, 0, gates, work);
  out_cast(cx, 1, tt_hlo_multiply(h, grad, f), cell);
  if (tt_bool(cx, 5)) out_cast(cx, 2, sum_batch(cx, gates), work);
}

/* input_gates [n, 3h], hidden_gates, hx, input_bias?, hidden_bias?
 * -> hy, workspace [n, 5h]: reset, update, new, hx, and the hidden part of new */
void tt_lower_gru_cell(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *state = tt_in(cx, 2), *x = biased(cx, 0, 3), *y = biased(cx, 1, 4);
  int64_t size = state->type.dims[1];
  tt_node *hx = tt_cast(cx, state, x->type.dtype);
  tt_node *reset = tt_hlo_logistic(h, tt_hlo_add(h, gate(cx, x, 0, size), gate(cx, y, 0, size)));
  tt_node *update = tt_hlo_logistic(h, tt_hlo_add(h, gate(cx, x, 1, size), gate(cx, y, 1, size)));
  tt_node *hidden = gate(cx, y, 2, size);
  tt_node *new = tt_hlo_add(h, gate(cx, x, 2, size), tt_hlo_multiply(h, reset, hidden));
  new = tt_hlo_tanh(h, new);
  tt_node *hy = tt_hlo_multiply(h, update, tt_hlo_subtract(h, hx, new));
  out_cast(cx, 0, tt_hlo_add(h, new, hy), state);
  tt_node *parts[] = {reset, update, new, hx, hidden};
  out_cast(cx, 1, tt_hlo_concatenate(h, parts, 5, 1), state);
}

/* grad_hy, workspace, has_bias
 * -> grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias */
void tt_lower_gru_cell_backward(tt_lower *cx) {
  tt_hlo *h = cx->h;
  tt_node *grad_hy = tt_in(cx, 0), *work = tt_in(cx, 1);
  int64_t size = grad_hy->type.dims[1];
  tt_dtype dtype = tt_compute_dtype(work->type.dtype);
  tt_node *all = tt_cast(cx, work, dtype), *grad = tt_cast(cx, grad_hy, dtype);
  tt_node *reset = gate(cx, all, 0, size), *update = gate(cx, all, 1, size),
          *new = gate(cx, all, 2, size), *hx = gate(cx, all, 3, size),
          *hidden = gate(cx, all, 4, size);
  tt_node *d_new = mul3(cx, grad, one_minus(cx, update), one_minus(cx, tt_square(cx, new)));
  tt_node *d_update = mul3(cx, tt_hlo_multiply(h, grad, tt_hlo_subtract(h, hx, new)), update,
                           one_minus(cx, update));
  tt_node *d_reset = mul3(cx, tt_hlo_multiply(h, d_new, hidden), reset, one_minus(cx, reset));
  tt_node *d_hidden = tt_hlo_multiply(h, d_new, reset);
  tt_node *input = tt_hlo_concatenate(h, (tt_node *[]){d_reset, d_update, d_new}, 3, 1);
  tt_node *inner = tt_hlo_concatenate(h, (tt_node *[]){d_reset, d_update, d_hidden}, 3, 1);
  out_cast(cx, 0, input, work);
  out_cast(cx, 1, inner, work);
  out_cast(cx, 2, tt_hlo_multiply(h, grad, update), grad_hy);
  if (tt_bool(cx, 2)) {
    out_cast(cx, 3, sum_batch(cx, input), work);
    out_cast(cx, 4, sum_batch(cx, inner), work);
  }
}
