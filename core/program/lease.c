#include "program/lease.h"

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RENEWALS = 5 }; /* within the time after which a lease is stale */

struct tt_lease {
  tt_lease *next, **link;
  tt_dir *dir;
  int fd;
  int64_t pause; /* ms between renewals */
  char name[TT_ENTRY_NAME];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static tt_lease *held;
static pid_t renewing; /* the process that has the thread, as long as anything is held; or 0 */

/* -- Renewing -- */

/* Returns the shortest pause. */
static int64_t renew_all(void) {
  static const struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
  int64_t pause = INT64_MAX;
  for (tt_lease *lease = held; lease; lease = lease->next) {
    (void)futimens(lease->fd, now); /* at worst another host compiles, too */
    if (lease->pause < pause) pause = lease->pause;
  }
  return pause;
}

static void *renew(void *user) {
  (void)user;
  pthread_mutex_lock(&lock);
  while (held) {
    struct timespec until;
    int64_t pause = renew_all();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += pause / 1000;
    until.tv_nsec += pause % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    (void)pthread_cond_timedwait(&changed, &lock, &until);
  }
  renewing = 0;
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* The lock is held. Without the thread the lease only ends earlier. */
static void start_renewing(void) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, old;
  if (renewing == getpid() || pthread_attr_init(&attributes)) return;
  (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &old);
  if (pthread_create(&thread, &attributes, renew, NULL) == 0) renewing = getpid();
  (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
  (void)pthread_attr_destroy(&attributes);
}

/* -- Taking and giving back -- */

static int make_file(tt_dir *dir, const char *name) {
  int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  return openat(tt_dir_fd(dir), name, flags, 0644);
}

static tt_claim_result hold(tt_dir *dir, const char *name, int fd, int64_t stale, tt_lease **out) {
  tt_lease *lease = tt_calloc(1, sizeof *lease);
  if (!lease) {
    tt_dir_remove(dir, name);
    close(fd);
    return TT_CLAIM_IMPOSSIBLE;
  }
  *lease = (tt_lease){.dir = dir, .fd = fd, .pause = stale / RENEWALS + 1};
  snprintf(lease->name, sizeof lease->name, "%s", name);
  pthread_mutex_lock(&lock);
  lease->next = held;
  lease->link = &held;
  if (held) held->link = &lease->next;
  held = lease;
  start_renewing();
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  *out = lease;
  return TT_CLAIM_HELD;
}

static bool same_file(const struct stat *a, const struct stat *b) {
  return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static bool same_sign(const struct stat *a, const struct stat *b) {
  return same_file(a, b) && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
         a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Whether its holder gives no sign any more. Opened, since a network file system may otherwise
 * tell what it knew before. */
static bool is_stale(tt_dir *dir, const char *name, int64_t stale, tt_lease_watch *watch) {
  struct stat info;
  int fd = openat(tt_dir_fd(dir), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool known = fstat(fd, &info) == 0;
  close(fd);
  if (!known) return false;
  bool silent = watch->since && same_sign(&info, &watch->seen);
  if (!silent) *watch = (tt_lease_watch){info, tt_now_ms()};
  return silent && tt_now_ms() - watch->since >= stale;
}

tt_claim_result tt_lease_try(tt_dir *dir, const char *name, int64_t stale, tt_lease_watch *watch,
                             tt_lease **out) {
  char file[TT_ENTRY_NAME]; /* named as temporary files are, so that an abandoned one goes */
  *out = NULL;
  if (!tt_dir_writable(dir)) return TT_CLAIM_IMPOSSIBLE;
  snprintf(file, sizeof file, "%.32s.claim.tmp", name);
  int fd = make_file(dir, file);
  bool taken = fd < 0 && errno == EEXIST;
  if (taken && is_stale(dir, file, stale, watch)) {
    *watch = (tt_lease_watch){.since = 0};
    tt_dir_remove(dir, file);
    fd = make_file(dir, file);
    taken = fd < 0 && errno == EEXIST;
  }
  if (fd >= 0) return hold(dir, file, fd, stale, out);
  return taken ? TT_CLAIM_BUSY : TT_CLAIM_IMPOSSIBLE;
}

void tt_lease_end(tt_lease *lease) {
  struct stat ours, there;
  if (!lease) return;
  pthread_mutex_lock(&lock);
  *lease->link = lease->next;
  if (lease->next) lease->next->link = lease->link;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&lock);
  if (fstat(lease->fd, &ours) == 0 &&
      fstatat(tt_dir_fd(lease->dir), lease->name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
      same_file(&ours, &there))
    tt_dir_remove(lease->dir, lease->name);
  close(lease->fd);
  tt_free(lease);
}
