#include "run/program.h"

#include "cache/disk.h"
#include "cache/pool.h"
#include "run/run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static tt_intern table = TT_INTERN_INIT;
static tt_pool *pool;
static tt_disk *disk;
static int unsaved; /* programs that are ready and on their way to the disk */

void tt_program_deinit(tt_program *program) {
  tt_text_deinit(&program->text);
  tt_free(program->donors);
  for (int i = 0; i < program->check_count; i++) tt_free(program->check_texts[i]);
  tt_free(program->check_texts);
  tt_free(program->check_codes);
  tt_free(program->name);
  *program = (tt_program){0};
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* XLA's CPU compiler drops NaN in minimum and maximum unless it is told not to. */
static void platform_overrides(tt_compile_options *options) {
  static const char *const names[] = {"xla_cpu_enable_fast_min_max"};
  static const char *const values[] = {"False"};
  if (strcmp(tt_client_platform(tt_runtime_client()), "cpu") != 0) return;
  options->override_names = names;
  options->override_values = values;
  options->override_count = 1;
}

/* Ready or failed, from here on it may be launched. */
static void publish(tt_program *program, tt_status status) {
  program->error = status;
  pthread_mutex_lock(&lock);
  atomic_store_explicit(&program->state, status ? TT_PROGRAM_FAILED : TT_PROGRAM_READY, memory_order_release);
  unsaved++;
  pthread_cond_broadcast(&ended);
  pthread_mutex_unlock(&lock);
}

static void saved(void) {
  pthread_mutex_lock(&lock);
  if (--unsaved == 0) pthread_cond_broadcast(&ended);
  pthread_mutex_unlock(&lock);
}

static void count_lookup(const tt_lookup *lookup) {
  tt_count_add(TT_COUNT_COMPILES, lookup->source == TT_SOURCE_COMPILER);
  tt_count_add(TT_COUNT_DISK_HITS, lookup->source == TT_SOURCE_DISK);
  tt_count_add(TT_COUNT_DISK_SHARED_HITS, lookup->source == TT_SOURCE_SHARED);
  tt_count_add(TT_COUNT_DISK_BAD, lookup->bad);
  tt_count_add(TT_COUNT_DISK_WRITES, lookup->written);
  tt_count_add(TT_COUNT_DISK_WAITS, lookup->waited);
}

/* Nobody waits for the disk: the program is stored after it was handed out. */
static void compile(void *user, bool cancelled) {
  tt_program *program = user;
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  platform_overrides(&options);
  if (cancelled) {
    publish(program, tt_error(TT_CANCELLED, "the process is ending"));
    saved();
    return;
  }
  int64_t start = now_ns();
  tt_lookup lookup = {.code = program->text.data, .code_size = program->text.size,
                      .outputs = program->result_count + program->check_count};
  tt_status status = TT_SUCCESS;
  tt_executable *executable = tt_disk_load(disk, &options, &lookup);
  if (!executable)
    status = tt_compile(tt_runtime_client(), program->text.data, program->text.size, &options, &executable);
  program->executable = executable;
  tt_count_add(TT_COUNT_COMPILE_NS, now_ns() - start);
  tt_log(TT_LOG_COMPILE, "%s: %zu bytes of StableHLO, %.1f ms%s%s", program->name, program->text.size,
         (double)(now_ns() - start) / 1e6, lookup.source ? ", from the cache" : "", status ? ", failed" : "");
  publish(program, status);
  if (!lookup.source) tt_disk_store(disk, &lookup, executable);
  count_lookup(&lookup);
  saved();
}

static pid_t saver;

/* What was compiled last is still being written when a short process ends. */
static void finish_saving(void) {
  struct timespec end;
  if (getpid() != saver) return; /* a forked child has none of the threads */
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += 10;
  pthread_mutex_lock(&lock);
  for (int error = 0; unsaved && !error;) error = pthread_cond_timedwait(&ended, &lock, &end);
  pthread_mutex_unlock(&lock);
}

/* Going without a cache is no failure. */
static void open_disk(void) {
  char path[TT_DISK_PATH];
  tt_disk_options options;
  tt_disk_options_read(&options, path);
  tt_status_release(tt_disk_create(&options, tt_runtime_plugin(), tt_runtime_client(), &disk));
  if (disk && !saver && atexit(finish_saving) == 0) saver = getpid();
}

static tt_status submit(tt_program *program) {
  if (!pool) {
    int64_t threads = tt_env_int(TT_ENV_COMPILE_THREADS);
    if (threads <= 0) threads = sysconf(_SC_NPROCESSORS_ONLN);
    if (!disk) open_disk();
    TT_TRY(tt_pool_create(threads > 64 ? 64 : threads < 1 ? 1 : (int)threads, &pool));
  }
  return tt_pool_submit(pool, compile, program);
}

/* The lock is held. */
static void start(tt_program *program) {
  tt_status_release(program->error);
  program->error = TT_SUCCESS;
  atomic_store(&program->state, TT_PROGRAM_COMPILING);
  tt_status status = submit(program);
  if (!status) return;
  program->error = status;
  atomic_store(&program->state, TT_PROGRAM_FAILED);
}

/* What the compiler objects to, it will object to again; a shortage may be over. */
static bool was_shortage(tt_status error) {
  tt_code code = tt_status_code(error);
  return code == TT_RESOURCE_EXHAUSTED || code == TT_UNAVAILABLE || code == TT_CANCELLED;
}

tt_status tt_program_intern(tt_program *program, tt_program **out) {
  tt_status status = TT_SUCCESS;
  pthread_mutex_lock(&lock);
  tt_program *found = tt_intern_find(&table, program->text.data, program->text.size);
  tt_count_add(found ? TT_COUNT_PROGRAM_HITS : TT_COUNT_PROGRAMS, 1);
  if (!found) {
    found = tt_calloc(1, sizeof *found);
    status = found ? tt_intern_add(&table, program->text.data, program->text.size, found) : tt_out_of_memory();
    if (status) {
      tt_free(found);
    } else {
      *found = *program;
      *program = (tt_program){0};
      start(found);
    }
  }
  pthread_mutex_unlock(&lock);
  if (!status) *out = found;
  return status;
}

tt_status tt_program_await(tt_program *program) {
  if (atomic_load_explicit(&program->state, memory_order_acquire) == TT_PROGRAM_READY) return TT_SUCCESS;
  pthread_mutex_lock(&lock);
  for (bool retried = false;;) {
    while (atomic_load(&program->state) == TT_PROGRAM_COMPILING) pthread_cond_wait(&ended, &lock);
    if (retried || !was_shortage(program->error)) break;
    retried = true;
    start(program);
  }
  tt_status status = tt_status_clone(program->error);
  pthread_mutex_unlock(&lock);
  return status;
}

void tt_program_shutdown(void) {
  tt_pool_destroy(pool);
  pool = NULL;
  tt_disk_destroy(disk);
  disk = NULL;
  for (size_t i = 0; i < table.capacity; i++) {
    tt_program *program = table.entries[i].key ? table.entries[i].value : NULL;
    if (!program) continue;
    tt_executable_destroy(program->executable);
    tt_status_release(program->error);
    tt_program_deinit(program);
    tt_free(program);
  }
  tt_intern_deinit(&table);
}
