#include "run/compile.h"

#include "run/run.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_WAIT = 10 }; /* seconds */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_saved = PTHREAD_COND_INITIALIZER;
static tt_disk *disk;
static bool opened;
static int unsaved; /* executables on their way to the disk */
static pid_t saver; /* the process that registered finish_saving */

/* -- The cache -- */

/* What was compiled last is still being written when a short process ends. */
static void finish_saving(void) {
  struct timespec end;
  if (getpid() != saver) return; /* a forked child has none of the threads */
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += EXIT_WAIT;
  pthread_mutex_lock(&lock);
  for (int error = 0; unsaved && !error;) error = pthread_cond_timedwait(&all_saved, &lock, &end);
  tt_disk_flush(disk);
  pthread_mutex_unlock(&lock);
}

/* Going without a cache is no failure. */
static tt_disk *get_disk(void) {
  pthread_mutex_lock(&lock);
  if (!opened) {
    char path[TT_DISK_PATH];
    tt_disk_options options;
    tt_disk_options_read(&options, path);
    tt_status_release(tt_disk_create(&options, tt_runtime_plugin(), tt_runtime_client(), &disk));
    if (disk && !saver && atexit(finish_saving) == 0) saver = getpid();
    opened = true;
  }
  pthread_mutex_unlock(&lock);
  return disk;
}

void tt_compile_shutdown(void) {
  pthread_mutex_lock(&lock);
  tt_disk_destroy(disk);
  disk = NULL;
  opened = false;
  pthread_mutex_unlock(&lock);
}

/* -- Compiling -- */

/* XLA's CPU compiler drops NaN in minimum and maximum unless it is told not to. Its own defaults
 * take a fifth longer to compile for no faster programs; threads it need not start: ours compile
 * programs side by side. */
static tt_compile_options make_options(void) {
  static const char *const names[] = {"xla_cpu_enable_fast_min_max",
                                      "xla_backend_optimization_level",
                                      "xla_cpu_parallel_codegen_split_count"};
  static const char *const values[] = {"False", "1", "1"};
  tt_compile_options options = {.portable = true, .optimization_level = -1};
  if (!tt_runtime_is_cpu()) return options;
  options.override_names = names;
  options.override_values = values;
  options.override_count = sizeof names / sizeof *names;
  return options;
}

static void count(const tt_lookup *lookup) {
  tt_count_add(TT_COUNT_COMPILES, lookup->source == TT_SOURCE_COMPILER);
  tt_count_add(TT_COUNT_DISK_HITS, lookup->source == TT_SOURCE_DISK);
  tt_count_add(TT_COUNT_DISK_SHARED_HITS, lookup->source == TT_SOURCE_SHARED);
  tt_count_add(TT_COUNT_DISK_BAD, lookup->bad);
  tt_count_add(TT_COUNT_DISK_WAITS, lookup->waited);
}

tt_status tt_compile_cached(tt_lookup *lookup, tt_executable **out) {
  tt_compile_options options = make_options();
  tt_status status = TT_SUCCESS;
  *out = tt_disk_load(get_disk(), &options, lookup);
  if (!*out)
    status = tt_compile(tt_runtime_client(), lookup->code, lookup->code_size, &options, out);
  count(lookup);
  if (status) {
    tt_disk_store(disk, lookup, NULL);
    return status;
  }
  pthread_mutex_lock(&lock);
  unsaved++;
  pthread_mutex_unlock(&lock);
  return TT_SUCCESS;
}

tt_executable *tt_compile_find(tt_lookup *lookup) {
  tt_compile_options options = make_options();
  tt_executable *found = tt_disk_find(get_disk(), &options, lookup);
  if (found) count(lookup);
  else tt_count_add(TT_COUNT_DISK_BAD, lookup->bad);
  tt_count_add(TT_COUNT_DISK_WRITES, lookup->written);
  return found;
}

void tt_compile_save(tt_lookup *lookup, tt_executable *executable) {
  if (lookup->source == TT_SOURCE_COMPILER) tt_disk_store(disk, lookup, executable);
  tt_count_add(TT_COUNT_DISK_WRITES, lookup->written);
  pthread_mutex_lock(&lock);
  if (--unsaved == 0) pthread_cond_broadcast(&all_saved);
  pthread_mutex_unlock(&lock);
}

/* -- Warming -- */

static tt_status copy_or_compile(const tt_compile_options *options, tt_lookup *lookup,
                                 const tt_entry *entry, tt_warmth *out) {
  tt_status status = TT_SUCCESS;
  *out = TT_WARM_COPIED;
  if (!tt_disk_adopt(disk, lookup, entry)) {
    tt_executable *executable = NULL;
    *out = TT_WARM_COMPILED;
    status = tt_compile(tt_runtime_client(), lookup->code, lookup->code_size, options, &executable);
    tt_disk_store(disk, lookup, executable);
    tt_executable_destroy(executable);
  }
  if (status || lookup->written) return status;
  return tt_error(TT_FAILED_PRECONDITION,
                  "the cache folder cannot be written; TORCH_TPU_LOG=compile says why");
}

static tt_status warm(const tt_entry *entry, tt_warmth *out) {
  tt_compile_options options = make_options();
  tt_lookup lookup = {
      .code = entry->code.data, .code_size = entry->code.size, .outputs = entry->outputs};
  tt_executable *executable = tt_disk_load(disk, &options, &lookup);
  if (!executable) return copy_or_compile(&options, &lookup, entry, out);
  tt_executable_destroy(executable);
  *out = TT_WARM_READY;
  return TT_SUCCESS;
}

tt_status tt_compile_warm(tt_dir *dir, const char *name, tt_warmth *out) {
  void *data = NULL;
  tt_entry entry;
  if (!get_disk())
    return tt_error(TT_FAILED_PRECONDITION, "the disk cache is off; set %s to on",
                    tt_env_name(TT_ENV_CACHE));
  TT_TRY(tt_disk_read(dir, name, &data, &entry));
  tt_status status = warm(&entry, out);
  tt_free(data);
  return status;
}
