#include "run/call.h"

#include "run/program.h"
#include "run/run.h"

#include <pthread.h>
#include <string.h>

/* -- Keys and their table -- */

void tt_key_deinit(tt_key *key) {
  if (key->data != key->local) tt_free(key->data);
}

bool tt_key_grow(tt_key *key, size_t more) {
  size_t capacity = key->capacity;
  while (capacity < key->size + more) capacity *= 2;
  uint8_t *data = tt_malloc(capacity);
  if (!data) return key->failed = true, false;
  memcpy(data, key->data, key->size);
  tt_key_deinit(key);
  key->data = data;
  key->capacity = capacity;
  return true;
}

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static tt_intern table = TT_INTERN_INIT;

tt_call *tt_call_find(const tt_key *key) {
  if (key->failed) return NULL;
  pthread_rwlock_rdlock(&lock);
  tt_call *call = tt_intern_find(&table, key->data, key->size);
  pthread_rwlock_unlock(&lock);
  return call;
}

int64_t tt_call_table_size(void) {
  pthread_rwlock_rdlock(&lock);
  int64_t count = (int64_t)table.count;
  pthread_rwlock_unlock(&lock);
  return count;
}

/* -- Lowering one call -- */

typedef struct lowering {
  tt_hlo *h;
  const tt_call_spec *spec;
  tt_call *call;
  tt_node **storages;     /* [tensor_count] current value of each tensor's storage */
  int *params;            /* [tensor_count] parameter of each storage, or -1 */
  tt_node **tensors, **numbers;
  tt_node **results;      /* [result_count + TT_MAX_CHECKS]: what the program returns */
  tt_type *promised;
  int output_count;
  int64_t *donors;
  int donor_count;
  tt_lower cx;
} lowering;

static int root_of(const tt_call_spec *spec, int tensor) {
  while (spec->tensors[tensor].same_as >= 0) tensor = spec->tensors[tensor].same_as;
  return tensor;
}

static void read_tensors(lowering *low) {
  const tt_call_spec *spec = low->spec;
  for (int i = 0; i < spec->tensor_count; i++) {
    const tt_call_tensor *tensor = &spec->tensors[i];
    int root = root_of(spec, i);
    low->params[i] = -1;
    if (root != i) {
      low->storages[i] = low->storages[root];
      low->params[i] = low->params[root];
    } else if (tensor->undefined) {
      low->storages[i] = tt_hlo_zeros(low->h, tensor->storage);
    } else {
      low->params[i] = low->call->input_count;
      low->call->inputs[low->call->input_count++] = i;
      low->storages[i] = tt_hlo_param(low->h, tensor->storage);
    }
    low->tensors[i] = tt_view_read(low->h, low->storages[i], &tensor->view);
  }
}

static tt_node *unpack_number(tt_hlo *h, tt_node *words, int at, tt_dtype dtype) {
  int64_t start = at, limit = at + tt_number_words(dtype);
  tt_node *slice = tt_hlo_slice(h, words, &start, &limit, NULL);
  if (tt_number_words(dtype) == 2) return tt_hlo_bitcast(h, slice, dtype);
  slice = tt_hlo_reshape(h, slice, 0, NULL);
  if (dtype == TT_BOOL) return tt_hlo_compare(h, TT_NE, slice, tt_hlo_const_i(h, TT_U32, 0));
  return tt_hlo_bitcast(h, slice, dtype);
}

static void read_numbers(lowering *low) {
  const tt_call_spec *spec = low->spec;
  if (spec->number_count == 0) return;
  int64_t count = 0;
  for (int i = 0; i < spec->number_count; i++) count += tt_number_words(spec->numbers[i]);
  low->call->word_count = (int)count;
  tt_type type = tt_type_make(TT_U32, 1, &count);
  tt_node *words = tt_hlo_param(low->h, &type);
  int at = 0;
  for (int i = 0; i < spec->number_count; i++) {
    low->numbers[i] = unpack_number(low->h, words, at, spec->numbers[i]);
    at += tt_number_words(spec->numbers[i]);
  }
}

static void lower_row(lowering *low) {
  const tt_call_spec *spec = low->spec;
  tt_arena *arena = tt_hlo_arena(low->h);
  tt_lower *cx = &low->cx;
  *cx = (tt_lower){.h = low->h, .row = spec->row, .args = spec->args, .arg_count = spec->arg_count,
                   .tensors = low->tensors, .numbers = low->numbers, .common = spec->common,
                   .promised = low->promised, .promised_count = low->promised ? spec->result_count : 0,
                   .checks = spec->checks, .result_capacity = spec->result_count};
  cx->results = tt_arena_alloc(arena, sizeof(tt_node *) * (size_t)(spec->result_count + 1));
  cx->check_flags = tt_arena_alloc(arena, sizeof(tt_node *) * TT_MAX_CHECKS);
  cx->check_texts = tt_arena_alloc(arena, sizeof(char *) * TT_MAX_CHECKS);
  cx->check_codes = tt_arena_alloc(arena, sizeof(tt_code) * TT_MAX_CHECKS);
  if (!cx->results || !cx->check_flags || !cx->check_texts || !cx->check_codes) {
    tt_hlo_fail(low->h, TT_RESOURCE_EXHAUSTED, "out of host memory");
    return;
  }
  if (spec->row->cls == TT_RANDOM && spec->number_count >= 2) {
    cx->seed = low->numbers[spec->number_count - 2];
    cx->offset = low->numbers[spec->number_count - 1];
  }
  spec->row->lower(cx);
}

static tt_node *write_target(lowering *low, int k, tt_node *value) {
  const tt_call_spec *spec = low->spec;
  int target = spec->results[k].target, root = root_of(spec, target);
  const tt_call_tensor *tensor = &spec->tensors[target];
  tt_node *old = low->storages[root];
  value = tt_hlo_convert(low->h, value, tensor->view.dtype);
  value = tt_hlo_broadcast_to(low->h, value, tensor->view.rank, tensor->view.sizes);
  tt_node *written = tt_view_write(low->h, old, &old->type, &tensor->view, value);
  low->storages[root] = written;
  bool fits = low->params[root] >= 0 && tt_type_equal(&written->type, tensor->storage);
  for (int i = 0; i < low->donor_count; i++) fits = fits && low->donors[i] != low->params[root];
  if (fits) {
    tt_hlo_donate(low->h, low->params[root], low->output_count);
    low->donors[low->donor_count++] = low->params[root];
  }
  return written;
}

static tt_node *new_storage(lowering *low, int k, tt_node *value) {
  tt_call_result *result = &low->call->results[k];
  tt_type storage;
  if (!low->spec->promised) {
    tt_view whole = tt_view_whole(&value->type);
    result->view = whole;
  }
  if (low->spec->promised) {
    tt_type promise = tt_view_type(&result->view);
    if (!tt_type_equal(&value->type, &promise))
      return tt_hlo_fail(low->h, TT_INTERNAL, "result %d has another type than PyTorch's Meta kernel says", k);
  }
  tt_view_dense(&result->view, &storage);
  return tt_view_write(low->h, NULL, &storage, &result->view, value);
}

static tt_status collect_results(lowering *low) {
  const tt_call_spec *spec = low->spec;
  tt_call *call = low->call;
  if (tt_hlo_failed(low->h)) return TT_SUCCESS; /* tt_hlo_finish reports it */
  if (!spec->promised) call->result_count = low->cx.result_count;
  for (int k = 0; k < call->result_count; k++) {
    call->results[k] = spec->results[k];
    tt_node *value = k < low->cx.result_count ? low->cx.results[k] : NULL;
    bool unwanted = spec->promised && spec->results[k].view.dtype == TT_INVALID;
    if (!value || unwanted) continue;
    call->results[k].defined = true;
    tt_node *out = spec->results[k].target >= 0 ? write_target(low, k, value) : new_storage(low, k, value);
    TT_TRY(tt_type_intern(&out->type, &call->results[k].storage));
    low->results[low->output_count++] = out;
  }
  for (int i = 0; i < low->cx.check_count; i++)
    low->results[low->output_count + i] = low->cx.check_flags[i];
  return TT_SUCCESS;
}

static tt_status fill_program(lowering *low, tt_program *program) {
  program->name = low->call->name;
  program->result_count = low->output_count;
  int checks = low->cx.check_count;
  if (low->donor_count) {
    program->donors = tt_malloc(sizeof *program->donors * (size_t)low->donor_count);
    if (!program->donors) return tt_out_of_memory();
    memcpy(program->donors, low->donors, sizeof *program->donors * (size_t)low->donor_count);
    program->donor_count = low->donor_count;
  }
  if (checks) {
    program->check_texts = tt_calloc((size_t)checks, sizeof(char *));
    program->check_codes = tt_calloc((size_t)checks, sizeof(tt_code));
    if (!program->check_texts || !program->check_codes) return tt_out_of_memory();
    program->check_count = checks;
    for (int i = 0; i < checks; i++) {
      const char *text = low->cx.check_texts[i];
      program->check_texts[i] = tt_strndup(text, strlen(text));
      program->check_codes[i] = low->cx.check_codes[i];
    }
  }
  return tt_hlo_finish(low->h, low->results, low->output_count + checks, &program->text);
}

static tt_status lower_call(const tt_call_spec *spec, tt_call *call) {
  lowering low = {.spec = spec, .call = call};
  tt_program program = {0};
  TT_TRY(tt_hlo_create(&low.h));
  tt_status status = TT_SUCCESS;
  tt_arena *arena = tt_hlo_arena(low.h);
  size_t tensors = (size_t)spec->tensor_count + 1, results = (size_t)spec->result_count + TT_MAX_CHECKS;
  low.storages = tt_arena_alloc(arena, tensors * sizeof(tt_node *));
  low.tensors = tt_arena_alloc(arena, tensors * sizeof(tt_node *));
  low.params = tt_arena_alloc(arena, tensors * sizeof(int));
  low.numbers = tt_arena_alloc(arena, ((size_t)spec->number_count + 1) * sizeof(tt_node *));
  low.results = tt_arena_alloc(arena, results * sizeof(tt_node *));
  low.donors = tt_arena_alloc(arena, results * sizeof(int64_t));
  low.promised = tt_arena_alloc(arena, results * sizeof(tt_type));
  if (!low.storages || !low.tensors || !low.params || !low.numbers || !low.results || !low.donors || !low.promised)
    status = tt_out_of_memory();
  if (!status) {
    tt_hlo_where(low.h, call->name);
    for (int k = 0; spec->promised && k < spec->result_count; k++)
      low.promised[k] = tt_view_type(&spec->results[k].view);
    if (!spec->promised) low.promised = NULL;
    read_tensors(&low);
    read_numbers(&low);
    lower_row(&low);
    status = collect_results(&low);
  }
  if (!status) status = fill_program(&low, &program);
  if (!status) status = tt_program_intern(&program, &call->program);
  tt_program_deinit(&program);
  tt_hlo_destroy(low.h);
  return status;
}

/* -- Calls -- */

static void destroy(tt_call *call) {
  if (!call) return;
  tt_free((char *)(uintptr_t)call->name);
  tt_free(call->results);
  tt_free(call->inputs);
  tt_free(call);
}

static tt_status create(const tt_call_spec *spec, tt_call **out) {
  tt_call *call = tt_calloc(1, sizeof *call);
  if (!call) return tt_out_of_memory();
  call->row = spec->row;
  call->tensor_count = spec->tensor_count;
  call->number_count = spec->number_count;
  call->result_count = spec->result_count;
  call->name = tt_strndup(spec->name, strlen(spec->name));
  call->results = tt_calloc((size_t)spec->result_count + 1, sizeof *call->results);
  call->inputs = tt_calloc((size_t)spec->tensor_count + 1, sizeof *call->inputs);
  tt_status status = call->name && call->results && call->inputs ? TT_SUCCESS : tt_out_of_memory();
  if (!status) status = lower_call(spec, call);
  if (status) {
    destroy(call);
    return status;
  }
  *out = call;
  return TT_SUCCESS;
}

tt_status tt_call_create(const tt_key *key, const tt_call_spec *spec, tt_call **out) {
  if (key->failed) return tt_out_of_memory();
  tt_call *call = NULL;
  TT_TRY(create(spec, &call));
  tt_status status = TT_SUCCESS;
  pthread_rwlock_wrlock(&lock);
  tt_call *other = tt_intern_find(&table, key->data, key->size);
  if (!other) status = tt_intern_add(&table, key->data, key->size, call);
  pthread_rwlock_unlock(&lock);
  if (other || status) destroy(call);
  if (status) return status;
  *out = other ? other : call;
  tt_count_add(TT_COUNT_CALLS_NEW, other ? 0 : 1);
  return TT_SUCCESS;
}
