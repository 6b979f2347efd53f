/* The disk cache: compiled programs in a folder of the user's and, if one is named, in a folder
 * that many hosts share.
 *
 * It never makes a program fail: what cannot be read, trusted, or written is compiled instead, and
 * a reason is logged under `compile`. All functions are thread-safe unless they say otherwise. */
#ifndef TT_DISK_H
#define TT_DISK_H

#include "pjrt/target.h"
#include "program/dir.h"
#include "program/lease.h"

typedef enum tt_cache_mode { TT_CACHE_OFF, TT_CACHE_READONLY, TT_CACHE_ON } tt_cache_mode;

typedef struct tt_disk_options {
  tt_cache_mode mode;
  const char *dir, *shared_dir; /* copied; NULL or "": none */
  int64_t limit;                /* bytes in each folder; 0: no limit */
  int64_t wait_ms;              /* for another process that compiles the same program */
  int64_t silence_ms;           /* after which another host's is taken for dead; 0: 15 s */
} tt_disk_options;

/* What TORCH_TPU_CACHE and its companions say; `dir` then points into `path`. */
enum { TT_DISK_PATH = 4096 };
void tt_disk_options_read(tt_disk_options *out, char path[TT_DISK_PATH]);

typedef struct tt_disk tt_disk;

/* Touches no file yet. *out is NULL when the cache is off, or when the target (borrowed) runs
 * nothing; every function takes that. */
tt_status tt_disk_create(const tt_disk_options *options, const tt_target *target, tt_disk **out);
void tt_disk_destroy(tt_disk *disk);

typedef enum tt_disk_source { TT_SOURCE_COMPILER, TT_SOURCE_DISK, TT_SOURCE_SHARED } tt_disk_source;

/* One look-up, and, if it missed, the promise to store what is compiled instead. */
typedef struct tt_lookup {
  const char *code; /* borrowed until tt_disk_store */
  size_t code_size;
  int outputs;           /* how many a fitting executable has */
  tt_disk_source source; /* where it was found */
  int bad;               /* entries that were broken, and so removed */
  int written;           /* entries */
  bool waited;           /* for another process */
  bool timed_out;        /* in vain */
  char name[TT_ENTRY_NAME];
  tt_text option_bytes;
  tt_claim claim;
  tt_lease *lease;
} tt_lookup;

/* Looks for a program in the folders. NULL: compile it, and whether that succeeds or not, call
 * tt_disk_store. Waits, for a limited time, while another process compiles it. `code`, `code_size`
 * and `outputs` are set by the caller, all other fields zero. */
tt_executable *tt_disk_load(tt_disk *disk, tt_lookup *lookup);
/* The same without the promise: no waiting, and nothing follows. */
tt_executable *tt_disk_find(tt_disk *disk, tt_lookup *lookup);
/* Whether a folder seems to have the program. Nothing follows. */
bool tt_disk_has(tt_disk *disk, tt_lookup *lookup);
/* Ends a look-up that missed. `executable` NULL: there is nothing to store. */
void tt_disk_store(tt_disk *disk, tt_lookup *lookup, tt_executable *executable);
/* The same, with the body of an entry that was made for this key; false, and nothing is done, if
 * it was made for another plugin, machine, or option. */
bool tt_disk_adopt(tt_disk *disk, tt_lookup *lookup, const tt_entry *entry);
/* Adds what happened since the last time to the folder's totals, as tt_disk_destroy does. */
void tt_disk_flush(tt_disk *disk);

/* -- Looking after a folder -- */
/* Whether a file of the folder is what was once written under its name. NOT_FOUND, DATA_LOSS. */
tt_status tt_disk_verify(tt_dir *dir, const char *name);
/* Reads a program entry; the caller frees *data, into which `out` points. */
tt_status tt_disk_read(tt_dir *dir, const char *name, void **data, tt_entry *out);

#endif
