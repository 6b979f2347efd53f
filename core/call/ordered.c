#include "call/ordered.h"

#include "call/bounded.h"
#include "call/spec.h"

#include <math.h>
#include <stdatomic.h>

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

typedef struct lengths {
  int count;
  tt_order_length of[TT_MOST_ORDER_LENGTHS];
} lengths;

/* Each dim once. False: a view has no such size, as what counts is in several stretches, or there
 * are too many. */
static bool add_length(lengths *to, int dim, int word, int64_t outer, int64_t inner) {
  for (int i = 0; i < to->count; i++)
    if (to->of[i].dim == dim) return true;
  if (outer != 1 || to->count == TT_MOST_ORDER_LENGTHS) return false;
  to->of[to->count++] = (tt_order_length){dim, word, inner};
  return true;
}

static bool add_marks(const tt_call_spec *spec, const tt_marks *marks, int word_at, lengths *out) {
  bool all = true;
  for (int k = 0; k < tt_marks_count(marks); k++) {
    const tt_mark *mark = &marks->of[k];
    int word = word_of(spec, word_at, mark->scalar);
    all &= add_length(out, mark->dim, word, mark->outer, mark->inner);
  }
  return all;
}

static bool lengths_of_tensor(const tt_call_spec *spec, int i, int word_at, lengths *out) {
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

static const char NONE; /* tt_call.kernel: its address says that there is none */
/* Seconds: XLA may do without reading what is expanded, or know a better way. */
#define MOST_COST (INT64_C(1) << 36)

/* Who asks for f64 compares bits, in which libraries differ. */
static bool is_plain(tt_dtype dtype) {
  return dtype == TT_F32 || dtype == TT_BF16 || dtype == TT_F16 || dtype == TT_BOOL ||
         tt_is_integer(dtype);
}

static bool is_row_major(const tt_view *view) {
  tt_type type = tt_view_type(view);
  tt_view whole = tt_view_whole(&type);
  bool is = true;
  for (int d = 0; d < view->rank; d++)
    is &= view->sizes[d] == 1 || view->strides[d] == whole.strides[d];
  return is;
}

/* The library's optimizers walk over memory, whatever a tensor's strides are. */
static bool walks_astray(const tt_call_spec *spec, int i) {
  return spec->row->cls == TT_OPTIM && !is_row_major(&spec->tensors[i].view);
}

static bool takes_tensor(const tt_call *call, int i) {
  const tt_call_tensor *tensor = &call->spec.tensors[i];
  lengths found;
  int writes = 0;
  (void)output_of(call, i, &writes);
  bool lies = !tensor->more || (!tensor->moves && tensor->view.dtype == tensor->storage->dtype);
  return lies && writes <= 1 && is_plain(tensor->view.dtype) && !walks_astray(&call->spec, i) &&
         lengths_of_tensor(&call->spec, i, 0, &found);
}

static bool takes_result(const tt_call_spec *spec, const tt_call_result *result) {
  lengths found = {.count = 0};
  if (!result->defined) return result->target < 0;
  return result->target >= 0 ||
         (is_plain(result->view.dtype) && add_marks(spec, &result->marks, 0, &found));
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
  return spec->row->cls != TT_CONV || target->convolves;
}

bool tt_call_orders(tt_call *call, const tt_target *target) {
  if (!target->kernel_of) return false;
  const void *known = atomic_load_explicit(&call->kernel, memory_order_relaxed);
  if (!known) {
    const void *now = takes(call, target) ? target->kernel_of(call->spec.name) : NULL;
    if (!now) now = &NONE;
    if (atomic_compare_exchange_strong(&call->kernel, &known, now)) known = now;
  }
  return known != &NONE;
}

void tt_call_refuse_orders(tt_call *call) { atomic_store(&call->kernel, (const void *)&NONE); }

/* -- Orders -- */

typedef struct ordering {
  const tt_call *call;
  const tt_call_places *places;
  tt_arena *arena;
  tt_order *out;
} ordering;

static bool see(const ordering *o, const tt_view *view, const lengths *found, tt_order_view *out) {
  size_t size = sizeof(int64_t) * (size_t)view->rank;
  out->dtype = view->dtype;
  out->rank = view->rank;
  out->offset_word = -1;
  out->length_count = found->count;
  out->offset = view->offset;
  out->sizes = tt_arena_copy(o->arena, view->sizes, size);
  out->strides = tt_arena_copy(o->arena, view->strides, size);
  out->lengths = tt_arena_copy(o->arena, found->of, sizeof *found->of * (size_t)found->count);
  return out->sizes && out->strides && out->lengths;
}

/* The storage that the tensor sees, before the call writes; -1: nothing was written to it. */
static int before_of(const ordering *o, int tensor) {
  const tt_call_spec *spec = &o->call->spec;
  int root = tt_spec_root_of(spec, tensor);
  if (spec->tensors[root].undefined) return -1;
  for (int k = 0; k < o->call->input_count; k++)
    if (o->call->inputs[k] == root) return o->places->inputs[k];
  return -1;
}

static bool add_writes(const ordering *o) {
  const tt_call *call = o->call;
  tt_order_write *writes =
      tt_arena_alloc(o->arena, sizeof *writes * ((size_t)call->output_count + 1));
  if (!writes) return false;
  for (int k = 0, output = 0; k < call->result_count; k++) {
    const tt_call_result *result = &call->results[k];
    if (result->defined && result->target >= 0)
      writes[o->out->write_count++] =
          (tt_order_write){o->places->outputs[output], before_of(o, result->target), false};
    output += result->defined;
  }
  o->out->writes = writes;
  return true;
}

static bool add_tensors(const ordering *o) {
  const tt_call_spec *spec = &o->call->spec;
  tt_order_tensor *tensors =
      tt_arena_alloc(o->arena, sizeof *tensors * ((size_t)spec->tensor_count + 1));
  bool all = tensors;
  for (int i = 0; all && i < spec->tensor_count; i++) {
    const tt_call_tensor *tensor = &spec->tensors[i];
    lengths found;
    int writes = 0, output = output_of(o->call, i, &writes);
    tt_view view = tt_bounded_shortened(tensor);
    tensors[i].slot = output >= 0 ? o->places->outputs[output] : before_of(o, i);
    (void)lengths_of_tensor(spec, i, o->places->word_at, &found);
    all = see(o, &view, &found, &tensors[i].view);
    if (tensor->moves)
      tensors[i].view.offset_word = word_of(spec, o->places->word_at, tensor->offset_scalar);
  }
  o->out->tensors = tensors;
  o->out->tensor_count = spec->tensor_count;
  return all;
}

static bool add_numbers(const ordering *o) {
  const tt_call_spec *spec = &o->call->spec;
  tt_order_number *numbers =
      tt_arena_alloc(o->arena, sizeof *numbers * ((size_t)spec->scalar_count + 1));
  for (int i = 0; numbers && i < spec->scalar_count; i++)
    numbers[i] = (tt_order_number){spec->scalars[i], word_of(spec, o->places->word_at, i)};
  o->out->numbers = numbers;
  o->out->number_count = spec->scalar_count;
  return numbers;
}

static bool add_results(const ordering *o) {
  const tt_call *call = o->call;
  tt_order_result *results =
      tt_arena_alloc(o->arena, sizeof *results * ((size_t)call->result_count + 1));
  bool all = results;
  for (int k = 0, output = 0; all && k < call->result_count; k++) {
    const tt_call_result *result = &call->results[k];
    lengths found = {.count = 0};
    bool made = result->target < 0;
    if (made) (void)add_marks(&call->spec, &result->marks, o->places->word_at, &found);
    results[k].target = result->target;
    results[k].slot = result->defined && made ? o->places->outputs[output] : -1;
    output += result->defined;
    all = see(o, &result->view, &found, &results[k].view);
  }
  o->out->results = results;
  o->out->result_count = call->result_count;
  return all;
}

tt_status tt_call_order(const tt_call *call, const tt_call_places *places, tt_arena *arena,
                        tt_order *out) {
  ordering o = {.call = call, .places = places, .arena = arena, .out = out};
  *out = (tt_order){.name = call->spec.name,
                    .kernel = atomic_load_explicit(&call->kernel, memory_order_relaxed),
                    .cost = cost_of(call),
                    .arg_count = call->spec.arg_count,
                    .args = call->spec.args};
  bool all = add_writes(&o) && add_tensors(&o) && add_numbers(&o) && add_results(&o);
  return all ? TT_SUCCESS : tt_out_of_memory();
}
