#include "call/order.h"

#include "call/bounded.h"
#include "call/spec.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* -- Storages -- */

/* Which output is the storage that the tensor sees, after it was written; -1: none. *count: how
 * many are. */
static int output_of(const tt_call *call, int tensor, int *count) {
  int output = 0, found = -1;
  *count = 0;
  for (int k = 0; k < call->result_count; k++) {
    const tt_call_result *result = &call->results[k];
    bool is = result->target >= 0 &&
              tt_spec_root_of(&call->spec, result->target) == tt_spec_root_of(&call->spec, tensor);
    if (result->defined && is) found = output;
    *count += is;
    output += result->defined;
  }
  return found;
}

/* -- What is known only at run time -- */

static int word_of(const tt_call_spec *spec, int word_at, int scalar) {
  return word_at + tt_spec_word_of(spec, scalar);
}

/* Each dim once. False: a view has no such size, as what counts is in several stretches, or there
 * are too many. */
static bool add_length(tt_order_lengths *lengths, int dim, int word, int64_t outer, int64_t inner) {
  for (int i = 0; i < lengths->count; i++)
    if (lengths->of[i].dim == dim) return true;
  if (outer != 1 || lengths->count == TT_MOST_ORDER_LENGTHS) return false;
  lengths->of[lengths->count++] = (tt_order_length){dim, word, inner};
  return true;
}

static bool add_marks(const tt_call_spec *spec, const tt_marks *marks, int word_at,
                      tt_order_lengths *out) {
  bool all = true;
  for (int k = 0; k < tt_marks_count(marks); k++) {
    const tt_mark *mark = &marks->of[k];
    int word = word_of(spec, word_at, mark->scalar);
    all &= add_length(out, mark->dim, word, mark->outer, mark->inner);
  }
  return all;
}

static bool lengths_of_tensor(const tt_call_spec *spec, int i, int word_at, tt_order_lengths *out) {
  out->count = 0;
  bool all = add_marks(spec, &spec->tensors[i].marks, word_at, out);
  for (int k = 0; k < spec->length_count; k++) {
    const tt_call_length *one = &spec->lengths[k];
    int word = word_of(spec, word_at, one->scalar);
    if (one->tensor == i) all &= add_length(out, one->dim, word, one->outer, one->inner);
  }
  return all;
}

/* -- What it costs -- */

/* What takes as long: an element that is read or written as 16 products. Of matrices the root of
 * what [m, k], [k, n] and [m, n] have together is m k n. */
static int64_t cost_of(const tt_call *call) {
  const tt_call_spec *spec = &call->spec;
  double read = 0, made = 0, largest = 1, second = 1;
  for (int i = 0; i < spec->tensor_count; i++) {
    double count = (double)tt_view_numel(&spec->tensors[i].view);
    read += count;
    second = fmax(second, fmin(count, largest));
    largest = fmax(largest, count);
  }
  for (int k = 0; k < call->result_count; k++)
    made += (double)tt_view_numel(&call->results[k].view);
  double products = tt_op_multiplies(spec->row) ? sqrt(largest * second * made) : 0;
  return (int64_t)fmin(16 * (read + made) + products, 1e18);
}

/* -- Which calls -- */

enum { UNKNOWN, YES, NO }; /* tt_call.orders */
/* Seconds: XLA may do without reading what is expanded, or know a better way. */
#define MOST_COST (INT64_C(1) << 36)

/* Who asks for f64 compares bits, in which libraries differ. */
static bool is_plain(tt_dtype dtype) {
  return dtype == TT_F32 || dtype == TT_BF16 || dtype == TT_F16 || dtype == TT_BOOL ||
         tt_is_integer(dtype);
}

static bool takes_tensor(const tt_call *call, int i) {
  const tt_call_tensor *tensor = &call->spec.tensors[i];
  tt_order_lengths lengths;
  int writes = 0, output = output_of(call, i, &writes);
  bool lies = !tensor->more || (!tensor->moves && tensor->view.dtype == tensor->storage->dtype);
  bool there = output >= 0 || !tensor->undefined || !tt_view_numel(&tensor->view);
  return lies && there && writes <= 1 && is_plain(tensor->view.dtype) &&
         lengths_of_tensor(&call->spec, i, 0, &lengths);
}

static bool takes_result(const tt_call_spec *spec, const tt_call_result *result) {
  tt_order_lengths lengths = {.count = 0};
  if (!result->defined) return result->target < 0;
  return result->target >= 0 ||
         (is_plain(result->view.dtype) && add_marks(spec, &result->marks, 0, &lengths));
}

static bool takes_arg(const tt_arg *arg) {
  return !arg->place || (arg->kind == TT_ARG_INT && arg->i != TT_AS_MANY);
}

/* Nothing that is made is as large as an argument says, where that is a length. */
static bool takes_lengths(const tt_call_spec *spec) {
  if (spec->sized.count) return false;
  for (int k = 0; k < spec->length_count; k++)
    if (spec->lengths[k].tensor == TT_NO_TENSOR) return false;
  return !spec->length_count || tt_op_sizes(spec->row) < 0;
}

static bool takes(const tt_call *call, const tt_target *target) {
  const tt_call_spec *spec = &call->spec;
  if (!tt_op_orders(spec->row) || spec->checks || !call->output_count || !takes_lengths(spec) ||
      cost_of(call) > MOST_COST)
    return false;
  for (int i = 0; i < spec->arg_count; i++)
    if (!takes_arg(&spec->args[i])) return false;
  for (int i = 0; i < spec->tensor_count; i++)
    if (!takes_tensor(call, i)) return false;
  for (int k = 0; k < call->result_count; k++)
    if (!takes_result(spec, &call->results[k])) return false;
  if (spec->row->cls == TT_RANDOM && spec->length_count)
    return false; /* of which numbers it draws */
  return spec->row->cls == TT_CONV ? target->convolves : target->has_kernel(spec->name);
}

bool tt_call_orders(tt_call *call, const tt_target *target) {
  if (!target->has_kernel) return false;
  int known = atomic_load_explicit(&call->orders, memory_order_relaxed);
  if (known == UNKNOWN) {
    int now = takes(call, target) ? YES : NO;
    if (atomic_compare_exchange_strong(&call->orders, &known, now)) known = now;
  }
  return known == YES;
}

void tt_call_refuse_orders(tt_call *call) { atomic_store(&call->orders, NO); }

void tt_call_count_ordered(tt_call *call) {
  enum { MOST_PROGRAMS = 32 };
  if (atomic_fetch_add(&call->ordered_programs, 1) == MOST_PROGRAMS) tt_call_refuse_orders(call);
}

/* -- Printing -- */

static void put(tt_text *out, int64_t number) { tt_text_printf(out, ", %lld", (long long)number); }

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

static void put_view(tt_text *out, const tt_view *view) {
  put(out, view->dtype);
  put(out, view->rank);
  put(out, view->offset);
  for (int i = 0; i < view->rank; i++) put(out, view->sizes[i]);
  for (int i = 0; i < view->rank; i++) put(out, view->strides[i]);
}

static void put_lengths(tt_text *out, const tt_order_lengths *lengths) {
  put(out, lengths->count);
  for (int i = 0; i < lengths->count; i++) {
    put(out, lengths->of[i].dim);
    put(out, lengths->of[i].word);
    put(out, lengths->of[i].inner);
  }
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
  for (int i = 0; arg->kind == TT_ARG_INTS && i < arg->count; i++) put(out, arg->ints[i]);
  for (int i = 0; arg->kind == TT_ARG_FLOATS && i < arg->count; i++)
    put_double(out, arg->floats[i]);
  for (int i = 0; arg->kind == TT_ARG_COMPLEX && i < 2; i++) put_double(out, arg->floats[i]);
}

/* Which of the storages that the call reads; -1: nothing was written to it. */
static int operand_of(const tt_call_spec *spec, int tensor) {
  int root = tt_spec_root_of(spec, tensor), operand = -1;
  if (spec->tensors[root].undefined) return -1;
  for (int k = 0; k <= root; k++)
    operand += spec->tensors[k].same_as < 0 && !spec->tensors[k].undefined;
  return operand;
}

static void put_tensors(const tt_call *call, int word_at, tt_text *out) {
  const tt_call_spec *spec = &call->spec;
  int writes = 0;
  put(out, spec->tensor_count);
  for (int i = 0; i < spec->tensor_count; i++) {
    const tt_call_tensor *tensor = &spec->tensors[i];
    put(out, operand_of(spec, i));
    put(out, output_of(call, i, &writes));
    put(out, tensor->moves ? word_of(spec, word_at, tensor->offset_scalar) : -1);
    tt_view view = tt_bounded_shortened(tensor);
    put_view(out, &view);
    tt_order_lengths lengths;
    (void)lengths_of_tensor(spec, i, word_at, &lengths);
    put_lengths(out, &lengths);
  }
}

static void put_results(const tt_call *call, int word_at, tt_text *out) {
  put(out, call->result_count);
  for (int k = 0, output = 0; k < call->result_count; k++) {
    const tt_call_result *result = &call->results[k];
    put(out, result->target);
    put(out, result->defined ? output++ : -1);
    put_view(out, &result->view);
    tt_order_lengths lengths = {.count = 0};
    if (result->target < 0) (void)add_marks(&call->spec, &result->marks, word_at, &lengths);
    put_lengths(out, &lengths);
  }
}

void tt_order_print(const tt_call *call, int word_at, tt_text *out) {
  const tt_call_spec *spec = &call->spec;
  tt_text_printf(out, "order = array<i64: %lld", (long long)cost_of(call));
  put_string(out, spec->name);
  put(out, call->input_count);
  put(out, call->output_count);
  put(out, spec->arg_count);
  for (int i = 0; i < spec->arg_count; i++) put_arg(out, &spec->args[i]);
  put_tensors(call, word_at, out);
  put(out, spec->scalar_count);
  for (int i = 0; i < spec->scalar_count; i++) {
    put(out, spec->scalars[i]);
    put(out, word_of(spec, word_at, i));
  }
  put_results(call, word_at, out);
  tt_text_printf(out, ">");
}

/* -- Reading -- */

typedef struct reader {
  const int64_t *at, *end;
  tt_arena *arena;
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

static tt_dtype take_dtype(reader *r) { return (tt_dtype)take_int(r, 0, TT_DTYPE_LIMIT - 1); }

static void take_view(reader *r, tt_view *view) {
  view->dtype = take_dtype(r);
  view->rank = take_int(r, 0, TT_MAX_RANK);
  view->offset = take(r);
  for (int i = 0; i < view->rank; i++) view->sizes[i] = take(r);
  for (int i = 0; i < view->rank; i++) view->strides[i] = take(r);
}

static void take_lengths(reader *r, int rank, tt_order_lengths *lengths) {
  lengths->count = take_int(r, 0, TT_MOST_ORDER_LENGTHS);
  for (int i = 0; i < lengths->count; i++) {
    lengths->of[i].dim = take_int(r, 0, rank - 1);
    lengths->of[i].word = take_int(r, 0, INT32_MAX);
    lengths->of[i].inner = take(r);
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
    arg->ints = r->at;
    r->at += listed;
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

static void take_tensor(reader *r, const tt_order *order, tt_order_tensor *tensor) {
  tensor->operand = take_int(r, -1, order->operand_count - 1);
  tensor->result = take_int(r, -1, order->output_count - 1);
  tensor->offset_word = take_int(r, -1, INT32_MAX);
  take_view(r, &tensor->view);
  take_lengths(r, tensor->view.rank, &tensor->lengths);
}

/* All places that it names are there. */
static void take_order(reader *r, tt_order *out) {
  out->cost = take(r);
  out->name = take_string(r);
  out->operand_count = take_int(r, 0, INT32_MAX);
  out->output_count = take_int(r, 0, INT32_MAX);
  out->arg_count = take_count(r);
  out->args = room(r, out->arg_count, sizeof *out->args);
  for (int i = 0; !r->failed && i < out->arg_count; i++) take_arg(r, &out->args[i]);
  out->tensor_count = take_count(r);
  out->tensors = room(r, out->tensor_count, sizeof *out->tensors);
  for (int i = 0; !r->failed && i < out->tensor_count; i++) take_tensor(r, out, &out->tensors[i]);
  out->number_count = take_count(r);
  out->numbers = room(r, out->number_count, sizeof *out->numbers);
  for (int i = 0; !r->failed && i < out->number_count; i++) {
    out->numbers[i].dtype = take_dtype(r);
    out->numbers[i].word = take_int(r, 0, INT32_MAX);
  }
  out->result_count = take_count(r);
  out->results = room(r, out->result_count, sizeof *out->results);
  for (int i = 0; !r->failed && i < out->result_count; i++) {
    out->results[i].target = take_int(r, -1, out->tensor_count - 1);
    out->results[i].result = take_int(r, -1, out->output_count - 1);
    take_view(r, &out->results[i].view);
    take_lengths(r, out->results[i].view.rank, &out->results[i].lengths);
  }
}

tt_status tt_order_read(const int64_t *numbers, int count, tt_arena *arena, tt_order *out) {
  reader r = {.at = numbers, .end = numbers + count, .arena = arena};
  *out = (tt_order){0};
  take_order(&r, out);
  if (!r.failed && r.at == r.end) return TT_SUCCESS;
  return tt_error(TT_INVALID_ARGUMENT, "a program orders a kernel of the host's in words that are "
                                       "no order: it was made by another version");
}
