/* A folder of cache entries. Files appear complete or not at all, and are never changed.
 *
 * Every function is thread-safe and may be used by many processes at a time. Failing to write is
 * no error for whoever compiles: after the first failure the folder is only read. */
#ifndef TT_DIR_H
#define TT_DIR_H

#include "program/entry.h"

typedef struct tt_dir tt_dir;

typedef struct tt_dir_options {
  bool readonly;
  bool shared;   /* made and owned by others: must not be writable by everybody, is not created */
  int64_t limit; /* bytes; the entries used longest ago go first; 0: no limit */
} tt_dir_options;

/* Opens a folder; one of our own is made, with mode 0700, if it is missing. NOT_FOUND, or
 * PERMISSION_DENIED when others could put programs into it. */
tt_status tt_dir_open(const char *path, const tt_dir_options *options, tt_dir **out);
void tt_dir_close(tt_dir *dir); /* NULL is allowed */
const char *tt_dir_path(const tt_dir *dir);
bool tt_dir_writable(const tt_dir *dir);

/* Reads a file whole; the caller frees *data with tt_free. It then counts as used now, where that
 * can be written down. NOT_FOUND, DATA_LOSS (no plain file of ours), RESOURCE_EXHAUSTED. */
tt_status tt_dir_read(tt_dir *dir, const char *name, void **data, size_t *size);
/* Writes a file from pieces and makes room if the limit is passed. The first failure for want of
 * space or of permission is logged and ends writing. */
tt_status tt_dir_write(tt_dir *dir, const char *name, const tt_bytes *pieces, int count);
void tt_dir_remove(tt_dir *dir, const char *name);
bool tt_dir_has(tt_dir *dir, const char *name);

typedef struct tt_dir_file {
  const char *name;
  int64_t bytes, used; /* used: seconds since 1970 */
} tt_dir_file;
/* Calls `fn` for each entry of any kind, in no order. */
tt_status tt_dir_each(tt_dir *dir, void (*fn)(void *user, const tt_dir_file *file), void *user);
/* Removes the entries used longest ago until `bytes` are left, and temporary files left behind. */
void tt_dir_trim(tt_dir *dir, int64_t bytes);
/* Removes all entries and the totals. */
void tt_dir_clear(tt_dir *dir);

/* -- Claims (claim.c): of all processes, one compiles a program -- */
typedef struct tt_claim {
  int fd; /* -1: none */
  int64_t at;
} tt_claim;
#define TT_CLAIM_NONE ((tt_claim){.fd = -1})
typedef enum tt_claim_result { TT_CLAIM_HELD, TT_CLAIM_BUSY, TT_CLAIM_IMPOSSIBLE } tt_claim_result;
/* Never waits. A claim ends with its process, however that ends. */
tt_claim_result tt_claim_try(tt_dir *dir, const char *name, tt_claim *claim);
void tt_claim_release(tt_claim *claim);

/* -- Totals (totals.c): what all processes got out of a folder; best effort -- */
#define TT_TOTALS(X)                                                                               \
  X(hits, "programs found in the folder")                                                          \
  X(shared_hits, "programs found in the shared folder")                                            \
  X(compiled, "programs compiled because no folder had them")                                      \
  X(written, "entries written")                                                                    \
  X(bad, "broken entries removed")                                                                 \
  X(waits, "waits for another process that compiled the same program")
typedef struct tt_totals {
#define X(name, doc) int64_t name;
  TT_TOTALS(X)
#undef X
} tt_totals;
void tt_dir_totals(tt_dir *dir, tt_totals *out); /* zeros where nothing is written down */
void tt_dir_add_totals(tt_dir *dir, const tt_totals *more);

int tt_dir_fd(const tt_dir *dir); /* for claim.c and totals.c */

#endif
