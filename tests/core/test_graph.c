/* Graphs: inputs, outputs, uses and scalars, the text that is built of one, and targets. */
#include "support.h"

#include "call/lower.h"
#include "graph/graph.h"
#include "ops/lower.h"

static tt_stream *stream;
static tt_storage *a, *b; /* f32[6] */
static tt_arena arena;

static int setup(void **state) {
  (void)state;
  if (!fake_open()) return -1;
  ok(session_open(getenv("TT_FAKE_PLUGIN")));
  stream = stream_at(0);
  return 0;
}

static int start(void **state) {
  (void)state;
  float data[6] = {0};
  fake_reset();
  policy = (tt_policy){.mode = TT_MODE_STRICT};
  a = storage_of(stream, type_of(TT_F32, 1, DIMS(6)), data);
  b = storage_of(stream, type_of(TT_F32, 1, DIMS(6)), data);
  arena = (tt_arena)TT_ARENA_INIT;
  return 0;
}

static int stop(void **state) {
  (void)state;
  tt_arena_deinit(&arena);
  tt_storage_release(a);
  tt_storage_release(b);
  return 0;
}

/* -- Calls and steps -- */

static tt_call *call_of(request r) {
  tt_call *call = NULL;
  ok(request_call(&r, &call));
  return call;
}

static tt_call *mul(bool into) {
  return call_of((request){
      .row = tt_op_find("mul.Tensor"), .tensor_count = 2, .tensors = {a, b}, .target_count = into});
}

static tt_call *neg(void) {
  return call_of((request){.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {a}});
}

static tt_call *scale(void) {
  return call_of(
      (request){.row = tt_op_find("mul.Tensor"),
                .tensor_count = 1,
                .tensors = {a},
                .arg_count = 2,
                .args = {{.kind = TT_ARG_TENSOR}, {.kind = TT_ARG_SCALAR, .dtype = TT_F64}},
                .scalar_count = 1,
                .scalars = {TT_F32}});
}

static tt_graph *graph_of(const tt_step *steps, int count, int slots, const uint8_t *live) {
  tt_graph *graph = NULL;
  ok(tt_graph_create(&arena, steps, count, slots, live, &graph));
  return graph;
}

static void is_input(const tt_graph *graph, int i, int slot) {
  assert_int_equal(graph->inputs[i], slot);
  assert_ptr_equal(graph->input_types[i], a->type);
}

static void is_output(const tt_graph *graph, int i, int slot, int over) {
  assert_int_equal(graph->outputs[i].slot, slot);
  assert_int_equal(graph->outputs[i].over, over);
}

/* -- What is an input, what an output -- */

static void test_inputs_and_outputs(void **state) {
  (void)state;
  const tt_step steps[] = {
      {mul(false), (int[]){0, 1}, 2, 0},  /* 2 = 0 * 1 */
      {neg(), (int[]){2}, 3, 0},          /* 3 = -2 */
      {mul(false), (int[]){3, 4}, 5, 0}}; /* 5 = 3 * 4, an input that is late */
  tt_graph *graph = graph_of(steps, 3, 6, (uint8_t[]){1, 1, 0, 1, 1, 1}); /* inputs do not live */
  assert_int_equal(graph->step_count, 3);
  assert_int_equal(graph->slot_count, 6);
  assert_int_equal(graph->word_count, 0);
  assert_int_equal(graph->input_count, 3);
  is_input(graph, 0, 0);
  is_input(graph, 1, 1);
  is_input(graph, 2, 4);
  assert_int_equal(graph->output_count, 2);
  is_output(graph, 0, 3, -1);
  is_output(graph, 1, 5, -1);
}

/* A value that is written again and again stands where the first did. */
static void test_over(void **state) {
  (void)state;
  tt_call *into = mul(true);
  const tt_step steps[] = {
      {into, (int[]){0, 1}, 2, 0}, {into, (int[]){2, 1}, 3, 0}, {into, (int[]){1, 3}, 4, 0}};
  tt_graph *graph = graph_of(steps, 3, 5, (uint8_t[]){0, 0, 0, 1, 1});
  assert_int_equal(graph->output_count, 2);
  is_output(graph, 0, 3, 0);
  is_output(graph, 1, 4, 1);
  /* an input's memory is given once: to the first that stands there */
  graph = graph_of(steps, 3, 5, (uint8_t[]){0, 0, 1, 1, 1});
  is_output(graph, 0, 2, 0);
  is_output(graph, 1, 3, -1);
  is_output(graph, 2, 4, 1);
  /* what a new result is written over is no input */
  const tt_step fresh[] = {{neg(), (int[]){0}, 1, 0}, {into, (int[]){1, 0}, 2, 0}};
  is_output(graph_of(fresh, 2, 3, (uint8_t[]){0, 0, 1}), 0, 2, -1);
}

static void test_of_a_call(void **state) {
  (void)state;
  tt_graph *graph = NULL;
  ok(tt_graph_of_call(&arena, mul(true), &graph));
  assert_int_equal(graph->step_count, 1);
  assert_int_equal(graph->input_count, 2);
  is_output(graph, 0, 2, 0);
  assert_ptr_equal(tt_step_result_type(&graph->steps[0], 0), a->type);
  assert_null(tt_step_result_type(&graph->steps[0], 1));
  for (int64_t nth = 1;; nth++) {
    tt_arena local = TT_ARENA_INIT;
    tt_alloc_fail_at(nth, true);
    tt_status status = tt_graph_of_call(&local, mul(true), &graph);
    tt_alloc_fail_at(0, false);
    tt_arena_deinit(&local);
    if (!status) break;
    fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
  }
}

static void test_uses(void **state) {
  (void)state;
  const tt_step steps[] = {{neg(), (int[]){0}, 1, 0},         /* read by the third */
                           {neg(), (int[]){0}, 2, 0},         /* by nobody that matters */
                           {mul(false), (int[]){1, 0}, 3, 0}, /* an output, read by the last */
                           {neg(), (int[]){2}, 4, 0},         /* not needed */
                           {neg(), (int[]){3}, 5, 0}};
  tt_graph *graph = graph_of(steps, 5, 6, (uint8_t[]){0, 0, 0, 1, 0, 1});
  int last_use[6];
  bool needed[5];
  tt_graph_uses(graph, last_use, needed);
  static const int uses[6] = {2, 2, -1, 4, -1, -1};
  static const bool needs[5] = {true, false, true, false, true};
  assert_memory_equal(last_use, uses, sizeof uses);
  assert_memory_equal(needed, needs, sizeof needs);
}

/* -- Scalars -- */

static void test_scalars(void **state) {
  (void)state;
  uint32_t inputs[4] = {11, 12, 13, 14}, words[10] = {0};
  tt_graph graph = {.word_count = 4};
  tt_graph_fill_words(&graph, inputs, NULL, words); /* nothing else is said of them */
  assert_memory_equal(words, inputs, sizeof inputs);
  const tt_scalar scalars[] = {
      {.kind = TT_SCALAR_CONSTANT, .at = 0, .count = 1, .words = {7}},
      {.kind = TT_SCALAR_CONSTANT, .at = 1, .count = 2, .words = {8, 9}},
      {.kind = TT_SCALAR_INPUT, .at = 3, .count = 2, .input = 2},
      {.kind = TT_SCALAR_PHILOX, .at = 5, .count = 4, .stream = 1, .block = 3, .blocks = 5},
      {.kind = TT_SCALAR_INPUT, .at = 9, .count = 1, .input = 0}};
  const tt_philox_place places[] = {{1, 2}, {0x100000002, 0xFFFFFFFF}};
  graph = (tt_graph){.word_count = 10, .scalars = scalars, .scalar_count = 5};
  tt_graph_fill_words(&graph, inputs, places, words);
  static const uint32_t expected[10] = {7, 8, 9, 13, 14, 2, 1, 2, 1, 11}; /* a carry */
  assert_memory_equal(words, expected, sizeof expected);
}

/* -- Text -- */

static tt_module build(const tt_graph *graph, const tt_target *target) {
  tt_module module;
  ok(tt_graph_build(graph, target, &module));
  return module;
}

static int count(const tt_module *module, const char *word) {
  int found = 0;
  for (const char *at = module->text.data; (at = strstr(at, word)); at++) found++;
  return found;
}

static void test_text(void **state) {
  (void)state;
  tt_call *by = scale();
  const tt_step steps[] = {
      {by, (int[]){0}, 1, 0}, {mul(true), (int[]){2, 1}, 3, 1}, {by, (int[]){3}, 4, 1}};
  tt_graph *graph = graph_of(steps, 3, 5, (uint8_t[]){0, 0, 0, 1, 1});
  assert_int_equal(graph->word_count, 2);
  tt_module module = build(graph, &session->target);
  assert_string_equal(module.name, "a chunk of 3 operators, mul.Tensor to mul.Tensor");
  assert_int_equal(module.result_count, 2);
  assert_int_equal(module.donor_count, 1);
  assert_int_equal(module.donors[0], 1); /* the second input, slot 2 */
  assert_int_equal(count(&module, "tf.aliasing_output = 0"), 1);
  assert_int_equal(count(&module, "%arg2: tensor<2xui32>"), 1); /* all words in one vector */
  assert_int_equal(count(&module, "\"stablehlo.multiply\""), 3);
  tt_module_deinit(&module);
}

static void lower_checked(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0), *zero = tt_hlo_const(cx->h, TT_F32, 0);
  tt_check(cx, tt_hlo_compare(cx->h, TT_LT, x, zero), TT_VALUE, "%s: too low", cx->row->name);
  tt_out(cx, 0, x);
}
static const tt_op_row checked_row = {
    .name = "test.checked", .lower = lower_checked, .statics = "", .doc = ""};

static void test_checks(void **state) {
  (void)state;
  for (int debug = 0; debug < 2; debug++) {
    policy.mode = debug ? TT_MODE_DEBUG : TT_MODE_STRICT;
    tt_call *call = call_of((request){.row = &checked_row, .tensor_count = 1, .tensors = {a}});
    const tt_step steps[] = {{call, (int[]){0}, 1, 0}, {call, (int[]){1}, 2, 0}};
    tt_module module = build(graph_of(steps, 2, 3, (uint8_t[]){0, 0, 1}), &session->target);
    assert_int_equal(module.result_count, 1);
    assert_int_equal(module.check_count, 2 * debug);
    for (int i = 0; i < module.check_count; i++) {
      assert_string_equal(module.check_texts[i], "test.checked: too low");
      assert_int_equal(module.check_codes[i], TT_VALUE);
    }
    tt_module_deinit(&module);
  }
}

static void test_builds_without_memory(void **state) {
  (void)state;
  const tt_step steps[] = {{neg(), (int[]){0}, 1, 0}, {mul(true), (int[]){0, 1}, 2, 0}};
  tt_graph *graph = graph_of(steps, 2, 3, (uint8_t[]){0, 0, 1});
  for (int lasting = 0; lasting < 2; lasting++)
    for (int64_t nth = 1;; nth++) {
      tt_module module;
      tt_alloc_fail_at(nth, lasting);
      tt_status status = tt_graph_build(graph, &session->target, &module);
      int64_t asked = tt_alloc_count();
      tt_alloc_fail_at(0, false);
      tt_module_deinit(&module);
      if (status) fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
      if (asked < nth) break;
    }
}

/* -- Targets -- */

/* What a target is asked for. */
static void lower_by_target(tt_lower *cx) {
  tt_node *x = tt_in(cx, 0);
  tt_out(cx, 0, cx->target->lapack ? tt_hlo_negate(cx->h, x) : tt_hlo_abs(cx->h, x));
}
static const tt_op_row by_target_row = {
    .name = "test.by_target", .lower = lower_by_target, .statics = "", .doc = ""};

static void lower_only_here(tt_lower *cx) {
  if (!cx->target->client) tt_hlo_fail(cx->h, TT_UNIMPLEMENTED, "not for topologies");
  else tt_out(cx, 0, tt_in(cx, 0));
}
static const tt_op_row only_here_row = {
    .name = "test.only_here", .lower = lower_only_here, .statics = "", .doc = ""};

/* XLA's CPU compiler gets barriers behind what is written out; a lowering asks its own target. */
static void test_text_is_a_target_s(void **state) {
  (void)state;
  tt_call *own = call_of((request){.row = &by_target_row, .tensor_count = 1, .tensors = {a}});
  const tt_step steps[] = {{own, (int[]){0}, 1, 0}, {neg(), (int[]){1}, 2, 0}};
  tt_graph *graph = graph_of(steps, 2, 3, (uint8_t[]){0, 1, 1});
  tt_target cpu = session->target;
  cpu.xla_cpu = cpu.lapack = true;
  tt_module plain = build(graph, &session->target), shaped = build(graph, &cpu);
  assert_int_equal(count(&plain, "stablehlo.optimization_barrier"), 0);
  assert_int_equal(count(&shaped, "stablehlo.optimization_barrier"), 2);
  assert_int_equal(count(&plain, "\"stablehlo.abs\""), 1);
  assert_int_equal(count(&shaped, "\"stablehlo.abs\""), 0);
  assert_int_equal(count(&shaped, "\"stablehlo.negate\""), 2);
  tt_module_deinit(&plain);
  tt_module_deinit(&shaped);
}

/* A process runs programs on its devices and compiles the same graphs for a topology. */
static void test_two_targets(void **state) {
  (void)state;
  tt_topology *topology = NULL;
  tt_target far;
  tt_program_table *table = NULL;
  ok(tt_topology_create(session->plugin, "fake:4", &topology));
  tt_target_init_topology(&far, session->plugin, topology, "tpu");
  assert_int_equal(far.device_count, 4);
  assert_null(far.client);
  ok(tt_program_table_create(&far, &table));
  tt_call *call = neg();
  const tt_step steps[] = {{call, (int[]){0}, 1, 0}, {call, (int[]){1}, 2, 0}};
  tt_graph *graph = graph_of(steps, 2, 3, (uint8_t[]){0, 0, 1});
  int64_t before = tt_program_table_size(session->programs);
  tt_program *here = NULL, *there = NULL, *own[2] = {NULL}, *again = NULL;
  bool fresh = false;
  for (int i = 0; i < 2; i++) {
    ok(tt_program_of_graph(session->programs, graph, TT_WANT_NOW, &here, &fresh));
    assert_int_equal(fresh, i == 0);
    ok(tt_program_of_graph(table, graph, TT_WANT_NOW, &there, &fresh));
    assert_int_equal(fresh, i == 0); /* though its text is known to the other table */
  }
  assert_ptr_not_equal(here, there);
  assert_string_equal(here->module.text.data, there->module.text.data);
  /* an operator alone: the call keeps the program of the target that it was made for */
  ok(tt_program_of_call(table, call, TT_WANT_NOW, &own[1]));
  ok(tt_program_of_call(session->programs, call, TT_WANT_NOW, &own[0]));
  ok(tt_program_of_call(table, call, TT_WANT_NOW, &again));
  assert_ptr_equal(again, own[1]);
  assert_ptr_not_equal(own[0], own[1]);
  assert_ptr_equal(call->program, own[0]);
  assert_ptr_equal(own[0]->table, session->programs);
  assert_int_equal(tt_program_table_size(session->programs), before + 2);
  assert_int_equal(tt_program_table_size(table), 2);
  ok(tt_program_await(there));
  tt_program_release(there);
  request r = {.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {a}};
  tt_storage *results[REQUEST_MAX];
  float data[6];
  ok(request_record(stream, &r, results));
  ok(storage_read(results[0], data, sizeof data));
  tt_storage_release(results[0]);
  /* what only one of them can do */
  call = call_of((request){.row = &only_here_row, .tensor_count = 1, .tensors = {a}});
  ok(tt_program_of_call(session->programs, call, TT_WANT_NOW, &own[0]));
  fails(tt_program_of_call(table, call, TT_WANT_NOW, &own[1]), TT_UNIMPLEMENTED,
        "not for topologies");
  tt_program_table_destroy(table);
  assert_ptr_equal(call->program, own[0]);
  tt_topology_destroy(topology);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
  const struct CMUnitTest tests[] = {
      TEST(test_inputs_and_outputs),
      TEST(test_over),
      TEST(test_of_a_call),
      TEST(test_uses),
      TEST(test_scalars),
      TEST(test_text),
      TEST(test_checks),
      TEST(test_builds_without_memory),
      TEST(test_text_is_a_target_s),
      TEST(test_two_targets),
  };
  return cmocka_run_group_tests(tests, setup, fake_close);
}
