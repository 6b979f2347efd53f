#include "run/program.h"

#include "cache/pool.h"
#include "run/run.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static tt_intern table = TT_INTERN_INIT;
static tt_pool *pool;

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

static void compile(void *user, bool cancelled) {
  tt_program *program = user;
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  platform_overrides(&options);
  tt_status status;
  int64_t start = now_ns();
  if (cancelled) status = tt_error(TT_CANCELLED, "the process is ending");
  else status = tt_compile(tt_runtime_client(), program->text.data, program->text.size, &options, &program->executable);
  tt_count_add(TT_COUNT_COMPILE_NS, now_ns() - start);
  tt_log(TT_LOG_COMPILE, "%s: %zu bytes of StableHLO, %.1f ms%s", program->name, program->text.size,
         (double)(now_ns() - start) / 1e6, status ? ", failed" : "");
  program->error = status;
  pthread_mutex_lock(&lock);
  atomic_store_explicit(&program->state, status ? TT_PROGRAM_FAILED : TT_PROGRAM_READY, memory_order_release);
  pthread_cond_broadcast(&ended);
  pthread_mutex_unlock(&lock);
}

static tt_status submit(tt_program *program) {
  if (!pool) {
    int64_t threads = tt_env_int(TT_ENV_COMPILE_THREADS);
    if (threads <= 0) threads = sysconf(_SC_NPROCESSORS_ONLN);
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

static void retry_locked(tt_program *program) {
  if (atomic_load(&program->state) == TT_PROGRAM_FAILED && was_shortage(program->error))
    start(program);
}

void tt_program_retry(tt_program *program) {
  if (atomic_load_explicit(&program->state, memory_order_acquire) != TT_PROGRAM_FAILED) return;
  pthread_mutex_lock(&lock);
  retry_locked(program);
  pthread_mutex_unlock(&lock);
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
  } else {
    retry_locked(found);
  }
  pthread_mutex_unlock(&lock);
  if (!status) *out = found;
  return status;
}

tt_status tt_program_await(tt_program *program) {
  if (atomic_load_explicit(&program->state, memory_order_acquire) == TT_PROGRAM_READY) return TT_SUCCESS;
  pthread_mutex_lock(&lock);
  while (atomic_load(&program->state) == TT_PROGRAM_COMPILING) pthread_cond_wait(&ended, &lock);
  tt_status status = tt_status_clone(program->error);
  pthread_mutex_unlock(&lock);
  return status;
}

void tt_program_shutdown(void) {
  tt_pool_destroy(pool);
  pool = NULL;
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
