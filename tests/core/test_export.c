/* Programs in files, and arrays: what is written is read, and what is damaged is refused. */
#include "exported.h"

#include <stdio.h>
#include <unistd.h>

/* -- Files -- */

static char *slurp(const char *name, size_t *size) {
  FILE *file = fopen(name, "rbe");
  assert_non_null(file);
  char *data = malloc(1 << 20);
  *size = fread(data, 1, 1 << 20, file);
  assert_int_equal(fclose(file), 0);
  return data;
}

static void spill(const char *name, const char *data, size_t size) {
  FILE *file = fopen(name, "wbe");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  assert_int_equal(fclose(file), 0);
}

static bool same_bytes(tt_bytes a, tt_bytes b) {
  return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

static void round_trip(void **state) {
  (void)state;
  tt_exported given = content(), got;
  ok(tt_exported_write(&given, path));
  ok(tt_exported_read(path, &got));
  assert_true(same_bytes(given.code, got.code) && same_bytes(given.note, got.note));
  assert_true(same_bytes(given.plugin, got.plugin) && got.body.size == 0);
  assert_true(got.blocks == 7 && got.parameter_count == 3 && got.output_count == 2);
  for (int i = 0; i < 5; i++) {
    assert_int_equal(got.ports[i].kind, ports[i].kind);
    assert_string_equal(got.ports[i].name, ports[i].name);
    assert_true(tt_type_equal(&got.ports[i].type, &ports[i].type));
    assert_int_equal(got.ports[i].writes, ports[i].writes);
  }
  assert_memory_equal(got.ports[1].data, weight, sizeof weight);
  assert_int_equal(tt_exported_find(&got, TT_PORT_OUTPUT, "place"), 4);
  assert_int_equal(tt_exported_find(&got, TT_PORT_INPUT, "place"), -1);
  tt_exported_deinit(&got);
}

/* Every byte changed, every length cut. */
static void damage(void **state) {
  (void)state;
  tt_exported given = content(), got;
  size_t size = 0;
  ok(tt_exported_write(&given, path));
  char *data = slurp(path, &size);
  for (size_t i = 0; i < size; i++)
    for (int bit = 0; bit < 8; bit++) {
      data[i] = (char)(data[i] ^ 1 << bit);
      spill(other, data, size);
      tt_status status = tt_exported_read(other, &got);
      tt_code code = tt_status_code(status);
      assert_true(code == TT_DATA_LOSS || (code == TT_FAILED_PRECONDITION && i >= 8 && i < 12));
      tt_status_release(status);
      data[i] = (char)(data[i] ^ 1 << bit);
    }
  for (size_t i = 0; i < size; i++) {
    spill(other, data, i);
    fails(tt_exported_read(other, &got), TT_DATA_LOSS, other);
  }
  spill(other, data, size + 1);
  fails(tt_exported_read(other, &got), TT_DATA_LOSS, "longer than it says");
  free(data);
  fails(tt_exported_read("/nowhere/at/all", &got), TT_NOT_FOUND, "cannot read");
  fails(tt_exported_read(folder, &got), TT_UNAVAILABLE, "no plain file");
}

/* With a checksum that fits, so that only what is said is wrong: nothing is believed. */
static void lies(void **state) {
  (void)state;
  tt_exported given = content(), got;
  size_t size = 0;
  ok(tt_exported_write(&given, path));
  char *data = slurp(path, &size), *copy = malloc(size);
  random_seed(15);
  for (int i = case_count(4000), taken = 0; i > 0; i--) {
    memcpy(copy, data, size);
    for (int64_t n = 1 + below(3); n > 0; n--) {
      bool in_header = below(2);
      size_t at = in_header ? (size_t)(12 + below(76))
                            : TT_EXPORT_HEADER + (size_t)below((int64_t)size - TT_EXPORT_HEADER);
      copy[at] = (char)(below(4) ? copy[at] + 1 : (int)random_bits());
    }
    uint64_t sums[2];
    for (uint64_t k = 0; k < 2; k++) {
      sums[k] = tt_hash_bytes(copy, 88, k + 1);
      sums[k] = tt_hash_bytes(copy + TT_EXPORT_HEADER, size - TT_EXPORT_HEADER, sums[k]);
    }
    memcpy(copy + 88, sums, sizeof sums);
    spill(other, copy, size);
    tt_status status = tt_exported_read(other, &got);
    taken += !status;
    if (!status) tt_exported_deinit(&got);
    else assert_int_equal(tt_status_code(status), TT_DATA_LOSS);
    tt_status_release(status);
    if (i == 1) assert_true(taken > 0); /* another letter of the text, say */
  }
  free(data);
  free(copy);
}

static void other_format(void **state) {
  (void)state;
  tt_exported given = content(), got;
  size_t size = 0;
  ok(tt_exported_write(&given, path));
  char *data = slurp(path, &size);
  data[8] = 2;
  spill(other, data, size);
  fails(tt_exported_read(other, &got), TT_FAILED_PRECONDITION, "has format 2");
  free(data);
}

static void not_written(void **state) {
  (void)state;
  tt_exported given = content();
  ports[1].name = "../weight";
  fails(tt_exported_write(&given, path), TT_INVALID_ARGUMENT, "other characters");
  given = content();
  ports[3].type = type_of(TT_F32, 1, DIMS(3));
  fails(tt_exported_write(&given, path), TT_INVALID_ARGUMENT, "another type");
  given = content();
  ports[4].writes = 2;
  fails(tt_exported_write(&given, path), TT_INVALID_ARGUMENT, "another type");
  given = content();
  ports[1].data = NULL;
  fails(tt_exported_write(&given, path), TT_INVALID_ARGUMENT, "no value");
  given = content();
  fails(tt_exported_write(&given, "/nowhere/at/all"), TT_UNAVAILABLE, "cannot write");
}

static void without_memory(void **state) {
  (void)state;
  tt_exported given = content(), got;
  for (int64_t n = 1;; n++) {
    tt_alloc_fail_at(n, false);
    tt_status status = tt_exported_write(&given, path);
    if (!status) status = tt_exported_read(path, &got);
    bool reached = tt_alloc_count() >= n;
    tt_alloc_fail_at(0, false);
    if (!reached) {
      ok(status);
      break;
    }
    fails(status, TT_RESOURCE_EXHAUSTED, "");
  }
  tt_exported_deinit(&got);
}

/* -- Failures, on the fake plugin -- */

/* Saves the program, loads it, and runs it. */
static tt_status whole_way(const tt_exported *given) {
  const tt_runner_options options = {.plugin = getenv("TT_FAKE_PLUGIN")};
  const float x[2] = {1, 2};
  float sum[2];
  tt_plugin *plugin = NULL;
  tt_client *client = NULL;
  tt_target target;
  tt_exported exported;
  tt_runner *runner = NULL;
  TT_TRY(tt_plugin_open(options.plugin, &plugin));
  TT_TRY(tt_client_create(plugin, NULL, &client));
  tt_target_init_client(&target, plugin, client);
  tt_status status = tt_exported_save(given, &target, path);
  tt_client_destroy(client);
  if (!status) status = tt_exported_read(path, &exported);
  if (status) return status;
  status = tt_runner_create(&exported, &options, &runner);
  if (!status) status = tt_runner_set_input(runner, 0, x, sizeof x);
  if (!status) status = tt_runner_run(runner);
  if (!status) status = tt_runner_run(runner);
  if (!status) status = tt_runner_get_output(runner, 3, sum, sizeof sum);
  tt_runner_destroy(runner);
  tt_exported_deinit(&exported);
  return status;
}

static void failing_calls(void **state) {
  (void)state;
  tt_exported given = content();
  if (!fake_open()) skip();
  ok(whole_way(&given));
  int failures = 0;
  for (int64_t n = 1;; n++) {
    fake.tt_fake_fail_at(n);
    tt_status status = whole_way(&given);
    bool happened = fake.tt_fake_failed();
    fake.tt_fake_fail_at(0);
    failures += status != TT_SUCCESS; /* not of those that something else can be done about */
    tt_status_release(status);
    assert_int_equal(fake.tt_fake_live_objects(), 0);
    if (!happened) break;
  }
  assert_true(failures > 10);
}

static void failing_allocations(void **state) {
  (void)state;
  tt_exported given = content();
  if (!fake_open()) skip();
  ok(whole_way(&given)); /* the plugin stays open */
  for (int64_t n = 1;; n++) {
    tt_alloc_fail_at(n, false);
    tt_status status = whole_way(&given);
    bool reached = tt_alloc_count() >= n;
    tt_alloc_fail_at(0, false);
    if (status) fails(status, TT_RESOURCE_EXHAUSTED, "");
    assert_int_equal(fake.tt_fake_live_objects(), 0);
    if (!reached) break;
  }
}

/* A plugin that serialises nothing: the file has StableHLO alone, and runs. */
static void only_text(void **state) {
  (void)state;
  char text[512];
  tt_exported given = content(), got;
  if (!fake_open()) skip();
  snprintf(text, sizeof text, "%s// unserializable\n", (const char *)given.code.data);
  given.code = (tt_bytes){text, strlen(text)};
  ok(whole_way(&given));
  ok(tt_exported_read(path, &got));
  assert_true(got.body.size == 0 && got.environment.size == 0);
  tt_exported_deinit(&got);
}

/* -- Arrays -- */

static void every_dtype(void **state) {
  (void)state;
  static const tt_dtype dtypes[] = {
#define X(name, number, mlir, bytes, kind) TT_##name,
      TT_DTYPES(X)
#undef X
  };
  char values[6 * 16];
  for (size_t i = 0; i < sizeof values; i++) values[i] = (char)(i % 2);
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    for (int rank = 0; rank <= 3; rank++) {
      tt_type type = type_of(dtypes[i], rank, DIMS(2, 3, 1));
      tt_type wrong = type_of(dtypes[i] == TT_I16 ? TT_I32 : TT_I16, rank, type.dims);
      void *data = NULL;
      int64_t bytes = 0;
      assert_true(tt_type_bytes(&type, &bytes));
      ok(tt_npy_write(path, &type, values));
      ok(tt_npy_read(path, &type, &data));
      assert_memory_equal(data, values, (size_t)bytes);
      tt_free(data);
      fails(tt_npy_read(path, &wrong, &data), TT_INVALID_ARGUMENT, "holds");
    }
}

static void array(const char *header, const char *data, size_t size) {
  char bytes[256] = "\x93NUMPY\x01";
  size_t length = strlen(header);
  bytes[8] = (char)length;
  memcpy(bytes + 10, header, length);
  memcpy(bytes + 10 + length, data, size);
  spill(other, bytes, 10 + length + size);
}

static void arrays(void **state) {
  (void)state;
  static const char eight[8] = {1, 0, 0, 0, 2, 0, 0, 0};
  tt_type pair = type_of(TT_I32, 1, DIMS(2)), square = type_of(TT_I32, 2, DIMS(2, 1));
  void *data = NULL;
  array("{\"shape\" :(2 , ), 'fortran_order':True,'descr':'<i4'}\n", eight, 8);
  ok(tt_npy_read(other, &pair, &data));
  assert_memory_equal(data, eight, 8);
  tt_free(data);
  array("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 1)}", eight, 8);
  fails(tt_npy_read(other, &square, &data), TT_INVALID_ARGUMENT, "column-major");
  fails(tt_npy_read(other, &pair, &data), TT_INVALID_ARGUMENT, "of shape (2, 1), not");
  array("{'descr': '>i4', 'fortran_order': False, 'shape': (2,)}", eight, 8);
  fails(tt_npy_read(other, &pair, &data), TT_INVALID_ARGUMENT, "holds '>i4'");
  array("{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}", eight, 7);
  fails(tt_npy_read(other, &pair, &data), TT_DATA_LOSS, "cut short");
  array("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (2,)}", eight, 8);
  fails(tt_npy_read(other, &pair, &data), TT_DATA_LOSS, "no .npy file");
  array("{'descr': '<i4', 'shape': (2,)}", eight, 8);
  fails(tt_npy_read(other, &pair, &data), TT_DATA_LOSS, "no .npy file");
  array("{'descr': '<i4', 'fortran_order': False, 'shape': (99999999999999999999,)}", eight, 8);
  fails(tt_npy_read(other, &pair, &data), TT_DATA_LOSS, "no .npy file");
  fails(tt_npy_read(folder, &pair, &data), TT_DATA_LOSS, "no .npy file");
  fails(tt_npy_read("/nowhere/at/all", &pair, &data), TT_NOT_FOUND, "cannot read");
}

static void damaged_arrays(void **state) {
  (void)state;
  tt_type type = type_of(TT_F32, 1, DIMS(2));
  size_t size = 0;
  void *read = NULL;
  ok(tt_npy_write(path, &type, weight));
  char *data = slurp(path, &size);
  for (size_t i = 0; i < size; i++) {
    spill(other, data, i);
    fails(tt_npy_read(other, &type, &read), TT_DATA_LOSS, other);
    for (int k = 1; k < 256; k++) {
      data[i] = (char)(data[i] ^ k);
      spill(other, data, size);
      tt_status_release(tt_npy_read(other, &type, &read));
      tt_free(read);
      data[i] = (char)(data[i] ^ k);
    }
  }
  free(data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(round_trip),
      cmocka_unit_test(damage),
      cmocka_unit_test(lies),
      cmocka_unit_test(other_format),
      cmocka_unit_test(not_written),
      cmocka_unit_test(without_memory),
      cmocka_unit_test(every_dtype),
      cmocka_unit_test(arrays),
      cmocka_unit_test(damaged_arrays),
      cmocka_unit_test(failing_calls),
      cmocka_unit_test(failing_allocations),
      cmocka_unit_test(only_text),
  };
  return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
