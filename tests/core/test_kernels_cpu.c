/* Orders of kernels: what a program's text says of a call, and who computes it, on XLA's CPU
 * plugin; skipped when TT_CPU_PLUGIN does not name one. */
#include "support.h"

#include "call/ordered.h"
#include "graph/ordered.h"
#include "kernels/draw.h"
#include "kernels/kernels.h"
#include "stream/tier.h"

#include <stdatomic.h>

static tt_stream *stream;
static atomic_int computed;
static const char *failing = ""; /* the kernel of this name */

/* -- A library of two kernels -- */

static atomic_int owned; /* results that it still owns */

static const void *find(const char *name) {
  static const char *const kernels[] = {"add.Tensor", "mul.Tensor"};
  for (int i = 0; i < 2; i++)
    if (!strcmp(name, kernels[i])) return &kernels[i];
  return NULL;
}

static tt_status run(int64_t cost, tt_status (*act)(void *user), void *user) {
  assert_true(cost > 0);
  return act(user);
}

static float *at(void *memory, const tt_order_view *view, int64_t i) {
  return (float *)memory + view->offset + (view->rank ? i * view->strides[view->rank - 1] : 0);
}

static void *place_of(const tt_order *order, void *const *memory, tt_kernel_result *result) {
  if (order->results[0].target >= 0) return memory[order->results[0].target];
  if (result->memory) return result->memory;
  owned++;
  return result->memory = result->owner = malloc((size_t)result->bytes + 1);
}

/* Vectors. Into the first operand where that is the target. */
static tt_status compute(const tt_order *order, void *const *memory, tt_kernel_result *results,
                         const uint32_t *words) {
  const tt_order_result *result = &order->results[0];
  const tt_order_tensor *tensors = order->tensors;
  bool adds = !strcmp(order->name, "add.Tensor");
  float number = 0;
  if (!strcmp(order->name, failing)) return tt_error(TT_INTERNAL, "this one fails");
  if (order->number_count) memcpy(&number, words + order->numbers[0].word, sizeof number);
  void *out = place_of(order, memory, &results[0]);
  const tt_order_view *to = result->target >= 0 ? &tensors[result->target].view : &result->view;
  int64_t count = tensors[0].view.rank ? tensors[0].view.sizes[0] : 1;
  for (int64_t i = 0; i < count; i++) {
    float x = *at(memory[0], &tensors[0].view, i);
    *at(out, to, i) = adds ? x + *at(memory[1], &tensors[1].view, i) : x * number;
  }
  computed++;
  return TT_SUCCESS;
}

static void let_go(void *owner) {
  owned--;
  free(owner);
}

static const tt_kernel_library library = {find, run, compute, let_go};

static int setup(void **state) {
  (void)state;
  if (!getenv("TT_CPU_PLUGIN")) return 0;
  tt_kernels_bind(&library);
  setenv("TORCH_TPU_CACHE", "off", 1);
  ok(session_open(getenv("TT_CPU_PLUGIN")));
  policy = (tt_policy){.mode = TT_MODE_FUSED};
  stream = stream_at(0);
  tt_tier_force(TT_TIER_KERNELS);
  return 0;
}

static int reset(void **state) {
  (void)state;
  failing = "";
  computed = 0;
  tt_count_reset();
  return 0;
}

static int teardown(void **state) {
  (void)state;
  session_close();
  return 0;
}

static tt_storage *vector(int64_t n, const float *data) {
  return storage_of(stream, type_of(TT_F32, 1, DIMS(n)), data);
}

static void expect(tt_storage *storage, int64_t n, const float *values) {
  float got[16] = {0};
  ok(storage_read(storage, got, n * (int64_t)sizeof *got));
  for (int64_t i = 0; i < n; i++) assert_float_equal(got[i], values[i], 0);
}

static void release(int count, tt_storage **all) {
  for (int i = 0; i < count; i++) tt_storage_release(all[i]);
}

/* -- Who computes -- */

static void test_a_chunk(void **state) {
  (void)state;
  if (!session) skip();
  float x[] = {1, 2, 3}, y[] = {10, 20, 30};
  tt_storage *all[5] = {vector(3, x), vector(3, y)};
  ok(record_add(stream, all[0], all[1], &all[2]));
  ok(record_scale(stream, all[2], 0.5f, &all[3]));
  ok(record_add(stream, all[3], all[0], &all[4]));
  expect(all[4], 3, (float[]){6.5f, 13, 19.5f});
  assert_int_equal(computed, 3);
  assert_int_equal(tt_count_get(TT_COUNT_TIER_KERNELS), 3);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
  assert_int_equal(owned, 0);
  release(5, all);
}

/* Two storages have one value, of which one is written: the other is read as it was. */
static void test_two_storages_of_a_value(void **state) {
  (void)state;
  if (!session) skip();
  float x[] = {1, 2, 3};
  tt_storage *a = vector(3, x), *b = NULL, *copy = NULL;
  ok(record_scale(stream, a, 2, &b));
  ok(record_add_into(stream, b, NULL, a, NULL));
  ok(tt_storage_create(stream->device, b->type, &copy));
  pthread_mutex_lock(&stream->device->lock);
  assert_null(tt_storage_hold(copy, tt_value_retain(b->value)));
  pthread_mutex_unlock(&stream->device->lock);
  tt_view to = {.dtype = TT_F32, .rank = 1, .offset = 1, .sizes = {2}, .strides = {1}}, from = to;
  from.offset = 0;
  ok(record_add_into(stream, b, &to, copy, &from));
  tt_storage_release(copy);
  expect(b, 3, (float[]){3, 9, 15});
  assert_int_equal(computed, 3);
  release(2, (tt_storage *[]){a, b});
}

/* Through views of a storage that another value is still needed of. */
static void test_writes(void **state) {
  (void)state;
  if (!session) skip();
  float x[] = {1, 2, 3, 4, 5, 6, 7, 8}, y[] = {10, 20};
  tt_view part = {.dtype = TT_F32, .rank = 1, .offset = 1, .sizes = {2}, .strides = {3}};
  tt_storage *a = vector(8, x), *b = vector(2, y), *before = NULL;
  ok(record_scale(stream, a, 2, &before));
  ok(record_add_into(stream, a, &part, b, NULL));
  ok(record_add_into(stream, a, &part, b, NULL));
  expect(a, 8, (float[]){1, 22, 3, 4, 45, 6, 7, 8});
  expect(before, 8, (float[]){2, 4, 6, 8, 10, 12, 14, 16});
  assert_int_equal(computed, 3);
  release(3, (tt_storage *[]){a, b, before});
}

/* More of them than a launch has room for without asking for memory. */
static void test_many_results(void **state) {
  (void)state;
  if (!session) skip();
  enum { MANY = 24 };
  float x[] = {1, 2};
  tt_storage *a = vector(2, x), *all[MANY];
  for (int i = 0; i < MANY; i++) ok(record_scale(stream, a, (float)i, &all[i]));
  for (int i = 0; i < MANY; i++) expect(all[i], 2, (float[]){(float)i, 2 * (float)i});
  assert_int_equal(tt_count_get(TT_COUNT_LAUNCHES), 1);
  release(MANY, all);
  release(1, &a);
}

/* What is written over is there for whoever runs the operators one by one. */
static void test_a_kernel_that_fails(void **state) {
  (void)state;
  if (!session) skip();
  float x[] = {1, 2, 3, 4, 5}, y[] = {1, 1, 1, 1, 1};
  tt_storage *a = vector(5, x), *b = vector(5, y), *c = NULL;
  failing = "add.Tensor";
  for (int i = 1; i <= 2; i++) {
    ok(record_scale(stream, a, 2, &c));
    ok(record_add_into(stream, a, NULL, b, NULL));
    expect(a, 5, (float[]){1 + (float)i, 2 + (float)i, 3 + (float)i, 4 + (float)i, 5 + (float)i});
    assert_int_equal(tt_count_get(TT_COUNT_REPLAYS), 1);
    assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 1); /* of the one that fails */
    assert_int_equal(computed, 1 + i);
    tt_storage_release(c);
  }
  release(2, (tt_storage *[]){a, b});
}

/* -- What the text says -- */

enum { MOST = 512 };

static int numbers_of(const char *text, int64_t *numbers) {
  int count = 0;
  const char *begin = strchr(text, ':');
  assert_non_null(begin);
  for (char *end = NULL; *begin != '>'; begin = end) {
    assert_true(count < MOST);
    numbers[count++] = strtoll(begin + 1, &end, 10);
  }
  return count;
}

/* a * 2, and then twice that, into the same storage. */
static int orders_of(tt_storage *a, int64_t *numbers) {
  tt_arena arena = TT_ARENA_INIT;
  tt_text text = TT_TEXT_INIT;
  tt_graph *graph = NULL;
  tt_call *call = NULL;
  tt_orders orders;
  request r = scale_request(a, 2);
  ok(request_call(&r, &call));
  assert_true(tt_call_orders(call, &session->target));
  const int inputs[] = {0, 1};
  const uint8_t live[] = {0, 0, 1};
  const tt_step steps[] = {{.call = call, .inputs = &inputs[0], .first_output = 1},
                           {.call = call, .inputs = &inputs[1], .first_output = 2, .word_at = 1}};
  ok(tt_graph_create(&arena, steps, 2, 3, live, &graph));
  ok(tt_graph_order(graph, &arena, &orders));
  assert_ptr_equal(orders.all[1].kernel, find("mul.Tensor"));
  tt_orders_print(&orders, &text);
  int count = numbers_of(text.data, numbers);
  tt_text_deinit(&text);
  tt_arena_deinit(&arena);
  return count;
}

static void test_orders(void **state) {
  (void)state;
  if (!session) skip();
  int64_t numbers[MOST];
  tt_arena arena = TT_ARENA_INIT;
  tt_orders orders;
  tt_storage *a = vector(4, (float[]){1, 2, 3, 4});
  tt_guard_enter();
  int count = orders_of(a, numbers);
  tt_guard_leave();
  ok(tt_orders_read(numbers, count, &arena, &orders));
  assert_true(orders.count == 2 && orders.slot_count == 3);
  assert_true(orders.input_count == 1 && orders.bytes[2] == 16);
  assert_true(orders.homes[1] == -1 && orders.homes[2] == 0);
  const tt_order *first = &orders.all[0], *second = &orders.all[1];
  assert_string_equal(first->name, "mul.Tensor");
  assert_true(first->tensor_count == 1 && first->result_count == 1 && first->arg_count == 2);
  assert_true(first->tensors[0].slot == 0 && second->tensors[0].slot == 1);
  assert_true(first->numbers[0].dtype == TT_F32 && second->numbers[0].word == 1);
  assert_true(first->args[1].kind == TT_ARG_SCALAR && first->results[0].view.sizes[0] == 4);
  assert_true(first->drop_count == 0 && second->drop_count == 1 && second->drops[0] == 1);
  tt_arena_deinit(&arena);
  tt_storage_release(a);
}

static void test_a_call_that_is_refused(void **state) {
  (void)state;
  if (!session) skip();
  tt_storage *a = vector(7, (float[]){1, 2, 3, 4, 5, 6, 7});
  tt_call *call = NULL;
  request r = scale_request(a, 2);
  tt_guard_enter();
  ok(request_call(&r, &call));
  assert_true(tt_call_orders(call, &session->target));
  tt_call_refuse_orders(call);
  assert_false(tt_call_orders(call, &session->target));
  tt_guard_leave();
  tt_storage_release(a);
}

static void test_blame(void **state) {
  (void)state;
  tt_order order = {.name = "aten::sin", .step = 41};
  tt_status status = tt_order_blame(&order, tt_error(TT_INTERNAL, "no sine"));
  assert_int_equal(tt_order_blamed(tt_status_message(status)), 41);
  assert_int_equal(tt_order_blamed("no sine"), -1);
  assert_null(tt_order_blame(&order, TT_SUCCESS));
  tt_status_release(status);
}

static bool read_all(const int64_t *numbers, int count) {
  tt_arena arena = TT_ARENA_INIT;
  tt_orders orders;
  tt_status status = tt_orders_read(numbers, count, &arena, &orders);
  bool good = !status;
  tt_status_release(status);
  tt_arena_deinit(&arena);
  return good;
}

/* Each number by another, and each beginning: an error, or orders whose places are there. */
static void test_damaged_orders(void **state) {
  (void)state;
  if (!session) skip();
  static const int64_t others[] = {-1, 0, 1, 7, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN};
  int64_t numbers[MOST];
  tt_storage *a = vector(6, (float[]){1, 2, 3, 4, 5, 6});
  tt_guard_enter();
  int count = orders_of(a, numbers);
  tt_guard_leave();
  assert_true(read_all(numbers, count));
  for (int i = 0; i < count; i++) {
    int64_t was = numbers[i];
    assert_false(read_all(numbers, i));
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
      numbers[i] = others[k];
      (void)read_all(numbers, count);
    }
    numbers[i] = was;
  }
  tt_storage_release(a);
}

/* Random123's vectors of Philox-4x32-10 for a key and a counter of zeros. */
static void test_draws(void **state) {
  (void)state;
  static const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  float units[5];
  tt_draw_units(0, 0, 0, 5, units);
  for (int i = 0; i < 4; i++) assert_float_equal(units[i], (float)(words[i] >> 8) * 0x1p-24f, 0);
  float later[1];
  tt_draw_units(0, 1, 0, 1, later);
  assert_float_equal(units[4], later[0], 0);
  tt_draw_units(0, 0, 2, 3, units);
  assert_float_equal(units[2], later[0], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_a_chunk, reset),
      cmocka_unit_test_setup(test_writes, reset),
      cmocka_unit_test_setup(test_many_results, reset),
      cmocka_unit_test_setup(test_two_storages_of_a_value, reset),
      cmocka_unit_test_setup(test_orders, reset),
      cmocka_unit_test_setup(test_a_call_that_is_refused, reset),
      cmocka_unit_test(test_blame),
      cmocka_unit_test_setup(test_damaged_orders, reset),
      cmocka_unit_test_setup(test_a_kernel_that_fails, reset),
      cmocka_unit_test(test_draws),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
