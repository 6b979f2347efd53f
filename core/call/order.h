/* An order: what a kernel of the host's is told of a call, in whole numbers, so that a program's
 * text has it. Its numbers of run time are words of the program's, and its tensors see storages in
 * the host's memory, where the kernel writes what the call writes. */
#ifndef TT_CALL_ORDER_H
#define TT_CALL_ORDER_H

#include "call/call.h"

/* A view's size along `dim` is `inner` times the whole number (I64) that begins at `word`. */
typedef struct tt_order_length {
  int dim, word;
  int64_t inner;
} tt_order_length;
enum { TT_MOST_ORDER_LENGTHS = 4 };
typedef struct tt_order_lengths {
  int count;
  tt_order_length of[TT_MOST_ORDER_LENGTHS];
} tt_order_lengths;

typedef struct tt_order_tensor {
  int operand;     /* which of the storages that the call reads it sees, or -1 */
  int result;      /* which storage that the call writes holds it afterwards, or -1 */
  int offset_word; /* the word that its offset begins at, or -1: it is the view's */
  tt_view view;
  tt_order_lengths lengths;
} tt_order_tensor;

typedef struct tt_order_number {
  tt_dtype dtype;
  int word; /* where it begins */
} tt_order_number;

typedef struct tt_order_result {
  int target; /* the tensor that it is written to, or -1: a new one */
  int result; /* which storage it is in, or -1: nobody wants it */
  tt_view view;
  tt_order_lengths lengths;
} tt_order_result;

typedef struct tt_order {
  const char *name;  /* "aten::add_.Tensor" */
  int64_t cost;      /* about how many products of two numbers it takes as long as */
  int operand_count; /* storages that it reads; behind them come the words, if it has any */
  int output_count;  /* storages that it writes */
  int arg_count;     /* by schema position, those of out= left out */
  tt_arg *args;      /* SCALAR(S): `first` numbers `numbers` */
  int tensor_count;  /* TENSOR(S): `first` numbers `tensors` */
  tt_order_tensor *tensors;
  int number_count;
  tt_order_number *numbers;
  int result_count;
  tt_order_result *results; /* new ones, then those of out=, then what else is written */
} tt_order;

/* Whether an order can say all of the call, and the target's host has a kernel for it that may
 * stand in for the row's lowering (tt_op_orders). Or it is a convolution, whose own lowering asks
 * the host (convolve/convolve.h). The call keeps the answer, which becomes no where ever new
 * programs order it: then one of its own is worth more. */
bool tt_call_orders(tt_call *call, const tt_target *target);
/* From now on it does not: the kernel has failed. */
void tt_call_refuse_orders(tt_call *call);
/* One more program orders the call. */
void tt_call_count_ordered(tt_call *call);

/* Adds the order as the attribute "order = array<i64: ..>". The call's words begin at `word_at`. */
void tt_order_print(const tt_call *call, int word_at, tt_text *out);
/* Reads such an array. What *out points to lives as long as the arena. */
tt_status tt_order_read(const int64_t *numbers, int count, tt_arena *arena, tt_order *out);

#endif
