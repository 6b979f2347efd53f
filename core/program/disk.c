#include "program/disk.h"

#include "base/base.h"
#include "pjrt/compile_options.h"
#include "program/environment.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOCAL, SHARED, FOLDERS, MAX_REFUSALS = 32 };
enum { FIRST_NAP_US = 500, LONGEST_NAP_US = 50000, LONGEST_SHARED_NAP_US = 250000 };
enum { SILENCE_MS = 15000 };

struct tt_disk {
  const tt_target *target;
  tt_cache_mode mode;
  char *paths[FOLDERS]; /* NULL: none */
  int64_t limit, wait_ms, silence_ms;
  pthread_mutex_t lock;
  bool opened;           /* under the lock; then the rest no longer changes */
  tt_dir *dirs[FOLDERS]; /* NULL: none, or none that can be used */
  tt_text environment;
  atomic_int refusals; /* to serialise, in a row: one program may not be, all can be no chance */
  tt_totals totals;    /* under the lock; since the last flush */
};

/* -- Options -- */

static void default_path(char path[TT_DISK_PATH]) {
  const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int size = 0;
  if (base && base[0] == '/') size = snprintf(path, TT_DISK_PATH, "%s/torch_tpu", base);
  else if (home && home[0] == '/') size = snprintf(path, TT_DISK_PATH, "%s/.cache/torch_tpu", home);
  if (size <= 0 || size >= TT_DISK_PATH) path[0] = '\0';
}

static tt_cache_mode read_mode(const char *text) {
  if (strcmp(text, "on") == 0 || strcmp(text, "1") == 0) return TT_CACHE_ON;
  if (strcmp(text, "off") == 0 || strcmp(text, "0") == 0) return TT_CACHE_OFF;
  if (strcmp(text, "readonly") != 0)
    tt_log(TT_LOG_COMPILE, "%s is '%s', not on, off, or readonly; the cache is only read",
           tt_env_name(TT_ENV_CACHE), text);
  return TT_CACHE_READONLY;
}

void tt_disk_options_read(tt_disk_options *out, char path[TT_DISK_PATH]) {
  if (*tt_env(TT_ENV_CACHE_DIR)) snprintf(path, TT_DISK_PATH, "%s", tt_env(TT_ENV_CACHE_DIR));
  else default_path(path);
  int64_t megabytes = tt_env_int(TT_ENV_CACHE_LIMIT_MB), seconds = tt_env_int(TT_ENV_CACHE_WAIT);
  *out = (tt_disk_options){.mode = read_mode(tt_env(TT_ENV_CACHE)),
                           .dir = path,
                           .shared_dir = tt_env(TT_ENV_SHARED_CACHE_DIR)};
  if (megabytes > 0 && megabytes < INT64_MAX >> 20) out->limit = megabytes << 20;
  if (seconds > 0 && seconds < INT32_MAX) out->wait_ms = seconds * 1000;
}

/* -- Opening -- */

static tt_status copy_paths(const tt_disk_options *options, tt_disk *disk) {
  const char *paths[FOLDERS] = {options->dir, options->shared_dir};
  for (int i = 0; i < FOLDERS; i++) {
    if (!paths[i] || !*paths[i]) continue;
    disk->paths[i] = tt_strndup(paths[i], strlen(paths[i]));
    if (!disk->paths[i]) return tt_out_of_memory();
  }
  return TT_SUCCESS;
}

tt_status tt_disk_create(const tt_disk_options *options, const tt_target *target, tt_disk **out) {
  *out = NULL;
  if (options->mode == TT_CACHE_OFF || !target->client) return TT_SUCCESS;
  tt_disk *disk = tt_calloc(1, sizeof *disk);
  if (!disk) return tt_out_of_memory();
  *disk = (tt_disk){.target = target,
                    .mode = options->mode,
                    .limit = options->limit,
                    .wait_ms = options->wait_ms,
                    .silence_ms = options->silence_ms ? options->silence_ms : SILENCE_MS};
  pthread_mutex_init(&disk->lock, NULL);
  atomic_init(&disk->refusals, 0);
  tt_status status = copy_paths(options, disk);
  if (status) tt_disk_destroy(disk);
  else *out = disk;
  return status;
}

void tt_disk_flush(tt_disk *disk) {
  static const tt_totals none;
  if (!disk) return;
  pthread_mutex_lock(&disk->lock);
  tt_totals totals = disk->totals;
  tt_dir *dir = disk->dirs[LOCAL];
  disk->totals = none;
  pthread_mutex_unlock(&disk->lock);
  if (dir && memcmp(&totals, &none, sizeof none) != 0) tt_dir_add_totals(dir, &totals);
}

void tt_disk_destroy(tt_disk *disk) {
  if (!disk) return;
  tt_disk_flush(disk);
  for (int i = 0; i < FOLDERS; i++) {
    tt_dir_close(disk->dirs[i]);
    tt_free(disk->paths[i]);
  }
  tt_text_deinit(&disk->environment);
  pthread_mutex_destroy(&disk->lock);
  tt_free(disk);
}

static void close_folders(tt_disk *disk) {
  for (int i = 0; i < FOLDERS; i++) {
    tt_dir_close(disk->dirs[i]);
    disk->dirs[i] = NULL;
  }
}

static void open_locked(tt_disk *disk) {
  for (int i = 0; i < FOLDERS; i++) {
    tt_dir_options options = {
        .readonly = disk->mode == TT_CACHE_READONLY, .shared = i == SHARED, .limit = disk->limit};
    if (!disk->paths[i]) continue;
    tt_status status = tt_dir_open(disk->paths[i], &options, &disk->dirs[i]);
    if (status) tt_log(TT_LOG_COMPILE, "%s; it is not used", tt_status_message(status));
    tt_status_release(status);
  }
  if (!disk->dirs[LOCAL] && !disk->dirs[SHARED]) return;
  tt_status status = tt_environment_print(disk->target, disk->dirs[LOCAL], &disk->environment);
  if (!status) return;
  tt_log(TT_LOG_COMPILE, "no disk cache: %s", tt_status_message(status));
  tt_status_release(status);
  close_folders(disk);
}

/* At the first look-up; false when there is no folder to look into. */
static bool ready(tt_disk *disk) {
  pthread_mutex_lock(&disk->lock);
  if (!disk->opened) open_locked(disk);
  disk->opened = true;
  pthread_mutex_unlock(&disk->lock);
  return disk->dirs[LOCAL] || disk->dirs[SHARED];
}

/* -- Looking up -- */

static tt_entry key_of(const tt_disk *disk, const tt_lookup *lookup) {
  return (tt_entry){.environment = {disk->environment.data, disk->environment.size},
                    .options = {lookup->option_bytes.data, lookup->option_bytes.size},
                    .code = {lookup->code, lookup->code_size},
                    .outputs = lookup->outputs};
}

/* The executable in a file's content. DATA_LOSS, or what the plugin says. */
static tt_status unpack(const tt_disk *disk, const tt_entry *key, const void *data, size_t size,
                        tt_executable **out) {
  tt_entry entry;
  TT_TRY(tt_entry_parse(data, size, &entry));
  if (!tt_entry_same_key(&entry, key) || entry.outputs != key->outputs)
    return tt_error(TT_DATA_LOSS, "it holds another program");
  TT_TRY(tt_executable_load(disk->target->client, entry.body.data, entry.body.size, out));
  if (tt_executable_outputs(*out) == key->outputs) return TT_SUCCESS;
  tt_executable_destroy(*out);
  *out = NULL;
  return tt_error(TT_DATA_LOSS, "its program returns another number of results");
}

/* Running out of memory, or a plugin that loads nothing, says nothing about the file. */
static bool is_bad(tt_status status) {
  tt_code code = tt_status_code(status);
  return status && code != TT_NOT_FOUND && code != TT_RESOURCE_EXHAUSTED &&
         code != TT_UNAVAILABLE && code != TT_UNIMPLEMENTED && code != TT_CANCELLED;
}

static void copy_to_local(tt_disk *disk, tt_lookup *lookup, const void *data, size_t size) {
  tt_dir *local = disk->dirs[LOCAL];
  if (!local || !tt_dir_writable(local)) return;
  tt_status status = tt_dir_write(local, lookup->name, &(tt_bytes){data, size}, 1);
  lookup->written += !status;
  tt_status_release(status);
}

static tt_executable *load_from(tt_disk *disk, int which, tt_lookup *lookup) {
  void *data = NULL;
  size_t size = 0;
  tt_executable *executable = NULL;
  tt_dir *dir = disk->dirs[which];
  if (!dir) return NULL;
  tt_entry key = key_of(disk, lookup);
  tt_status status = tt_dir_read(dir, lookup->name, &data, &size);
  if (!status) status = unpack(disk, &key, data, size, &executable);
  if (is_bad(status)) {
    tt_log(TT_LOG_COMPILE, "the cache entry %s/%s is bad: %s", tt_dir_path(dir), lookup->name,
           tt_status_message(status));
    lookup->bad++;
    if (tt_dir_writable(dir)) tt_dir_remove(dir, lookup->name);
  }
  if (tt_status_code(status) == TT_UNIMPLEMENTED) atomic_store(&disk->refusals, MAX_REFUSALS);
  tt_status_release(status);
  if (executable && which == SHARED) copy_to_local(disk, lookup, data, size);
  if (executable) lookup->source = which == LOCAL ? TT_SOURCE_DISK : TT_SOURCE_SHARED;
  tt_free(data);
  return executable;
}

/* Waits a little, and a little longer each time; false when it is `end`. */
static bool nap(tt_lookup *lookup, int64_t end, int64_t *us, int64_t longest) {
  lookup->waited = true;
  lookup->timed_out = tt_now_ms() >= end;
  if (lookup->timed_out) return false;
  nanosleep(&(struct timespec){.tv_nsec = (long)*us * 1000}, NULL);
  if (*us < longest) *us *= 2;
  return true;
}

/* The claim holds, or no claim is possible, when it returns NULL without a time-out. */
static tt_executable *claim_local(tt_disk *disk, tt_lookup *lookup, int64_t end) {
  tt_dir *dir = disk->dirs[LOCAL];
  tt_executable *executable = NULL;
  for (int64_t us = FIRST_NAP_US; dir;) {
    tt_claim_result result = tt_claim_try(dir, lookup->name, &lookup->claim);
    /* Its last holder may have written the entry after we looked. */
    if (result == TT_CLAIM_HELD) return load_from(disk, LOCAL, lookup);
    if (result == TT_CLAIM_IMPOSSIBLE || !nap(lookup, end, &us, LONGEST_NAP_US)) return NULL;
    if ((executable = load_from(disk, LOCAL, lookup))) return executable;
  }
  return NULL;
}

/* The same among hosts: of each host one process asks. */
static tt_executable *claim_shared(tt_disk *disk, tt_lookup *lookup, int64_t end) {
  tt_dir *dir = disk->dirs[SHARED];
  tt_executable *executable = NULL;
  tt_lease_watch watch = {.since = 0};
  for (int64_t us = FIRST_NAP_US; dir;) {
    tt_claim_result result =
        tt_lease_try(dir, lookup->name, disk->silence_ms, &watch, &lookup->lease);
    if (result == TT_CLAIM_HELD) return load_from(disk, SHARED, lookup);
    if (result == TT_CLAIM_IMPOSSIBLE || !nap(lookup, end, &us, LONGEST_SHARED_NAP_US)) return NULL;
    if ((executable = load_from(disk, SHARED, lookup))) return executable;
  }
  return NULL;
}

/* Becomes the one that compiles, or gets what another process has compiled meanwhile. */
static tt_executable *claim_or_load(tt_disk *disk, tt_lookup *lookup) {
  int64_t end = tt_now_ms() + disk->wait_ms;
  tt_executable *executable = claim_local(disk, lookup, end);
  return executable || lookup->timed_out ? executable : claim_shared(disk, lookup, end);
}

/* Every look-up ends here. */
static void finish(tt_disk *disk, tt_lookup *lookup, bool compiled) {
  tt_text_deinit(&lookup->option_bytes);
  if (!disk) return;
  tt_lease_end(lookup->lease);
  lookup->lease = NULL;
  tt_claim_release(&lookup->claim);
  pthread_mutex_lock(&disk->lock);
  disk->totals.hits += lookup->source == TT_SOURCE_DISK;
  disk->totals.shared_hits += lookup->source == TT_SOURCE_SHARED;
  disk->totals.compiled += compiled;
  disk->totals.written += lookup->written;
  disk->totals.bad += lookup->bad;
  disk->totals.waits += lookup->waited;
  pthread_mutex_unlock(&disk->lock);
}

/* False when there is nowhere to look. */
static bool name_entry(tt_disk *disk, tt_lookup *lookup) {
  lookup->claim = TT_CLAIM_NONE;
  if (!disk || !ready(disk)) return false;
  tt_status status = tt_compile_options_write(&disk->target->options, &lookup->option_bytes);
  if (status) { /* the compiler will say it again */
    tt_status_release(status);
    return false;
  }
  tt_entry key = key_of(disk, lookup);
  tt_entry_name(&key, TT_ENTRY_PROGRAM, lookup->name);
  return true;
}

static tt_executable *look(tt_disk *disk, tt_lookup *lookup) {
  tt_executable *executable = load_from(disk, LOCAL, lookup);
  return executable ? executable : load_from(disk, SHARED, lookup);
}

tt_executable *tt_disk_find(tt_disk *disk, tt_lookup *lookup) {
  tt_executable *executable = NULL;
  if (name_entry(disk, lookup)) executable = look(disk, lookup);
  finish(disk, lookup, false);
  return executable;
}

bool tt_disk_has(tt_disk *disk, tt_lookup *lookup) {
  bool has = false;
  if (name_entry(disk, lookup))
    for (int i = 0; i < FOLDERS; i++)
      has |= disk->dirs[i] && tt_dir_has(disk->dirs[i], lookup->name);
  finish(disk, lookup, false);
  return has;
}

tt_executable *tt_disk_load(tt_disk *disk, tt_lookup *lookup) {
  if (!name_entry(disk, lookup)) return NULL;
  tt_executable *executable = look(disk, lookup);
  if (!executable) executable = claim_or_load(disk, lookup);
  if (executable) finish(disk, lookup, false);
  if (lookup->timed_out)
    tt_log(TT_LOG_COMPILE, "another process has been compiling %s for %lld ms; compiling it here",
           lookup->name, (long long)disk->wait_ms);
  return executable;
}

/* -- Storing -- */

static void write_to(tt_disk *disk, int which, tt_lookup *lookup, const tt_entry *entry) {
  unsigned char header[TT_ENTRY_HEADER];
  tt_dir *dir = disk->dirs[which];
  if (!dir || !tt_dir_writable(dir)) return;
  tt_entry_header(entry, header);
  const tt_bytes pieces[] = {
      {header, sizeof header}, entry->environment, entry->options, entry->code, entry->body};
  tt_status status = tt_dir_write(dir, lookup->name, pieces, 5);
  lookup->written += !status;
  tt_status_release(status);
}

static bool may_write(const tt_disk *disk) {
  for (int i = 0; i < FOLDERS; i++)
    if (disk->dirs[i] && tt_dir_writable(disk->dirs[i])) return true;
  return false;
}

static void serialise(tt_disk *disk, tt_lookup *lookup, tt_executable *executable) {
  void *data = NULL;
  size_t size = 0;
  tt_status status = tt_executable_serialize(executable, &data, &size);
  if (!status) {
    atomic_store(&disk->refusals, 0);
    tt_entry entry = key_of(disk, lookup);
    entry.body = (tt_bytes){data, size};
    for (int i = 0; i < FOLDERS; i++) write_to(disk, i, lookup, &entry);
  } else {
    if (tt_status_code(status) == TT_UNIMPLEMENTED) atomic_fetch_add(&disk->refusals, 1);
    tt_log(TT_LOG_COMPILE, "a program is not kept on disk: %s", tt_status_message(status));
  }
  tt_status_release(status);
  tt_free(data);
}

void tt_disk_store(tt_disk *disk, tt_lookup *lookup, tt_executable *executable) {
  bool named = lookup->name[0] != '\0';
  if (disk && named && executable && may_write(disk) && atomic_load(&disk->refusals) < MAX_REFUSALS)
    serialise(disk, lookup, executable);
  finish(disk, lookup, executable != NULL);
}

bool tt_disk_adopt(tt_disk *disk, tt_lookup *lookup, const tt_entry *entry) {
  if (!disk || !lookup->name[0]) return false;
  tt_entry key = key_of(disk, lookup);
  if (!tt_entry_same_key(&key, entry) || key.outputs != entry->outputs) return false;
  write_to(disk, LOCAL, lookup, entry);
  finish(disk, lookup, false);
  return true;
}

/* -- Looking after a folder -- */

tt_status tt_disk_read(tt_dir *dir, const char *name, void **data, tt_entry *out) {
  size_t size = 0;
  char expected[TT_ENTRY_NAME];
  const char *kind = strchr(name, '.');
  if (!tt_entry_is_name(name)) return tt_error(TT_NOT_FOUND, "'%s' is not an entry's name", name);
  TT_TRY(tt_dir_read(dir, name, data, &size));
  tt_status status = tt_entry_parse(*data, size, out);
  if (!status) tt_entry_name(out, kind ? kind : "", expected);
  if (!status && strcmp(expected, name) != 0)
    status = tt_error(TT_DATA_LOSS, "it is another program's");
  if (!status) return TT_SUCCESS;
  tt_free(*data);
  *data = NULL;
  return status;
}

tt_status tt_disk_verify(tt_dir *dir, const char *name) {
  void *data = NULL;
  tt_entry entry;
  tt_status status = tt_disk_read(dir, name, &data, &entry);
  tt_free(data);
  return status;
}
