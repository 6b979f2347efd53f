/* A claim is a lock on one byte of the file `claims`: no files to tidy up, and the kernel lets go
 * of it when its holder dies. */
#include "program/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int lock_byte(int fd, int64_t at, short type) {
  struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
  return fcntl(fd, F_OFD_SETLK, &range);
}

/* The name's first 60 bits. */
static int64_t place(const char *name) {
  char digits[16] = {0};
  memcpy(digits, name, strnlen(name, 15));
  return (int64_t)strtoull(digits, NULL, 16);
}

tt_claim_result tt_claim_try(tt_dir *dir, const char *name, tt_claim *claim) {
  if (claim->fd < 0) {
    if (!tt_dir_writable(dir)) return TT_CLAIM_IMPOSSIBLE;
    claim->fd = openat(tt_dir_fd(dir), "claims", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    claim->at = place(name);
  }
  if (claim->fd < 0) return TT_CLAIM_IMPOSSIBLE;
  if (lock_byte(claim->fd, claim->at, F_WRLCK) == 0) return TT_CLAIM_HELD;
  bool busy = errno == EAGAIN || errno == EACCES;
  if (!busy) tt_claim_release(claim);
  return busy ? TT_CLAIM_BUSY : TT_CLAIM_IMPOSSIBLE;
}

void tt_claim_release(tt_claim *claim) {
  if (claim->fd < 0) return;
  lock_byte(claim->fd, claim->at, F_UNLCK); /* a forked child may still hold the descriptor */
  close(claim->fd);
  *claim = TT_CLAIM_NONE;
}
