/* A call's tensors are read through their views, its row is lowered, its results become new
 * storages or are written through the views of their targets. */
#include "call/lower.h"

#include "call/bounded.h"
#include "call/spec.h"

#include <string.h>

typedef struct lowering {
  tt_hlo *h;
  tt_call *call;
  const tt_target *target;
  const tt_call_spec *spec;
  const tt_call_io *io;
  tt_node **storages; /* [tensor_count] current value of each tensor's storage */
  int *input_of;      /* [tensor_count] input that holds the storage, or -1 */
  tt_node **tensors, **scalars;
  tt_length *lengths;
  tt_type *meta_types;
  tt_lower cx;
} lowering;

/* NULL: it is the view's own. */
static tt_node *offset_of(const lowering *low, const tt_call_tensor *tensor) {
  return tensor->moves ? low->scalars[tensor->offset_scalar] : NULL;
}

/* A tensor's storage as its view sees it. */
static tt_node *lengthened(const lowering *low, const tt_call_tensor *tensor, tt_node *storage) {
  int64_t before[TT_MAX_RANK] = {0}, behind[TT_MAX_RANK] = {0};
  if (!tensor->more) return storage;
  behind[tensor->more_dim] = tensor->more;
  tt_type one = {.dtype = storage->type.dtype};
  return tt_hlo_pad(low->h, storage, tt_hlo_zeros(low->h, &one), before, behind, NULL);
}

static tt_node *read_tensor(const lowering *low, int i) {
  const tt_call_tensor *tensor = &low->spec->tensors[i];
  tt_node *storage = lengthened(low, tensor, low->storages[i]), *offset = offset_of(low, tensor);
  for (int k = 0; offset && k < low->spec->length_count; k++) {
    const tt_call_length *one = &low->spec->lengths[k];
    if (one->tensor == i && tensor->view.strides[one->dim] > 0)
      return tt_view_read_on(low->h, storage, &tensor->view, offset, one->dim, one->motion);
  }
  return tt_view_read(low->h, storage, &tensor->view, offset);
}

static void read_tensors(lowering *low) {
  const tt_call_spec *spec = low->spec;
  int next = 0;
  for (int i = 0; i < spec->tensor_count; i++) {
    const tt_call_tensor *tensor = &spec->tensors[i];
    int root = tt_spec_root_of(spec, i);
    low->input_of[i] = -1;
    if (root != i) {
      low->storages[i] = low->storages[root];
      low->input_of[i] = low->input_of[root];
    } else if (tensor->undefined) {
      low->storages[i] = tt_hlo_zeros(low->h, tensor->storage);
    } else {
      low->input_of[i] = next;
      low->storages[i] = low->io->inputs[next++];
    }
    low->tensors[i] = read_tensor(low, i);
  }
}

/* A number of two words. XLA makes eleven instructions of a bitcast of them, and spends time in the
 * cube of those that it fuses; so all pairs are cast at once, and the number is one of them. */
static tt_node *unpack_pair(tt_hlo *h, tt_node *words, int at, tt_dtype dtype) {
  int64_t start = at % 2, limit = start + (words->type.dims[0] - start) / 2 * 2;
  int64_t pairs[2] = {(limit - start) / 2, 2};
  tt_node *all = tt_hlo_reshape(h, tt_hlo_slice(h, words, &start, &limit, NULL), 2, pairs);
  start = at / 2;
  limit = start + 1;
  tt_node *one = tt_hlo_slice(h, tt_hlo_bitcast(h, all, dtype), &start, &limit, NULL);
  return tt_hlo_reshape(h, one, 0, NULL);
}

static tt_node *unpack_number(tt_hlo *h, tt_node *words, int at, tt_dtype dtype) {
  if (tt_scalar_words(dtype) == 2) return unpack_pair(h, words, at, dtype);
  int64_t start = at, limit = at + 1;
  tt_node *slice = tt_hlo_slice(h, words, &start, &limit, NULL);
  slice = tt_hlo_reshape(h, slice, 0, NULL);
  if (dtype == TT_BOOL) return tt_hlo_compare(h, TT_NE, slice, tt_hlo_const_i(h, TT_U32, 0));
  return tt_hlo_bitcast(h, slice, dtype);
}

static void read_numbers(lowering *low) {
  int at = low->io->word_at;
  for (int i = 0; i < low->spec->scalar_count; i++) {
    low->scalars[i] = unpack_number(low->h, low->io->words, at, low->spec->scalars[i]);
    at += tt_scalar_words(low->spec->scalars[i]);
  }
}

static tt_status prepare(lowering *low) {
  tt_arena *arena = tt_hlo_arena(low->h);
  const tt_call_spec *spec = low->spec;
  size_t tensors = (size_t)spec->tensor_count + 1, results = (size_t)spec->result_count + 1;
  low->storages = tt_arena_alloc(arena, tensors * sizeof(tt_node *));
  low->tensors = tt_arena_alloc(arena, tensors * sizeof(tt_node *));
  low->input_of = tt_arena_alloc(arena, tensors * sizeof(int));
  low->scalars = tt_arena_alloc(arena, ((size_t)spec->scalar_count + 1) * sizeof(tt_node *));
  low->meta_types = tt_arena_alloc(arena, results * sizeof(tt_type));
  low->lengths = tt_arena_alloc(arena, ((size_t)spec->length_count + 1) * sizeof(tt_length));
  tt_node **made = tt_arena_alloc(arena, results * sizeof(tt_node *));
  if (!low->storages || !low->tensors || !low->input_of || !low->scalars || !low->meta_types ||
      !low->lengths || !made)
    return tt_out_of_memory();
  for (int k = 0; spec->meta_known && k < spec->result_count; k++)
    low->meta_types[k] = tt_view_type(&spec->results[k].view);
  low->cx = (tt_lower){.h = low->h,
                       .row = spec->row,
                       .args = spec->args,
                       .arg_count = spec->arg_count,
                       .tensors = low->tensors,
                       .scalars = low->scalars,
                       .lengths = low->lengths,
                       .length_count = spec->length_count,
                       .result_type = tt_dtype_computed(spec->result_type),
                       .fractions = spec->fractions,
                       .meta_types = spec->meta_known ? low->meta_types : NULL,
                       .meta_count = spec->meta_known ? spec->result_count : 0,
                       .words = low->io->words,
                       .word_at = low->io->word_at,
                       .drawn = -1,
                       .checks = spec->checks,
                       .target = low->target,
                       .results = made,
                       .result_capacity = spec->result_count,
                       .check_flags = low->io->checks->flags,
                       .check_texts = low->io->checks->texts,
                       .check_codes = low->io->checks->codes,
                       .check_count = low->io->checks->count};
  return TT_SUCCESS;
}

static tt_length length_of(const lowering *low, int tensor, const tt_mark *mark) {
  const tt_call_spec *spec = low->spec;
  const tt_view *view =
      tensor == TT_NO_TENSOR ? &spec->results[0].view : &spec->tensors[tensor].view;
  int64_t size = view->sizes[mark->dim];
  return (tt_length){.tensor = tensor,
                     .dim = mark->dim,
                     .outer = mark->outer,
                     .bound = size / (mark->outer * mark->inner),
                     .inner = mark->inner,
                     .value = low->scalars[mark->scalar]};
}

/* Padding is what the row leaves out. */
static void pad_tensors(lowering *low) {
  if (low->spec->length_count == 0) return;
  const tt_op_length *entry = tt_op_length_of(low->spec->row->name);
  const tt_op_along *along = tt_op_along_of(low->spec->row->name);
  for (int i = 0; i < low->spec->length_count; i++) {
    const tt_call_length *one = &low->spec->lengths[i];
    tt_mark mark = {one->dim, one->scalar, one->outer, one->inner};
    low->lengths[i] = length_of(low, one->tensor, &mark);
  }
  if (!entry && along->rule[0] != '%') return; /* the lowering knows */
  for (int i = 0; i < low->spec->tensor_count; i++)
    low->tensors[i] =
        tt_pad_tensor(&low->cx, i, low->tensors[i], entry ? entry->neutral : along->neutral);
}

static void lower_row(lowering *low) {
  const tt_call_spec *spec = low->spec;
  if (spec->row->cls == TT_RANDOM && spec->scalar_count >= 2) {
    low->cx.seed = low->scalars[spec->scalar_count - 2];
    low->cx.offset = low->scalars[spec->scalar_count - 1];
  }
  tt_hlo_where(low->h, spec->name);
  (void)tt_hlo_precision(low->h,
                         tt_op_multiplies(spec->row) ? spec->precision : TT_PRECISION_HIGHEST);
  spec->row->lower(&low->cx);
  low->io->checks->count = low->cx.check_count;
}

/* *over: the input whose value the target's new one replaces by one of the same type, or -1. */
static tt_node *write_target(lowering *low, int target, tt_node *value, int *over) {
  int root = tt_spec_root_of(low->spec, target);
  const tt_call_tensor *tensor = &low->spec->tensors[target];
  tt_node *old = lengthened(low, tensor, low->storages[root]), *offset = offset_of(low, tensor);
  value = tt_hlo_convert(low->h, value, tt_dtype_computed(tensor->view.dtype));
  value = tt_hlo_broadcast_to(low->h, value, tensor->view.rank, tensor->view.sizes);
  for (int k = 0; k < tt_marks_count(&tensor->marks) && tensor->partly; k++) {
    tt_length length = length_of(low, target, &tensor->marks.of[k]);
    tt_node *before = tt_view_read(low->h, old, &tensor->view, offset);
    value = tt_where_counted(low->h, &length, length.dim, value, before);
  }
  tt_node *written = tt_view_write(low->h, old, &old->type, &tensor->view, offset, value);
  if (tensor->more)
    written = tt_hlo_slice_dim(low->h, written, tensor->more_dim, 0,
                               tensor->storage->dims[tensor->more_dim], 1);
  low->storages[root] = written;
  *over = tt_type_equal(&written->type, tensor->storage) ? low->input_of[root] : -1;
  return written;
}

/* In rows, bound and columns: the mark's digits are dims of their own. */
static tt_type bounded_storage(lowering *low, int k, const tt_view *view) {
  const tt_type *type = NULL;
  tt_marks marks = low->spec->results[k].marks;
  tt_status status = tt_bounded_type(view, &marks, &type);
  if (!status) return *type;
  tt_hlo_fail(low->h, TT_UNIMPLEMENTED, "%s", tt_status_message(status));
  tt_status_release(status);
  return tt_view_held(view);
}

static tt_node *new_storage(lowering *low, int k, tt_node *value) {
  tt_view view = low->spec->meta_known ? low->spec->results[k].view : tt_view_whole(&value->type);
  tt_type storage, promise = tt_view_type(&view);
  if (!tt_type_equal(&value->type, &promise))
    return tt_hlo_fail(low->h, TT_INTERNAL,
                       "result %d has another type than PyTorch's Meta kernel says", k);
  tt_view_dense(&view, &storage);
  if (low->io->learn) low->call->results[k].view = view;
  if (low->spec->results[k].marks.count) storage = bounded_storage(low, k, &view);
  return tt_view_write(low->h, NULL, &storage, &view, NULL, value);
}

static bool wanted(const lowering *low, int k) {
  if (k >= low->cx.result_count || !low->cx.results[k]) return false;
  return !low->spec->meta_known || low->spec->results[k].view.dtype != TT_INVALID;
}

static bool is_small(const tt_type *type) {
  int64_t bytes = 0;
  return tt_type_bytes(type, &bytes) && bytes <= TT_SMALL_ZEROS;
}

static void learn_draws(const lowering *low) {
  const tt_lower *cx = &low->cx;
  tt_call_draws *draws = &low->call->draws;
  bool of_result = cx->drawn < 0 && cx->result_count > 0 && cx->results[0];
  draws->numel = of_result ? tt_type_numel(&cx->results[0]->type) : cx->drawn;
  draws->along_count = cx->drawn_along_count;
  for (int i = 0; i < cx->drawn_along_count; i++) {
    const tt_length *length = cx->drawn_along[i];
    draws->along[i].bound = length->bound;
    draws->along[i].word =
        tt_spec_word_of(low->spec, low->spec->lengths[length - low->lengths].scalar);
  }
}

int64_t tt_call_draw_blocks(const tt_call *call, const uint32_t *words) {
  int64_t numel = call->draws.numel, length;
  for (int i = 0; i < call->draws.along_count; i++) {
    memcpy(&length, words + call->draws.along[i].word, sizeof length);
    numel = numel / call->draws.along[i].bound * length;
  }
  return tt_philox_blocks(call->row, numel);
}

static tt_status type_of_result(lowering *low, int k, const tt_type *type) {
  tt_call_result *result = &low->call->results[k];
  const tt_call_result *wanted = &low->spec->results[k];
  const tt_call_tensor *target = wanted->target < 0 ? NULL : &low->spec->tensors[wanted->target];
  bool fresh = !target && low->spec->meta_known && wanted->marks.count;
  bool keeps = target && tt_type_is_bounded(target->storage); /* through whatever view */
  result->length_count = 0;
  if (!fresh && !keeps) return tt_type_intern(type, &result->storage);
  result->marks = wanted->marks;
  if (fresh) TT_TRY(tt_bounded_type(&result->view, &result->marks, &result->storage));
  else result->storage = target->storage;
  result->length_count = tt_along_count(tt_type_along(result->storage));
  for (int i = 0; i < result->length_count; i++) {
    int scalar = fresh ? result->marks.of[i].scalar : target->lengths[i];
    result->length_words[i] = tt_spec_word_of(low->spec, scalar);
  }
  return TT_SUCCESS;
}

static tt_status state_results(lowering *low) {
  tt_call *call = low->call;
  bool learn = low->io->learn;
  if (learn && !low->spec->meta_known) call->result_count = low->cx.result_count;
  int output = 0;
  for (int k = 0; k < call->result_count; k++) {
    tt_call_result *result = &call->results[k];
    int over = -1, target = low->spec->results[k].target;
    if (learn) result->target = target;
    if (!wanted(low, k)) continue;
    tt_node *out = target >= 0 ? write_target(low, target, low->cx.results[k], &over)
                               : new_storage(low, k, low->cx.results[k]);
    low->io->outputs[output++] = out;
    if (!learn) continue;
    result->defined = true;
    result->over = over;
    TT_TRY(type_of_result(low, k, &out->type));
  }
  if (learn) call->output_count = output;
  if (learn) learn_draws(low);
  if (learn && output == 1 && call->result_count == 1 && tt_hlo_is_zeros(low->io->outputs[0]))
    call->zeros = is_small(call->results[0].storage) && call->results[0].length_count == 0;
  return TT_SUCCESS;
}

tt_status tt_call_lower(tt_call *call, const tt_target *target, tt_hlo *h, const tt_call_io *io) {
  lowering low = {.h = h, .call = call, .target = target, .spec = &call->spec, .io = io};
  TT_TRY(prepare(&low));
  read_numbers(&low);
  read_tensors(&low);
  pad_tensors(&low);
  lower_row(&low);
  return tt_hlo_failed(h) ? TT_SUCCESS : state_results(&low);
}

tt_node *tt_call_scalars_param(tt_hlo *h, int64_t count) {
  tt_type type = tt_type_make(TT_U32, 1, &count);
  return count ? tt_hlo_param(h, &type) : NULL;
}
