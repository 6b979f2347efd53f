#include "ops/rnn/cell.h"

int tt_cell_saved(tt_cell kind) { return kind >= TT_CELL_LSTM ? TT_MOST_SAVED : 0; }

tt_node *tt_cell_gate(tt_lower *cx, tt_node *rows, int k, int64_t size) {
  return tt_hlo_slice_dim(cx->h, rows, rows->type.rank - 1, k * size, (k + 1) * size, 1);
}

tt_node *tt_cell_grad(tt_lower *cx, int i, const tt_node *like, tt_dtype dtype) {
  tt_type type = like->type;
  type.dtype = dtype;
  return tt_has(cx, i) ? tt_in_as(cx, i, dtype) : tt_hlo_zeros(cx->h, &type);
}

static tt_node *one_minus(tt_lower *cx, tt_node *x) {
  return tt_hlo_subtract(cx->h, tt_hlo_full(cx->h, &x->type, 1), x);
}

static tt_node *mul3(tt_lower *cx, tt_node *a, tt_node *b, tt_node *c) {
  return tt_hlo_multiply(cx->h, tt_hlo_multiply(cx->h, a, b), c);
}

static tt_step step_lstm(tt_lower *cx, tt_node *gates, tt_node *cell) {
  tt_hlo *h = cx->h;
  const int64_t size = cell->type.dims[1];
  tt_node *i = tt_hlo_logistic(h, tt_cell_gate(cx, gates, 0, size));
  tt_node *f = tt_hlo_logistic(h, tt_cell_gate(cx, gates, 1, size));
  tt_node *g = tt_hlo_tanh(h, tt_cell_gate(cx, gates, 2, size));
  tt_node *o = tt_hlo_logistic(h, tt_cell_gate(cx, gates, 3, size));
  tt_node *next = tt_hlo_multiply(h, f, cell);
  next = tt_hlo_add(h, next, tt_hlo_multiply(h, i, g));
  return (tt_step){tt_hlo_multiply(h, o, tt_hlo_tanh(h, next)), next, {i, f, g, o}};
}

static tt_step step_gru(tt_lower *cx, tt_node *x, tt_node *y, tt_node *hidden) {
  tt_hlo *h = cx->h;
  const int64_t size = hidden->type.dims[1];
  tt_node *reset =
      tt_hlo_logistic(h, tt_hlo_add(h, tt_cell_gate(cx, x, 0, size), tt_cell_gate(cx, y, 0, size)));
  tt_node *update =
      tt_hlo_logistic(h, tt_hlo_add(h, tt_cell_gate(cx, x, 1, size), tt_cell_gate(cx, y, 1, size)));
  tt_node *inner = tt_cell_gate(cx, y, 2, size);
  tt_node *new = tt_hlo_add(h, tt_cell_gate(cx, x, 2, size), tt_hlo_multiply(h, reset, inner));
  new = tt_hlo_tanh(h, new);
  tt_node *next = tt_hlo_multiply(h, update, tt_hlo_subtract(h, hidden, new));
  return (tt_step){tt_hlo_add(h, new, next), NULL, {reset, update, new, inner}};
}

tt_step tt_cell_step(tt_lower *cx, tt_cell kind, tt_node *x, tt_node *y, tt_node *hidden,
                     tt_node *cell) {
  tt_hlo *h = cx->h;
  if (kind == TT_CELL_GRU) return step_gru(cx, x, y, hidden);
  tt_node *sum = tt_hlo_add(h, x, y);
  if (kind == TT_CELL_LSTM) return step_lstm(cx, sum, cell);
  tt_node *next = kind == TT_CELL_TANH ? tt_hlo_tanh(h, sum)
                                       : tt_hlo_maximum(h, sum, tt_hlo_zeros(h, &sum->type));
  return (tt_step){next, NULL, {NULL}};
}

static tt_step_grads lstm_backward(tt_lower *cx, const tt_step *step, const tt_step *before,
                                   tt_node *hidden, tt_node *cell) {
  tt_hlo *h = cx->h;
  tt_node *i = step->saved[0], *f = step->saved[1], *g = step->saved[2], *o = step->saved[3];
  tt_node *bent = tt_hlo_tanh(h, step->cell);
  tt_node *through = mul3(cx, hidden, o, one_minus(cx, tt_square(cx, bent)));
  tt_node *grad = tt_hlo_add(h, cell, through);
  tt_node *slopes[] = {
      mul3(cx, tt_hlo_multiply(h, grad, g), i, one_minus(cx, i)),
      mul3(cx, tt_hlo_multiply(h, grad, before->cell), f, one_minus(cx, f)),
      mul3(cx, grad, i, one_minus(cx, tt_square(cx, g))),
      mul3(cx, tt_hlo_multiply(h, hidden, bent), o, one_minus(cx, o)),
  };
  tt_node *gates = tt_hlo_concatenate(h, slopes, 4, 1);
  return (tt_step_grads){gates, gates, NULL, tt_hlo_multiply(h, grad, f)};
}

static tt_step_grads gru_backward(tt_lower *cx, const tt_step *step, const tt_step *before,
                                  tt_node *grad) {
  tt_hlo *h = cx->h;
  tt_node *reset = step->saved[0], *update = step->saved[1], *new = step->saved[2];
  tt_node *d_new = mul3(cx, grad, one_minus(cx, update), one_minus(cx, tt_square(cx, new)));
  tt_node *d_update = mul3(cx, tt_hlo_multiply(h, grad, tt_hlo_subtract(h, before->hidden, new)),
                           update, one_minus(cx, update));
  tt_node *d_reset =
      mul3(cx, tt_hlo_multiply(h, d_new, step->saved[3]), reset, one_minus(cx, reset));
  tt_node *d_inner = tt_hlo_multiply(h, d_new, reset);
  return (tt_step_grads){
      tt_hlo_concatenate(h, (tt_node *[]){d_reset, d_update, d_new}, 3, 1),
      tt_hlo_concatenate(h, (tt_node *[]){d_reset, d_update, d_inner}, 3, 1),
      tt_hlo_multiply(h, grad, update),
      NULL,
  };
}

tt_step_grads tt_cell_step_backward(tt_lower *cx, tt_cell kind, const tt_step *step,
                                    const tt_step *before, tt_node *hidden, tt_node *cell) {
  tt_hlo *h = cx->h;
  if (kind == TT_CELL_LSTM) return lstm_backward(cx, step, before, hidden, cell);
  if (kind == TT_CELL_GRU) return gru_backward(cx, step, before, hidden);
  tt_node *y = step->hidden, *zero = tt_hlo_zeros(h, &y->type);
  tt_node *sum = kind == TT_CELL_TANH
                     ? tt_hlo_multiply(h, hidden, one_minus(cx, tt_square(cx, y)))
                     : tt_hlo_select(h, tt_hlo_compare(h, TT_GT, y, zero), hidden, zero);
  return (tt_step_grads){sum, sum, NULL, NULL};
}
