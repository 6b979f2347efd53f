/* What repeats in a sequence, and graphs that are divided there. */
#include "support.h"

#include "base/hash.h"
#include "graph/stretch.h"

enum { LONGEST = 200, KINDS = 6, MOST_STEPS = 400, MOST_SLOTS = 1600 };

static tt_stream *stream;
static tt_storage *a, *b; /* f32[8] */

static int setup(void **state) {
  (void)state;
  float data[8] = {0};
  if (!fake_open()) return -1;
  fake_reset();
  policy = (tt_policy){.mode = TT_MODE_STRICT};
  ok(session_open(getenv("TT_FAKE_PLUGIN")));
  stream = stream_at(0);
  a = storage_of(stream, type_of(TT_F32, 1, DIMS(8)), data);
  b = storage_of(stream, type_of(TT_F32, 1, DIMS(8)), data);
  return 0;
}

static int teardown(void **state) {
  tt_storage_release(a);
  tt_storage_release(b);
  return fake_close(state);
}

/* -- Finding -- */

typedef struct sequence {
  const void *items[LONGEST];
  int64_t weights[LONGEST + 1];
  int kinds[LONGEST], count;
} sequence;

static void add(sequence *s, int kind) {
  static const char names[KINDS];
  s->kinds[s->count] = kind;
  s->items[s->count++] = &names[kind];
  s->weights[s->count] = s->weights[s->count - 1] + kind;
}

/* Mostly what came a period ago. */
static void make_sequence(sequence *s) {
  int period = 1 + (int)below(12), length = (int)below(LONGEST), kinds = 1 + (int)below(KINDS);
  *s = (sequence){.count = 0};
  while (s->count < length) {
    bool again = s->count >= period && below(15);
    add(s, again ? s->kinds[s->count - period] : (int)below(kinds));
  }
}

static bool is_worth(const sequence *s, int first, int period, const tt_repeat_limits *limits) {
  bool seen[KINDS] = {false};
  int different = 0;
  for (int i = first; i < first + period; i++) {
    different += !seen[s->kinds[i]];
    seen[s->kinds[i]] = true;
  }
  return different >= limits->different &&
         s->weights[first + period] - s->weights[first] >= limits->weight;
}

/* By looking everywhere. */
static tt_repeat find_slowly(const sequence *s, const tt_repeat_limits *limits) {
  tt_repeat best = {.count = 0};
  for (int period = 1; period <= s->count; period++)
    for (int first = 0, end = 0; first + period <= s->count; first = end + 1) {
      for (end = first; end + period < s->count && s->kinds[end] == s->kinds[end + period];) end++;
      int length = end - first + period, count = length / period;
      bool better = !best.count || (count - 1) * period > (best.count - 1) * best.period;
      if (count >= limits->count && better && is_worth(s, first, period, limits))
        best = (tt_repeat){first, period, count, length % period};
    }
  return best;
}

static void test_finds_the_best(void **state) {
  (void)state;
  int found = 0;
  random_seed(1);
  for (int i = 0; i < case_count(600); i++) {
    sequence s;
    make_sequence(&s);
    tt_repeat_limits limits = {.count = 2 + (int)below(3),
                               .different = 1 + (int)below(4),
                               .weight = below(2) ? 0 : below(30)};
    tt_repeat got = tt_repeat_find(s.items, s.weights, s.count, &limits);
    tt_repeat want = find_slowly(&s, &limits);
    assert_memory_equal(&got, &want, sizeof got);
    found += want.count > 0;
  }
  assert_true(found > case_count(600) / 3);
}

/* Even where nearly everything is alike. */
static void test_long_sequences(void **state) {
  (void)state;
  enum { LONG = 1 << 14, PERIOD = 150 };
  static const char names[PERIOD];
  const void **items = tt_malloc(sizeof *items * LONG);
  int64_t *weights = tt_calloc(LONG + 1, sizeof *weights);
  tt_repeat_limits limits = {.count = 4, .different = 8};
  for (int i = 0; i < LONG; i++) items[i] = &names[i % PERIOD];
  tt_repeat all = tt_repeat_find(items, weights, LONG, &limits);
  assert_true(all.period == PERIOD && all.count == LONG / PERIOD && all.slack == LONG % PERIOD);
  for (int i = 0; i < LONG; i++) items[i] = &names[0];
  assert_int_equal(tt_repeat_find(items, weights, LONG, &limits).count, 0);
  assert_int_equal(tt_repeat_find(items, weights, 0, &limits).count, 0);
  tt_free(items);
  tt_free(weights);
}

/* -- Dividing -- */

typedef struct model {
  tt_arena arena;
  tt_step steps[MOST_STEPS];
  uint8_t live[MOST_SLOTS];
  uint64_t values[MOST_SLOTS], got[MOST_SLOTS]; /* what each slot is; what the stretches make it */
  int step_count, slot_count, word_count;
} model;

static tt_call *call_of(int kind) {
  request r = {.row = tt_op_find("neg"), .tensor_count = 1, .tensors = {a}};
  tt_call *call = NULL;
  if (kind > 0) r.row = tt_op_find(kind == 3 ? "add.Tensor" : "mul.Tensor");
  if (kind == 1 || kind == 2) { /* the second one writes in place */
    r.tensor_count = 2;
    r.tensors[1] = b;
    r.target_count = kind == 2;
  }
  if (kind == 3) {
    r.arg_count = 2;
    r.args[0] = (tt_arg){.kind = TT_ARG_TENSOR};
    r.args[1] = (tt_arg){.kind = TT_ARG_SCALAR, .dtype = TT_F64};
    r.scalar_count = 1;
    r.scalars[0] = TT_F32;
    r.row = tt_op_find("mul.Tensor");
  }
  ok(request_call(&r, &call));
  return call;
}

static int new_input(model *m) {
  m->values[m->slot_count] = random_bits();
  return m->slot_count++;
}

static uint64_t result_of(const tt_call *call, const uint64_t *inputs) {
  return tt_hash_bytes(inputs, sizeof *inputs * (size_t)call->input_count, call->hash);
}

/* Returns its result's slot. */
static int add_step(model *m, int kind, int first, int second) {
  tt_call *call = call_of(kind);
  int *inputs = tt_arena_alloc(&m->arena, 2 * sizeof *inputs);
  uint64_t operands[2] = {m->values[first], m->values[second]};
  inputs[0] = first;
  inputs[1] = second;
  m->steps[m->step_count++] = (tt_step){call, inputs, m->slot_count, m->word_count};
  m->word_count += call->word_count;
  m->values[m->slot_count] = result_of(call, operands);
  return m->slot_count++;
}

/* Layers of the same operators, each with inputs of its own, and parts before and behind them. */
static void make_model(model *m, int layers, int size, bool keep) {
  int kinds[32], places[32][2];
  for (int i = 0; i < size; i++) {
    kinds[i] = (int)below(4);
    for (int k = 0; k < 2; k++) places[i][k] = (int)below(i + 2);
  }
  int hidden = new_input(m);
  for (int64_t i = below(20); i > 0; i--) hidden = add_step(m, (int)below(3), hidden, new_input(m));
  int constant = add_step(m, 0, hidden, hidden);
  for (int layer = 0; layer < layers; layer++) {
    int slots[34] = {hidden, new_input(m)};
    for (int i = 0; i < size; i++)
      slots[i + 2] = add_step(m, kinds[i], slots[places[i][0]], slots[places[i][1]]);
    (void)add_step(m, 0, slots[1], slots[1]); /* nobody needs it */
    m->live[slots[2]] = keep;
    hidden = add_step(m, 1, slots[size + 1], hidden);
    hidden = add_step(m, 1, add_step(m, 0, hidden, hidden), constant);
  }
  for (int64_t i = 1 + below(20); i > 0; i--)
    hidden = add_step(m, (int)below(3), hidden, new_input(m));
  m->live[hidden] = 1;
}

/* The stretches one after the other, each of which sees what others left. */
static void run_stretch(model *m, const tt_stretch *stretch, bool *is_there) {
  uint64_t local[MOST_SLOTS], operands[2];
  const tt_graph *graph = stretch->graph;
  for (int i = 0; i < graph->input_count; i++) {
    int slot = stretch->slots[graph->inputs[i]];
    assert_true(is_there[slot]);
    local[graph->inputs[i]] = m->got[slot];
  }
  for (int i = 0, words = 0; i < graph->step_count; i++) {
    const tt_step *step = &graph->steps[i];
    assert_int_equal(step->word_at, words);
    for (int k = 0; k < step->call->input_count; k++) operands[k] = local[step->inputs[k]];
    local[step->first_output] = result_of(step->call, operands);
    int slot = stretch->slots[step->first_output];
    for (int k = 0; k < step->call->word_count; k++, words++) {
      int at = 0;
      while (m->steps[at].first_output != slot) at++;
      assert_int_equal(stretch->words[words], m->steps[at].word_at + k);
    }
  }
  for (int i = 0; i < graph->output_count; i++) {
    int slot = stretch->slots[graph->outputs[i].slot];
    assert_false(is_there[slot]);
    is_there[slot] = true;
    m->got[slot] = local[graph->outputs[i].slot];
    assert_true(m->got[slot] == m->values[slot]);
  }
}

static int count_different(const tt_stretch *stretches, int count) {
  int different = 0;
  for (int i = 0; i < count; i++) {
    int k = 0;
    while (!tt_graph_equal(stretches[k].graph, stretches[i].graph)) k++;
    different += k == i;
  }
  return different;
}

static void check_divided(model *m, const tt_graph *graph, const tt_repeat_limits *limits,
                          int *count, int *different) {
  bool is_there[MOST_SLOTS] = {false};
  tt_stretch *stretches = NULL;
  ok(tt_graph_divide(&m->arena, graph, limits, &stretches, count));
  for (int i = 0; i < graph->input_count; i++) {
    is_there[graph->inputs[i]] = true;
    m->got[graph->inputs[i]] = m->values[graph->inputs[i]];
  }
  for (int i = 0; i < *count; i++) run_stretch(m, &stretches[i], is_there);
  for (int slot = 0; slot < m->slot_count; slot++) assert_true(!m->live[slot] || is_there[slot]);
  *different = count_different(stretches, *count);
}

static void test_layers(void **state) {
  (void)state;
  random_seed(2);
  for (int i = 0; i < case_count(100); i++) {
    model m = {.arena = TT_ARENA_INIT};
    tt_repeat_limits limits = {.count = 4, .different = 2};
    int layers = (int)below(12), count = 0, different = 0;
    make_model(&m, layers, 4 + (int)below(20), below(2));
    tt_graph *graph = NULL;
    ok(tt_graph_create(&m.arena, m.steps, m.step_count, m.slot_count, m.live, &graph));
    check_divided(&m, graph, NULL, &count, &different);
    assert_int_equal(count, 1);
    tt_stretch *whole = NULL;
    ok(tt_graph_divide(&m.arena, graph, NULL, &whole, &count));
    assert_ptr_equal(whole->graph,
                     graph); /* its inputs and words are in the order of the graph's */
    check_divided(&m, graph, &limits, &count, &different);
    assert_true(count <= TT_MOST_STRETCHES);
    if (layers >= 6) assert_true(count >= layers - 1 && count - different >= 3);
    tt_arena_deinit(&m.arena);
  }
}

/* A layer that keeps nothing leaves but what the next one reads. */
static void test_cuts_between_layers(void **state) {
  (void)state;
  enum { LAYERS = 9 };
  tt_repeat_limits limits = {.count = 4, .different = 3};
  model m = {.arena = TT_ARENA_INIT};
  tt_graph *graph = NULL;
  tt_stretch *stretches = NULL;
  int count = 0, hidden = add_step(&m, 0, new_input(&m), 0);
  for (int layer = 0; layer < LAYERS; layer++) {
    int wide = add_step(&m, 1, hidden, new_input(&m)), other = add_step(&m, 0, hidden, hidden);
    wide = add_step(&m, 3, wide, wide);
    hidden = add_step(&m, 1, add_step(&m, 1, wide, other), hidden);
  }
  m.live[add_step(&m, 0, hidden, hidden)] = 1;
  ok(tt_graph_create(&m.arena, m.steps, m.step_count, m.slot_count, m.live, &graph));
  ok(tt_graph_divide(&m.arena, graph, &limits, &stretches, &count));
  assert_int_equal(count, LAYERS + 2);
  assert_int_equal(count_different(stretches, count), 2); /* the first and the last are one */
  for (int i = 1; i <= LAYERS; i++) {
    assert_int_equal(stretches[i].graph->step_count, 5);
    assert_int_equal(stretches[i].graph->input_count, 2);
    assert_int_equal(stretches[i].graph->output_count, 1);
  }
  tt_arena_deinit(&m.arena);
}

/* Repetitions on either side of something, and one too many for the limit. */
static void test_several(void **state) {
  (void)state;
  model m = {.arena = TT_ARENA_INIT};
  tt_repeat_limits limits = {.count = 4, .different = 3};
  tt_graph *graph = NULL;
  int count = 0, different = 0, hidden = new_input(&m);
  for (int i = 0; i < 5; i++)
    hidden = add_step(&m, 3, add_step(&m, 1, add_step(&m, 0, hidden, 0), new_input(&m)), 0);
  for (int i = 0; i < 3; i++) hidden = add_step(&m, 0, hidden, 0);
  for (int i = 0; i < 6; i++)
    hidden = add_step(&m, 1, add_step(&m, 3, add_step(&m, 0, hidden, 0), 0), new_input(&m));
  m.live[hidden] = 1;
  ok(tt_graph_create(&m.arena, m.steps, m.step_count, m.slot_count, m.live, &graph));
  check_divided(&m, graph, &limits, &count, &different);
  assert_int_equal(count, 5 + 1 + 6);
  assert_int_equal(different, 3);
  tt_arena_deinit(&m.arena);
}

static void test_memory_runs_out(void **state) {
  (void)state;
  model m = {.arena = TT_ARENA_INIT};
  tt_repeat_limits limits = {.count = 2, .different = 2};
  tt_graph *graph = NULL;
  make_model(&m, 8, 6, true);
  ok(tt_graph_create(&m.arena, m.steps, m.step_count, m.slot_count, m.live, &graph));
  for (int64_t nth = 1;; nth++) {
    tt_arena local = TT_ARENA_INIT;
    tt_stretch *stretches = NULL;
    int count = 0;
    tt_alloc_fail_at(nth, true);
    tt_status status = tt_graph_divide(&local, graph, &limits, &stretches, &count);
    tt_alloc_fail_at(0, false);
    tt_arena_deinit(&local);
    if (!status) break;
    fails(status, TT_RESOURCE_EXHAUSTED, "out of host memory");
  }
  tt_arena_deinit(&m.arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_finds_the_best), cmocka_unit_test(test_long_sequences),
      cmocka_unit_test(test_layers),         cmocka_unit_test(test_cuts_between_layers),
      cmocka_unit_test(test_several),        cmocka_unit_test(test_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
