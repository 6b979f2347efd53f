#include "program/dir.h"

#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILE ((int64_t)4 << 30)
enum {
  TOUCH_AFTER = 60,       /* seconds; use is not written down more often */
  ABANDONED_AFTER = 3600, /* seconds; no temporary file is written for so long */
  RECOUNT_PART = 16,      /* others write too, so the folder is counted again from time to time */
};
static const char temporary[] = ".tmp";

struct tt_dir {
  int fd;
  char *path;
  tt_dir_options options;
  atomic_bool writable;
  pthread_mutex_t lock;
  int64_t counted, written; /* bytes at the last count (-1: never), and written since */
};

const char *tt_dir_path(const tt_dir *dir) { return dir->path; }
int tt_dir_fd(const tt_dir *dir) { return dir->fd; }
bool tt_dir_writable(const tt_dir *dir) { return atomic_load(&dir->writable); }

static tt_status errno_status(const char *what, const char *name) {
  tt_code code = errno == ENOENT ? TT_NOT_FOUND : TT_UNAVAILABLE;
  return tt_error(code, "cannot %s '%s' (%s)", what, name, strerror(errno));
}

/* -- Opening -- */

static void make_folders(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    (void)mkdir(path, 0700);
    *slash = '/';
  }
  (void)mkdir(path, 0700); /* whether there is a folder now, open tells */
}

/* Programs are machine code: who can write here can run code as whoever reads here. */
static tt_status check_owner(const tt_dir *dir) {
  struct stat info;
  if (fstat(dir->fd, &info)) return errno_status("look at the cache folder", dir->path);
  bool shared = dir->options.shared;
  if (!shared && info.st_uid != geteuid())
    return tt_error(TT_PERMISSION_DENIED,
                    "the cache folder '%s' belongs to user %u, not to user %u; set %s to a folder "
                    "of your own",
                    dir->path, info.st_uid, geteuid(), tt_env_name(TT_ENV_CACHE_DIR));
  if (info.st_mode & (shared ? S_IWOTH : S_IWGRP | S_IWOTH))
    return tt_error(TT_PERMISSION_DENIED,
                    "the cache folder '%s' can be written by %s, who could put programs of their "
                    "own there; run chmod %s on it",
                    dir->path, shared ? "everybody" : "others", shared ? "o-w" : "go-w");
  return TT_SUCCESS;
}

tt_status tt_dir_open(const char *path, const tt_dir_options *options, tt_dir **out) {
  *out = NULL;
  tt_dir *dir = tt_calloc(1, sizeof *dir);
  if (!dir) return tt_out_of_memory();
  *dir = (tt_dir){.fd = -1, .options = *options, .counted = -1};
  pthread_mutex_init(&dir->lock, NULL);
  atomic_init(&dir->writable, !options->readonly);
  dir->path = tt_strndup(path, strlen(path));
  tt_status status = dir->path ? TT_SUCCESS : tt_out_of_memory();
  if (!status && !options->readonly && !options->shared) make_folders(dir->path);
  if (!status) dir->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (!status && dir->fd < 0) status = errno_status("open the cache folder", path);
  if (!status) status = check_owner(dir);
  if (status) tt_dir_close(dir);
  else *out = dir;
  return status;
}

void tt_dir_close(tt_dir *dir) {
  if (!dir) return;
  if (dir->fd >= 0) close(dir->fd);
  pthread_mutex_destroy(&dir->lock);
  tt_free(dir->path);
  tt_free(dir);
}

/* -- Reading -- */

static tt_status check_file(const tt_dir *dir, const struct stat *info, const char *name) {
  bool ours = dir->options.shared || info->st_uid == geteuid();
  if (!S_ISREG(info->st_mode) || !ours)
    return tt_error(TT_DATA_LOSS, "'%s' is not a plain file of this user", name);
  if (info->st_size > MAX_FILE)
    return tt_error(TT_DATA_LOSS, "'%s' is larger than any entry", name);
  return TT_SUCCESS;
}

static tt_status read_all(int fd, const char *name, char *data, size_t size) {
  for (size_t at = 0; at < size;) {
    ssize_t count = read(fd, data + at, size - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno_status("read", name);
    if (count == 0) return tt_error(TT_DATA_LOSS, "'%s' became shorter", name);
    at += (size_t)count;
  }
  return TT_SUCCESS;
}

static void touch(const tt_dir *dir, int fd, const struct stat *info) {
  static const struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
  if (tt_dir_writable(dir) && time(NULL) - info->st_mtim.tv_sec > TOUCH_AFTER)
    (void)futimens(fd, now); /* the order of eviction is worth no error */
}

tt_status tt_dir_read(tt_dir *dir, const char *name, void **data, size_t *size) {
  struct stat info;
  *data = NULL;
  *size = 0;
  /* without O_NONBLOCK a pipe of that name would be waited for */
  int fd = openat(dir->fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ELOOP) return tt_error(TT_DATA_LOSS, "'%s' is a link", name);
  if (fd < 0) return errno_status("open", name);
  tt_status status = fstat(fd, &info) ? errno_status("look at", name) : TT_SUCCESS;
  if (!status) status = check_file(dir, &info, name);
  char *block = status ? NULL : tt_malloc((size_t)info.st_size + 1);
  if (!status && !block) status = tt_out_of_memory();
  if (!status) status = read_all(fd, name, block, (size_t)info.st_size);
  if (!status) touch(dir, fd, &info);
  close(fd);
  if (status) {
    tt_free(block);
    return status;
  }
  *data = block;
  *size = (size_t)info.st_size;
  return TT_SUCCESS;
}

/* -- Writing -- */

static tt_status write_all(int fd, const char *name, const tt_bytes *pieces, int count) {
  for (int i = 0; i < count; i++) {
    const char *data = pieces[i].data;
    for (size_t left = pieces[i].size; left;) {
      ssize_t done = write(fd, data, left);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return errno_status("write", name);
      data += done;
      left -= (size_t)done;
    }
  }
  return fsync(fd) ? errno_status("flush", name) : TT_SUCCESS;
}

static tt_status write_file(tt_dir *dir, const char *name, const tt_bytes *pieces, int count) {
  char temp[TT_ENTRY_NAME];
  uint64_t random = 0;
  if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
    return errno_status("choose a name for", name);
  snprintf(temp, sizeof temp, "%.32s.%016llx%s", name, (unsigned long long)random, temporary);
  int mode = dir->options.shared ? 0644 : 0600;
  int fd = openat(dir->fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0) return errno_status("make", temp);
  tt_status status = write_all(fd, temp, pieces, count);
  if (close(fd) && !status) status = errno_status("close", temp); /* a quota may speak up here */
  if (!status && renameat(dir->fd, temp, dir->fd, name)) status = errno_status("rename", temp);
  if (status) (void)unlinkat(dir->fd, temp, 0);
  return status;
}

static void account(tt_dir *dir, int64_t bytes) {
  int64_t limit = dir->options.limit;
  if (limit <= 0) return;
  pthread_mutex_lock(&dir->lock);
  dir->written += bytes;
  bool unsure = dir->counted < 0 || dir->written > limit / RECOUNT_PART;
  bool full = dir->counted + dir->written > limit;
  pthread_mutex_unlock(&dir->lock);
  if (unsure || full) tt_dir_trim(dir, limit);
}

tt_status tt_dir_write(tt_dir *dir, const char *name, const tt_bytes *pieces, int count) {
  int64_t bytes = 0, limit = dir->options.limit > 0 ? dir->options.limit : MAX_FILE;
  for (int i = 0; i < count; i++)
    if (pieces[i].size > (size_t)MAX_FILE || (bytes += (int64_t)pieces[i].size) > limit)
      return tt_error(TT_OUT_OF_RANGE, "an entry is larger than the cache's limit");
  if (!tt_dir_writable(dir))
    return tt_error(TT_FAILED_PRECONDITION, "the cache folder '%s' is only read", dir->path);
  tt_status status = write_file(dir, name, pieces, count);
  if (!status) account(dir, bytes);
  else if (atomic_exchange(&dir->writable, false))
    tt_log(TT_LOG_COMPILE, "nothing more is written to the cache folder %s: %s", dir->path,
           tt_status_message(status));
  return status;
}

void tt_dir_remove(tt_dir *dir, const char *name) { (void)unlinkat(dir->fd, name, 0); }

bool tt_dir_has(tt_dir *dir, const char *name) { return faccessat(dir->fd, name, R_OK, 0) == 0; }

/* -- Listing -- */

static bool is_temporary(const char *name) {
  size_t size = strlen(name), tail = sizeof temporary - 1;
  return size > tail && strcmp(name + size - tail, temporary) == 0;
}

static tt_status list(tt_dir *dir, void (*fn)(void *user, const tt_dir_file *file), void *user) {
  int fd = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *stream = fd < 0 ? NULL : fdopendir(fd);
  if (!stream) {
    tt_status status = errno_status("list the cache folder", dir->path);
    if (fd >= 0) close(fd);
    return status;
  }
  for (struct dirent *item; (item = readdir(stream));) {
    struct stat info;
    if (!tt_entry_is_name(item->d_name)) continue;
    if (fstatat(dir->fd, item->d_name, &info, AT_SYMLINK_NOFOLLOW)) continue; /* gone by now */
    fn(user, &(tt_dir_file){item->d_name, info.st_size, info.st_mtim.tv_sec});
  }
  closedir(stream);
  return TT_SUCCESS;
}

typedef struct visitor {
  void (*fn)(void *user, const tt_dir_file *file);
  void *user;
} visitor;

static void visit(void *user, const tt_dir_file *file) {
  const visitor *v = user;
  if (!is_temporary(file->name)) v->fn(v->user, file);
}

tt_status tt_dir_each(tt_dir *dir, void (*fn)(void *user, const tt_dir_file *file), void *user) {
  return list(dir, visit, &(visitor){fn, user});
}

/* -- Making room -- */

typedef struct aged {
  int64_t used, bytes;
  char name[TT_ENTRY_NAME];
} aged;

typedef struct census {
  tt_dir *dir;
  aged *files;
  size_t count, capacity;
  int64_t bytes, now;
} census;

static void take(void *user, const tt_dir_file *file) {
  census *c = user;
  if (is_temporary(file->name)) {
    if (c->now - file->used > ABANDONED_AFTER) tt_dir_remove(c->dir, file->name);
    return;
  }
  c->bytes += file->bytes;
  tt_status status = tt_grow((void **)&c->files, &c->capacity, c->count + 1, sizeof *c->files);
  tt_status_release(status); /* an entry that is not listed is only kept */
  if (status) return;
  aged *next = &c->files[c->count++];
  *next = (aged){.used = file->used, .bytes = file->bytes};
  memcpy(next->name, file->name, strlen(file->name) + 1);
}

static int by_age(const void *a, const void *b) {
  int64_t x = ((const aged *)a)->used, y = ((const aged *)b)->used;
  return (x > y) - (x < y);
}

/* A quarter is freed at once, so that this is seldom needed. */
void tt_dir_trim(tt_dir *dir, int64_t bytes) {
  census c = {.dir = dir, .now = time(NULL)};
  tt_status_release(list(dir, take, &c));
  int64_t goal = c.bytes > bytes ? bytes - bytes / 4 : bytes;
  if (c.count) qsort(c.files, c.count, sizeof *c.files, by_age);
  size_t gone = 0;
  for (; gone < c.count && c.bytes > goal; gone++) {
    tt_dir_remove(dir, c.files[gone].name);
    c.bytes -= c.files[gone].bytes;
  }
  tt_free(c.files);
  if (gone) tt_log(TT_LOG_COMPILE, "removed %zu old entries from %s", gone, dir->path);
  pthread_mutex_lock(&dir->lock);
  dir->counted = c.bytes;
  dir->written = 0;
  pthread_mutex_unlock(&dir->lock);
}
