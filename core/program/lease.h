/* A claim that hosts can see: a file in a folder that they share. Its holder renews it while it
 * lives, from a thread of its own; one that was not renewed for a while is anybody's.
 *
 * Locks do not reach across hosts on every network file system; that a file is made by one of
 * several who try does. No clocks are compared: who waits measures how long nothing has changed.
 * A holder that was stopped for too long may find that another took its place; then both compile.
 */
#ifndef TT_LEASE_H
#define TT_LEASE_H

#include "program/dir.h"

#include <sys/stat.h>

typedef struct tt_lease tt_lease;

/* What one who waits has seen; zero at first. */
typedef struct tt_lease_watch {
  struct stat seen;
  int64_t since; /* ms, when it was seen first */
} tt_lease_watch;

/* Never waits. HELD: *out is ended by tt_lease_end. BUSY: somebody has it, who gave a sign of life
 * within `stale` milliseconds, or was not watched for so long yet. Thread-safe. */
tt_claim_result tt_lease_try(tt_dir *dir, const char *name, int64_t stale, tt_lease_watch *watch,
                             tt_lease **out);
void tt_lease_end(tt_lease *lease); /* NULL is allowed; before the folder is closed */

#endif
