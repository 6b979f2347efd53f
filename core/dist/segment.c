#include "dist/segment.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* -- What lies in it -- */

typedef struct seat {
  _Alignas(128) _Atomic(uint32_t) met; /* how often the rank has come to meet */
  _Atomic(uint32_t) sleepers;          /* who wait for that */
  _Alignas(64) unsigned char cards[2][TT_SEGMENT_CARD];
} seat;

typedef struct header {
  uint64_t cookie; /* that of the rank that made it */
  _Atomic(int) given_up;
  seat seats[TT_SEGMENT_RANKS];
} header;

struct tt_segment {
  int rank, size;
  int side; /* which of the slots and cards, 0 or 1 */
  uint32_t met;
  size_t bytes;
  header *head; /* or NULL */
  char *slots;  /* [size][2][TT_SEGMENT_SLOT] */
  pid_t processes[TT_SEGMENT_RANKS];
};

enum { HEADER = (sizeof(header) + 4095) / 4096 * 4096 };

char *tt_segment_slot(const tt_segment *segment, int rank) {
  return segment->slots + ((size_t)rank * 2 + (size_t)segment->side) * TT_SEGMENT_SLOT;
}

void *tt_segment_card(const tt_segment *segment, int rank) {
  return segment->head->seats[rank].cards[segment->side];
}

void tt_segment_turn(tt_segment *segment) { segment->side = !segment->side; }

/* -- Meeting -- */

/* Counts go round. */
static bool is_before(uint32_t count, uint32_t met) { return (int32_t)(count - met) < 0; }

static bool has_come(const seat *one, uint32_t met) {
  return !is_before(atomic_load_explicit(&one->met, memory_order_acquire), met);
}

typedef enum life { LIVES, ENDED, UNKNOWN } life;

static life life_of(pid_t process) {
  int fd = (int)syscall(SYS_pidfd_open, process, 0);
  if (fd < 0) return errno == ESRCH ? ENDED : UNKNOWN;
  struct pollfd end = {.fd = fd, .events = POLLIN};
  bool ended = poll(&end, 1, 0) > 0;
  close(fd);
  return ended ? ENDED : LIVES;
}

/* For a moment, or until it comes. */
static void sleep_for(seat *one, uint32_t met) {
  static const struct timespec moment = {.tv_nsec = 50 * 1000 * 1000};
  atomic_fetch_add(&one->sleepers, 1);
  uint32_t seen = atomic_load(&one->met);
  if (is_before(seen, met))
    (void)syscall(SYS_futex, (uint32_t *)&one->met, FUTEX_WAIT, seen, &moment, NULL, 0);
  atomic_fetch_sub(&one->sleepers, 1);
}

static tt_status await(tt_segment *s, int rank, int64_t until) {
  seat *one = &s->head->seats[rank];
  while (!has_come(one, s->met)) {
    if (atomic_load(&s->head->given_up))
      return tt_error(TT_UNAVAILABLE, "another rank of this host gave up");
    sleep_for(one, s->met);
    if (has_come(one, s->met)) break;
    if (life_of(s->processes[rank]) == ENDED && !has_come(one, s->met))
      return tt_error(TT_UNAVAILABLE, "the process of the group's rank %d has ended", rank);
    if (tt_now_ms() >= until)
      return tt_error(TT_UNAVAILABLE, "timed out waiting for the group's rank %d", rank);
  }
  return TT_SUCCESS;
}

tt_status tt_segment_meet(tt_segment *segment, int64_t until) {
  seat *own = &segment->head->seats[segment->rank];
  segment->met++;
  atomic_store(&own->met, segment->met);
  if (atomic_load(&own->sleepers))
    (void)syscall(SYS_futex, (uint32_t *)&own->met, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
  for (int rank = 0; rank < segment->size; rank++)
    if (rank != segment->rank) TT_TRY(await(segment, rank, until));
  return TT_SUCCESS;
}

void tt_segment_give_up(tt_segment *segment) { atomic_store(&segment->head->given_up, 1); }

/* -- Opening -- */

/* What a rank tells the others. */
typedef struct introduction {
  char host[192]; /* the same where processes see one another, and may; "": it does not want to */
  int64_t process;
  uint64_t cookie;
  int memory; /* the number of rank 0's file in its process; -1: none */
  int is_ready;
} introduction;

static void add_link(char *text, size_t size, const char *path) {
  char link[64];
  ssize_t got = readlink(path, link, sizeof link - 1);
  link[got > 0 ? got : 0] = '\0';
  snprintf(text + strlen(text), size - strlen(text), " %s", link);
}

/* The kernel that runs, and the namespaces: containers of one machine are hosts of their own. */
static void name_host(char *text, size_t size) {
  text[0] = '\0';
  if (strcmp(tt_env(TT_ENV_TRANSPORT), "gloo") == 0) return;
  int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd >= 0 ? read(fd, text, 36) : 0;
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = '\0';
  if (!*text) return;
  snprintf(text + got, size - (size_t)got, " %u", (unsigned)geteuid());
  add_link(text, size, "/proc/self/ns/net");
  add_link(text, size, "/proc/self/ns/pid");
  add_link(text, size, "/proc/self/ns/user");
}

static bool map(tt_segment *s, int fd) {
  struct stat is;
  if (fstat(fd, &is) != 0 || (size_t)is.st_size != s->bytes) return false;
  void *start = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (start == MAP_FAILED) return false;
  s->head = start;
  s->slots = (char *)start + HEADER;
  return true;
}

/* Memory is taken for what is written: where messages are small, that is little. */
static void make_memory(tt_segment *s, introduction *own) {
  int fd = memfd_create("torch_tpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  bool made = fd >= 0 && ftruncate(fd, (off_t)s->bytes) == 0 && map(s, fd) &&
              fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  own->memory = made ? fd : -1;
  if (made) s->head->cookie = own->cookie;
  else if (fd >= 0) close(fd);
}

/* Whether this process sees those of all ranks on one host, as they do. */
static bool see_all(tt_segment *s, const introduction *all) {
  for (int rank = 0; rank < s->size; rank++) {
    if (!*all[rank].host || memcmp(all[rank].host, all[0].host, sizeof all[0].host) != 0)
      return false;
    s->processes[rank] = (pid_t)all[rank].process;
    if (life_of(s->processes[rank]) != LIVES) return false;
  }
  return true;
}

static bool attach(tt_segment *s, const introduction *all) {
  if (all[0].memory < 0 || !see_all(s, all)) return false;
  if (s->rank == 0) return true;
  char path[64];
  snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)all[0].process, all[0].memory);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  bool mapped = fd >= 0 && map(s, fd);
  if (fd >= 0) close(fd);
  return mapped && s->head->cookie == all[0].cookie;
}

static tt_status join(tt_segment *s, tt_tell_all tell, void *user, introduction *own,
                      introduction *all, bool *joined) {
  *joined = false;
  own->process = getpid();
  own->memory = -1;
  name_host(own->host, sizeof own->host);
  if (getrandom(&own->cookie, sizeof own->cookie, 0) != sizeof own->cookie) own->host[0] = '\0';
  if (s->rank == 0 && *own->host) make_memory(s, own);
  tt_status status = tell(user, own, sizeof *own, all);
  if (!status) own->is_ready = attach(s, all);
  if (!status) status = tell(user, own, sizeof *own, all);
  if (own->memory >= 0) close(own->memory); /* all have it now */
  if (status) return status;
  *joined = true;
  for (int rank = 0; rank < s->size; rank++) *joined &= all[rank].is_ready != 0;
  return TT_SUCCESS;
}

tt_status tt_segment_open(int rank, int size, tt_tell_all tell, void *user, tt_segment **out) {
  *out = NULL;
  if (size < 2 || size > TT_SEGMENT_RANKS) return TT_SUCCESS;
  tt_segment *segment = tt_calloc(1, sizeof *segment);
  introduction *all = tt_calloc((size_t)size + 1, sizeof *all); /* this rank's is the last */
  if (!segment || !all) {
    tt_free(segment);
    tt_free(all);
    return tt_out_of_memory();
  }
  *segment = (tt_segment){.rank = rank, .size = size};
  segment->bytes = HEADER + (size_t)size * 2 * TT_SEGMENT_SLOT;
  bool joined = false;
  tt_status status = join(segment, tell, user, &all[size], all, &joined);
  if (!status && !joined)
    tt_log(TT_LOG_PLUGIN, "the group's ranks share no memory, since not all are on one host");
  tt_free(all);
  if (status || !joined) tt_segment_close(segment);
  else *out = segment;
  return status;
}

void tt_segment_close(tt_segment *segment) {
  if (!segment) return;
  if (segment->head) munmap(segment->head, segment->bytes);
  tt_free(segment);
}
