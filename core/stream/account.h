/* What the tensors of a device take of its memory: at once, as the host sees them, and once their
 * values have buffers. Thread-safe. */
#ifndef TT_ACCOUNT_H
#define TT_ACCOUNT_H

#include "base/atomic.h"
#include "pjrt/pjrt.h"

#include <pthread.h>

/* Smaller values are counted, and not listed. */
enum { TT_LISTED_BYTES = 4096 };

/* One value's memory, part of the value. */
typedef struct tt_holding {
  struct tt_holding *next, **link; /* among the listed ones */
  const tt_type *type;             /* interned */
  int64_t bytes;                   /* set when there is a buffer */
  uint32_t site;                   /* the Python line that made it */
} tt_holding;

typedef struct tt_account {
  tt_client *client;
  int64_t limit;
  TT_ATOMIC(int64_t) tensors, tensors_peak;
  TT_ATOMIC(int64_t) allocated, peak, total, allocations, frees;
  pthread_mutex_t lock;
  tt_holding *listed; /* guarded by the lock, as their links */
} tt_account;

/* `limit`: the device's bytes, 0 if unknown. */
void tt_account_init(tt_account *account, tt_client *client, int64_t limit);
void tt_account_deinit(tt_account *account);
/* Storages that live tensors share have `change` more bytes from now on. */
void tt_account_note(tt_account *account, int64_t change);
/* The holding has a buffer from now on; or no longer. */
void tt_account_add(tt_account *account, tt_holding *holding);
void tt_account_remove(tt_account *account, tt_holding *holding);
/* The `count` largest listed ones, the largest first; returns how many there are. The copies' links
 * mean nothing. */
int tt_account_largest(tt_account *account, tt_holding *out, int count);

typedef struct tt_memory {
  int64_t tensors, tensors_peak;            /* bytes of live storages; highest */
  int64_t allocated, peak, total_allocated; /* bytes in live buffers; highest; ever */
  int64_t allocations, frees;
  int64_t limit; /* bytes of the device, 0 if unknown */
} tt_memory;
void tt_account_read(tt_account *account, tt_memory *out);
void tt_account_reset_peak(tt_account *account);
void tt_account_reset_totals(tt_account *account);

#endif
