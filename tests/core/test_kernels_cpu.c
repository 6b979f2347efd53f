/* Orders of kernels: what a program's text says of a call, and who computes it, on XLA's CPU
 * plugin; skipped when TT_CPU_PLUGIN does not name one. */
#include "support.h"

#include "call/ordered.h"
#include "kernels/draw.h"
#include "kernels/kernels.h"
#include "stream/tier.h"

#include <stdatomic.h>

static tt_stream *stream;
static atomic_int computed;
static const char *failing = ""; /* the kernel of this name */

/* -- A library of two kernels -- */

static bool has(const char *name) {
  return !strcmp(name, "add.Tensor") || !strcmp(name, "mul.Tensor");
}

static float *at(void *memory, const tt_view *view, int64_t i) {
  return (float *)memory + view->offset + (view->rank ? i * view->strides[view->rank - 1] : 0);
}

/* Vectors. Into the first operand where that is the target. */
static tt_status compute(const tt_order *order, void *const *memory, void *const *made,
                         const uint32_t *words) {
  const tt_order_result *result = &order->results[0];
  const tt_order_tensor *tensors = order->tensors;
  bool adds = !strcmp(order->name, "add.Tensor");
  float number = 0;
  if (!strcmp(order->name, failing)) return tt_error(TT_INTERNAL, "this one fails");
  if (order->number_count) memcpy(&number, words + order->numbers[0].word, sizeof number);
  void *out = result->target >= 0 ? memory[result->target] : made[0];
  const tt_view *to = result->target >= 0 ? &tensors[result->target].view : &result->view;
  for (int64_t i = 0; i < tt_view_numel(&tensors[0].view); i++) {
    float x = *at(memory[0], &tensors[0].view, i);
    *at(out, to, i) = adds ? x + *at(memory[1], &tensors[1].view, i) : x * number;
  }
  computed++;
  return TT_SUCCESS;
}

static const tt_kernel_library library = {has, compute};

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
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 1);
  release(5, all);
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
    tt_storage_release(c);
  }
  release(2, (tt_storage *[]){a, b});
}

/* -- What the text says -- */

enum { MOST = 512 };

static int order_of(tt_call *call, int64_t *numbers) {
  tt_text text = TT_TEXT_INIT;
  tt_order_print(call, 3, &text);
  ok(tt_text_status(&text));
  int count = 0;
  const char *begin = strchr(text.data, ':');
  assert_non_null(begin);
  for (char *end = NULL; *begin != '>'; begin = end) {
    assert_true(count < MOST);
    numbers[count++] = strtoll(begin + 1, &end, 10);
  }
  tt_text_deinit(&text);
  return count;
}

static tt_call *scaled(tt_storage *a) {
  tt_call *call = NULL;
  request r = scale_request(a, 2);
  ok(request_call(&r, &call));
  return call;
}

static void test_an_order(void **state) {
  (void)state;
  if (!session) skip();
  int64_t numbers[MOST];
  tt_arena arena = TT_ARENA_INIT;
  tt_order order;
  tt_storage *a = vector(4, (float[]){1, 2, 3, 4});
  tt_guard_enter();
  tt_call *call = scaled(a);
  assert_true(tt_call_orders(call, &session->target));
  int count = order_of(call, numbers);
  ok(tt_order_read(numbers, count, &arena, &order));
  assert_string_equal(order.name, "mul.Tensor");
  assert_true(order.tensor_count == 1 && order.result_count == 1 && order.arg_count == 2);
  assert_true(order.tensors[0].operand == 0 && order.tensors[0].result == -1);
  assert_true(order.numbers[0].dtype == TT_F32 && order.numbers[0].word == 3);
  assert_true(order.args[1].kind == TT_ARG_SCALAR && order.results[0].view.sizes[0] == 4);
  tt_call_refuse_orders(call);
  assert_false(tt_call_orders(call, &session->target));
  tt_guard_leave();
  tt_arena_deinit(&arena);
  tt_storage_release(a);
}

/* Each number by another, and each beginning: an error, or an order whose places are there. */
static void test_damaged_orders(void **state) {
  (void)state;
  if (!session) skip();
  static const int64_t others[] = {-1, 0, 1, 7, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN};
  int64_t numbers[MOST];
  tt_order order;
  tt_storage *a = vector(6, (float[]){1, 2, 3, 4, 5, 6});
  tt_guard_enter();
  int count = order_of(scaled(a), numbers);
  tt_guard_leave();
  for (int i = 0; i < count; i++) {
    int64_t was = numbers[i];
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
      tt_arena arena = TT_ARENA_INIT;
      numbers[i] = others[k];
      tt_status_release(tt_order_read(numbers, count, &arena, &order));
      tt_arena_deinit(&arena);
    }
    numbers[i] = was;
    tt_arena arena = TT_ARENA_INIT;
    fails(tt_order_read(numbers, i, &arena, &order), TT_INVALID_ARGUMENT, "no order");
    tt_arena_deinit(&arena);
  }
  tt_storage_release(a);
}

/* Random123's vectors of Philox-4x32-10 for a key and a counter of zeros. */
static void test_draws(void **state) {
  (void)state;
  static const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  float units[5];
  tt_draw_units(0, 0, 5, units);
  for (int i = 0; i < 4; i++) assert_float_equal(units[i], (float)(words[i] >> 8) * 0x1p-24f, 0);
  float later[1];
  tt_draw_units(0, 1, 1, later);
  assert_float_equal(units[4], later[0], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(test_a_chunk, reset),
      cmocka_unit_test_setup(test_writes, reset),
      cmocka_unit_test_setup(test_an_order, reset),
      cmocka_unit_test_setup(test_damaged_orders, reset),
      cmocka_unit_test_setup(test_a_kernel_that_fails, reset),
      cmocka_unit_test(test_draws),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
