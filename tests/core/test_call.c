/* Calls: keys, interning, and what a lowering may get wrong. */
#include "support.h"

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
  assert_null(tt_call_find(session->calls, &key));
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
  assert_null(tt_call_find(session->calls, &key));
  tt_call_spec spec = {.row = r.row, .name = "neg"};
  tt_call *call = NULL;
  fails(tt_call_create(session->calls, &key, &spec, &session->target, &call), TT_RESOURCE_EXHAUSTED,
        "out of host memory");
  assert_null(call);
  tt_key_deinit(&key);
  tt_storage_release(a);
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

static void lower_unimplemented(tt_lower *cx) {
  tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "not with these arguments");
  tt_out(cx, 0, tt_in(cx, 0)); /* poison or not, nothing may crash */
}
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
      TEST(test_interning),
      TEST(test_equal_programs_are_shared),
      TEST(test_words),
      TEST(test_lowering_errors),
      TEST(test_results_of_the_lowering),
      TEST(test_what_a_check_says_makes_a_program),
  };
  return cmocka_run_group_tests(tests, setup, fake_close);
}
