#include "ops/order.h"

#include <stdlib.h>
#include <string.h>

/* -- Printing -- */

static void put_first(tt_text *out, int64_t number) {
  char digits[24];
  char *at = digits + sizeof digits;
  uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
  do *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (number < 0) *--at = '-';
  tt_text_add(out, at, (size_t)(digits + sizeof digits - at));
}

static void put(tt_text *out, int64_t number) {
  tt_text_add(out, ", ", 2);
  put_first(out, number);
}

static void put_all(tt_text *out, const int64_t *numbers, int count) {
  for (int i = 0; i < count; i++) put(out, numbers[i]);
}

static void put_double(tt_text *out, double number) {
  int64_t bits = 0;
  memcpy(&bits, &number, sizeof bits);
  put(out, bits);
}

/* Its length, then eight bytes to a number. */
static void put_string(tt_text *out, const char *text) {
  size_t length = strlen(text);
  put(out, (int64_t)length);
  for (size_t at = 0; at < length; at += sizeof(int64_t)) {
    int64_t bytes = 0;
    memcpy(&bytes, text + at, length - at < sizeof bytes ? length - at : sizeof bytes);
    put(out, bytes);
  }
}

/* As many records of `width` numbers, as take_all finds them again. */
static void put_records(tt_text *out, const void *records, int count, int width) {
  put(out, count);
  put_all(out, records, count * width);
}

static void put_view(tt_text *out, const tt_order_view *view) {
  put(out, view->dtype);
  put(out, view->rank);
  put(out, view->offset_word);
  put(out, view->offset);
  put_all(out, view->sizes, view->rank);
  put_all(out, view->strides, view->rank);
  put_records(out, view->lengths, view->length_count, 3);
}

static void put_arg(tt_text *out, const tt_arg *arg) {
  put(out, arg->kind);
  put(out, arg->dtype);
  put(out, arg->first);
  put(out, arg->count);
  put(out, arg->equal);
  if (arg->kind == TT_ARG_INT) put(out, arg->i);
  if (arg->kind == TT_ARG_FLOAT) put_double(out, arg->f);
  if (arg->kind == TT_ARG_STRING) put_string(out, arg->text);
  for (int i = 0; arg->kind == TT_ARG_TENSORS && i < arg->count; i++) put(out, arg->present[i]);
  if (arg->kind == TT_ARG_INTS) put_all(out, arg->ints, arg->count);
  for (int i = 0; arg->kind == TT_ARG_FLOATS && i < arg->count; i++)
    put_double(out, arg->floats[i]);
  for (int i = 0; arg->kind == TT_ARG_COMPLEX && i < 2; i++) put_double(out, arg->floats[i]);
}

static void put_order(tt_text *out, const tt_order *order) {
  put_string(out, order->name);
  put(out, order->step);
  put(out, order->cost);
  put_records(out, order->writes, order->write_count, 3);
  put(out, order->arg_count);
  for (int i = 0; i < order->arg_count; i++) put_arg(out, &order->args[i]);
  put(out, order->tensor_count);
  for (int i = 0; i < order->tensor_count; i++) {
    put(out, order->tensors[i].slot);
    put_view(out, &order->tensors[i].view);
  }
  put_records(out, order->numbers, order->number_count, 2);
  put(out, order->result_count);
  for (int i = 0; i < order->result_count; i++) {
    put(out, order->results[i].target);
    put(out, order->results[i].slot);
    put_view(out, &order->results[i].view);
  }
  put_records(out, order->drops, order->drop_count, 1);
}

void tt_orders_print(const tt_orders *orders, tt_text *out) {
  tt_text_printf(out, "orders = array<i64: ");
  put_first(out, orders->count);
  put(out, orders->cost);
  put(out, orders->slot_count);
  put(out, orders->input_count);
  put_all(out, orders->bytes, orders->slot_count);
  put_all(out, orders->homes, orders->slot_count);
  for (int i = 0; i < orders->count; i++) put_order(out, &orders->all[i]);
  tt_text_add(out, ">", 1);
}

/* -- Reading -- */

typedef struct reader {
  const int64_t *at, *end;
  tt_arena *arena;
  tt_orders orders;
  bool failed; /* what is read is no order, or memory is out */
} reader;

static int64_t take(reader *r) {
  if (r->at == r->end) r->failed = true;
  return r->failed ? 0 : *r->at++;
}

static int take_int(reader *r, int least, int64_t most) {
  int64_t number = take(r);
  r->failed |= number < least || number > most;
  return r->failed ? 0 : (int)number;
}

static int take_count(reader *r) { return take_int(r, 0, r->end - r->at); }

/* `count` records of `width` numbers, where they stand. */
static const void *take_all(reader *r, int count, int width) {
  const int64_t *all = r->at;
  if (count > (r->end - r->at) / width) r->failed = true;
  if (!r->failed) r->at += (ptrdiff_t)count * width;
  return all;
}

static double take_double(reader *r) {
  int64_t bits = take(r);
  double number = 0;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static void *room(reader *r, int count, size_t size) {
  void *block = tt_arena_alloc(r->arena, ((size_t)count + 1) * size);
  r->failed |= !block;
  return block;
}

static const char *take_string(reader *r) {
  size_t length = (size_t)take_int(r, 0, (r->end - r->at) * (int64_t)sizeof(int64_t));
  char *text = room(r, (int)length, 1);
  for (size_t at = 0; !r->failed && at < length; at += sizeof(int64_t)) {
    int64_t bytes = take(r);
    memcpy(text + at, &bytes, length - at < sizeof bytes ? length - at : sizeof bytes);
  }
  return text;
}

static bool is_dtype(int64_t number) { return number >= 0 && number < TT_DTYPE_LIMIT; }
static tt_dtype take_dtype(reader *r) { return (tt_dtype)take_int(r, 0, TT_DTYPE_LIMIT - 1); }
static int take_slot(reader *r) { return take_int(r, -1, r->orders.slot_count - 1); }

static void take_view(reader *r, tt_order_view *view) {
  view->dtype = take_dtype(r);
  view->rank = take_int(r, 0, TT_MAX_RANK);
  view->offset_word = take_int(r, -1, INT32_MAX);
  view->offset = take(r);
  view->sizes = take_all(r, view->rank, 1);
  view->strides = take_all(r, view->rank, 1);
  view->length_count = take_int(r, 0, TT_MOST_ORDER_LENGTHS);
  view->lengths = take_all(r, view->length_count, 3);
  for (int i = 0; !r->failed && i < view->length_count; i++) {
    const tt_order_length *one = &view->lengths[i];
    r->failed |= one->dim < 0 || one->dim >= view->rank || one->word < 0;
  }
}

static void take_arg(reader *r, tt_arg *arg) {
  arg->kind = (tt_arg_kind)take_int(r, TT_ARG_NONE, TT_ARG_STRING);
  arg->dtype = take_dtype(r);
  arg->first = take_int(r, 0, INT32_MAX);
  arg->count = take_int(r, 0, INT32_MAX);
  arg->equal = take(r);
  int listed = arg->kind == TT_ARG_COMPLEX ? 2 : arg->count;
  bool lists = arg->kind == TT_ARG_TENSORS || arg->kind == TT_ARG_INTS ||
               arg->kind == TT_ARG_FLOATS || arg->kind == TT_ARG_COMPLEX;
  r->failed |= lists && listed > r->end - r->at;
  if (r->failed) return;
  if (arg->kind == TT_ARG_INT) arg->i = take(r);
  if (arg->kind == TT_ARG_FLOAT) arg->f = take_double(r);
  if (arg->kind == TT_ARG_STRING) arg->text = take_string(r);
  if (arg->kind == TT_ARG_INTS) {
    arg->ints = take_all(r, listed, 1);
  } else if (arg->kind == TT_ARG_TENSORS) {
    bool *present = room(r, listed, sizeof *present);
    for (int i = 0; !r->failed && i < listed; i++) present[i] = take(r);
    arg->present = present;
  } else if (lists) {
    double *floats = room(r, listed, sizeof *floats);
    for (int i = 0; !r->failed && i < listed; i++) floats[i] = take_double(r);
    arg->floats = floats;
  }
}

static bool is_slot(const reader *r, int64_t slot, int64_t least) {
  return slot >= least && slot < r->orders.slot_count;
}

static void take_writes(reader *r, tt_order *out) {
  out->write_count = take_count(r);
  out->writes = take_all(r, out->write_count, 3);
  for (int i = 0; !r->failed && i < out->write_count; i++)
    r->failed |= !is_slot(r, out->writes[i].slot, r->orders.input_count) ||
                 !is_slot(r, out->writes[i].before, -1);
}

static void take_args(reader *r, tt_order *out) {
  out->arg_count = take_count(r);
  tt_arg *args = room(r, out->arg_count, sizeof *args);
  for (int i = 0; !r->failed && i < out->arg_count; i++) take_arg(r, &args[i]);
  out->args = args;
}

static void take_tensors(reader *r, tt_order *out) {
  out->tensor_count = take_count(r);
  tt_order_tensor *tensors = room(r, out->tensor_count, sizeof *tensors);
  for (int i = 0; !r->failed && i < out->tensor_count; i++) {
    tensors[i].slot = take_slot(r);
    take_view(r, &tensors[i].view);
  }
  out->tensors = tensors;
}

static void take_numbers(reader *r, tt_order *out) {
  out->number_count = take_count(r);
  out->numbers = take_all(r, out->number_count, 2);
  for (int i = 0; !r->failed && i < out->number_count; i++)
    r->failed |= !is_dtype(out->numbers[i].dtype) || out->numbers[i].word < 0;
}

static void take_results(reader *r, tt_order *out) {
  out->result_count = take_count(r);
  tt_order_result *results = room(r, out->result_count, sizeof *results);
  for (int i = 0; !r->failed && i < out->result_count; i++) {
    results[i].target = take_int(r, -1, out->tensor_count - 1);
    results[i].slot = take_slot(r);
    r->failed |= results[i].slot >= 0 && results[i].slot < r->orders.input_count;
    take_view(r, &results[i].view);
  }
  out->results = results;
}

static void take_drops(reader *r, tt_order *out) {
  out->drop_count = take_count(r);
  out->drops = take_all(r, out->drop_count, 1);
  for (int i = 0; !r->failed && i < out->drop_count; i++)
    r->failed |= !is_slot(r, out->drops[i], r->orders.input_count);
}

static tt_status status_of(const reader *r) {
  if (!r->failed) return TT_SUCCESS;
  return tt_error(TT_INVALID_ARGUMENT, "a program orders kernels of the host's in words that are "
                                       "no order: it was made by another version");
}

static void take_slots(reader *r) {
  tt_orders *orders = &r->orders;
  orders->count = take_count(r);
  orders->cost = take(r);
  orders->slot_count = take_count(r);
  orders->input_count = take_int(r, 0, orders->slot_count);
  orders->bytes = take_all(r, orders->slot_count, 1);
  orders->homes = take_all(r, orders->slot_count, 1);
  for (int i = 0; !r->failed && i < orders->slot_count; i++) r->failed |= orders->bytes[i] < 0;
}

static void take_order(reader *r, tt_order *out) {
  *out = (tt_order){.name = take_string(r)};
  out->step = take_int(r, TT_NO_STEP, INT32_MAX);
  out->cost = take(r);
  take_writes(r, out);
  take_args(r, out);
  take_tensors(r, out);
  take_numbers(r, out);
  take_results(r, out);
  take_drops(r, out);
}

tt_status tt_orders_read(const int64_t *numbers, int count, tt_arena *arena, tt_orders *out) {
  reader r = {.at = numbers, .end = numbers + count, .arena = arena};
  take_slots(&r);
  tt_order *all = room(&r, r.orders.count, sizeof *all);
  for (int i = 0; !r.failed && i < r.orders.count; i++) take_order(&r, &all[i]);
  r.orders.all = all;
  *out = r.orders;
  return status_of(&r);
}

/* -- Failures -- */

#define BLAME "torch_tpu's order of step "

tt_status tt_order_blame(const tt_order *order, tt_status status) {
  if (!status) return TT_SUCCESS;
  if (order->step == TT_NO_STEP) return tt_status_prefix(status, "%s: ", order->name);
  return tt_status_prefix(status, BLAME "%d, %s: ", order->step, order->name);
}

int tt_order_blamed(const char *message) {
  const char *at = strstr(message, BLAME);
  return at ? (int)strtol(at + sizeof BLAME - 1, NULL, 10) : -1;
}
