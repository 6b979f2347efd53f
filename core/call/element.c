#include "call/element.h"

#include "call/spec.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t taking_apart = PTHREAD_MUTEX_INITIALIZER;

/* What an element is made of, on the way. */
typedef struct making {
  const tt_call_spec *list;
  int number;
  tt_arg *args;            /* [list->arg_count] */
  tt_call_tensor *tensors; /* at most one an argument, and a target */
  int *from;               /* which of the list's tensors each is */
  tt_dtype *scalars;       /* at most one an argument */
  int *numbers;            /* which of the list's numbers each is */
  tt_call_result result;
  tt_call_spec spec;
} making;

/* -- Whether -- */

static bool fits_arg(const tt_call_spec *spec, const tt_arg *arg) {
  int count = spec->result_count;
  switch (arg->kind) {
  case TT_ARG_TENSORS:
    for (int i = 0; arg->present && i < arg->count; i++)
      if (!arg->present[i]) return false;
    return arg->count == count;
  case TT_ARG_TENSOR: /* one of several numbers is no operand of one element */
    return spec->tensors[arg->first].view.rank == 0;
  case TT_ARG_SCALARS:
    return arg->equal || arg->count == count;
  case TT_ARG_INTS:
  case TT_ARG_FLOATS:
    return arg->count == count;
  default:
    return true;
  }
}

/* Has it padding, and a length that is one of the list's numbers? */
static bool is_bounded(const tt_call_tensor *tensor) {
  return tensor->marks.count || tt_type_is_bounded(tensor->storage);
}

/* Storages that elements share are written in turn. */
static bool fits(const tt_call *call) {
  const tt_call_spec *spec = &call->spec;
  bool all = call->row->cls == TT_FOREACH && spec->result_count > 1 &&
             call->output_count == spec->result_count && call->result_count == call->output_count;
  for (int i = 0; all && i < spec->arg_count; i++) all = fits_arg(spec, &spec->args[i]);
  for (int i = 0; all && i < spec->tensor_count; i++)
    all = spec->tensors[i].same_as < 0 && !spec->tensors[i].moves && !is_bounded(&spec->tensors[i]);
  return all;
}

/* -- Making -- */

static int take_tensor(making *m, int index) {
  int at = m->spec.tensor_count++;
  m->tensors[at] = m->list->tensors[index];
  m->from[at] = index;
  if (m->list->results[m->number].target == index) m->result.target = at;
  return at;
}

/* A target is among the arguments, or behind all their tensors (out=). */
static void take_target(making *m) {
  int index = m->list->results[m->number].target;
  if (index >= 0 && m->result.target < 0) (void)take_tensor(m, index);
}

static void take_number(making *m, tt_arg *arg, int index) {
  int at = m->spec.scalar_count++;
  m->scalars[at] = m->list->scalars[index];
  m->numbers[at] = index;
  arg->first = at;
}

static void take_arg(making *m, int i) {
  const tt_arg *from = &m->list->args[i];
  tt_arg *arg = &m->args[i];
  *arg = *from;
  switch (from->kind) {
  case TT_ARG_TENSORS:
    arg->count = 1;
    arg->present = NULL;
    arg->first = take_tensor(m, from->first + m->number);
    break;
  case TT_ARG_TENSOR:
    arg->first = take_tensor(m, from->first);
    break;
  case TT_ARG_SCALARS:
    arg->count = 1;
    arg->equal = true;
    take_number(m, arg, from->first + (from->equal ? 0 : m->number));
    break;
  case TT_ARG_SCALAR:
    take_number(m, arg, from->first);
    break;
  case TT_ARG_INTS:
    arg->count = 1;
    arg->ints += m->number;
    break;
  case TT_ARG_FLOATS:
    arg->count = 1;
    arg->floats += m->number;
    break;
  default:
    break;
  }
}

static void add_arg(tt_key *key, const tt_arg *arg) {
  uint64_t number = (uint64_t)arg->i;
  tt_key_u64(key, (uint64_t)arg->kind | (uint64_t)arg->dtype << 8 | (uint64_t)arg->equal << 16);
  tt_key_u64(key, (uint64_t)arg->first << 32 | (uint64_t)(uint32_t)arg->count);
  tt_key_u64(key, number);
  tt_key_add(key, &arg->f, sizeof arg->f);
  if (arg->kind == TT_ARG_INTS) tt_key_u64(key, (uint64_t)arg->ints[0]);
  if (arg->kind == TT_ARG_FLOATS) tt_key_add(key, arg->floats, sizeof *arg->floats);
  if (arg->kind == TT_ARG_COMPLEX) tt_key_add(key, arg->floats, 2 * sizeof *arg->floats);
  if (arg->text) tt_key_add(key, arg->text, strlen(arg->text) + 1);
}

static void add_view(tt_key *key, const tt_view *view) {
  size_t rank = (size_t)view->rank;
  tt_key_u64(key, (uint64_t)view->dtype | (uint64_t)view->rank << 8);
  tt_key_u64(key, (uint64_t)view->offset);
  tt_key_add(key, view->sizes, rank * sizeof *view->sizes);
  tt_key_add(key, view->strides, rank * sizeof *view->strides);
}

/* Other keys begin with the address of an operator. */
static void make_key(const making *m, tt_key *key) {
  const tt_call_spec *spec = &m->spec;
  tt_key_u64(key, 0);
  tt_key_u64(key, (uint64_t)(uintptr_t)spec->row);
  tt_key_add(key, spec->name, strlen(spec->name) + 1);
  tt_key_u64(key, (uint64_t)spec->result_type | (uint64_t)spec->fractions << 8 |
                      (uint64_t)spec->precision << 16 | (uint64_t)spec->checks << 32 |
                      (uint64_t)spec->meta_known << 33);
  for (int i = 0; i < spec->arg_count; i++) add_arg(key, &spec->args[i]);
  for (int i = 0; i < spec->tensor_count; i++) {
    tt_key_u64(key, (uint64_t)(uintptr_t)spec->tensors[i].storage);
    tt_key_u64(key, spec->tensors[i].undefined);
    add_view(key, &spec->tensors[i].view);
  }
  for (int i = 0; i < spec->scalar_count; i++) tt_key_u64(key, (uint64_t)spec->scalars[i]);
  tt_key_u64(key, (uint64_t)m->result.target);
  if (spec->meta_known) add_view(key, &m->result.view);
}

static tt_status find_or_create(const tt_call *list, const making *m, tt_call **out) {
  tt_key key;
  tt_key_init(&key);
  make_key(m, &key);
  tt_status status = TT_SUCCESS;
  *out = tt_call_find(list->table, &key, NULL);
  if (!*out) status = tt_call_create(list->table, &key, &m->spec, list->target, out);
  tt_key_deinit(&key);
  return status;
}

/* -- Where its operands are in the list's -- */

static int input_of(const tt_call *list, int tensor) {
  int i = 0;
  while (list->inputs[i] != tensor) i++;
  return i;
}

static tt_status keep(tt_call *list, const making *m, tt_call *call, tt_element *out) {
  int *inputs = tt_arena_alloc(&list->arena, sizeof *inputs * (size_t)(call->input_count + 1));
  int *words = tt_arena_alloc(&list->arena, sizeof *words * (size_t)(call->word_count + 1));
  if (!inputs || !words) return tt_out_of_memory();
  for (int i = 0; i < call->input_count; i++) inputs[i] = input_of(list, m->from[call->inputs[i]]);
  for (int i = 0, at = 0; i < m->spec.scalar_count; i++)
    for (int k = 0; k < tt_scalar_words(m->scalars[i]); k++)
      words[at++] = tt_spec_word_of(m->list, m->numbers[i]) + k;
  *out = (tt_element){call, inputs, words};
  return TT_SUCCESS;
}

/* -- Elements -- */

static tt_status make_element(tt_call *list, making *m, tt_element *out) {
  tt_call *call = NULL;
  m->spec = list->spec;
  m->spec.args = m->args;
  m->spec.tensors = m->tensors;
  m->spec.scalars = m->scalars;
  m->spec.results = &m->result;
  m->spec.result_count = 1;
  m->spec.tensor_count = m->spec.scalar_count = 0;
  m->result = list->spec.results[m->number];
  m->result.target = -1;
  for (int i = 0; i < list->spec.arg_count; i++) take_arg(m, i);
  take_target(m);
  TT_TRY(find_or_create(list, m, &call));
  return keep(list, m, call, out);
}

static tt_status make_elements(tt_call *list, tt_element *elements) {
  tt_arena arena = TT_ARENA_INIT;
  size_t count = (size_t)list->spec.arg_count + 1;
  making m = {.list = &list->spec,
              .args = tt_arena_alloc(&arena, count * sizeof *m.args),
              .tensors = tt_arena_alloc(&arena, count * sizeof *m.tensors),
              .from = tt_arena_alloc(&arena, count * sizeof *m.from),
              .scalars = tt_arena_alloc(&arena, count * sizeof *m.scalars),
              .numbers = tt_arena_alloc(&arena, count * sizeof *m.numbers)};
  bool all = m.args && m.tensors && m.from && m.scalars && m.numbers;
  tt_status status = all ? TT_SUCCESS : tt_out_of_memory();
  for (; !status && m.number < list->output_count; m.number++)
    status = make_element(list, &m, &elements[m.number]);
  tt_arena_deinit(&arena);
  return status;
}

static int count_kinds(const tt_element *elements, int count) {
  int kinds = 0;
  for (int i = 0; i < count; i++) {
    int before = 0;
    while (elements[before].call != elements[i].call) before++;
    kinds += before == i;
  }
  return kinds;
}

tt_status tt_call_elements(tt_call *call, const tt_element **out) {
  *out = __atomic_load_n(&call->elements, __ATOMIC_ACQUIRE);
  if (*out || !fits(call)) return TT_SUCCESS;
  tt_status status = TT_SUCCESS;
  pthread_mutex_lock(&taking_apart);
  if (!call->elements) {
    tt_element *made = tt_arena_alloc(&call->arena, sizeof *made * (size_t)call->output_count);
    status = made ? make_elements(call, made) : tt_out_of_memory();
    if (!status) call->element_kinds = count_kinds(made, call->output_count);
    if (!status) __atomic_store_n(&call->elements, made, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&taking_apart);
  *out = call->elements;
  return status;
}
