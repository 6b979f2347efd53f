#include "run/program.h"

#include "cache/pool.h"
#include "run/explain.h"
#include "run/forget.h"
#include "run/mappings.h"
#include "run/run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TEXT ((int64_t)1 << 28) /* bytes of StableHLO of loaded programs */
/* Mappings are counted when programs of so many bytes were loaded, each counted for no less. */
enum { LOOK_EVERY = 1 << 16, LEAST_LOAD = 1 << 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static tt_intern table = TT_INTERN_INIT;
static tt_pool *pool;
static atomic_bool ending;                 /* the process is about to exit */
static int64_t loaded_count, loaded_bytes; /* of programs that are ready, and of their text */
static int64_t unseen;                     /* bytes loaded since mappings were counted */
static _Atomic int64_t launches;           /* the clock by which programs were last used */

static void mark_used(tt_program *program) {
  int64_t now = atomic_fetch_add_explicit(&launches, 1, memory_order_relaxed);
  atomic_store_explicit(&program->used, now, memory_order_relaxed);
}

void tt_program_deinit(tt_program *program) {
  tt_text_deinit(&program->text);
  tt_free(program->donors);
  for (int i = 0; i < program->check_count; i++) tt_free(program->check_texts[i]);
  tt_free(program->check_texts);
  tt_free(program->check_codes);
  tt_free(program->name);
  *program = (tt_program){0};
}

/* -- Programs that are loaded: a bounded number -- */

typedef struct candidate {
  tt_program *program;
  int64_t used;
} candidate;

static int by_use(const void *a, const void *b) {
  int64_t x = ((const candidate *)a)->used, y = ((const candidate *)b)->used;
  return (x > y) - (x < y);
}

/* The state changes before the users are looked at, and tt_program_await does the opposite, so one
 * of the two sees the other. */
static void unload(tt_program *program) {
  atomic_store(&program->state, TT_PROGRAM_UNLOADED);
  if (atomic_load(&program->users)) {
    atomic_store(&program->state, TT_PROGRAM_READY);
    return;
  }
  tt_executable_destroy(program->executable);
  program->executable = NULL;
  loaded_count--;
  loaded_bytes -= (int64_t)program->text.size;
  tt_count_add(TT_COUNT_UNLOADED, 1);
}

/* Unloads what was launched longest ago; a quarter at once, so that this is seldom needed. */
static void unload_some(int64_t limit) {
  size_t count = 0;
  candidate *all = tt_malloc(table.count * sizeof *all);
  if (!all) return;
  for (size_t i = 0; i < table.capacity; i++) {
    tt_program *program = table.entries[i].key ? table.entries[i].value : NULL;
    if (program && tt_program_is_ready(program))
      all[count++] = (candidate){program, atomic_load(&program->used)};
  }
  qsort(all, count, sizeof *all, by_use);
  for (size_t i = 0; i < count; i++)
    if (loaded_count > limit - limit / 4 || loaded_bytes > MAX_TEXT - MAX_TEXT / 4)
      unload(all[i].program);
  tt_free(all);
}

static bool mappings_are_scarce(const tt_program *loaded) {
  int64_t bytes = (int64_t)loaded->text.size;
  unseen += bytes > LEAST_LOAD ? bytes : LEAST_LOAD;
  if (unseen < LOOK_EVERY) return false;
  unseen = 0;
  return tt_mappings_scarce();
}

/* The lock is held. */
static void add_loaded(tt_program *program) {
  int64_t limit = tt_env_int(TT_ENV_PROGRAM_LIMIT);
  if (limit <= 0) limit = INT64_MAX;
  loaded_count++;
  loaded_bytes += (int64_t)program->text.size;
  if (mappings_are_scarce(program)) unload_some(loaded_count);
  else if (loaded_count > limit || loaded_bytes > MAX_TEXT) unload_some(limit);
}

/* -- Compiling -- */

static void publish(tt_program *program, tt_status status) {
  pthread_mutex_lock(&lock);
  program->error = status;
  if (!status) add_loaded(program);
  atomic_store_explicit(&program->state, status ? TT_PROGRAM_FAILED : TT_PROGRAM_READY,
                        memory_order_release);
  pthread_cond_broadcast(&ended);
  pthread_mutex_unlock(&lock);
}

static tt_lookup lookup_of(const tt_program *program) {
  return (tt_lookup){.code = program->text.data,
                     .code_size = program->text.size,
                     .outputs = program->result_count + program->check_count};
}

static void compile(void *user, bool cancelled) {
  tt_program *program = user;
  if (cancelled) {
    publish(program, tt_error(TT_CANCELLED, "the process is ending"));
    return;
  }
  tt_lookup lookup = lookup_of(program);
  tt_executable *executable = NULL;
  int64_t start = tt_now_ns();
  tt_status status = tt_compile_cached(&lookup, &executable);
  int64_t took = tt_now_ns() - start;
  tt_count_add(lookup.source == TT_SOURCE_COMPILER ? TT_COUNT_COMPILE_NS : TT_COUNT_LOAD_NS, took);
  tt_log(TT_LOG_COMPILE, "%s: %zu bytes of StableHLO, %.1f ms%s%s", program->name,
         program->text.size, (double)took / 1e6, lookup.source ? ", from the cache" : "",
         status ? ", failed" : "");
  program->executable = executable;
  atomic_store(&program->compile_ns, took);
  atomic_fetch_add(&program->users, 1);
  publish(program, status);
  if (executable) tt_compile_save(&lookup, executable);
  tt_program_release(program);
}

static tt_status cancelled_status(void) { return tt_error(TT_CANCELLED, "the process is ending"); }

static tt_status submit(tt_program *program) {
  if (atomic_load(&ending)) return cancelled_status();
  if (!pool) {
    int64_t threads = tt_env_int(TT_ENV_COMPILE_THREADS);
    if (threads <= 0) threads = sysconf(_SC_NPROCESSORS_ONLN);
    TT_TRY(tt_pool_create(threads > 64 ? 64 : threads < 1 ? 1 : (int)threads, &pool));
  }
  return tt_pool_submit(pool, program->later ? TT_LATER : TT_NOW, compile, program);
}

/* The lock is held. */
static void hurry(tt_program *program) {
  if (!program->later) return;
  program->later = false;
  if (pool && atomic_load(&program->state) == TT_PROGRAM_COMPILING)
    (void)tt_pool_hurry(pool, compile, program);
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

/* Where nothing may be compiled: a cache folder may have it. */
static tt_status load(const tt_program *program, tt_executable **out) {
  tt_lookup lookup = lookup_of(program);
  int64_t start = tt_now_ns();
  *out = tt_compile_find(&lookup);
  tt_count_add(TT_COUNT_LOAD_NS, tt_now_ns() - start);
  if (*out) return TT_SUCCESS;
  return tt_error(TT_FAILED_PRECONDITION,
                  "this needs a new program, which torch.tpu.no_recompile() forbids");
}

/* Takes the fields of `program`. */
static tt_status add(tt_program *program, tt_program **out) {
  tt_program *added = tt_calloc(1, sizeof *added);
  tt_status status = added ? tt_intern_add(&table, program->text.data, program->text.size, added)
                           : tt_out_of_memory();
  if (status) {
    tt_free(added);
    return status;
  }
  *added = *program;
  *program = (tt_program){0};
  mark_used(added);
  tt_forget_note(TT_GROWN_BYTES, (int64_t)added->text.size);
  *out = added;
  return TT_SUCCESS;
}

/* The lock is held, as by the two above. */
static void put(tt_program *program, tt_executable *executable) {
  atomic_fetch_add(&program->users, 1); /* not the one that makes room for itself */
  program->executable = executable;
  add_loaded(program);
  atomic_store_explicit(&program->state, TT_PROGRAM_READY, memory_order_release);
  atomic_fetch_sub(&program->users, 1);
}

static tt_status intern(tt_program *program, bool later, tt_program **out) {
  tt_status status = TT_SUCCESS;
  pthread_mutex_lock(&lock);
  tt_program *found = tt_intern_find(&table, program->text.data, program->text.size);
  bool missing = !found || atomic_load(&found->state) == TT_PROGRAM_UNLOADED;
  tt_executable *ready = NULL;
  if (missing && tt_programs_forbidden()) status = load(found ? found : program, &ready);
  if (!status) tt_count_add(found ? TT_COUNT_PROGRAM_HITS : TT_COUNT_PROGRAMS, 1);
  if (!status && found && !later) hurry(found);
  program->later = later;
  if (!status && !found) {
    status = add(program, &found);
    if (!status) atomic_store(&found->state, TT_PROGRAM_UNLOADED);
  }
  if (!status && missing && ready) put(found, ready);
  else if (!status && missing && !later) start(found);
  else tt_executable_destroy(ready);
  pthread_mutex_unlock(&lock);
  if (!status) *out = found;
  return status;
}

tt_status tt_program_intern(tt_program *program, tt_program **out) {
  return intern(program, false, out);
}

tt_status tt_program_intern_later(tt_program *program, tt_program **out) {
  return intern(program, true, out);
}

/* The lock is held. */
static tt_status await_locked(tt_program *program) {
  hurry(program);
  for (bool retried = false;;) {
    while (atomic_load(&program->state) == TT_PROGRAM_COMPILING) pthread_cond_wait(&ended, &lock);
    bool again = !retried && was_shortage(program->error);
    if (!again && atomic_load(&program->state) != TT_PROGRAM_UNLOADED)
      return tt_status_clone(program->error);
    retried = again;
    start(program);
  }
}

tt_status tt_program_await(tt_program *program) {
  if (atomic_load_explicit(&ending, memory_order_relaxed)) return cancelled_status();
  atomic_fetch_add(&program->users, 1);
  mark_used(program);
  if (!atomic_load_explicit(&program->launched, memory_order_relaxed) &&
      !atomic_exchange(&program->launched, true))
    tt_count_add(TT_COUNT_PROGRAMS_LAUNCHED, 1);
  if (tt_program_is_ready(program)) return TT_SUCCESS;
  pthread_mutex_lock(&lock);
  tt_status status = await_locked(program);
  pthread_mutex_unlock(&lock);
  if (status) tt_program_release(program);
  return status;
}

void tt_program_release(tt_program *program) { atomic_fetch_sub(&program->users, 1); }

bool tt_program_poll(tt_program *program) {
  if (atomic_load(&program->state) == TT_PROGRAM_UNLOADED && !tt_programs_forbidden()) {
    pthread_mutex_lock(&lock);
    if (atomic_load(&program->state) == TT_PROGRAM_UNLOADED) start(program);
    pthread_mutex_unlock(&lock);
  }
  return tt_program_is_ready(program);
}

bool tt_program_needs(tt_program *program, tt_program_memory *out) {
  atomic_fetch_add(&program->users, 1);
  bool known = tt_program_is_ready(program);
  tt_status status = known ? tt_executable_memory(program->executable, out) : TT_SUCCESS;
  tt_program_release(program);
  known = known && !status;
  tt_status_release(status);
  return known;
}

void tt_program_end(void) {
  pthread_mutex_lock(&lock);
  atomic_store(&ending, true);
  tt_pool *last = pool;
  pool = NULL;
  pthread_mutex_unlock(&lock);
  tt_pool_destroy(last);
}

static void destroy(void *user) {
  tt_program *program = user;
  tt_executable_destroy(program->executable);
  tt_status_release(program->error);
  tt_program_deinit(program);
  tt_free(program);
}

static bool is_in_use(void *user) {
  tt_program *program = user;
  int state = atomic_load(&program->state);
  return state == TT_PROGRAM_COMPILING || state == TT_PROGRAM_READY || atomic_load(&program->users);
}

void tt_program_forget(void) {
  pthread_mutex_lock(&lock);
  tt_status_release(tt_intern_filter(&table, is_in_use, destroy));
  pthread_mutex_unlock(&lock);
}

int64_t tt_program_table_size(void) {
  pthread_mutex_lock(&lock);
  int64_t count = (int64_t)table.count;
  pthread_mutex_unlock(&lock);
  return count;
}

void tt_program_shutdown(void) {
  tt_pool_destroy(pool);
  pool = NULL;
  tt_compile_shutdown();
  for (size_t i = 0; i < table.capacity; i++) {
    tt_program *program = table.entries[i].key ? table.entries[i].value : NULL;
    if (program) destroy(program);
  }
  tt_intern_deinit(&table);
  loaded_count = loaded_bytes = unseen = 0;
  atomic_store(&ending, false);
}
