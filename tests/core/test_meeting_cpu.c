/* Programs that several devices run at once, on XLA's CPU plugin: their text, and where their
 * launches meet. Skipped when TT_CPU_PLUGIN does not name a plugin. */
#include "hlo/hlo.h"
#include "stream/meeting.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checks.h"

enum { DEVICES = 4, NUMBERS = 4 };

static tt_plugin *plugin;
static tt_client *client;
static tt_target target;
static tt_program_table *programs;

static int setup(void **state) {
  (void)state;
  tt_client_options options = {.cpu_devices = DEVICES};
  ok(tt_plugin_open(getenv("TT_CPU_PLUGIN"), &plugin));
  ok(tt_client_create(plugin, &options, &client));
  tt_target_init_client(&target, plugin, client);
  ok(tt_program_table_create(&target, &programs));
  return 0;
}

static int teardown(void **state) {
  (void)state;
  tt_program_table_destroy(programs);
  tt_client_destroy(client);
  return 0;
}

static tt_type numbers_type(void) {
  int64_t count = NUMBERS;
  return tt_type_make(TT_F32, 1, &count);
}

typedef tt_node *(*body)(tt_hlo *h, tt_node *x, const tt_groups *groups);

/* Of four numbers on each device. */
static tt_program *program_of(body make, const tt_groups *groups) {
  tt_hlo *h = NULL;
  tt_module module = {.result_count = 1, .name = tt_strndup("test", 4)};
  tt_type type = numbers_type();
  tt_program *program = NULL;
  ok(tt_hlo_create(&h));
  tt_node *x = tt_hlo_param(h, &type), *y = make(h, x, groups);
  int count = 0;
  const int64_t *devices = tt_hlo_devices(h, &count);
  module.joint.device_count = count;
  tt_text_printf(&module.text, "// devices");
  for (int i = 0; i < count; i++) tt_text_printf(&module.text, " %lld", (long long)devices[i]);
  tt_text_printf(&module.text, "\n");
  ok(tt_hlo_finish(h, &y, 1, &module.text));
  tt_hlo_destroy(h);
  ok(tt_program_intern(programs, &module, TT_WANT_NOW, &program));
  tt_module_deinit(&module);
  ok(tt_program_await(program));
  return program;
}

/* -- What one device does, on a thread of its own -- */

typedef struct visit {
  tt_program *program;
  int device, count;
  float in[NUMBERS], out[NUMBERS * DEVICES];
  tt_status status;
  pthread_t thread;
} visit;

static void *come(void *user) {
  visit *v = user;
  tt_pjrt_device *device = tt_client_device(client, v->device);
  tt_type type = numbers_type();
  int64_t count = v->count;
  tt_type result = tt_type_make(TT_F32, 1, &count);
  tt_buffer *x = NULL, *y = NULL;
  v->status = tt_buffer_from_host(device, &type, v->in, NULL, NULL, &x);
  tt_seat seat = {.device = device, .arguments = &x, .count = 1, .outputs = &y};
  if (!v->status) v->status = tt_meeting_execute(v->program, &seat);
  if (!v->status)
    v->status = tt_buffer_to_host(client, y, &result, v->out, sizeof(float) * (size_t)v->count);
  tt_event_destroy(client, seat.end);
  tt_buffer_destroy(client, x);
  tt_buffer_destroy(client, y);
  return NULL;
}

static void start(visit *v, tt_program *program, int device, int count) {
  *v = (visit){.program = program, .device = device, .count = count};
  for (int i = 0; i < NUMBERS; i++) v->in[i] = (float)(10 * device + i);
  assert_int_equal(pthread_create(&v->thread, NULL, come, v), 0);
}

static void end(visit *v) { assert_int_equal(pthread_join(v->thread, NULL), 0); }

static tt_node *sum(tt_hlo *h, tt_node *x, const tt_groups *groups) {
  return tt_hlo_all_reduce(h, TT_SUM, x, groups);
}
static tt_node *gather(tt_hlo *h, tt_node *x, const tt_groups *groups) {
  return tt_hlo_all_gather(h, x, groups);
}
static tt_node *scatter(tt_hlo *h, tt_node *x, const tt_groups *groups) {
  return tt_hlo_reduce_scatter(h, TT_MAX, x, groups);
}
static tt_node *swap(tt_hlo *h, tt_node *x, const tt_groups *groups) {
  return tt_hlo_all_to_all(h, x, groups);
}

static void expect(const visit *v, const float *numbers) {
  ok(v->status);
  assert_memory_equal(v->out, numbers, sizeof(float) * (size_t)v->count);
}

/* Devices 1 and 3, in this order and in the other; two groups of all. */
static void test_collectives(void **state) {
  (void)state;
  static const int64_t pair[] = {1, 3}, turned[] = {3, 1}, all[] = {0, 2, 1, 3};
  tt_groups two = {pair, 2, 2}, other = {turned, 2, 2}, groups = {all, DEVICES, 2};
  visit a, b, c, d;
  tt_program *summed = program_of(sum, &two);
  start(&a, summed, 1, 4), start(&b, summed, 3, 4), end(&a), end(&b);
  expect(&a, (float[]){40, 42, 44, 46}), expect(&b, (float[]){40, 42, 44, 46});
  tt_program *gathered = program_of(gather, &other);
  start(&a, gathered, 1, 8), start(&b, gathered, 3, 8), end(&a), end(&b);
  expect(&a, (float[]){30, 31, 32, 33, 10, 11, 12, 13});
  tt_program *scattered = program_of(scatter, &other);
  start(&a, scattered, 1, 2), start(&b, scattered, 3, 2), end(&a), end(&b);
  expect(&a, (float[]){32, 33}), expect(&b, (float[]){30, 31});
  tt_program *swapped = program_of(swap, &groups);
  start(&a, swapped, 0, 4), start(&b, swapped, 1, 4), start(&c, swapped, 2, 4);
  start(&d, swapped, 3, 4), end(&a), end(&b), end(&c), end(&d);
  expect(&a, (float[]){0, 1, 20, 21}), expect(&c, (float[]){2, 3, 22, 23});
  expect(&b, (float[]){10, 11, 30, 31}), expect(&d, (float[]){12, 13, 32, 33});
  tt_program *shared[] = {summed, gathered, scattered, swapped};
  for (int i = 0; i < 4; i++) tt_program_release(shared[i]);
}

/* One device comes three times before the other comes once. */
static void test_launches_meet_in_order(void **state) {
  (void)state;
  static const int64_t pair[] = {0, 1};
  tt_program *program = program_of(sum, &(tt_groups){pair, 2, 2});
  visit early[3], late[3];
  for (int i = 0; i < 3; i++) start(&early[i], program, 0, 4);
  for (int i = 0; i < 3; i++) start(&late[i], program, 1, 4), end(&late[i]);
  for (int i = 0; i < 3; i++) {
    end(&early[i]);
    expect(&early[i], (float[]){10, 12, 14, 16}), expect(&late[i], (float[]){10, 12, 14, 16});
  }
  tt_program_release(program);
}

static void failed(visit *v, const char *words) {
  assert_non_null(v->status);
  if (!strstr(tt_status_message(v->status), words)) fail_msg("%s", tt_status_message(v->status));
  tt_status_release(v->status);
}

/* Those who wait, those who come later, and nobody once it is open again. */
static void test_a_meeting_ends(void **state) {
  (void)state;
  static const int64_t three[] = {0, 1, 2};
  tt_program *program = program_of(sum, &(tt_groups){three, 3, 3});
  visit a, b, c;
  tt_meeting_reopen(100);
  start(&a, program, 0, 4), start(&b, program, 2, 4), end(&a), end(&b);
  failed(&a, "2 of 3 devices came to run it; these did not within 0.1 s: 1");
  failed(&b, "within 0.1 s: 1");
  start(&c, program, 1, 4), end(&c);
  failed(&c, "within 0.1 s: 1");
  tt_meeting_reopen(60000);
  start(&a, program, 0, 4);
  tt_meeting_end("rank 1 is gone");
  tt_meeting_end("and rank 2");
  end(&a);
  failed(&a, "rank 1 is gone");
  tt_status error = tt_meeting_error();
  assert_string_equal(tt_status_message(error), "rank 1 is gone");
  tt_status_release(error);
  start(&a, program, 3, 4), end(&a);
  failed(&a, "rank 1 is gone");
  tt_meeting_reopen(60000);
  assert_null(tt_meeting_error());
  start(&a, program, 3, 4), end(&a);
  failed(&a, "is none of those that the program runs on");
  start(&a, program, 0, 4), start(&b, program, 1, 4), start(&c, program, 2, 4);
  end(&a), end(&b), end(&c);
  expect(&a, (float[]){30, 33, 36, 39});
  tt_program_release(program);
}

static void refused(const char *line, const char *words) {
  tt_executable *none = NULL;
  tt_text text = TT_TEXT_INIT;
  tt_text_printf(&text, "%smodule {}", line);
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  tt_status status = tt_compile(client, text.data, text.size, &options, &none);
  tt_text_deinit(&text);
  assert_int_equal(tt_status_code(status), TT_INVALID_ARGUMENT);
  if (!strstr(tt_status_message(status), words)) fail_msg("%s", tt_status_message(status));
  tt_status_release(status);
}

static void test_lines_that_name_no_devices(void **state) {
  (void)state;
  refused("// devices 0 one\n", "'0 one' names no devices");
  refused("// devices 0 -1\n", "'0 -1' names no devices");
  refused("// devices \n", "'' names no devices");
}

int main(void) {
  if (!getenv("TT_CPU_PLUGIN")) return 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_collectives),
      cmocka_unit_test(test_launches_meet_in_order),
      cmocka_unit_test(test_a_meeting_ends),
      cmocka_unit_test(test_lines_that_name_no_devices),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
