/* What all processes together got out of a folder: one small file of numbers and their hash. */
#include "program/dir.h"

#include "base/base.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NUMBERS = sizeof(tt_totals) / sizeof(int64_t), TRIES = 50 };
static const char file_name[] = "totals", claim_name[] = "fffffffffffffff";

typedef struct record {
  int64_t numbers[NUMBERS];
  uint64_t hash;
} record;

static uint64_t hash_of(const record *r) {
  return tt_hash_bytes(r->numbers, sizeof r->numbers, TT_ENTRY_FORMAT);
}

void tt_dir_totals(tt_dir *dir, tt_totals *out) {
  record r = {0};
  *out = (tt_totals){0};
  int fd = openat(tt_dir_fd(dir), file_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  if (read(fd, &r, sizeof r) == (ssize_t)sizeof r && r.hash == hash_of(&r))
    memcpy(out, r.numbers, sizeof *out);
  close(fd);
}

static void write_totals(tt_dir *dir, const tt_totals *totals) {
  record r = {0};
  memcpy(r.numbers, totals, sizeof *totals);
  r.hash = hash_of(&r);
  int fd = openat(tt_dir_fd(dir), file_name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  ssize_t written = pwrite(fd, &r, sizeof r, 0);
  (void)written; /* a torn record counts from zero again */
  close(fd);
}

void tt_dir_add_totals(tt_dir *dir, const tt_totals *more) {
  tt_claim claim = TT_CLAIM_NONE;
  tt_claim_result result = TT_CLAIM_BUSY;
  for (int i = 0; i < TRIES && result == TT_CLAIM_BUSY; i++) {
    result = tt_claim_try(dir, claim_name, &claim);
    if (result == TT_CLAIM_BUSY) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  if (result == TT_CLAIM_HELD) {
    tt_totals sum;
    tt_dir_totals(dir, &sum);
#define X(name, doc) sum.name += more->name;
    TT_TOTALS(X)
#undef X
    write_totals(dir, &sum);
  }
  tt_claim_release(&claim);
}

void tt_dir_clear(tt_dir *dir) {
  tt_dir_trim(dir, 0);
  tt_dir_remove(dir, file_name);
}
