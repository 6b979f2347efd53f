/* Programs of a whole runtime: how many stay loaded, and what the disk cache saves. */
#include "support.h"

#include "base/base.h"
#include "graph/explain.h"
#include "program/compile.h"
#include "program/mappings.h"
#include "program/program.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIMIT = 16 };

static tt_stream *stream;
static char folder[64];

static int setup(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/test_programs.XXXXXX");
  if (!mkdtemp(folder) || !fake_open()) return -1;
  setenv("TORCH_TPU_CACHE", "on", 1);
  setenv("TORCH_TPU_CACHE_DIR", folder, 1);
  setenv("TORCH_TPU_PROGRAM_LIMIT", "16", 1);
  setenv("TORCH_TPU_COMPILE_THREADS", "2", 1);
  return 0;
}

static int teardown(void **state) {
  (void)state;
  tt_dir *dir = NULL;
  ok(tt_dir_open(folder, &(tt_dir_options){0}, &dir));
  tt_dir_clear(dir);
  tt_dir_remove(dir, "claims");
  tt_dir_close(dir);
  return rmdir(folder);
}

static int start(void **state) {
  (void)state;
  fake_reset();
  tt_status status = session_open(getenv("TT_FAKE_PLUGIN"));
  stream = stream_at(0);
  tt_count_reset();
  return status || !stream ? -1 : 0;
}

/* Runs one program of its own for each length. */
static void run_length(tt_stream *on, int64_t length) {
  tt_storage *sum = NULL;
  tt_type type = type_of(TT_F32, 1, &length);
  float *data = calloc((size_t)length, sizeof *data);
  assert_non_null(data);
  tt_storage *a = storage_of(on, type, data);
  ok(record_add(on, a, a, &sum));
  ok(storage_read(sum, data, tt_storage_bytes(sum)));
  tt_storage_release(a);
  tt_storage_release(sum);
  free(data);
}

static void run_lengths(int64_t from, int64_t to) {
  for (int64_t length = from; length < to; length++) run_length(stream, length);
}

/* The next runtime finds what the last one compiled, though that ended at once. */
static void test_nothing_compiles_twice(void **state) {
  run_lengths(1, 11);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 10);
  fake_close(state);
  assert_int_equal(tt_count_get(TT_COUNT_DISK_WRITES), 10);
  start(state);
  run_lengths(1, 11);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
  assert_int_equal(tt_count_get(TT_COUNT_DISK_HITS), 10);
}

/* An executable takes two objects, and is gone when it has made way for others. */
static void test_few_stay_loaded(void **state) {
  (void)state;
  run_lengths(100, 200);
  ok(session_sync());
  assert_in_range(fake.tt_fake_live_objects(), 1, 2 * LIMIT + 8);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 100);
  run_length(stream, 199); /* used a moment ago: still there */
  assert_int_equal(tt_count_get(TT_COUNT_DISK_HITS), 0);
  run_length(stream, 100); /* long ago: loaded again, not compiled */
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 100);
  assert_int_equal(tt_count_get(TT_COUNT_DISK_HITS), 1);
}

/* a += a, captured, replayed `times` times, and dropped at once. */
static void run_captured(int64_t length, int times) {
  tt_captured *made = NULL;
  tt_storage *a = storage_new(stream, type_of(TT_F32, 1, &length));
  ok(tt_capture_begin(stream, &policy));
  ok(tt_capture_touch(stream, a, &policy));
  ok(record_add_into(stream, a, NULL, a, NULL));
  ok(tt_capture_end(stream, &policy, &made));
  for (int i = 0; i < times; i++) ok(tt_captured_replay(made, stream, NULL, NULL, &policy, 0));
  tt_captured_destroy(made);
  tt_storage_release(a);
}

/* The thread that ends a launch or a compilation unloads after others know that it ended. */
static void await_unloaded(int64_t count) {
  for (int i = 0; i < 2000 && tt_count_get(TT_COUNT_UNLOADED) < count; i++) usleep(1000);
  assert_int_equal(tt_count_get(TT_COUNT_UNLOADED), count);
}

/* Launches that have not begun yet need it still; afterwards it is not there, and is not compiled
 * again. */
static void test_what_captures_leave_is_unloaded(void **state) {
  (void)state;
  fake.tt_fake_async(true);
  run_captured(8, 1); /* the zeros that it reads */
  await_unloaded(1);
  int64_t live = fake.tt_fake_live_objects();
  tt_count_reset();
  for (int i = 0; i < 3; i++) {
    run_captured(8, 5 * i);
    await_unloaded(i + 1);
    assert_int_equal(tt_count_get(TT_COUNT_DISK_HITS), i + 1);
    assert_int_equal(fake.tt_fake_live_objects(), live);
  }
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
}

/* An operator's program is its own, whoever captures the same. */
static void test_what_operators_have_stays_loaded(void **state) {
  (void)state;
  float written[9] = {0}; /* without it the operator's program would read zeros instead */
  tt_storage *a = storage_of(stream, type_of(TT_F32, 1, DIMS(9)), written);
  for (int i = 0; i < 2; i++) {
    run_captured(9, 1);
    await_unloaded(1);
    ok(record_add_into(stream, a, NULL, a, NULL));
  }
  ok(session_sync());
  assert_int_equal(tt_count_get(TT_COUNT_UNLOADED), 1);
  assert_int_equal(tt_count_get(TT_COUNT_PROGRAM_HITS), 2); /* they are equal indeed */
  tt_storage_release(a);
}

static void *pin_often(void *user) {
  tt_program *program = user;
  for (int i = 0; i < 20000; i++) {
    tt_program_pin(program);
    tt_status_release(tt_program_await(program));
    tt_program_release(program);
    tt_program_unpin(program);
  }
  return NULL;
}

static tt_status intern_text(const char *word, int number, bool later, tt_program **out);

static void test_threads_that_pin(void **state) {
  (void)state;
  pthread_t threads[4];
  tt_program *program = NULL;
  ok(intern_text("pinned", 0, false, &program));
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, pin_often, program);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2000 && tt_program_is_ready(program); i++) usleep(1000);
  assert_false(tt_program_is_ready(program));
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 1);
}

/* Neighbours of different protection, which the kernel does not merge. */
static char *take_mappings(size_t count) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages =
      mmap(NULL, count * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  assert_true(pages != MAP_FAILED);
  for (size_t i = 0; i < count; i += 2) mprotect(pages + i * page, page, PROT_NONE);
  return pages;
}

/* That the kernel gives a process; where it does not say, the test is skipped. */
static size_t most_mappings(void) {
  size_t count = 0;
  FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
  bool read = file && fscanf(file, "%zu", &count) == 1;
  if (file) fclose(file);
  if (!read) skip();
  return count;
}

/* Each kernel of a program takes some mappings. */
static void test_programs_make_way_for_mappings(void **state) {
  size_t count = most_mappings();
  for (int scarce = 0; scarce < 2; scarce++) {
    fake_close(state);
    start(state);
    char *pages = scarce ? take_mappings(count / 2) : NULL;
    assert_int_equal(tt_mappings_room() < 0, scarce);
    run_lengths(700, 700 + LIMIT);
    assert_int_equal(tt_count_get(TT_COUNT_UNLOADED), scarce ? LIMIT / 4 : 0);
    if (pages) munmap(pages, count / 2 * (size_t)sysconf(_SC_PAGESIZE));
  }
}

/* Counting takes milliseconds, so it waits until as many could have been taken as there were. */
static void test_mappings_are_counted_seldom_where_there_is_room(void **state) {
  int64_t unloaded[2];
  size_t count = most_mappings();
  for (int scarce = 0; scarce < 2; scarce++) {
    fake_close(state);
    start(state);
    run_lengths(700, 732); /* they are counted after 16 of them */
    char *pages = scarce ? take_mappings(count / 2) : NULL;
    run_lengths(732, 764);
    unloaded[scarce] = tt_count_get(TT_COUNT_UNLOADED);
    if (pages) munmap(pages, count / 2 * (size_t)sysconf(_SC_PAGESIZE));
  }
  assert_int_equal(unloaded[0], unloaded[1]);
}

static void test_the_one_in_use_stays(void **state) {
  (void)state;
  for (int64_t length = 300; length < 400; length++) {
    run_length(stream, length);
    run_length(stream, 299);
  }
  assert_int_equal(tt_count_get(TT_COUNT_DISK_HITS), 0);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 101);
}

static void *run_many(void *seed) {
  unsigned random = *(unsigned *)seed;
  for (int i = 0; i < 300; i++) {
    random = random * 1103515245 + 12345;
    run_length(stream_at((int)(random >> 8) & 1), 500 + (int64_t)(random >> 16) % 60);
  }
  return NULL;
}

/* Four threads on two devices use four times as many programs as stay loaded. */
static void test_threads_and_unloading(void **state) {
  pthread_t threads[4];
  unsigned seeds[4] = {1, 2, 3, 4};
  fake_close(state);
  setenv("TT_FAKE_DEVICES", "2", 1);
  start(state);
  fake.tt_fake_async(true);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_many, &seeds[i]);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  ok(session_sync());
  assert_in_range(tt_count_get(TT_COUNT_COMPILES), 1, 60);
  assert_true(tt_count_get(TT_COUNT_DISK_HITS) > 60);
  fake_close(state);
  unsetenv("TT_FAKE_DEVICES");
  start(state);
}

static void warm_one(void *user, const tt_dir_file *file) {
  int *counts = user;
  tt_dir *dir = NULL;
  tt_warmth what = TT_WARM_READY;
  if (!strstr(file->name, TT_ENTRY_PROGRAM)) return;
  ok(tt_dir_open(folder, &(tt_dir_options){.readonly = true}, &dir));
  ok(tt_compiler_warm(tt_program_table_compiler(session->programs), dir, file->name, &what));
  tt_dir_close(dir);
  counts[what]++;
}

/* Programs recorded with other flags are compiled for these, once. */
static void test_warm(void **state) {
  int counts[3] = {0};
  tt_dir *dir = NULL;
  fake_close(state);
  ok(tt_dir_open(folder, &(tt_dir_options){0}, &dir));
  tt_dir_clear(dir);
  setenv("XLA_FLAGS", "--xla_anything=1", 1);
  start(state);
  run_lengths(1, 6);
  fake_close(state);
  unsetenv("XLA_FLAGS");
  start(state);
  ok(tt_dir_each(dir, warm_one, counts));
  /* those just written may be listed as well */
  assert_int_equal(counts[TT_WARM_COMPILED], 5);
  assert_int_equal(counts[TT_WARM_COPIED], 0);
  run_lengths(1, 6);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
  tt_dir_close(dir);
}

/* Where nothing may be compiled, what a folder has is used. */
/* Refused before a compiler sees it, and as what the plugin refuses. */
static void test_what_does_not_fit(void **state) {
  (void)state;
  tt_storage *sum = NULL;
  int64_t length = 26;
  float data[26] = {0};
  session->target.memory = 25 * (int64_t)sizeof *data;
  run_length(stream, 25);
  tt_type type = type_of(TT_F32, 1, &length);
  tt_storage *a = storage_of(stream, type, data);
  ok(record_add(stream, a, a, &sum));
  tt_status status = storage_read(sum, data, sizeof data);
  assert_int_equal(tt_status_source(status), TT_FROM_PLUGIN);
  fails(status, TT_RESOURCE_EXHAUSTED, "104 bytes of results, where the device has 100 bytes");
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 1);
  tt_storage_release(sum);
  tt_storage_release(a);
}

static void test_forbidden(void **state) {
  fake_close(state);
  start(state);
  run_lengths(700, 704);
  fake_close(state);
  start(state);
  policy.known_only = true;
  run_lengths(700, 704);
  tt_storage *a = storage_new(stream, type_of(TT_F32, 1, DIMS(704))), *sum = NULL;
  float data[704] = {0};
  ok(storage_write(a, a->type, data, 0));
  fails(record_add(stream, a, a, &sum), TT_FAILED_PRECONDITION, "forbids");
  policy.known_only = false;
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
  assert_int_equal(tt_count_get(TT_COUNT_DISK_HITS), 4);
  ok(record_add(stream, a, a, &sum));
  ok(stream_sync(stream));
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 1);
  tt_storage_release(sum);
  tt_storage_release(a);
}

/* Unloaded programs, too, are only loaded; more of them than may stay. */
static void test_forbidden_and_unloaded(void **state) {
  (void)state;
  run_lengths(1000, 1000 + 3 * LIMIT);
  tt_count_reset();
  policy.known_only = true;
  for (int i = 0; i < 3; i++) run_lengths(1000, 1000 + 3 * LIMIT);
  policy.known_only = false;
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
  assert_true(tt_count_get(TT_COUNT_DISK_HITS) >= 3 * LIMIT);
}

static tt_status intern_text(const char *word, int number, bool later, tt_program **out) {
  tt_want want = later ? TT_WANT_BACKGROUND : TT_WANT_NOW;
  tt_module module = {.result_count = 1, .name = tt_strndup("test", 4)};
  tt_text_printf(&module.text,
                 "func.func public @main(%%a: tensor<2xf32>) -> tensor<2xf32> // %s %d", word,
                 number);
  tt_status status = tt_program_intern(session->programs, &module, want, out);
  tt_module_deinit(&module);
  return status;
}

/* Programs for later are compiled only when nobody waits for another, and at once when asked for.
 */
static void test_later(void **state) {
  enum { COUNT = 6 };
  (void)state;
  tt_program *programs[COUNT], *same = NULL, *urgent = NULL;
  fake.tt_fake_hold_programs("held");
  for (int i = 0; i < COUNT; i++) {
    ok(intern_text(i ? "free" : "held", i, true, &programs[i]));
    assert_false(tt_program_poll(programs[i], TT_WANT_NOW));
  }
  for (int i = 0; i < 1000 && !fake.tt_fake_held(); i++) usleep(1000);
  assert_int_equal(fake.tt_fake_held(), 1);
  /* one that is new, and one that waits behind the one that is held */
  ok(intern_text("urgent", 0, false, &urgent));
  ok(tt_program_await(urgent));
  tt_program_release(urgent);
  ok(tt_program_await(programs[COUNT - 1]));
  tt_program_release(programs[COUNT - 1]);
  ok(intern_text("free", COUNT - 2, false, &same));
  assert_ptr_equal(same, programs[COUNT - 2]);
  for (int i = 0; i < 1000 && atomic_load(&same->state) != TT_PROGRAM_READY; i++) usleep(1000);
  assert_int_equal(atomic_load(&same->state), TT_PROGRAM_READY);
  for (int i = 0; i < COUNT - 2; i++)
    assert_int_equal(atomic_load(&programs[i]->state), TT_PROGRAM_COMPILING);
  fake.tt_fake_hold_programs(NULL);
  for (int i = 0; i < COUNT; i++) {
    ok(tt_program_await(programs[i]));
    tt_program_release(programs[i]);
  }
}

/* One for later that is asked after while nothing may be compiled, and afterwards. */
static void test_later_forbidden(void **state) {
  (void)state;
  tt_program *program = NULL;
  ok(intern_text("later", 0, true, &program));
  assert_false(tt_program_poll(program, TT_WANT_KNOWN));
  assert_int_equal(atomic_load(&program->state), TT_PROGRAM_UNLOADED);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
  (void)tt_program_poll(program, TT_WANT_NOW);
  ok(tt_program_await(program));
  tt_program_release(program);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 1);
}

/* What is told of a program, whether it was compiled or found, and how it got here. */
static void test_told(void **state) {
  tt_program_facts facts;
  for (int i = 0; i < 2; i++) {
    tt_program *program = NULL, *same = NULL;
    ok(intern_text("told", 0, false, &program));
    ok(tt_program_tell(program, &facts));
    assert_int_equal(facts.source, i ? TT_SOURCE_DISK : TT_SOURCE_COMPILER);
    assert_true(facts.memory_known && facts.memory.arguments == 8);
    assert_true(facts.bytes == 12 && facts.compile_ns > 0);
    assert_non_null(strstr(facts.optimized.data, "told 0"));
    tt_text_deinit(&facts.optimized);
    ok(intern_text("told", 0, false, &same));
    assert_ptr_equal(same, program);
    if (i) break;
    fake_close(state);
    start(state);
  }
  tt_program *broken = NULL;
  tt_module module = {.result_count = 1, .name = tt_strndup("test", 4)};
  tt_text_printf(&module.text, "nonsense");
  ok(tt_program_intern(session->programs, &module, TT_WANT_NOW, &broken));
  fails(tt_program_tell(broken, &facts), TT_INVALID_ARGUMENT, "");
  assert_null(facts.optimized.data);
}

static tt_status adopt(tt_program **out) {
  static const char text[] = "func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> // own";
  tt_module module = {.result_count = 1, .name = tt_strndup("test", 4)};
  tt_executable *executable = NULL;
  tt_text_add(&module.text, text, sizeof text - 1);
  tt_status status = tt_text_status(&module.text);
  if (!status) status = tt_target_compile(&session->target, text, sizeof text - 1, &executable);
  if (!status) status = tt_program_adopt(session->programs, &module, executable, out);
  tt_module_deinit(&module);
  return status;
}

/* An executable that is at hand is not compiled again; of two, one is kept. */
static void test_adopted(void **state) {
  (void)state;
  tt_program *first = NULL, *second = NULL;
  for (int64_t n = 1; n < 40; n++) {
    tt_alloc_fail_at(n, false);
    tt_status status = adopt(&first);
    bool reached = tt_alloc_count() >= n;
    tt_alloc_fail_at(0, false);
    if (!reached) {
      ok(status);
      break;
    }
    if (status) fails(status, TT_RESOURCE_EXHAUSTED, "");
  }
  ok(adopt(&first));
  assert_true(tt_program_is_ready(first));
  ok(adopt(&second));
  assert_ptr_equal(first, second);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
}

/* A process that ends right after its first result has still stored the program. */
static void test_short_process(void **state) {
  int status = 0;
  fake_close(state);
  pid_t child = fork();
  if (child == 0) {
    if (session_open(getenv("TT_FAKE_PLUGIN"))) _exit(1);
    run_length(stream_at(0), 77);
    tt_session_end(session);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  start(state);
  run_length(stream, 77);
  assert_int_equal(tt_count_get(TT_COUNT_COMPILES), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, fake_close)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_short_process),
      TEST(test_nothing_compiles_twice),
      TEST(test_few_stay_loaded),
      TEST(test_what_captures_leave_is_unloaded),
      TEST(test_what_operators_have_stays_loaded),
      TEST(test_threads_that_pin),
      TEST(test_programs_make_way_for_mappings),
      TEST(test_mappings_are_counted_seldom_where_there_is_room),
      TEST(test_the_one_in_use_stays),
      TEST(test_threads_and_unloading),
      TEST(test_warm),
      TEST(test_later),
      TEST(test_later_forbidden),
      TEST(test_told),
      TEST(test_adopted),
      TEST(test_what_does_not_fit),
      TEST(test_forbidden),
      TEST(test_forbidden_and_unloaded),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
