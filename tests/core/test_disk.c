/* The disk cache on the fake plugin: what it keeps, what it refuses, and what it survives. */
#include "support.h"

#include "base/base.h"
#include "program/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static tt_plugin *plugin;
static tt_target target;
static tt_client *client;
static char root[64], folder[96], shared[96];
static int first_threads;

/* -- Folders -- */

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  return remove(path);
}

static void remove_tree(const char *path) {
  (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* -- Processes -- */

static int count_files(const char *path, const char *part) {
  int count = 0;
  DIR *stream = opendir(path);
  assert_non_null(stream);
  for (struct dirent *item; (item = readdir(stream));) count += strstr(item->d_name, part) != NULL;
  closedir(stream);
  return count;
}

static int thread_count(void) { return count_files("/proc/self/task", "") - 2; /* . and .. */ }

/* Once the threads of earlier tests' leases, which end a little later, are gone: TSan's children
 * have no threads otherwise. */
static pid_t fork_alone(void) {
  for (int i = 0; i < 1000 && thread_count() > first_threads; i++)
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  assert_true(thread_count() <= first_threads);
  return fork();
}

static void *nothing(void *user) { return user; }

static int setup(void **state) {
  (void)state;
  pthread_t thread; /* with the first one TSan starts its own, which stays */
  if (pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL)) return -1;
  /* fsync costs nothing there */
  const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  snprintf(root, sizeof root, "%s/test_disk.XXXXXX", base);
  if (!fake_open() || !mkdtemp(root)) return -1;
  snprintf(folder, sizeof folder, "%s/made/cache", root);
  snprintf(shared, sizeof shared, "%s/shared", root);
  tt_status status = tt_plugin_open(getenv("TT_FAKE_PLUGIN"), &plugin);
  if (!status) status = tt_client_create(plugin, NULL, &client);
  if (!status) tt_target_init_client(&target, plugin, client);
  first_threads = thread_count();
  return status ? -1 : 0;
}

static int teardown(void **state) {
  (void)state;
  tt_client_destroy(client);
  remove_tree(root);
  return fake.tt_fake_live_objects() == 0 ? 0 : -1;
}

static int empty_folders(void **state) {
  (void)state;
  fake_reset();
  remove_tree(folder);
  remove_tree(shared);
  return 0;
}

static const tt_disk_options defaults = {.mode = TT_CACHE_ON, .wait_ms = 10000};

static tt_disk *disk_with(tt_disk_options options) {
  tt_disk *disk = NULL;
  options.dir = folder;
  ok(tt_disk_create(&options, &target, &disk));
  return disk;
}

static tt_dir *dir_with(const char *path, tt_dir_options options) {
  tt_dir *dir = NULL;
  ok(tt_dir_open(path, &options, &dir));
  return dir;
}

static void join(char *out, const char *dir, const char *name) {
  snprintf(out, 256, "%s/%s", dir, name);
}

static void spoil(const char *path, const void *data, size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, data, size), (ssize_t)size);
  close(fd);
}

/* -- Programs -- */

static void program_text(int number, char text[128]) {
  snprintf(text, 128, "func.func public @main(%%a: tensor<2xf32>) -> tensor<2xf32> // %s %d",
           number < 0 ? "unserializable" : "program", number);
}

/* What the compiler does with a program: look it up, compile it if need be, store it. */
static tt_lookup fetch(tt_disk *disk, int number, tt_status *status) {
  char text[128];
  program_text(number, text);
  tt_lookup lookup = {.code = text, .code_size = strlen(text), .outputs = 1};
  tt_executable *executable = tt_disk_load(disk, &lookup);
  *status = TT_SUCCESS;
  if (!executable) {
    *status = tt_target_compile(&target, text, strlen(text), &executable);
    tt_disk_store(disk, &lookup, executable);
  }
  tt_executable_destroy(executable);
  lookup.code = NULL;
  return lookup;
}

static tt_lookup get(tt_disk *disk, int number) {
  tt_status status = TT_SUCCESS;
  tt_lookup lookup = fetch(disk, number, &status);
  ok(status);
  return lookup;
}

static tt_disk_source source(tt_disk *disk, int number) { return get(disk, number).source; }

/* The path of a program's entry, which is made if it is not there. */
static void entry_path(int number, char path[256]) {
  tt_disk *disk = disk_with(defaults);
  join(path, folder, get(disk, number).name);
  tt_disk_destroy(disk);
}

static void *content(const char *path, size_t *size) {
  struct stat info;
  assert_int_equal(stat(path, &info), 0);
  *size = (size_t)info.st_size;
  char *data = malloc(*size + 1);
  int fd = open(path, O_RDONLY);
  assert_int_equal(read(fd, data, *size), info.st_size);
  close(fd);
  return data;
}

typedef struct tally {
  tt_dir *dir;
  int good, bad, programs;
  int64_t bytes;
} tally;

static void tally_one(void *user, const tt_dir_file *file) {
  tally *t = user;
  tt_status status = tt_disk_verify(t->dir, file->name);
  bool gone = tt_status_code(status) == TT_NOT_FOUND;
  t->good += !status;
  t->bad += status && !gone;
  t->programs += strstr(file->name, TT_ENTRY_PROGRAM) != NULL;
  t->bytes += file->bytes;
  tt_status_release(status);
}

static tally verify_all(const char *path) {
  tally t = {.dir = dir_with(path, (tt_dir_options){.readonly = true})};
  ok(tt_dir_each(t.dir, tally_one, &t));
  tt_dir_close(t.dir);
  return t;
}

/* -- Keeping -- */

static void test_second_time_from_disk(void **state) {
  (void)state;
  tt_disk *disk = disk_with(defaults);
  tt_lookup first = get(disk, 1);
  assert_int_equal(first.source, TT_SOURCE_COMPILER);
  assert_int_equal(first.written, 1);
  assert_int_equal(source(disk, 1), TT_SOURCE_DISK);
  assert_int_equal(source(disk, 2), TT_SOURCE_COMPILER);
  tt_disk_destroy(disk);
  disk = disk_with(defaults); /* as another process would */
  assert_int_equal(source(disk, 1), TT_SOURCE_DISK);
  tt_disk_destroy(disk);
  struct stat info;
  assert_int_equal(stat(folder, &info), 0);
  assert_int_equal(info.st_mode & 0777, 0700);
  tally t = verify_all(folder);
  assert_int_equal(t.good, 3); /* with the plugin's hash */
  assert_int_equal(t.bad, 0);
}

static void test_off(void **state) {
  (void)state;
  tt_disk *disk = disk_with((tt_disk_options){.mode = TT_CACHE_OFF});
  assert_null(disk);
  assert_int_equal(source(disk, 1), TT_SOURCE_COMPILER);
  assert_int_equal(access(folder, F_OK), -1);
}

static void test_options_and_flags_are_keys(void **state) {
  (void)state;
  char text[128];
  program_text(1, text);
  tt_disk *disk = disk_with(defaults);
  get(disk, 1);
  target.options.optimization_level = 0;
  tt_lookup lookup = {.code = text, .code_size = strlen(text), .outputs = 1};
  assert_null(tt_disk_load(disk, &lookup));
  tt_disk_store(disk, &lookup, NULL);
  target.options.optimization_level = -1;
  tt_disk_destroy(disk);
  setenv("XLA_FLAGS", "--xla_anything=1", 1);
  disk = disk_with(defaults);
  assert_int_equal(source(disk, 1), TT_SOURCE_COMPILER);
  tt_disk_destroy(disk);
  unsetenv("XLA_FLAGS");
}

static void test_shared_folder(void **state) {
  (void)state;
  tt_disk_options options = defaults;
  options.shared_dir = shared;
  assert_int_equal(mkdir(shared, 0755), 0);
  tt_disk *disk = disk_with(options);
  assert_int_equal(get(disk, 1).written, 2);
  tt_disk_destroy(disk);
  remove_tree(folder);
  disk = disk_with(options); /* another host */
  tt_lookup lookup = get(disk, 1);
  assert_int_equal(lookup.source, TT_SOURCE_SHARED);
  assert_int_equal(lookup.written, 1); /* to the folder of its own */
  assert_int_equal(source(disk, 1), TT_SOURCE_DISK);
  tt_disk_destroy(disk);
  assert_int_equal(chmod(shared, 0777), 0); /* nobody can trust it now */
  remove_tree(folder);
  disk = disk_with(options);
  assert_int_equal(source(disk, 1), TT_SOURCE_COMPILER);
  tt_disk_destroy(disk);
}

static void test_readonly(void **state) {
  (void)state;
  tt_disk_options options = defaults;
  options.mode = TT_CACHE_READONLY;
  tt_disk *disk = disk_with(options);
  assert_int_equal(source(disk, 1), TT_SOURCE_COMPILER);
  tt_disk_destroy(disk);
  assert_int_equal(access(folder, F_OK), -1);
  char path[256];
  entry_path(1, path);
  spoil(path, "x", 1);
  entry_path(2, path);
  disk = disk_with(options);
  assert_int_equal(source(disk, 2), TT_SOURCE_DISK);
  tt_lookup lookup = get(disk, 1);
  assert_int_equal(lookup.bad, 1);
  assert_int_equal(lookup.written, 0);
  tt_disk_destroy(disk);
  assert_int_equal(verify_all(folder).bad, 1); /* it was let alone */
}

/* -- Broken entries -- */

/* Whatever the file says, the program comes out right, and the file is right afterwards. */
static void expect_rebuilt(tt_disk *disk, const char *path, const void *data, size_t size) {
  spoil(path, data, size);
  tt_lookup lookup = get(disk, 1);
  assert_int_equal(lookup.source, TT_SOURCE_COMPILER);
  assert_int_equal(lookup.bad, 1);
  assert_int_equal(lookup.written, 1);
}

static void test_every_byte_flipped(void **state) {
  (void)state;
  static const char masks[] = {1, -128, -1};
  char path[256];
  size_t size = 0;
  entry_path(1, path);
  char *data = content(path, &size);
  tt_disk *disk = disk_with(defaults);
  for (size_t i = 0; i < size; i++)
    for (size_t m = 0; m < sizeof masks; m++) {
      data[i] = (char)(data[i] ^ masks[m]);
      expect_rebuilt(disk, path, data, size);
      data[i] = (char)(data[i] ^ masks[m]);
    }
  assert_int_equal(source(disk, 1), TT_SOURCE_DISK);
  tt_disk_destroy(disk);
  free(data);
}

static void test_every_truncation(void **state) {
  (void)state;
  char path[256];
  size_t size = 0;
  entry_path(1, path);
  char *data = content(path, &size);
  tt_disk *disk = disk_with(defaults);
  for (size_t i = 0; i < size; i++) expect_rebuilt(disk, path, data, i);
  data[size] = 0;
  expect_rebuilt(disk, path, data, size + 1);
  tt_disk_destroy(disk);
  free(data);
}

static void write_entry(const char *path, const tt_entry *entry) {
  unsigned char header[TT_ENTRY_HEADER];
  tt_text text = TT_TEXT_INIT;
  const tt_bytes parts[] = {entry->environment, entry->options, entry->code, entry->body};
  tt_entry_header(entry, header);
  tt_text_add(&text, (char *)header, sizeof header);
  for (int i = 0; i < 4; i++) tt_text_add(&text, parts[i].data, parts[i].size);
  spoil(path, text.data, text.size);
  tt_text_deinit(&text);
}

static void test_valid_checksum_over_foreign_content(void **state) {
  (void)state;
  static const char two[] = "func.func @main() -> (tensor<2xf32>, tensor<2xf32>)";
  static const tt_bytes bodies[] = {{"\x7f\x45LF", 4}, {"", 0}, {two, sizeof two - 1}};
  char path[256];
  size_t size = 0;
  tt_entry entry;
  entry_path(1, path);
  char *data = content(path, &size);
  tt_disk *disk = disk_with(defaults);
  for (int i = 0; i < 5; i++) {
    ok(tt_entry_parse(data, size, &entry));
    if (i < 3) entry.body = bodies[i];
    if (i == 3) entry.code = (tt_bytes){two, sizeof two - 1}; /* as if two names were equal */
    if (i == 4) entry.outputs = 2;
    write_entry(path, &entry);
    tt_lookup lookup = get(disk, 1);
    assert_int_equal(lookup.source, TT_SOURCE_COMPILER);
    assert_int_equal(lookup.bad, 1);
  }
  assert_int_equal(source(disk, 1), TT_SOURCE_DISK);
  tt_disk_destroy(disk);
  free(data);
}

/* In the place of an entry: nothing of it may be followed, waited for, or be an error. */
static void test_strange_files(void **state) {
  (void)state;
  char path[256], aside[256];
  entry_path(1, path);
  join(aside, root, "aside");
  for (int kind = 0; kind < 3; kind++) {
    tt_disk *disk = disk_with(defaults);
    assert_int_equal(rename(path, aside), 0);
    if (kind == 0) assert_int_equal(symlink(aside, path), 0);
    if (kind == 1) assert_int_equal(mkfifo(path, 0600), 0);
    if (kind == 2) assert_int_equal(mkdir(path, 0700), 0);
    tt_lookup lookup = get(disk, 1);
    assert_int_equal(lookup.source, TT_SOURCE_COMPILER);
    assert_true(lookup.bad > 0);
    tt_disk_destroy(disk);
    remove(path);
    entry_path(1, path);
  }
}

static void test_broken_plugin_hash(void **state) {
  (void)state;
  char path[256];
  entry_path(1, path);
  tally t = verify_all(folder);
  assert_int_equal(t.good - t.programs, 1);
  /* the other file is the hash; spoiled, it is made again, and programs are found as before */
  char command[256];
  snprintf(command, sizeof command, "for f in %s/*.plugin1; do echo x > $f; done", folder);
  assert_int_equal(system(command), 0);
  tt_disk *disk = disk_with(defaults);
  assert_int_equal(source(disk, 1), TT_SOURCE_DISK);
  tt_disk_destroy(disk);
  assert_int_equal(verify_all(folder).bad, 0);
}

/* -- Folders that are not ours -- */

static void test_untrusted_folder(void **state) {
  (void)state;
  tt_dir *dir = NULL;
  tt_dir_options options = {0};
  char path[256];
  entry_path(1, path);
  assert_int_equal(chmod(folder, 0770), 0);
  fails(tt_dir_open(folder, &options, &dir), TT_PERMISSION_DENIED, "chmod go-w");
  tt_disk *disk = disk_with(defaults);
  assert_int_equal(source(disk, 1), TT_SOURCE_COMPILER);
  tt_disk_destroy(disk);
  assert_int_equal(chmod(folder, 0700), 0);
  if (geteuid() == 0) {
    assert_int_equal(chown(path, 12345, 12345), 0);
    disk = disk_with(defaults);
    assert_int_equal(get(disk, 1).bad, 1);
    tt_disk_destroy(disk);
    assert_int_equal(chown(folder, 12345, 12345), 0);
    fails(tt_dir_open(folder, &options, &dir), TT_PERMISSION_DENIED, "belongs to user 12345");
  }
  fails(tt_dir_open("/dev/null", &options, &dir), TT_UNAVAILABLE, "Not a directory");
  options.readonly = true;
  fails(tt_dir_open("/nowhere/at/all", &options, &dir), TT_NOT_FOUND, "No such file");
}

/* Files can be made by nobody there, not even by root. */
static void test_unwritable_folder(void **state) {
  (void)state;
  tt_disk *disk = NULL;
  tt_disk_options options = defaults;
  options.dir = "/proc/self";
  ok(tt_disk_create(&options, &target, &disk));
  for (int i = 0; i < 3; i++) {
    tt_lookup lookup = get(disk, 1);
    assert_int_equal(lookup.source, TT_SOURCE_COMPILER);
    assert_int_equal(lookup.written, 0);
  }
  tt_disk_destroy(disk);
}

/* A file system of 64 kB that only this process sees; false where that is not allowed. */
static bool mount_small_disk(void) {
  char map[32];
  snprintf(map, sizeof map, "0 %u 1", geteuid());
  if (geteuid() == 0 ? unshare(CLONE_NEWNS) : unshare(CLONE_NEWUSER | CLONE_NEWNS)) return false;
  int fd = geteuid() == 0 ? -1 : open("/proc/self/uid_map", O_WRONLY);
  if (fd >= 0 && write(fd, map, strlen(map)) < 0) return false;
  return !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
         !mount("none", root, "tmpfs", 0, "size=64k,mode=0700");
}

static int fill_small_disk(void) {
  if (!mount_small_disk()) return 77;
  tt_disk *disk = NULL;
  tt_disk_options options = defaults;
  options.dir = root;
  tt_status status = tt_disk_create(&options, &target, &disk);
  int written = 0, kept = 0;
  for (int i = 0; i < 200 && !status; i++) written += fetch(disk, i, &status).written;
  for (int i = 0; i < 200 && !status; i++) kept += fetch(disk, i, &status).source == TT_SOURCE_DISK;
  tt_disk_destroy(disk);
  tally t = verify_all(root);
  return !status && written > 2 && written < 200 && kept == written && t.bad == 0 ? 0 : 1;
}

static int exit_status(pid_t child) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_full_disk(void **state) {
  (void)state;
  pid_t child = fork_alone();
  if (child == 0) _exit(fill_small_disk());
  int code = exit_status(child);
  if (code == 77) skip();
  assert_int_equal(code, 0);
}

/* -- Making room -- */

static void make_older(const char *path, int64_t seconds) {
  struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = time(NULL) - seconds}};
  assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_oldest_go_first(void **state) {
  (void)state;
  char paths[8][256];
  for (int i = 0; i < 8; i++) {
    entry_path(i, paths[i]);
    make_older(paths[i], 10000 - i);
  }
  tt_disk *disk = disk_with(defaults);
  assert_int_equal(source(disk, 0), TT_SOURCE_DISK); /* used: now it is the youngest */
  tt_disk_destroy(disk);
  tally before = verify_all(folder);
  tt_dir *dir = dir_with(folder, (tt_dir_options){0});
  tt_dir_trim(dir, before.bytes - 1); /* frees a quarter */
  tt_dir_close(dir);
  tally after = verify_all(folder);
  assert_true(after.bytes <= before.bytes - before.bytes / 4);
  assert_int_equal(access(paths[0], F_OK), 0);
  assert_int_equal(access(paths[1], F_OK), -1);
  assert_int_equal(access(paths[7], F_OK), 0);
}

static void test_limit_holds(void **state) {
  (void)state;
  tt_disk_options options = defaults;
  options.limit = 8000;
  tt_disk *disk = disk_with(options);
  for (int i = 0; i < 100; i++) {
    assert_int_equal(get(disk, i).written, 1);
    assert_true(verify_all(folder).bytes <= options.limit);
  }
  tt_disk_destroy(disk);
  options.limit = 100; /* less than any entry */
  disk = disk_with(options);
  assert_int_equal(get(disk, 1000).written, 0);
  tt_disk_destroy(disk);
}

static void test_abandoned_files(void **state) {
  (void)state;
  char path[256], old[256], young[256], other[256];
  entry_path(1, path);
  snprintf(old, sizeof old, "%s/%032d.%016d.tmp", folder, 1, 1);
  snprintf(young, sizeof young, "%s/%032d.%016d.tmp", folder, 1, 2);
  join(other, folder, "somebody's notes");
  spoil(old, "x", 1);
  spoil(young, "x", 1);
  spoil(other, "x", 1);
  make_older(old, 7200);
  make_older(other, 7200);
  tt_dir *dir = dir_with(folder, (tt_dir_options){0});
  tt_dir_trim(dir, INT64_MAX);
  assert_int_equal(access(old, F_OK), -1);
  assert_int_equal(access(young, F_OK), 0);
  tt_dir_trim(dir, 0); /* never what is not ours */
  assert_int_equal(access(other, F_OK), 0);
  assert_int_equal(access(path, F_OK), -1);
  tt_dir_close(dir);
}

/* -- Many processes -- */

static void sleep_ms(long ms) {
  nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* A child that claims program 1 and tells so, and then dies, or stores it, or goes on for ever. */
typedef enum ending { DIES, STORES, IS_SLOW, HANGS } ending;

static pid_t start_owner_on(tt_disk *(*open_disk)(void), ending how) {
  int ends[2];
  char text[128], byte = 0;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork_alone();
  if (child == 0) {
    program_text(1, text);
    tt_disk *disk = open_disk();
    tt_lookup lookup = {.code = text, .code_size = strlen(text), .outputs = 1};
    tt_executable *executable = tt_disk_load(disk, &lookup);
    if (write(ends[1], "x", 1) != 1) _exit(1);
    if (how == HANGS) pause();
    sleep_ms(how == IS_SLOW ? 700 : 100);
    if (how == DIES) raise(SIGKILL);
    tt_status status = tt_target_compile(&target, text, strlen(text), &executable);
    tt_disk_store(disk, &lookup, executable);
    _exit(status ? 1 : 0);
  }
  assert_int_equal(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  close(ends[1]);
  return child;
}

static tt_disk *default_disk(void) { return disk_with(defaults); }
static pid_t start_owner(ending how) { return start_owner_on(default_disk, how); }

static void test_waiting_for_another_process(void **state) {
  (void)state;
  tt_disk *disk = disk_with(defaults);
  pid_t owner = start_owner(STORES);
  tt_lookup lookup = get(disk, 1);
  assert_int_equal(lookup.source, TT_SOURCE_DISK);
  assert_true(lookup.waited && !lookup.timed_out);
  assert_int_equal(exit_status(owner), 0);
  tt_disk_destroy(disk);
}

static void test_dead_owner(void **state) {
  (void)state;
  tt_disk *disk = disk_with(defaults);
  pid_t owner = start_owner(DIES);
  tt_lookup lookup = get(disk, 1);
  assert_int_equal(lookup.source, TT_SOURCE_COMPILER);
  assert_true(lookup.waited && !lookup.timed_out);
  assert_int_equal(lookup.written, 1);
  assert_int_equal(exit_status(owner), -1);
  tt_disk_destroy(disk);
}

static void test_hanging_owner(void **state) {
  (void)state;
  tt_disk_options options = defaults;
  options.wait_ms = 150;
  tt_disk *disk = disk_with(options);
  pid_t owner = start_owner(HANGS);
  tt_lookup lookup = get(disk, 1);
  assert_int_equal(lookup.source, TT_SOURCE_COMPILER);
  assert_true(lookup.timed_out);
  assert_int_equal(lookup.written, 1);
  assert_int_equal(source(disk, 2), TT_SOURCE_COMPILER); /* another program: no wait */
  kill(owner, SIGKILL);
  assert_int_equal(exit_status(owner), -1);
  tt_disk_destroy(disk);
}

/* -- Many hosts: processes with folders of their own, and one that they share -- */

static tt_disk *disk_of_host(const char *host) {
  char own[256];
  tt_disk *disk = NULL;
  tt_disk_options options = defaults;
  join(own, root, host);
  options.dir = own;
  options.shared_dir = shared;
  options.silence_ms = 300;
  ok(tt_disk_create(&options, &target, &disk));
  return disk;
}

static tt_disk *other_host(void) { return disk_of_host("other"); }

static void make_hosts(void) {
  char own[256];
  join(own, root, "this");
  remove_tree(own);
  join(own, root, "other");
  remove_tree(own);
  assert_int_equal(mkdir(shared, 0755), 0);
}

/* Also one that takes longer than a dead one is waited for: it gives signs of life. */
static void test_waiting_for_another_host(void **state) {
  static const ending endings[] = {STORES, IS_SLOW};
  (void)state;
  for (int i = 0; i < 2; i++) {
    remove_tree(shared);
    make_hosts();
    tt_disk *disk = disk_of_host("this");
    pid_t owner = start_owner_on(other_host, endings[i]);
    assert_int_equal(count_files(shared, ".claim.tmp"), 1);
    tt_lookup lookup = get(disk, 1);
    assert_int_equal(lookup.source, TT_SOURCE_SHARED);
    assert_true(lookup.waited && !lookup.timed_out);
    assert_int_equal(exit_status(owner), 0);
    assert_int_equal(count_files(shared, ".claim.tmp"), 0);
    assert_int_equal(source(disk, 1), TT_SOURCE_DISK);
    tt_disk_destroy(disk);
  }
}

static void test_dead_host(void **state) {
  (void)state;
  make_hosts();
  tt_disk *disk = disk_of_host("this");
  pid_t owner = start_owner_on(other_host, DIES);
  tt_lookup lookup = get(disk, 1);
  assert_int_equal(lookup.source, TT_SOURCE_COMPILER);
  assert_true(lookup.waited && !lookup.timed_out);
  assert_int_equal(lookup.written, 2);
  assert_int_equal(exit_status(owner), -1);
  assert_int_equal(count_files(shared, ".claim.tmp"), 0);
  tt_disk_destroy(disk);
}

static void test_hanging_host(void **state) {
  (void)state;
  make_hosts();
  tt_disk_options options = defaults;
  options.shared_dir = shared;
  options.wait_ms = 800;
  options.silence_ms = 300;
  tt_disk *disk = disk_with(options);
  pid_t owner = start_owner_on(other_host, HANGS);
  tt_lookup lookup = get(disk, 1);
  assert_int_equal(lookup.source, TT_SOURCE_COMPILER);
  assert_true(lookup.timed_out);
  assert_int_equal(lookup.written, 2);
  assert_int_equal(count_files(shared, ".claim.tmp"), 1); /* it is still the other's */
  kill(owner, SIGKILL);
  assert_int_equal(exit_status(owner), -1);
  tt_disk_destroy(disk);
}

/* A claim is taken from a holder that was stopped; when it goes on, it leaves the new one alone. */
static void test_stopped_holder(void **state) {
  (void)state;
  make_hosts();
  tt_lease *mine = NULL, *others = NULL;
  tt_lease_watch watch = {.since = 0};
  const char *name = "0123456789abcdef0123456789abcdef.program1";
  tt_dir *dir = dir_with(shared, (tt_dir_options){.shared = true});
  assert_int_equal(tt_lease_try(dir, name, 3600000, &watch, &mine), TT_CLAIM_HELD);
  assert_int_equal(tt_lease_try(dir, name, 50, &watch, &others), TT_CLAIM_BUSY);
  for (int i = 0; i < 50 && !others; i++) {
    sleep_ms(100);
    tt_lease_try(dir, name, 50, &watch, &others);
  }
  assert_non_null(others);
  tt_lease_end(mine);
  assert_int_equal(count_files(shared, ".claim.tmp"), 1);
  tt_lease_end(others);
  assert_int_equal(count_files(shared, ".claim.tmp"), 0);
  tt_dir_close(dir);
  dir = dir_with(shared, (tt_dir_options){.shared = true, .readonly = true});
  assert_int_equal(tt_lease_try(dir, name, 50, &watch, &mine), TT_CLAIM_IMPOSSIBLE);
  tt_dir_close(dir);
}

static void test_killed_while_writing(void **state) {
  (void)state;
  enum { WRITES = 200, BIG = 1 << 20 };
  char *big = calloc(1, BIG);
  assert_non_null(big);
  tt_dir_close(dir_with(folder, (tt_dir_options){0})); /* the first may die before it makes it */
  int unfinished = 0;
  for (int i = 0; i < WRITES; i++) {
    int begun[2];
    assert_int_equal(pipe(begun), 0);
    pid_t child = fork_alone();
    if (child == 0) {
      tt_disk *disk = disk_with(defaults);
      tt_status status = TT_SUCCESS;
      fetch(disk, i, &status); /* a claim and the plugin's hash as well */
      tt_dir *dir = dir_with(folder, (tt_dir_options){0});
      char name[TT_ENTRY_NAME];
      tt_entry entry = {.code = {&i, sizeof i}, .options = {&i, sizeof i}, .body = {big, BIG}};
      unsigned char header[TT_ENTRY_HEADER];
      tt_entry_name(&entry, TT_ENTRY_PROGRAM, name);
      tt_entry_header(&entry, header);
      const tt_bytes parts[] = {{header, sizeof header}, entry.options, entry.code, entry.body};
      if (write(begun[1], "", 1) != 1) _exit(1);
      for (;;) tt_status_release(tt_dir_write(dir, name, parts, 4));
    }
    char byte;
    close(begun[1]);
    if (i % 2) assert_int_equal(read(begun[0], &byte, 1), 1); /* half die before, if slow */
    nanosleep(&(struct timespec){.tv_nsec = rand() % 6000000}, NULL);
    kill(child, SIGKILL);
    assert_int_equal(exit_status(child), -1);
    close(begun[0]);
    tally t = verify_all(folder);
    assert_int_equal(t.bad, 0);
    char command[256];
    snprintf(command, sizeof command, "rm -f %s/*.program1; ls %s | grep -q 'tmp$'", folder,
             folder);
    unfinished += system(command) == 0;
    snprintf(command, sizeof command, "rm -f %s/*.tmp", folder);
    assert_int_equal(system(command), 0);
    if (i % 20) continue;
    tt_disk *disk = disk_with(defaults);
    tt_lookup lookup = get(disk, i); /* no claim is left behind */
    assert_false(lookup.waited);
    tt_disk_destroy(disk);
  }
  assert_true(unfinished > WRITES / 10); /* the test does hit writes */
  free(big);
}

enum { WRITERS = 20, ROUNDS = 50, PROGRAMS = 12 };

static int write_rounds(int64_t limit, unsigned seed, int results) {
  tt_disk_options options = defaults;
  options.limit = limit;
  int compiled = 0;
  for (int i = 0; i < ROUNDS; i++) {
    tt_status status = TT_SUCCESS;
    tt_disk *disk = disk_with(options);
    seed = seed * 1103515245 + 12345;
    tt_lookup lookup = fetch(disk, (int)(seed >> 16) % PROGRAMS, &status);
    tt_disk_destroy(disk);
    if (status || lookup.bad || lookup.timed_out) return 1;
    compiled += lookup.source == TT_SOURCE_COMPILER;
  }
  return write(results, &compiled, sizeof compiled) == (ssize_t)sizeof compiled ? 0 : 1;
}

/* Returns how many programs were compiled in all. */
static int run_writers(int64_t limit) {
  pid_t children[WRITERS];
  int ends[2], total = 0, one = 0;
  assert_int_equal(pipe(ends), 0);
  for (int i = 0; i < WRITERS; i++) {
    children[i] = fork_alone();
    if (children[i] == 0) _exit(write_rounds(limit, (unsigned)i * 7919, ends[1]));
  }
  close(ends[1]);
  for (int i = 0; i < WRITERS; i++) assert_int_equal(exit_status(children[i]), 0);
  while (read(ends[0], &one, sizeof one) == (ssize_t)sizeof one) total += one;
  close(ends[0]);
  assert_int_equal(verify_all(folder).bad, 0);
  return total;
}

static void test_many_writers(void **state) {
  (void)state;
  assert_int_equal(run_writers(0), PROGRAMS); /* nothing compiles twice */
  assert_int_equal(verify_all(folder).programs, PROGRAMS);
}

static void test_many_writers_and_evictions(void **state) {
  (void)state;
  assert_true(run_writers(4000) > PROGRAMS);
}

/* -- Failures -- */

static void test_every_allocation_fails(void **state) {
  (void)state;
  for (int cached = 0; cached < 2; cached++)
    for (int64_t n = 1;; n++) {
      remove_tree(folder);
      tt_disk *disk = disk_with(defaults);
      tt_status status = TT_SUCCESS;
      if (cached) get(disk, 1);
      tt_alloc_fail_at(n, false);
      fetch(disk, 1, &status);
      bool reached = tt_alloc_count() >= n;
      tt_alloc_fail_at(0, false);
      if (status) assert_int_equal(tt_status_code(status), TT_RESOURCE_EXHAUSTED);
      tt_status_release(status);
      get(disk, 1);
      tt_disk_destroy(disk);
      if (access(folder, F_OK) == 0) assert_int_equal(verify_all(folder).bad, 0);
      if (!reached) break;
    }
}

static void test_every_call_of_the_plugin_fails(void **state) {
  (void)state;
  for (int cached = 0; cached < 2; cached++)
    for (int64_t n = 1;; n++) {
      remove_tree(folder);
      tt_disk *disk = disk_with(defaults);
      tt_status status = TT_SUCCESS;
      if (cached) get(disk, 1);
      fake.tt_fake_fail_at(n);
      fetch(disk, 1, &status);
      bool failed = fake.tt_fake_failed();
      fake.tt_fake_fail_at(0);
      if (cached) ok(status); /* what cannot be loaded is compiled */
      else tt_status_release(status);
      assert_false(get(disk, 1).timed_out);
      tt_disk_destroy(disk);
      if (!failed) break;
    }
}

/* -- Totals -- */

static void test_totals(void **state) {
  (void)state;
  char path[256];
  tt_totals totals;
  for (int i = 0; i < 4; i++) {
    tt_disk *disk = disk_with(defaults);
    get(disk, 1);
    get(disk, 2);
    tt_disk_destroy(disk);
  }
  tt_dir *dir = dir_with(folder, (tt_dir_options){0});
  tt_dir_totals(dir, &totals);
  assert_int_equal(totals.compiled, 2);
  assert_int_equal(totals.written, 2);
  assert_int_equal(totals.hits, 6);
  join(path, folder, "totals");
  spoil(path, "nonsense", 8);
  tt_dir_totals(dir, &totals);
  assert_int_equal(totals.hits, 0);
  tt_dir_add_totals(dir, &(tt_totals){.hits = 3});
  tt_dir_totals(dir, &totals);
  assert_int_equal(totals.hits, 3);
  tt_dir_close(dir);
}

/* -- Taking over a library of programs -- */

static void test_adopt(void **state) {
  (void)state;
  char path[256], name[TT_ENTRY_NAME];
  void *data = NULL;
  tt_entry entry;
  entry_path(1, path);
  snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
  assert_int_equal(rename(folder, shared), 0);
  tt_dir *dir = dir_with(shared, (tt_dir_options){.readonly = true, .shared = true});
  ok(tt_disk_read(dir, name, &data, &entry));
  tt_disk *disk = disk_with(defaults);
  tt_lookup lookup = {.code = entry.code.data, .code_size = entry.code.size, .outputs = 1};
  assert_null(tt_disk_load(disk, &lookup));
  entry.environment.size--; /* another plugin's */
  assert_false(tt_disk_adopt(disk, &lookup, &entry));
  entry.environment.size++;
  assert_true(tt_disk_adopt(disk, &lookup, &entry));
  assert_int_equal(source(disk, 1), TT_SOURCE_DISK);
  tt_disk_destroy(disk);
  tt_free(data);
  fails(tt_disk_read(dir, "../shared/x", &data, &entry), TT_NOT_FOUND, "not an entry's name");
  tt_dir_close(dir);
}

/* XLA's CPU plugin cannot serialize some sorts; the other programs are kept all the same. */
static void test_unserializable_program(void **state) {
  (void)state;
  tt_disk *disk = disk_with(defaults);
  for (int i = 1; i < 20; i++) {
    assert_int_equal(get(disk, -i).written, 0);
    assert_int_equal(get(disk, i).written, 1);
    assert_int_equal(source(disk, -i), TT_SOURCE_COMPILER);
    assert_int_equal(source(disk, i), TT_SOURCE_DISK);
  }
  tt_disk_destroy(disk);
}

#define TEST(name) cmocka_unit_test_setup(name, empty_folders)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_second_time_from_disk),
      TEST(test_off),
      TEST(test_options_and_flags_are_keys),
      TEST(test_shared_folder),
      TEST(test_readonly),
      TEST(test_every_byte_flipped),
      TEST(test_every_truncation),
      TEST(test_valid_checksum_over_foreign_content),
      TEST(test_strange_files),
      TEST(test_broken_plugin_hash),
      TEST(test_untrusted_folder),
      TEST(test_unwritable_folder),
      TEST(test_full_disk),
      TEST(test_oldest_go_first),
      TEST(test_limit_holds),
      TEST(test_abandoned_files),
      TEST(test_waiting_for_another_process),
      TEST(test_dead_owner),
      TEST(test_hanging_owner),
      TEST(test_waiting_for_another_host),
      TEST(test_dead_host),
      TEST(test_hanging_host),
      TEST(test_stopped_holder),
      TEST(test_killed_while_writing),
      TEST(test_many_writers),
      TEST(test_many_writers_and_evictions),
      TEST(test_every_allocation_fails),
      TEST(test_every_call_of_the_plugin_fails),
      TEST(test_totals),
      TEST(test_adopt),
      TEST(test_unserializable_program),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
