#include "program/compile.h"

#include <pthread.h>

struct tt_compiler {
  const tt_target *target;
  pthread_mutex_t lock;
  bool opened; /* under the lock, as the next */
  tt_disk *disk;
};

tt_status tt_compiler_create(const tt_target *target, tt_compiler **out) {
  tt_compiler *compiler = tt_calloc(1, sizeof *compiler);
  if (!compiler) return tt_out_of_memory();
  compiler->target = target;
  pthread_mutex_init(&compiler->lock, NULL);
  *out = compiler;
  return TT_SUCCESS;
}

void tt_compiler_destroy(tt_compiler *compiler) {
  if (!compiler) return;
  tt_disk_destroy(compiler->disk);
  pthread_mutex_destroy(&compiler->lock);
  tt_free(compiler);
}

/* Opened at the first use. Going without a cache is no failure. */
static tt_disk *get_disk(tt_compiler *compiler) {
  pthread_mutex_lock(&compiler->lock);
  if (!compiler->opened) {
    char path[TT_DISK_PATH];
    tt_disk_options options;
    tt_disk_options_read(&options, path);
    tt_status_release(tt_disk_create(&options, compiler->target, &compiler->disk));
    compiler->opened = true;
  }
  tt_disk *disk = compiler->disk;
  pthread_mutex_unlock(&compiler->lock);
  return disk;
}

void tt_compiler_flush(tt_compiler *compiler) {
  pthread_mutex_lock(&compiler->lock);
  tt_disk *disk = compiler->disk;
  pthread_mutex_unlock(&compiler->lock);
  tt_disk_flush(disk);
}

/* -- Compiling -- */

static void count(const tt_lookup *lookup) {
  tt_count_add(TT_COUNT_COMPILES, lookup->source == TT_SOURCE_COMPILER);
  tt_count_add(TT_COUNT_DISK_HITS, lookup->source == TT_SOURCE_DISK);
  tt_count_add(TT_COUNT_DISK_SHARED_HITS, lookup->source == TT_SOURCE_SHARED);
  tt_count_add(TT_COUNT_DISK_BAD, lookup->bad);
  tt_count_add(TT_COUNT_DISK_WAITS, lookup->waited);
}

tt_status tt_compiler_get(tt_compiler *compiler, tt_lookup *lookup, tt_executable **out) {
  tt_disk *disk = get_disk(compiler);
  tt_status status = TT_SUCCESS;
  *out = tt_disk_load(disk, lookup);
  if (!*out) status = tt_target_compile(compiler->target, lookup->code, lookup->code_size, out);
  count(lookup);
  if (status) tt_disk_store(disk, lookup, NULL);
  return status;
}

void tt_compiler_save(tt_compiler *compiler, tt_lookup *lookup, tt_executable *executable) {
  if (lookup->source == TT_SOURCE_COMPILER) tt_disk_store(get_disk(compiler), lookup, executable);
  tt_count_add(TT_COUNT_DISK_WRITES, lookup->written);
}

tt_executable *tt_compiler_find(tt_compiler *compiler, tt_lookup *lookup) {
  tt_executable *found = tt_disk_find(get_disk(compiler), lookup);
  if (found) count(lookup);
  else tt_count_add(TT_COUNT_DISK_BAD, lookup->bad);
  tt_count_add(TT_COUNT_DISK_WRITES, lookup->written);
  return found;
}

bool tt_compiler_has(tt_compiler *compiler, tt_lookup *lookup) {
  return tt_disk_has(get_disk(compiler), lookup);
}

/* -- Warming -- */

static tt_status copy_or_compile(tt_compiler *compiler, tt_lookup *lookup, const tt_entry *entry,
                                 tt_warmth *out) {
  tt_disk *disk = get_disk(compiler);
  tt_status status = TT_SUCCESS;
  *out = TT_WARM_COPIED;
  if (!tt_disk_adopt(disk, lookup, entry)) {
    tt_executable *executable = NULL;
    *out = TT_WARM_COMPILED;
    status = tt_target_compile(compiler->target, lookup->code, lookup->code_size, &executable);
    tt_disk_store(disk, lookup, executable);
    tt_executable_destroy(executable);
  }
  if (status || lookup->written) return status;
  return tt_error(TT_FAILED_PRECONDITION,
                  "the cache folder cannot be written; TORCH_TPU_LOG=compile says why");
}

static tt_status warm(tt_compiler *compiler, const tt_entry *entry, tt_warmth *out) {
  tt_lookup lookup = {
      .code = entry->code.data, .code_size = entry->code.size, .outputs = entry->outputs};
  tt_executable *executable = tt_disk_load(get_disk(compiler), &lookup);
  if (!executable) return copy_or_compile(compiler, &lookup, entry, out);
  tt_executable_destroy(executable);
  *out = TT_WARM_READY;
  return TT_SUCCESS;
}

tt_status tt_compiler_warm(tt_compiler *compiler, tt_dir *dir, const char *name, tt_warmth *out) {
  void *data = NULL;
  tt_entry entry;
  if (!get_disk(compiler))
    return tt_error(TT_FAILED_PRECONDITION, "the disk cache is off; set %s to on",
                    tt_env_name(TT_ENV_CACHE));
  TT_TRY(tt_disk_read(dir, name, &data, &entry));
  tt_status status = warm(compiler, &entry, out);
  tt_free(data);
  return status;
}
