/* A plugin that spans processes, which are threads here: what it is told of the others, their
 * board, and programs that they run together. Skipped when TT_CPU_PLUGIN names no plugin that could
 * compute. */
#include "pjrt/pjrt.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checks.h"

enum { NODES = 2, KEPT = 64 };

static tt_plugin *plugin;

/* -- A board -- */

static struct {
  pthread_mutex_t lock;
  char *keys[KEPT], *data[KEPT];
  size_t sizes[KEPT];
  int count, left; /* so many puts and gets are answered */
} board = {.lock = PTHREAD_MUTEX_INITIALIZER};

static tt_status use(void) {
  return board.left-- > 0 ? TT_SUCCESS : tt_error(TT_UNAVAILABLE, "the board is gone");
}

static tt_status put(void *user, const char *key, const void *data, size_t size) {
  (void)user;
  pthread_mutex_lock(&board.lock);
  tt_status status = use();
  if (!status) {
    int i = board.count++;
    assert_true(i < KEPT);
    board.keys[i] = strdup(key);
    board.data[i] = malloc(size + 1);
    board.sizes[i] = size;
    if (size) memcpy(board.data[i], data, size);
  }
  pthread_mutex_unlock(&board.lock);
  return status;
}

static tt_status get(void *user, const char *key, tt_text *out, bool *found) {
  (void)user;
  pthread_mutex_lock(&board.lock);
  tt_status status = use();
  *found = false;
  for (int i = 0; !status && i < board.count && !*found; i++) {
    *found = strcmp(board.keys[i], key) == 0;
    if (*found) tt_text_add(out, board.data[i], board.sizes[i]);
  }
  pthread_mutex_unlock(&board.lock);
  return status;
}

static const tt_board the_board = {NULL, put, get, NULL, NULL, NULL};

static void clear_board(int left) {
  for (int i = 0; i < board.count; i++) {
    free(board.keys[i]);
    free(board.data[i]);
  }
  board.count = 0;
  board.left = left;
}

/* -- What a process does -- */

static const char SUM[] =
    "// devices 0 1\n// party 4\n"
    "module { func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {\n"
    "  %0 = \"stablehlo.all_reduce\"(%arg0) ({\n"
    "  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
    "    %s = \"stablehlo.add\"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
    "    \"stablehlo.return\"(%s) : (tensor<f32>) -> ()\n"
    "  }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>\n"
    "  \"func.return\"(%0) : (tensor<2xf32>) -> ()\n"
    "} }";

typedef struct process {
  int node, id;
  bool spans;
  float result[2];
  tt_status status;
  pthread_t thread;
} process;

static tt_status sum(process *p, tt_client *client) {
  tt_compile_options options = {.optimization_level = -1};
  tt_executable *executable = NULL;
  tt_pjrt_device *device = tt_client_device(client, 0), *runs_on = NULL;
  int64_t two = 2;
  int count = 0;
  tt_type type = tt_type_make(TT_F32, 1, &two);
  float own[2] = {1.0f + (float)p->node, 10};
  tt_buffer *in = NULL, *out[1] = {NULL}, **outputs = out;
  p->id = tt_pjrt_device_id(device);
  TT_TRY(tt_compile(client, SUM, sizeof SUM - 1, &options, &executable));
  tt_status status = tt_executable_devices(executable, &runs_on, 1, &count);
  if (!status && (count != 1 || runs_on != device))
    status = tt_error(TT_INTERNAL, "it runs on %d devices of this process", count);
  if (!status) status = tt_buffer_from_host(device, &type, own, NULL, NULL, &in);
  tt_buffer *const *arguments = &in;
  if (!status) status = tt_execute_all(executable, 1, &arguments, 1, NULL, 0, &outputs, NULL);
  if (!status) status = tt_buffer_to_host(client, out[0], &type, p->result, sizeof p->result);
  tt_buffer_destroy(client, in);
  tt_buffer_destroy(client, out[0]);
  tt_executable_destroy(executable);
  return status;
}

static void *be_process(void *user) {
  process *p = user;
  tt_world world = {.node = p->node, .nodes = NODES, .visible = -1, .board = &the_board};
  tt_client_options options = {.world = &world};
  tt_client *client = NULL;
  p->status = tt_client_create(plugin, &options, &client);
  if (p->status) return NULL;
  p->spans = tt_client_spans(client);
  p->status = sum(p, client);
  tt_client_destroy(client);
  return NULL;
}

static void run(process processes[NODES]) {
  for (int i = 0; i < NODES; i++) {
    processes[i] = (process){.node = i};
    pthread_create(&processes[i].thread, NULL, be_process, &processes[i]);
  }
  for (int i = 0; i < NODES; i++) pthread_join(processes[i].thread, NULL);
}

/* -- The tests -- */

static void test_a_sum(void **state) {
  (void)state;
  process processes[NODES];
  clear_board(1000000);
  run(processes);
  for (int i = 0; i < NODES; i++) {
    ok(processes[i].status);
    assert_true(processes[i].spans);
    assert_int_equal(processes[i].id, NODES - 1 - i);
    assert_true(processes[i].result[0] == 3 && processes[i].result[1] == 20);
  }
}

/* The board fails at any time: then so does what needs it, with its words. */
static void test_a_board_that_fails(void **state) {
  (void)state;
  process processes[NODES];
  for (int left = 0; left < 8; left++) {
    int failed = 0;
    clear_board(left);
    run(processes);
    for (int i = 0; i < NODES; i++) {
      if (!processes[i].status) continue;
      fails(processes[i].status, TT_UNAVAILABLE, "the board is gone");
      failed++;
    }
    assert_true(failed > 0);
  }
}

static void test_who_does_not_come(void **state) {
  (void)state;
  process alone = {.node = 1};
  clear_board(1000000);
  setenv("TT_ACCEL_TIMEOUT_MS", "50", 1);
  be_process(&alone);
  unsetenv("TT_ACCEL_TIMEOUT_MS");
  fails(alone.status, TT_UNAVAILABLE, "another process has not said 'here/0' within 0.05 s");
}

static void test_a_process_alone(void **state) {
  (void)state;
  tt_client *client = NULL;
  ok(tt_client_create(plugin, NULL, &client));
  assert_false(tt_client_spans(client));
  tt_client_destroy(client);
}

static int setup(void **state) {
  (void)state;
  setenv("TT_ACCEL_SPANS", "1", 1);
  ok(tt_plugin_open(getenv("TT_ACCEL_PLUGIN"), &plugin));
  return 0;
}

static int teardown(void **state) {
  (void)state;
  clear_board(0);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_sum),
      cmocka_unit_test(test_a_board_that_fails),
      cmocka_unit_test(test_who_does_not_come),
      cmocka_unit_test(test_a_process_alone),
  };
  if (!getenv("TT_CPU_PLUGIN")) {
    print_message("skipped: TT_CPU_PLUGIN is not set\n");
    return 0;
  }
  return cmocka_run_group_tests(tests, setup, teardown);
}
