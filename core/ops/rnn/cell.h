/* One step of a recurrent network, and its gradients, in the dtype that PyTorch computes in. */
#ifndef TT_CELL_H
#define TT_CELL_H

#include "ops/nn.h"

typedef enum tt_cell { TT_CELL_TANH, TT_CELL_RELU, TT_CELL_LSTM, TT_CELL_GRU } tt_cell;

enum { TT_MOST_SAVED = 4 };

/* How many of a step's gates are saved for its gradients: i, f, g, o of an LSTM; reset, update,
 * new, and the hidden part of new, of a GRU; none else. */
int tt_cell_saved(tt_cell kind);

/* Gate k of rows: columns k * size .. (k + 1) * size of the last dim. */
tt_node *tt_cell_gate(tt_lower *cx, tt_node *rows, int k, int64_t size);
/* Argument i, a gradient, or zeros of `like`'s sizes where there is none. */
tt_node *tt_cell_grad(tt_lower *cx, int i, const tt_node *like, tt_dtype dtype);

typedef struct tt_step {
  tt_node *hidden, *cell; /* states behind it; the second of an LSTM alone */
  tt_node *saved[TT_MOST_SAVED];
} tt_step;

/* x, y: products of the input and of the hidden state, with their biases, a column of each gate for
 * each of the state's. All are of one dtype. hidden, cell: states before it. */
tt_step tt_cell_step(tt_lower *cx, tt_cell kind, tt_node *x, tt_node *y, tt_node *hidden,
                     tt_node *cell);

typedef struct tt_step_grads {
  tt_node *x, *y;         /* of the products; the same unless of a GRU */
  tt_node *hidden, *cell; /* of the states before it; NULL: by way of y alone, and none */
} tt_step_grads;

/* hidden, cell: gradients of the step's states; before: the states before it, as of the step. */
tt_step_grads tt_cell_step_backward(tt_lower *cx, tt_cell kind, const tt_step *step,
                                    const tt_step *before, tt_node *hidden, tt_node *cell);

#endif
