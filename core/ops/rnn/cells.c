/* The fused cells of LSTM and GRU: everything after the two matrix products. */
#include "ops/rnn/cell.h"

/* x + bias?, in the dtype computed in */
static tt_node *biased(tt_lower *cx, int x_arg, int bias_arg) {
  tt_node *x = tt_in(cx, x_arg);
  x = tt_cast(cx, x, tt_compute_dtype(x->type.dtype));
  if (!tt_has(cx, bias_arg)) return x;
  tt_node *bias = tt_cast(cx, tt_in(cx, bias_arg), x->type.dtype);
  return tt_hlo_add(cx->h, x, tt_along(cx, bias, 1, &x->type));
}

static void out_cast(tt_lower *cx, int k, tt_node *x, tt_node *like) {
  tt_out_as(cx, k, tt_cast(cx, x, like->type.dtype));
}

static tt_node *sum_batch(tt_lower *cx, tt_node *x) { return tt_sum(cx, x, (const int[]){0}, 1); }

/* input_gates [n, 4h], hidden_gates, cx, input_bias?, hidden_bias?
 * -> hy, cy, workspace: the gates i, f, g, o after their nonlinearities */
void tt_lower_lstm_cell(tt_lower *cx) {
  tt_node *cell = tt_in(cx, 2), *x = biased(cx, 0, 3), *y = biased(cx, 1, 4);
  tt_step step = tt_cell_step(cx, TT_CELL_LSTM, x, y, NULL, tt_cast(cx, cell, x->type.dtype));
  out_cast(cx, 0, step.hidden, cell);
  out_cast(cx, 1, step.cell, cell);
  out_cast(cx, 2, tt_hlo_concatenate(cx->h, step.saved, 4, 1), cell);
}

/* grad_hy?, grad_cy?, cx, cy, workspace, has_bias -> grad_gates, grad_cx, grad_bias */
void tt_lower_lstm_cell_backward(tt_lower *cx) {
  tt_node *cell = tt_in(cx, 2), *work = tt_in(cx, 4);
  tt_dtype dtype = tt_compute_dtype(work->type.dtype);
  tt_node *all = tt_cast(cx, work, dtype);
  tt_step step = {.cell = tt_cast(cx, tt_in(cx, 3), dtype)};
  tt_step before = {.cell = tt_cast(cx, cell, dtype)};
  for (int k = 0; k < 4; k++) step.saved[k] = tt_cell_gate(cx, all, k, cell->type.dims[1]);
  tt_step_grads grads =
      tt_cell_step_backward(cx, TT_CELL_LSTM, &step, &before, tt_cell_grad(cx, 0, cell, dtype),
                            tt_cell_grad(cx, 1, cell, dtype));
  out_cast(cx, 0, grads.x, work);
  out_cast(cx, 1, grads.cell, cell);
  if (tt_bool(cx, 5)) out_cast(cx, 2, sum_batch(cx, grads.x), work);
}

/* input_gates [n, 3h], hidden_gates, hx, input_bias?, hidden_bias?
 * -> hy, workspace [n, 5h]: reset, update, new, hx, and the hidden part of new */
void tt_lower_gru_cell(tt_lower *cx) {
  tt_node *state = tt_in(cx, 2), *x = biased(cx, 0, 3), *y = biased(cx, 1, 4);
  tt_node *hx = tt_cast(cx, state, x->type.dtype);
  tt_step step = tt_cell_step(cx, TT_CELL_GRU, x, y, hx, NULL);
  tt_node **saved = step.saved;
  out_cast(cx, 0, step.hidden, state);
  tt_node *parts[] = {saved[0], saved[1], saved[2], hx, saved[3]};
  out_cast(cx, 1, tt_hlo_concatenate(cx->h, parts, 5, 1), state);
}

/* grad_hy, workspace, has_bias
 * -> grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias */
void tt_lower_gru_cell_backward(tt_lower *cx) {
  tt_node *grad_hy = tt_in(cx, 0), *work = tt_in(cx, 1);
  int64_t size = grad_hy->type.dims[1];
  tt_dtype dtype = tt_compute_dtype(work->type.dtype);
  tt_node *all = tt_cast(cx, work, dtype);
  tt_step step = {.saved = {tt_cell_gate(cx, all, 0, size), tt_cell_gate(cx, all, 1, size),
                            tt_cell_gate(cx, all, 2, size), tt_cell_gate(cx, all, 4, size)}};
  tt_step before = {.hidden = tt_cell_gate(cx, all, 3, size)};
  tt_step_grads grads =
      tt_cell_step_backward(cx, TT_CELL_GRU, &step, &before, tt_cast(cx, grad_hy, dtype), NULL);
  out_cast(cx, 0, grads.x, work);
  out_cast(cx, 1, grads.y, work);
  out_cast(cx, 2, grads.hidden, grad_hy);
  if (tt_bool(cx, 2)) {
    out_cast(cx, 3, sum_batch(cx, grads.x), work);
    out_cast(cx, 4, sum_batch(cx, grads.y), work);
  }
}
