/* Calls: keys, interning, and what a lowering may get wrong. */
#include "support.h"

#include "call/args.h"
#include "ops/lower.h"
#include "program/program.h"

static tt_stream *stream;

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  tt_status status = session_open(getenv("TT_FAKE_PLUGIN"));
  stream = stream_at(0);
  return status ? -1 : 0;
}

static int reset(void **state) {
  (void)state;
  fake_reset();
  return (policy.mode = TT_MODE_STRICT, 0);
}

static tt_type vector(int64_t n) { return tt_type_make(TT_F32, 1, &n); }

/* -- Keys -- */

static void test_long_key(void **state) {
  (void)state;
  tt_key key;
  uint64_t expected[1000];
  tt_key_init(&key);
  for (uint64_t i = 0; i < 1000; i++) {
    expected[i] = i * 7;
    tt_key_u64(&key, i * 7);
  }
  assert_int_equal(key.size, sizeof expected);
  assert_memory_equal(key.data, expected, sizeof expected);
  assert_false(key.failed);
  assert_null(tt_call_find(session->calls, &key, NULL));
  tt_key_deinit(&key);
}

static void test_key_without_memory(void **state) {
  (void)state;
  tt_storage *a = storage_new(stream, vector(3));
  request r = {.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {a}};
  tt_key key;
  tt_key_init(&key);
  tt_alloc_fail_at(1, false);
  for (uint64_t i = 0; i < 1000; i++) tt_key_u64(&key, i);
  assert_true(key.failed);
  assert_null(tt_call_find(session->calls, &key, NULL));
  tt_call_spec spec = {.row = r.row, .name = "neg"};
  tt_call *call = NULL;
  fails(tt_call_create(session->calls, &key, &spec, &session->target, &call), TT_RESOURCE_EXHAUSTED,
        "out of host memory");
  assert_null(call);
  tt_key_deinit(&key);
  tt_storage_release(a);
}

static void lower_unimplemented(tt_lower *cx) {
  tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "not with these arguments");
  tt_out(cx, 0, tt_in(cx, 0)); /* poison or not, nothing may crash */
}

static void test_refused_key(void **state) {
  (void)state;
  static const tt_op_row row = {
      .name = "test.refused", .lower = lower_unimplemented, .statics = "", .doc = ""};
  tt_storage *a = storage_new(stream, vector(3));
  tt_call_tensor tensor = {.storage = a->type, .view = tt_view_whole(a->type), .same_as = -1};
  tt_arg arg = {.kind = TT_ARG_TENSOR};
  tt_call_spec spec = {.row = &row,
                       .name = row.name,
                       .args = &arg,
                       .arg_count = 1,
                       .tensors = &tensor,
                       .tensor_count = 1};
  tt_key key;
  tt_call *call = NULL;
  tt_key_init(&key);
  tt_key_u64(&key, (uint64_t)(uintptr_t)&row);
  assert_false(tt_call_refused(session->calls, &key));
  for (int again = 0; again < 2; again++) {
    fails(tt_call_create(session->calls, &key, &spec, &session->target, &call), TT_UNIMPLEMENTED,
          "not with these arguments");
    assert_true(tt_call_refused(session->calls, &key));
  }
  key.failed = true;
  assert_false(tt_call_refused(session->calls, &key));
  tt_key_deinit(&key);
  tt_storage_release(a);
}

/* -- Arguments in a key -- */

static void add_tensor(tt_key *key, tt_dtype dtype, bool canonical) {
  tt_type type = tt_type_make(dtype, 2, (int64_t[]){2, 3});
  tt_view view = tt_view_whole(&type);
  tt_key_tag(key, TT_TAG_TENSOR, 0);
  tt_key_tensor(key, &type, true, -1, canonical, dtype, view.rank, 1, view.sizes, view.strides);
}

static void add_number(tt_key *key, tt_tag tag, tt_dtype dtype, double value) {
  int64_t whole = (int64_t)value;
  tt_key_tag(key, tag, (uint64_t)dtype);
  if (tag == TT_TAG_NUMBER) return;
  if (tt_is_float(dtype) || tag == TT_TAG_COMPLEX) tt_key_add(key, &value, sizeof value);
  else tt_key_add(key, &whole, sizeof whole);
  if (tag == TT_TAG_COMPLEX) tt_key_add(key, &value, sizeof value);
}

enum { ARGS = 19, ITEMS = 28 };

/* One argument of each sort. */
static void fill_args(tt_key *key) {
  tt_key_tag(key, TT_TAG_NONE, 0);
  add_tensor(key, TT_F32, true);
  add_tensor(key, TT_F16, false);
  tt_key_tag(key, TT_TAG_HOST, 1);
  add_number(key, TT_TAG_STATIC, TT_F16, 0.5);
  tt_key_tag(key, TT_TAG_TENSORS, 3);
  add_tensor(key, TT_F32, false);
  tt_key_tag(key, TT_TAG_NONE, 0);
  add_tensor(key, TT_F32, true);
  add_number(key, TT_TAG_NUMBER, TT_F64, 0);
  add_number(key, TT_TAG_STATIC, TT_I64, -3);
  add_number(key, TT_TAG_COMPLEX, TT_C128, 2.5);
  tt_key_tag(key, TT_TAG_NUMBERS, 2);
  for (int i = 0; i < 2; i++) add_number(key, TT_TAG_NUMBER, TT_F64, 0);
  tt_key_tag(key, TT_TAG_STATICS, 2);
  add_number(key, TT_TAG_STATIC, TT_I64, 7);
  add_number(key, TT_TAG_STATIC, TT_F64, 0.25);
  tt_key_tag(key, TT_TAG_EQUAL, 9);
  add_number(key, TT_TAG_NUMBER, TT_F64, 0);
  tt_key_tag(key, TT_TAG_INT, TT_BOOL);
  tt_key_u64(key, 1);
  tt_key_tag(key, TT_TAG_INTS, 2);
  tt_key_u64(key, (uint64_t)-1);
  tt_key_u64(key, 4);
  tt_key_tag(key, TT_TAG_DTYPE, 77 << 8 | TT_BF16);
  tt_key_tag(key, TT_TAG_TEXT, 4);
  tt_key_add(key, "mean", 4); /* what follows is not aligned */
  tt_key_tag(key, TT_TAG_INTS, 0);
  add_number(key, TT_TAG_NUMBER, TT_I64, 0);
  tt_key_tag(key, TT_TAG_PLACE, TT_I64);
  tt_key_u64(key, (uint64_t)-2);
  tt_key_tag(key, TT_TAG_END, TT_I64);
  tt_key_u64(key, 5);
}

static tt_status read_args(const tt_key *key, tt_arena *arena, tt_arg *args, bool *beyond) {
  tt_args_reader reader = {.at = key->data, .arena = arena};
  for (int i = 0; i < ARGS; i++) TT_TRY(tt_args_read(&reader, &args[i]));
  assert_ptr_equal(reader.at, key->data + key->size);
  assert_int_equal(reader.next_tensor, 4);
  assert_int_equal(reader.next_number, 5);
  *beyond = reader.beyond;
  return TT_SUCCESS;
}

static void test_arguments_in_a_key(void **state) {
  (void)state;
  tt_key key;
  tt_arg a[ARGS];
  bool beyond = true;
  tt_arena arena = TT_ARENA_INIT;
  tt_key_init(&key);
  fill_args(&key);
  ok(read_args(&key, &arena, a, &beyond));
  assert_false(beyond);
  assert_true(a[0].kind == TT_ARG_NONE);
  assert_true(a[1].kind == TT_ARG_TENSOR && a[1].first == 0);
  assert_true(a[2].kind == TT_ARG_TENSOR && a[2].first == 1);
  assert_true(a[3].kind == TT_ARG_FLOAT && a[3].dtype == TT_F16 && a[3].f == 0.5 && a[3].i == 0);
  assert_true(a[4].kind == TT_ARG_TENSORS && a[4].first == 2 && a[4].count == 3);
  assert_true(a[4].present[0] && !a[4].present[1] && a[4].present[2]);
  assert_true(a[5].kind == TT_ARG_SCALAR && a[5].dtype == TT_F64 && a[5].first == 0);
  assert_true(a[6].kind == TT_ARG_INT && a[6].dtype == TT_I64 && a[6].i == -3 && a[6].f == -3);
  assert_true(a[7].kind == TT_ARG_COMPLEX && a[7].floats[0] == 2.5 && a[7].floats[1] == 2.5);
  assert_true(a[8].kind == TT_ARG_SCALARS && a[8].count == 2 && a[8].first == 1 && !a[8].equal);
  assert_true(a[9].kind == TT_ARG_FLOATS && a[9].floats[0] == 7 && a[9].floats[1] == 0.25);
  assert_true(a[10].kind == TT_ARG_SCALARS && a[10].count == 9 && a[10].first == 3 && a[10].equal);
  assert_true(a[11].kind == TT_ARG_INT && a[11].dtype == TT_BOOL && a[11].i == 1);
  assert_true(a[12].kind == TT_ARG_INTS && a[12].count == 2 && a[12].ints[0] == -1);
  assert_true(a[12].ints[1] == 4);
  assert_true(a[13].kind == TT_ARG_INT && a[13].dtype == TT_BF16);
  assert_true(a[14].kind == TT_ARG_STRING);
  assert_string_equal(a[14].text, "mean");
  assert_true(a[15].kind == TT_ARG_INTS && a[15].count == 0);
  assert_true(a[16].kind == TT_ARG_SCALAR && a[16].dtype == TT_I64 && a[16].first == 4);
  assert_true(a[17].kind == TT_ARG_INT && a[17].i == -2 && a[17].place && !a[11].place);
  assert_true(a[18].kind == TT_ARG_INT && a[18].i == 5 && !a[18].place);
  tt_arena_deinit(&arena);
  tt_key_deinit(&key);
}

/* The same, word by word. */
static void test_items_of_a_key(void **state) {
  (void)state;
  tt_key key;
  tt_key_init(&key);
  fill_args(&key);
  tt_args_item item = {.tag = TT_TAG_NONE};
  int items = 0, tensors = 0;
  for (size_t at = 0; tt_args_next(&key, &at, &item); items++) tensors += item.tag == TT_TAG_TENSOR;
  assert_int_equal(tensors, 4);
  assert_int_equal(items, ITEMS);
  assert_int_equal(item.tag, TT_TAG_END);
  assert_int_equal(item.at + sizeof(uint64_t), key.size);
  tt_key_deinit(&key);
}

/* What no record expresses is told; nothing is read past it. */
static void test_arguments_beyond_records(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    tt_key key;
    tt_arg arg;
    tt_arena arena = TT_ARENA_INIT;
    tt_key_init(&key);
    tt_key_tag(&key, i == 0 ? TT_TAG_TENSORS : TT_TAG_NUMBERS, 1);
    if (i == 0) tt_key_tag(&key, TT_TAG_HOST, 0);
    if (i == 0) add_number(&key, TT_TAG_NUMBER, TT_F32, 0);
    if (i == 1) add_number(&key, TT_TAG_COMPLEX, TT_C128, 1);
    if (i == 2) add_number(&key, TT_TAG_STATIC, TT_BOOL, 1);
    tt_args_reader reader = {.at = key.data, .arena = &arena};
    ok(tt_args_read(&reader, &arg));
    assert_true(reader.beyond);
    assert_ptr_equal(reader.at, key.data + key.size);
    tt_arena_deinit(&arena);
    tt_key_deinit(&key);
  }
}

static void test_arguments_without_memory(void **state) {
  (void)state;
  tt_key key;
  tt_key_init(&key);
  fill_args(&key);
  for (int64_t nth = 1;; nth++) {
    tt_arg args[ARGS];
    bool beyond = false;
    tt_arena arena = TT_ARENA_INIT;
    tt_alloc_fail_at(nth, false);
    tt_status status = read_args(&key, &arena, args, &beyond);
    int64_t asked = tt_alloc_count();
    tt_alloc_fail_at(0, false);
    if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
    tt_arena_deinit(&arena);
    if (asked < nth) break;
  }
  tt_key_deinit(&key);
}

/* -- Interning -- */

static tt_call *call_of(const request *r) {
  tt_call *call = NULL;
  ok(request_call(r, &call));
  return call;
}

/* A call that is only interned has no program yet. */
static tt_program *program_of(tt_call *call) {
  tt_program *program = NULL;
  ok(tt_program_of_call(session->programs, call, TT_WANT_NOW, &program));
  return program;
}

static void test_interning(void **state) {
  (void)state;
  float data[6] = {0};
  tt_storage *a = storage_of(stream, vector(6), data), *b = storage_of(stream, vector(6), data);
  request r = {.row = tt_op_find("maximum"), .tensor_count = 2, .tensors = {a, b}};
  int64_t size = tt_call_table_size(session->calls), programs = tt_count_get(TT_COUNT_PROGRAMS);
  tt_call *call = call_of(&r);
  program_of(call);
  assert_int_equal(tt_call_table_size(session->calls), size + 1);
  assert_ptr_equal(call_of(&r), call);
  assert_int_equal(call->input_count, 2);
  r.tensors[0] = b; /* other storages of the same types */
  r.tensors[1] = a;
  assert_ptr_equal(call_of(&r), call);
  assert_int_equal(tt_call_table_size(session->calls), size + 1);
  r.tensors[1] = b; /* one storage twice */
  tt_call *same = call_of(&r);
  assert_ptr_not_equal(same, call);
  assert_int_equal(same->input_count, 1);
  program_of(same);
  tt_storage *fresh = storage_new(stream, vector(6));
  r.tensors[0] = fresh; /* nothing written yet */
  tt_call *undefined = call_of(&r);
  assert_ptr_not_equal(undefined, call);
  assert_int_equal(undefined->input_count, 1);
  assert_int_equal(undefined->inputs[0], 1);
  program_of(undefined);
  tt_view half = tt_view_whole(a->type);
  half.sizes[0] = 3;
  r = (request){.row = r.row, .tensor_count = 2, .tensors = {a, b}, .views = {&half, &half}};
  r.result = vector(3);
  assert_ptr_not_equal(call_of(&r), call);
  program_of(call_of(&r));
  half.offset = 3;
  assert_ptr_not_equal(call_of(&r), call);
  program_of(call_of(&r));
  assert_int_equal(tt_call_table_size(session->calls), size + 5);
  assert_int_equal(tt_count_get(TT_COUNT_PROGRAMS), programs + 5);
  ok(stream_sync(stream));
  tt_storage_release(fresh);
  tt_storage_release(a);
  tt_storage_release(b);
}

static void test_equal_programs_are_shared(void **state) {
  (void)state;
  float data[5] = {0};
  tt_storage *a = storage_of(stream, vector(5), data);
  request r = {.row = tt_op_find("mul.Tensor"), .tensor_count = 2, .tensors = {a, a}};
  tt_call *first = call_of(&r);
  tt_program *program = program_of(first);
  int64_t programs = tt_count_get(TT_COUNT_PROGRAMS), hits = tt_count_get(TT_COUNT_PROGRAM_HITS);
  r.row = tt_op_find("mul.Scalar");
  tt_call *second = call_of(&r);
  assert_ptr_not_equal(first, second);
  assert_ptr_equal(program_of(first), program);
  assert_ptr_equal(program_of(second), program);
  assert_int_equal(tt_count_get(TT_COUNT_PROGRAMS), programs);
  assert_int_equal(tt_count_get(TT_COUNT_PROGRAM_HITS), hits + 1);
  tt_storage_release(a);
}

static void test_words(void **state) {
  (void)state;
  tt_storage *a = storage_new(stream, vector(2));
  request r = {.row = tt_op_find("mul.Tensor"),
               .tensor_count = 1,
               .tensors = {a},
               .arg_count = 2,
               .args = {{.kind = TT_ARG_TENSOR}, {.kind = TT_ARG_SCALAR, .first = 1}},
               .scalar_count = 4,
               .scalars = {TT_F64, TT_F32, TT_I64, TT_BOOL}};
  assert_int_equal(call_of(&r)->word_count, 6);
  assert_int_equal(tt_scalar_words(TT_F64) + tt_scalar_words(TT_BOOL), 3);
  tt_storage_release(a);
}

/* -- Lowerings that fail -- */

static void lower_other_dtype(tt_lower *cx) {
  tt_out(cx, 0, tt_hlo_convert(cx->h, tt_in(cx, 0), TT_I32));
}
static void lower_other_shape(tt_lower *cx) {
  int64_t dims[2] = {2, 3};
  tt_out(cx, 0, tt_hlo_reshape(cx->h, tt_in(cx, 0), 2, dims));
}
static void lower_too_many(tt_lower *cx) {
  tt_out(cx, 0, tt_in(cx, 0));
  tt_out(cx, 1, tt_in(cx, 0));
}
static void lower_wrong_argument(tt_lower *cx) { tt_out(cx, 0, tt_in(cx, 5)); }
static void lower_static_of_tensor(tt_lower *cx) {
  (void)tt_int(cx, 0);
  tt_out(cx, 0, tt_in(cx, 0));
}

static void test_lowering_errors(void **state) {
  (void)state;
  static const struct {
    tt_lower_fn lower;
    tt_code code;
    const char *words;
  } cases[] = {
      {lower_unimplemented, TT_UNIMPLEMENTED, "not with these arguments"},
      {lower_other_dtype, TT_INTERNAL, "result 0 has another type"},
      {lower_other_shape, TT_INTERNAL, "result 0 has another type"},
      {lower_too_many, TT_INTERNAL, "result 1 is one too many"},
      {lower_wrong_argument, TT_INTERNAL, "argument 5"},
      {lower_static_of_tensor, TT_INTERNAL, "argument 0"},
  };
  int64_t size = tt_call_table_size(session->calls), programs = tt_count_get(TT_COUNT_PROGRAMS);
  tt_storage *a = storage_new(stream, vector(6));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tt_op_row row = {.name = "test.row", .lower = cases[i].lower, .statics = "", .doc = ""};
    request r = {.row = &row, .tensor_count = 1, .tensors = {a}};
    tt_call *call = NULL;
    for (int again = 0; again < 2; again++) {
      tt_status status = request_call(&r, &call);
      assert_non_null(strstr(tt_status_message(status), "test.row"));
      fails(status, cases[i].code, cases[i].words);
      assert_null(call);
    }
  }
  assert_int_equal(tt_call_table_size(session->calls), size);
  assert_int_equal(tt_count_get(TT_COUNT_PROGRAMS), programs);
  tt_storage_release(a);
}

/* -- Results -- */

static void lower_first_and_last(tt_lower *cx) {
  tt_out(cx, 0, tt_in(cx, 0));
  tt_out(cx, 2, tt_hlo_convert(cx->h, tt_in(cx, 0), TT_F64));
}
static const tt_op_row first_and_last = {
    .name = "test.first_and_last", .lower = lower_first_and_last, .statics = "", .doc = ""};

static void test_results_of_the_lowering(void **state) {
  (void)state;
  int64_t dims[2] = {2, 2};
  tt_storage *a = storage_new(stream, type_of(TT_F32, 2, dims)), *results[REQUEST_MAX];
  request r = {.row = &first_and_last, .tensor_count = 1, .tensors = {a}, .no_meta = true};
  tt_call *call = call_of(&r);
  assert_int_equal(call->result_count, 3);
  assert_true(call->results[0].defined && !call->results[1].defined && call->results[2].defined);
  ok(request_record(stream, &r, results));
  assert_null(results[1]);
  assert_true(results[2]->type->dtype == TT_F64 && results[2]->type->rank == 2);
  double back[4] = {1, 1, 1, 1};
  ok(storage_read(results[2], back, sizeof back));
  assert_true(back[0] == 0 && back[3] == 0);
  tt_storage_release(results[0]);
  tt_storage_release(results[2]);
  tt_storage_release(a);
}

/* -- Checks (Debug) -- */

static void check_low(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_node *violated = tt_hlo_compare(cx->h, TT_LT, x, tt_hlo_const(cx->h, TT_F32, 0));
  tt_check(cx, violated, cx->row->param ? TT_OUT_OF_RANGE : TT_VALUE, "%s: too low", cx->row->name);
  tt_out(cx, 0, x);
}

static void test_what_a_check_says_makes_a_program(void **state) {
  (void)state;
  policy.mode = TT_MODE_DEBUG;
  float data[6] = {0};
  tt_storage *a = storage_of(stream, vector(6), data), *out[REQUEST_MAX];
  tt_op_row rows[2] = {
      {.name = "test.one", .lower = check_low, .statics = "", .doc = ""},
      {.name = "test.two", .lower = check_low, .param = 1, .statics = "", .doc = ""}};
  tt_program *programs[2] = {NULL};
  for (int i = 0; i < 2; i++) {
    request r = {.row = &rows[i], .tensor_count = 1, .tensors = {a}};
    programs[i] = program_of(call_of(&r));
    assert_int_equal(programs[i]->module.check_count, 1);
    ok(request_record(stream, &r, out));
    tt_storage_release(out[0]);
  }
  assert_string_equal(programs[0]->module.check_texts[0], "test.one: too low");
  assert_string_equal(programs[1]->module.check_texts[0], "test.two: too low");
  assert_int_equal(programs[0]->module.check_codes[0], TT_VALUE);
  assert_int_equal(programs[1]->module.check_codes[0], TT_OUT_OF_RANGE);
  tt_storage_release(a);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, reset)
  const struct CMUnitTest tests[] = {
      TEST(test_long_key),
      TEST(test_key_without_memory),
      TEST(test_refused_key),
      TEST(test_arguments_in_a_key),
      TEST(test_items_of_a_key),
      TEST(test_arguments_beyond_records),
      TEST(test_arguments_without_memory),
      TEST(test_interning),
      TEST(test_equal_programs_are_shared),
      TEST(test_words),
      TEST(test_lowering_errors),
      TEST(test_results_of_the_lowering),
      TEST(test_what_a_check_says_makes_a_program),
  };
  return cmocka_run_group_tests(tests, setup, fake_close);
}
