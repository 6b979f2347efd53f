/* Orders: what kernels of the host's are told of calls. Those of a graph are carried out together,
 * by whoever launches it, or as a call of a program's: its operands are storages in the host's
 * memory, its results are others, and what only the orders pass on to each other lies in slots of
 * theirs. Numbers of run time are words. */
#ifndef TT_ORDER_H
#define TT_ORDER_H

#include "ops/ops.h"

/* The custom call whose config they are. */
#define TT_KERNELS_TARGET "torch_tpu.kernels"

/* What follows points to what the writer of an order has, or into the text that it is read of. */

/* A view's size along `dim` is `inner` times the whole number (I64) that begins at `word`. */
typedef struct tt_order_length {
  int64_t dim, word, inner;
} tt_order_length;
enum { TT_MOST_ORDER_LENGTHS = 4 };

typedef struct tt_order_view {
  tt_dtype dtype;
  int rank;
  int offset_word; /* the word that its offset begins at, or -1: that is `offset` */
  int length_count;
  int64_t offset; /* in elements, like strides */
  const int64_t *sizes, *strides;
  const tt_order_length *lengths;
} tt_order_view;

/* A storage that the order makes of one before it. */
typedef struct tt_order_write {
  int64_t slot;
  int64_t before; /* whose content it begins with, or -1: zeros */
  int64_t takes;  /* whether it may have that one's memory, as nobody reads that any more */
} tt_order_write;

typedef struct tt_order_tensor {
  int slot; /* it sees that storage, or -1: nothing was written to it, and it is zeros */
  tt_order_view view;
} tt_order_tensor;

typedef struct tt_order_number {
  int64_t dtype;
  int64_t word; /* where it begins */
} tt_order_number;

typedef struct tt_order_result {
  int target; /* the tensor that it is written to, or -1: a new one */
  int slot;   /* the new one's storage, or -1: nobody wants it */
  tt_order_view view;
} tt_order_result;

enum { TT_NO_STEP = -1 };
typedef struct tt_order {
  const char *name;   /* "aten::add_.Tensor" */
  const void *kernel; /* the library's by that name (kernels/kernels.h); NULL in a text */
  int step;           /* of the graph's that it stands for, or TT_NO_STEP: it is a part of one */
  int64_t cost;       /* about how many products of two numbers it takes as long as */
  int write_count;
  const tt_order_write *writes; /* done before the kernel runs */
  int arg_count;                /* by schema position, those of out= left out */
  const tt_arg *args;           /* SCALAR(S): `first` numbers `numbers` */
  int tensor_count;             /* TENSOR(S): `first` numbers `tensors` */
  const tt_order_tensor *tensors;
  int number_count;
  const tt_order_number *numbers;
  int result_count;
  const tt_order_result *results; /* new ones, then those of out=, then what else is written */
  int drop_count;
  const int64_t *drops; /* slots that nobody needs behind it */
} tt_order;

/* Those that are carried out together. */
typedef struct tt_orders {
  int count;
  const tt_order *all;
  int64_t cost;         /* the most costly one's */
  int input_count;      /* the first slots are the operands */
  int slot_count;       /* of all */
  const int64_t *bytes; /* [slot_count] */
  const int64_t *homes; /* [slot_count] the result whose memory the slot's is, or -1 */
} tt_orders;

/* As an attribute of a program's call, "orders = array<i64: ..>". */
void tt_orders_print(const tt_orders *orders, tt_text *out);
/* Reads such an array. Slots and tensors that an order names are there. *out lives as long as the
 * array and the arena. */
tt_status tt_orders_read(const int64_t *numbers, int count, tt_arena *arena, tt_orders *out);

/* An order's failure, whose text names it and its step, if it has one; consumes `status`. */
tt_status tt_order_blame(const tt_order *order, tt_status status);
/* The step that a program's error says this of, or -1. */
int tt_order_blamed(const char *message);

#endif
