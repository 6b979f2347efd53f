#include "support.h"

#include <dlfcn.h>

/* -- The fake plugin -- */

fake_controls fake;

bool fake_open(void) {
  setenv("TORCH_TPU_CACHE", "off", 1); /* every run compiles */
  const char *path = getenv("TT_FAKE_PLUGIN");
  void *library = path ? dlopen(path, RTLD_NOW) : NULL;
  if (!library) return false;
#define X(type, name, arguments) *(void **)&fake.name = dlsym(library, #name);
  FAKE_CONTROLS(X)
#undef X
  return true;
}

void fake_reset(void) {
  fake.tt_fake_fail_at(0);
  fake.tt_fake_fail_launch(0);
  fake.tt_fake_fail_programs("", 0, TT_FAKE_NEVER);
  fake.tt_fake_async(false);
  fake.tt_fake_hold(false);
  fake.tt_fake_backwards(false);
  fake.tt_fake_hold_programs(NULL);
  tt_alloc_fail_at(0, false);
}

int fake_close(void **state) {
  (void)state;
  fake_reset();
  session_close();
  return fake.tt_fake_live_objects() == 0 ? 0 : -1;
}

/* -- The session -- */

tt_session *session;
tt_policy policy = {.mode = TT_MODE_STRICT};

tt_status session_open(const char *path) {
  return session ? TT_SUCCESS : tt_session_create(path, NULL, &session);
}

void session_close(void) {
  tt_session_destroy(session);
  session = NULL;
}

tt_stream *stream_at(int device) {
  tt_stream *stream = NULL;
  if (!session || device < 0 || device >= session->device_count) return NULL;
  ok(tt_stream_get(session->devices[device], 0, &stream));
  return stream;
}

void memory_of(const tt_stream *stream, tt_memory *out) {
  tt_account_read(&stream->device->account, out);
}

/* -- Waiting -- */

tt_status stream_sync(tt_stream *stream) { return tt_stream_sync(stream, &policy); }

tt_status session_sync(void) { return session ? tt_session_sync(session, &policy) : TT_SUCCESS; }

uint64_t stream_ticket(tt_stream *stream) {
  uint64_t ticket = 0;
  ok(tt_stream_ticket(stream, &policy, &ticket));
  return ticket;
}

void stream_wait(tt_stream *stream, uint64_t ticket) { ok(tt_queue_await(stream->queue, ticket)); }

bool stream_passed(tt_stream *stream, uint64_t ticket) {
  return tt_queue_passed(stream->queue, ticket);
}

bool stream_idle(tt_stream *stream) { return tt_stream_idle(stream, &policy); }

/* -- Storages -- */

tt_type type_of(tt_dtype dtype, int rank, const int64_t *dims) {
  return tt_type_make(dtype, rank, dims);
}

tt_storage *storage_new(tt_stream *stream, tt_type type) {
  const tt_type *interned = NULL;
  tt_storage *storage = NULL;
  ok(tt_type_intern(&type, &interned));
  ok(tt_storage_create(stream->device, interned, &storage));
  return storage;
}

tt_storage *storage_of(tt_stream *stream, tt_type type, const void *data) {
  tt_storage *storage = storage_new(stream, type);
  ok(storage_write(storage, &type, data, 0));
  return storage;
}

tt_status storage_write(tt_storage *storage, const tt_type *type, const void *data, uint32_t site) {
  tt_stream *stream = NULL;
  TT_TRY(tt_stream_get(storage->device, 0, &stream));
  return tt_storage_write(stream, storage, type, data, &policy, site);
}

tt_status storage_read(tt_storage *storage, void *data, int64_t size) {
  return tt_storage_read(storage, data, size, &policy);
}

tt_status storage_resize(tt_storage *storage, int64_t bytes) {
  return tt_storage_resize(stream_at(storage->device->index), session->calls, storage, bytes,
                           &policy);
}

/* -- Calls -- */

static int same_as(const request *r, int tensor) {
  for (int i = 0; i < tensor; i++)
    if (r->tensors[i] == r->tensors[tensor]) return i;
  return -1;
}

static tt_view view_at(const request *r, int tensor) {
  return r->views[tensor] ? *r->views[tensor] : tt_view_whole(r->tensors[tensor]->type);
}

static void add_type(tt_key *key, const tt_type *type) {
  tt_key_u64(key, (uint64_t)type->dtype << 8 | (uint64_t)type->rank);
  tt_key_add(key, type->dims, (size_t)type->rank * sizeof *type->dims);
}

static void fill_key(tt_key *key, const request *r) {
  tt_key_u64(key, (uint64_t)(uintptr_t)r->row);
  for (int i = 0; i < r->tensor_count; i++) {
    tt_view view = view_at(r, i);
    const tt_storage *storage = r->tensors[i];
    tt_key_tensor(key, storage->type, storage->value != NULL, same_as(r, i), !r->views[i],
                  view.dtype, view.rank, view.offset, view.sizes, view.strides);
  }
  for (int i = 0; i < r->arg_count; i++) {
    tt_key_u64(key, (uint64_t)r->args[i].kind);
    tt_key_u64(key, (uint64_t)r->args[i].i);
    tt_key_add(key, &r->args[i].f, sizeof r->args[i].f);
  }
  tt_key_add(key, r->scalars, sizeof r->scalars);
  tt_key_add(key, r->targets, sizeof *r->targets * (size_t)r->target_count);
  add_type(key, &r->result);
  tt_key_u64(key, (uint64_t)r->no_meta << 1 | (uint64_t)(policy.mode == TT_MODE_DEBUG));
}

static int fill_results(const request *r, tt_call_result *results) {
  for (int k = 0; k < r->target_count; k++)
    results[k] = (tt_call_result){.target = r->targets[k], .view = view_at(r, r->targets[k])};
  if (r->target_count) return r->target_count;
  if (!r->no_meta) {
    bool given = r->result.dtype != TT_INVALID;
    tt_type first = given ? r->result : *r->tensors[0]->type;
    results[0] = (tt_call_result){.target = -1, .view = tt_view_whole(&first)};
    return 1;
  }
  for (int k = 0; k < REQUEST_MAX; k++) results[k] = (tt_call_result){.target = -1};
  return REQUEST_MAX;
}

static tt_status create_call(const request *r, const tt_key *key, tt_call **out) {
  tt_call_tensor tensors[REQUEST_MAX];
  tt_call_result results[REQUEST_MAX];
  tt_arg args[REQUEST_MAX];
  for (int i = 0; i < r->tensor_count; i++) {
    tensors[i] = (tt_call_tensor){.storage = r->tensors[i]->type,
                                  .view = view_at(r, i),
                                  .undefined = !r->tensors[i]->value,
                                  .same_as = same_as(r, i)};
    args[i] = (tt_arg){.kind = TT_ARG_TENSOR, .first = i};
  }
  tt_call_spec spec = {.row = r->row,
                       .name = r->row->name,
                       .args = r->arg_count ? r->args : args,
                       .arg_count = r->arg_count ? r->arg_count : r->tensor_count,
                       .tensors = tensors,
                       .tensor_count = r->tensor_count,
                       .scalars = r->scalars,
                       .scalar_count = r->scalar_count,
                       .result_type = r->tensor_count ? tensors[0].view.dtype : TT_F32,
                       .results = results,
                       .result_count = fill_results(r, results),
                       .meta_known = !r->no_meta,
                       .checks = policy.mode == TT_MODE_DEBUG};
  return tt_call_create(session->calls, key, &spec, &session->target, out);
}

tt_status request_call(const request *r, tt_call **out) {
  tt_key key;
  tt_key_init(&key);
  fill_key(&key, r);
  *out = tt_call_find(session->calls, &key, NULL);
  tt_status status = *out ? TT_SUCCESS : create_call(r, &key, out);
  tt_key_deinit(&key);
  return status;
}

tt_status call_record(tt_stream *stream, tt_call *call, const request *r, tt_storage **results) {
  bool random = r->row->cls == TT_RANDOM;
  tt_operation operation = {.call = call,
                            .tensors = r->tensors,
                            .scalars = r->words,
                            .draw = random ? &r->draw : NULL,
                            .policy = &policy,
                            .site = r->site};
  return tt_stream_record(stream, &operation, results);
}

tt_status request_record(tt_stream *stream, const request *r, tt_storage **results) {
  tt_call *call = NULL;
  TT_TRY(request_call(r, &call));
  return call_record(stream, call, r, results);
}

static const tt_arg one = {.kind = TT_ARG_INT, .i = 1, .dtype = TT_I64};

static request add_request(tt_storage *a, tt_storage *b) {
  return (request){
      .row = tt_op_find("add.Tensor"),
      .tensor_count = 2,
      .tensors = {a, b},
      .arg_count = 3,
      .args = {{.kind = TT_ARG_TENSOR, .first = 0}, {.kind = TT_ARG_TENSOR, .first = 1}, one}};
}

tt_status record_add(tt_stream *stream, tt_storage *a, tt_storage *b, tt_storage **out) {
  request r = add_request(a, b);
  tt_storage *results[REQUEST_MAX] = {NULL};
  TT_TRY(request_record(stream, &r, results));
  *out = results[0];
  return TT_SUCCESS;
}

tt_status record_add_into(tt_stream *stream, tt_storage *a, const tt_view *a_view, tt_storage *b,
                          const tt_view *b_view) {
  request r = add_request(a, b);
  r.views[0] = a_view;
  r.views[1] = b_view;
  r.target_count = 1;
  tt_storage *results[REQUEST_MAX] = {NULL};
  return request_record(stream, &r, results);
}

request scale_request(tt_storage *a, float number) {
  request r = {.row = tt_op_find("mul.Tensor"),
               .tensor_count = 1,
               .tensors = {a},
               .arg_count = 2,
               .args = {{.kind = TT_ARG_TENSOR}, {.kind = TT_ARG_SCALAR, .dtype = TT_F64}},
               .scalar_count = 1,
               .scalars = {TT_F32}};
  memcpy(r.words, &number, sizeof number);
  return r;
}

tt_status record_scale(tt_stream *stream, tt_storage *a, float number, tt_storage **out) {
  request r = scale_request(a, number);
  tt_storage *results[REQUEST_MAX] = {NULL};
  TT_TRY(request_record(stream, &r, results));
  *out = results[0];
  return TT_SUCCESS;
}

/* -- Random cases -- */

static uint64_t random_state;

void random_seed(uint64_t seed) {
  const char *number = getenv("TT_SEED");
  if (number) seed = strtoull(number, NULL, 10);
  random_state = seed * 0x9E3779B97F4A7C15u + 1;
  print_message("seed %llu\n", (unsigned long long)seed);
}

uint64_t random_bits(void) { /* xorshift64* */
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return random_state * 0x2545F4914F6CDD1Du;
}

int64_t below(int64_t n) { return (int64_t)((random_bits() >> 33) % (uint64_t)n); }

int case_count(int usual) {
  const char *number = getenv("TT_CASES");
  return number ? atoi(number) : usual;
}
