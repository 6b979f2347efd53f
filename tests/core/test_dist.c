/* Groups of processes, on a transport that does what the test says; and programs that call it, on
 * XLA's CPU plugin (skipped when TT_CPU_PLUGIN does not name one). */
#include "dist/flight.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checks.h"

/* A mesh's groups are found from one of them, whatever dim of it they are along. */
static void test_partitions(void **state) {
  (void)state;
  int64_t out[8];
  assert_true(tt_dist_partition((int64_t[]){4, 6}, 2, 8, out));
  assert_memory_equal(out, ((int64_t[]){0, 2, 1, 3, 4, 6, 5, 7}), sizeof out);
  assert_true(tt_dist_partition((int64_t[]){1, 3, 5, 7}, 4, 8, out));
  assert_memory_equal(out, ((int64_t[]){0, 2, 4, 6, 1, 3, 5, 7}), sizeof out);
  assert_true(tt_dist_partition((int64_t[]){5}, 1, 8, out));
  assert_int_equal(out[7], 7);
  assert_true(tt_dist_partition((int64_t[]){0, 1, 2, 3, 4, 5, 6, 7}, 8, 8, out));
  assert_false(tt_dist_partition((int64_t[]){0, 1, 3}, 3, 9, out));
  assert_false(tt_dist_partition((int64_t[]){2, 4}, 2, 8, out));
  assert_false(tt_dist_partition((int64_t[]){1, 0}, 2, 8, out));
  assert_false(tt_dist_partition((int64_t[]){0, 1, 2}, 3, 8, out));
  assert_false(tt_dist_partition((int64_t[]){6, 8}, 2, 8, out));
}

/* -- A transport that keeps what it was asked, and doubles what it reduces -- */

enum { MOST = 8 };
static struct {
  tt_collective asked[MOST];
  int count, released;
  bool fails;
} log_;

static tt_status carry(void *user, tt_collective *c) {
  (void)user;
  if (log_.fails) return tt_error(TT_UNAVAILABLE, "the wire was cut");
  if (log_.count < MOST) log_.asked[log_.count++] = *c;
  if (c->kind == TT_COLLECTIVE_ALL_REDUCE)
    for (int64_t i = 0; i < c->y_count; i++) ((float *)c->y)[i] *= 2;
  if (c->kind == TT_COLLECTIVE_ALL_GATHER)
    for (int64_t i = 0; i < c->size; i++)
      memcpy((char *)c->y + i * c->x_count, c->x, (size_t)c->x_count);
  if (c->kind == TT_COLLECTIVE_RECV) c->source = 1;
  return TT_SUCCESS;
}

static void let_go(void *user) {
  (void)user;
  log_.released++;
}

static tt_dist_group *open_group(void) {
  static const tt_transport transport = {NULL, carry, NULL, let_go};
  tt_dist_group *group = NULL;
  memset(&log_, 0, sizeof log_);
  ok(tt_dist_create("test", 0, 2, &transport, &group));
  return group;
}

static void close_group(tt_dist_group *group) {
  tt_dist_destroy(group);
  assert_int_equal(log_.released, 1);
}

static tt_status run(int64_t *turn, tt_collective_kind kind) {
  float x[2] = {1, 2};
  tt_collective c = {.kind = kind, .dtype = TT_F32, .y = x, .y_count = 2};
  return tt_dist_run(turn, &c, turn);
}

static void test_turns_count(void **state) {
  (void)state;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS];
  tt_dist_turn(group, turn);
  assert_int_equal(turn[TT_TURN_SIZE], 2);
  for (int i = 0; i < 3; i++) ok(run(turn, TT_COLLECTIVE_ALL_REDUCE));
  assert_int_equal(turn[TT_TURN_SEQUENCE], 3);
  assert_int_equal(log_.count, 3);
  assert_int_equal(log_.asked[2].sequence, 2);
  assert_int_equal(log_.asked[2].size, 2);
  close_group(group);
}

static void test_nothing_is_done_twice(void **state) {
  (void)state;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS], again[TT_TURN_WORDS];
  tt_dist_turn(group, turn);
  memcpy(again, turn, sizeof turn);
  ok(run(turn, TT_COLLECTIVE_BARRIER));
  fails(run(again, TT_COLLECTIVE_BARRIER), TT_FAILED_PRECONDITION, "cannot be run again");
  assert_int_equal(log_.count, 1);
  ok(run(turn, TT_COLLECTIVE_BARRIER));
  close_group(group);
}

static void test_the_first_error_ends_a_group(void **state) {
  (void)state;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS];
  tt_dist_turn(group, turn);
  ok(tt_dist_error(group));
  assert_false(tt_dist_failed(group));
  log_.fails = true;
  const char *sentence = "process group test, rank 0 of 2: collective 0 (all_reduce of 2 elements "
                         "of f32) failed: the wire was cut";
  fails(run(turn, TT_COLLECTIVE_ALL_REDUCE), TT_UNAVAILABLE, sentence);
  log_.fails = false;
  fails(run(turn, TT_COLLECTIVE_BROADCAST), TT_UNAVAILABLE, sentence);
  tt_dist_abort(group, "no more");
  fails(tt_dist_error(group), TT_UNAVAILABLE, sentence);
  assert_true(tt_dist_failed(group));
  assert_int_equal(log_.count, 0);
  close_group(group);
}

static void test_an_aborted_group(void **state) {
  (void)state;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS];
  tt_dist_turn(group, turn);
  tt_dist_abort(group, "it was aborted");
  fails(run(turn, TT_COLLECTIVE_ALL_REDUCE), TT_CANCELLED, "it was aborted");
  assert_int_equal(log_.count, 0);
  close_group(group);
}

static void test_a_group_that_is_gone(void **state) {
  (void)state;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS];
  tt_dist_turn(group, turn);
  close_group(group);
  fails(run(turn, TT_COLLECTIVE_GATHER), TT_FAILED_PRECONDITION,
        "gather: its process group was destroyed");
}

static void test_who_sent(void **state) {
  (void)state;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS];
  tt_dist_turn(group, turn);
  assert_int_equal(tt_dist_source(group), -1);
  ok(run(turn, TT_COLLECTIVE_RECV));
  assert_int_equal(tt_dist_source(group), 1);
  close_group(group);
}

static void test_the_flight_record(void **state) {
  (void)state;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS], before = tt_flight_count();
  tt_flight flight;
  tt_dist_turn(group, turn);
  for (int i = 0; i < TT_FLIGHT_KEPT + 1; i++) ok(run(turn, TT_COLLECTIVE_BROADCAST));
  log_.fails = true;
  tt_status_release(run(turn, TT_COLLECTIVE_ALL_REDUCE));
  assert_int_equal(tt_flight_count(), before + TT_FLIGHT_KEPT + 2);
  assert_false(tt_flight_get(before, &flight));
  assert_false(tt_flight_get(before + 1, &flight));
  assert_false(tt_flight_get(tt_flight_count(), &flight));
  assert_true(tt_flight_get(before + 2, &flight));
  assert_int_equal(flight.state, TT_FLIGHT_COMPLETED);
  assert_int_equal(flight.sequence, 2);
  assert_true(flight.started_ns > 0 && flight.ended_ns >= flight.started_ns);
  assert_true(tt_flight_get(tt_flight_count() - 1, &flight));
  assert_int_equal(flight.state, TT_FLIGHT_FAILED);
  assert_int_equal(flight.kind, TT_COLLECTIVE_ALL_REDUCE);
  assert_string_equal(flight.group, "test");
  close_group(group);
}

static void test_what_arguments_must_be(void **state) {
  (void)state;
  tt_dist_tensor parts[] = {{4, TT_F32}, {4, TT_F32}, {3, TT_F32}}, one = {4, TT_F32};
  ok(tt_dist_check_parts("gather", "output", parts, 2, one, 2));
  fails(tt_dist_check_parts("gather", "output", parts, 2, one, 3), TT_INVALID_ARGUMENT,
        "gather: the output list has 2 tensors, but the group has 3 ranks");
  fails(tt_dist_check_parts("gather", "output", parts, 3, one, 3), TT_INVALID_ARGUMENT,
        "must have 4 elements of f32, not 3 of f32");
  fails(tt_dist_check_parts("gather", "output", parts, 1, (tt_dist_tensor){4, TT_I32}, 1),
        TT_INVALID_ARGUMENT, "4 elements of i32, not 4 of f32");
  ok(tt_dist_check_whole("f", "output", (tt_dist_tensor){8, TT_F32}, "input", one, 2));
  fails(tt_dist_check_whole("f", "output", (tt_dist_tensor){7, TT_F32}, "input", one, 2),
        TT_INVALID_ARGUMENT, "2 times the elements of the input tensor, and its dtype: 8 of");
  fails(tt_dist_check_whole("f", "output", (tt_dist_tensor){8, TT_I8}, "input", one, 2),
        TT_INVALID_ARGUMENT, "not 8 of i8");
}

static void test_splits(void **state) {
  (void)state;
  int64_t given[] = {1, 3}, elements[2];
  ok(tt_dist_split(4, 5, given, 2, 2, elements));
  assert_int_equal(elements[0], 5);
  assert_int_equal(elements[1], 15);
  ok(tt_dist_split(4, 5, NULL, 0, 2, elements));
  assert_int_equal(elements[1], 10);
  const char *words = "must be 2 numbers, none negative, that add up to 5";
  fails(tt_dist_split(5, 5, given, 2, 2, elements), TT_INVALID_ARGUMENT, words);
  fails(tt_dist_split(5, 5, NULL, 0, 2, elements), TT_INVALID_ARGUMENT, words);
  fails(tt_dist_split(5, 5, given, 1, 2, elements), TT_INVALID_ARGUMENT, words);
  given[0] = 6, given[1] = -1;
  fails(tt_dist_split(5, 5, given, 2, 2, elements), TT_INVALID_ARGUMENT, words);
}

static void test_memory_runs_out(void **state) {
  (void)state;
  const tt_transport transport = {NULL, carry, NULL, let_go};
  for (int at = 1; at <= 2; at++) {
    tt_dist_group *group = NULL;
    log_.released = 0;
    tt_alloc_fail_at(at, false);
    fails(tt_dist_create("test", 0, 2, &transport, &group), TT_RESOURCE_EXHAUSTED, "memory");
    tt_alloc_fail_at(0, false);
    assert_null(group);
    assert_int_equal(log_.released, 1);
  }
}

/* -- In programs -- */

static tt_plugin *plugin;
static tt_client *client;

typedef struct calling {
  tt_hlo *h;
  tt_node *turn;
} calling;

/* The next turn, and y of this type; the config says what is asked. */
static tt_node *call(calling *c, const char *config, tt_node *numbers, tt_node *x,
                     const tt_type *y) {
  tt_node *xs[] = {c->turn, numbers, x}, *out[2];
  tt_type types[] = {c->turn->type, *y};
  if (tt_type_equal(&x->type, y))
    tt_hlo_custom_call_over(c->h, TT_COLLECTIVE_TARGET, config, 3, xs, 2, types, &(tt_over){2, 1},
                            1, out);
  else tt_hlo_custom_call(c->h, TT_COLLECTIVE_TARGET, config, 3, xs, 2, types, out);
  c->turn = out[0];
  return out[1];
}

static tt_status execute(tt_hlo *h, tt_node **results, int count, int64_t *turn, const float *x,
                         tt_buffer **out) {
  tt_text text = TT_TEXT_INIT;
  tt_executable *executable = NULL;
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  int64_t four = TT_TURN_WORDS, two = 2;
  tt_type turns = tt_type_make(TT_I64, 1, &four), pair = tt_type_make(TT_F32, 1, &two);
  tt_buffer *in[2] = {NULL, NULL};
  tt_pjrt_device *device = tt_client_device(client, 0);
  ok(tt_hlo_finish(h, results, count, &text));
  tt_hlo_destroy(h);
  ok(tt_compile(client, text.data, text.size, &options, &executable));
  tt_text_deinit(&text);
  ok(tt_buffer_from_host(device, &turns, turn, NULL, NULL, &in[0]));
  ok(tt_buffer_from_host(device, &pair, x, NULL, NULL, &in[1]));
  tt_status status = tt_execute(executable, device, in, 2, NULL, 0, out, NULL);
  if (!status) status = tt_buffer_to_host(client, out[0], &turns, turn, sizeof(int64_t) * 4);
  for (int i = 0; i < 2; i++) tt_buffer_destroy(client, in[i]);
  tt_executable_destroy(executable);
  return status;
}

static calling start(tt_node **x, tt_node **numbers) {
  calling c = {NULL, NULL};
  int64_t four = TT_TURN_WORDS, two = 2, given[3] = {0, -1, 5};
  tt_type turns = tt_type_make(TT_I64, 1, &four), pair = tt_type_make(TT_F32, 1, &two);
  ok(tt_hlo_create(&c.h));
  c.turn = tt_hlo_param(c.h, &turns);
  *x = tt_hlo_param(c.h, &pair);
  *numbers = tt_hlo_const_i64s(c.h, TT_I64, given, 3);
  return c;
}

/* Two collectives whose results nobody needs, and one that somebody does: all are done, in order.
 */
static void test_order_in_a_program(void **state) {
  (void)state;
  tt_node *x, *numbers;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS], four = 4;
  float in[2] = {1, 2}, out[4];
  tt_buffer *buffers[2] = {NULL, NULL};
  tt_type wide = tt_type_make(TT_F32, 1, &four);
  tt_dist_turn(group, turn);
  calling c = start(&x, &numbers);
  tt_node *doubled = call(&c, "kind = 0 : i64, op = 0 : i64", numbers, x, &x->type);
  call(&c, "kind = 1 : i64", numbers, x, &x->type);
  tt_node *gathered = call(&c, "kind = 3 : i64", numbers, doubled, &wide);
  ok(execute(c.h, (tt_node *[]){c.turn, gathered}, 2, turn, in, buffers));
  ok(tt_buffer_to_host(client, buffers[1], &wide, out, sizeof out));
  for (int i = 0; i < 2; i++) tt_buffer_destroy(client, buffers[i]);
  assert_memory_equal(out, ((float[]){2, 4, 2, 4}), sizeof out);
  assert_int_equal(turn[TT_TURN_SEQUENCE], 3);
  assert_int_equal(log_.count, 3);
  assert_int_equal(log_.asked[0].kind, TT_COLLECTIVE_ALL_REDUCE);
  assert_int_equal(log_.asked[0].dtype, TT_F32);
  assert_int_equal(log_.asked[1].kind, TT_COLLECTIVE_BROADCAST);
  assert_int_equal(log_.asked[2].kind, TT_COLLECTIVE_ALL_GATHER);
  assert_int_equal(log_.asked[2].dtype, TT_U8);
  assert_int_equal(log_.asked[2].x_count, 8);
  assert_int_equal(log_.asked[2].tag, -1);
  assert_int_equal(log_.asked[2].site, 5);
  close_group(group);
}

static void test_errors_fail_the_program(void **state) {
  (void)state;
  tt_node *x, *numbers;
  tt_dist_group *group = open_group();
  int64_t turn[TT_TURN_WORDS];
  float in[2] = {1, 2};
  tt_buffer *buffers[2] = {NULL, NULL};
  tt_dist_turn(group, turn);
  log_.fails = true;
  calling c = start(&x, &numbers);
  tt_node *y = call(&c, "kind = 0 : i64, op = 0 : i64", numbers, x, &x->type);
  tt_status status = execute(c.h, (tt_node *[]){c.turn, y}, 2, turn, in, buffers);
  for (int i = 0; i < 2; i++) tt_buffer_destroy(client, buffers[i]);
  fails(status, TT_UNAVAILABLE, "the wire was cut");
  c = start(&x, &numbers);
  y = call(&c, "kind = 99 : i64", numbers, x, &x->type);
  status = execute(c.h, (tt_node *[]){c.turn, y}, 2, turn, in, buffers);
  for (int i = 0; i < 2; i++) tt_buffer_destroy(client, buffers[i]);
  fails(status, TT_INVALID_ARGUMENT, "an unknown kind");
  close_group(group);
}

static int open_client(void **state) {
  (void)state;
  if (!getenv("TT_CPU_PLUGIN")) return 0;
  ok(tt_plugin_open(getenv("TT_CPU_PLUGIN"), &plugin));
  ok(tt_client_create(plugin, NULL, &client));
  ok(tt_dist_offer(plugin));
  return 0;
}

static int close_client(void **state) {
  (void)state;
  if (client) tt_client_destroy(client);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_partitions),
      cmocka_unit_test(test_turns_count),
      cmocka_unit_test(test_nothing_is_done_twice),
      cmocka_unit_test(test_the_first_error_ends_a_group),
      cmocka_unit_test(test_an_aborted_group),
      cmocka_unit_test(test_a_group_that_is_gone),
      cmocka_unit_test(test_who_sent),
      cmocka_unit_test(test_the_flight_record),
      cmocka_unit_test(test_what_arguments_must_be),
      cmocka_unit_test(test_splits),
      cmocka_unit_test(test_memory_runs_out),
  };
  const struct CMUnitTest in_programs[] = {
      cmocka_unit_test(test_order_in_a_program),
      cmocka_unit_test(test_errors_fail_the_program),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (!getenv("TT_CPU_PLUGIN")) print_message("skipped: TT_CPU_PLUGIN is not set\n");
  else failed += cmocka_run_group_tests(in_programs, open_client, close_client);
  return failed;
}
