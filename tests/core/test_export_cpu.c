/* Programs in files run: on the CPU plugin, and on one that behaves like an accelerator. */
#include "exported.h"

#include <stdio.h>
#include <unistd.h>

static void run_on(const char *plugin) {
  tt_runner_options options = {.plugin = plugin};
  tt_exported exported;
  tt_runner *runner = NULL;
  float x[2] = {1, 2}, sum[2];
  uint64_t place[2];
  ok(tt_exported_read(path, &exported));
  options.device = 99;
  fails(tt_runner_create(&exported, &options, &runner), TT_OUT_OF_RANGE, "no device 99");
  options.device = 0;
  ok(tt_runner_create(&exported, &options, &runner));
  assert_int_equal(tt_runner_loaded(runner), exported.body.size > 0);
  assert_non_null(tt_runner_target(runner)->platform);
  fails(tt_runner_run(runner), TT_FAILED_PRECONDITION, "input 'x' has no value");
  fails(tt_runner_get_output(runner, 3, sum, 8), TT_FAILED_PRECONDITION, "has not run");
  fails(tt_runner_set_input(runner, 0, x, 4), TT_INVALID_ARGUMENT, "'x' has 8 bytes, not 4");
  fails(tt_runner_set_input(runner, 1, x, 8), TT_INVALID_ARGUMENT, "port 1 is no input");
  fails(tt_runner_set_input(runner, -1, x, 8), TT_INVALID_ARGUMENT, "port -1");
  ok(tt_runner_set_input(runner, 0, x, 8));
  tt_runner_seed(runner, 5, UINT64_C(1) << 40);
  for (uint64_t i = 0; i < 3; i++) {
    ok(tt_runner_run(runner));
    ok(tt_runner_get_output(runner, 3, sum, sizeof sum));
    ok(tt_runner_get_output(runner, 4, place, sizeof place));
    assert_true(sum[0] == 11 && sum[1] == 22);
    assert_true(place[0] == 5 && place[1] == (UINT64_C(1) << 40) + 7 * i);
  }
  fails(tt_runner_get_output(runner, 5, sum, 8), TT_INVALID_ARGUMENT, "port 5");
  tt_runner_destroy(runner);
  tt_exported_deinit(&exported);
}

/* Compiled of the text alone; loaded where the key is this target's; compiled where it is not. */
static void runs(const char *plugin_path) {
  tt_plugin *plugin = NULL;
  tt_client *client = NULL;
  tt_target target;
  tt_exported given = content(), saved;
  if (!plugin_path || !*plugin_path) skip();
  ok(tt_exported_write(&given, path));
  run_on(plugin_path);
  ok(tt_plugin_open(plugin_path, &plugin));
  ok(tt_client_create(plugin, NULL, &client));
  tt_target_init_client(&target, plugin, client);
  ok(tt_exported_save(&given, &target, path));
  run_on(plugin_path);
  ok(tt_exported_read(path, &saved));
  assert_true(saved.environment.size > 0 && saved.options.size > 0);
  saved.environment.size--;
  tt_executable *executable = NULL;
  bool loaded = true;
  ok(tt_exported_executable(&saved, &target, &executable, &loaded));
  assert_false(loaded);
  tt_executable_destroy(executable);
  saved.output_count--;
  fails(tt_exported_executable(&saved, &target, &executable, &loaded), TT_DATA_LOSS,
        "another number of results");
  tt_exported_deinit(&saved);
  given.code.size -= 9;
  fails(tt_exported_save(&given, &target, path), TT_UNKNOWN, "error");
  tt_client_destroy(client);
  assert_int_equal(access(path, R_OK), 0); /* what was there before stays */
}

static void runs_on_the_cpu(void **state) {
  (void)state;
  runs(getenv("TT_CPU_PLUGIN"));
}

static void runs_on_an_accelerator(void **state) {
  (void)state;
  runs(getenv("TT_CPU_PLUGIN") ? getenv("TT_ACCEL_PLUGIN") : NULL);
}

/* As a launch of a stream. */
static void bound(void **state) {
  (void)state;
  const char *plugin_path = getenv("TT_CPU_PLUGIN");
  tt_exported given = content(), exported;
  tt_captured *captured = NULL;
  bool loaded = true;
  const float x[2] = {1, 2};
  float sum[2];
  uint64_t place[2];
  if (!plugin_path || !*plugin_path) skip();
  ok(session_open(plugin_path));
  ok(tt_exported_write(&given, path));
  ok(tt_exported_read(path, &exported));
  tt_stream *stream = stream_at(0);
  tt_type floats = type_of(TT_F32, 1, DIMS(2)), words = type_of(TT_U32, 1, DIMS(4));
  tt_storage *inputs[] = {storage_of(stream, floats, x), storage_of(stream, floats, weight)};
  tt_storage *outputs[] = {storage_new(stream, floats), storage_new(stream, words)};
  for (int i = 0; i < 2; i++) { /* the second one finds the first one's program */
    ok(tt_exported_bind(&exported, session->devices[0], &captured, &loaded));
    assert_false(loaded);
    tt_philox_place at = {3, 4};
    ok(tt_captured_replay(captured, stream,
                          &(tt_captured_storages){.inputs = inputs, .outputs = outputs}, &at,
                          &policy, 0));
    ok(storage_read(outputs[0], sum, sizeof sum));
    ok(storage_read(outputs[1], place, sizeof place));
    assert_true(sum[0] == 11 && sum[1] == 22 && place[0] == 3 && place[1] == 4);
    assert_int_equal(tt_captured_draw(captured, 0).blocks, 7);
    tt_captured_destroy(captured);
  }
  for (int i = 0; i < 2; i++) {
    tt_storage_release(inputs[i]);
    tt_storage_release(outputs[i]);
  }
  tt_exported_deinit(&exported);
  session_close();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_on_the_cpu),
      cmocka_unit_test(runs_on_an_accelerator),
      cmocka_unit_test(bound),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
