/* The op stream of a device: calls are recorded by any thread, launched in order by one. */
#ifndef TT_STREAM_H
#define TT_STREAM_H

#include "pjrt/pjrt.h"
#include "run/call.h"

typedef struct tt_stream tt_stream;

typedef enum tt_mode { TT_MODE_DEBUG, TT_MODE_STRICT, TT_MODE_FUSED } tt_mode;

tt_status tt_stream_create(tt_device *device, int index, tt_stream **out);
/* Waits for what was recorded, then ends the launch thread. Its storages must be gone, and nobody
 * may use it any more. NULL is allowed. */
void tt_stream_destroy(tt_stream *stream);

/* Records one call. `tensors[i]` is the storage of the call's tensor i; `words` its packed
 * numbers; `site` the Python line (see site ids in run.h). New storages are written to `results`
 * (one entry per result of the call; NULL for targets and undefined results), owned by the
 * caller. Blocks while the queue is full. In Debug mode waits for the launch and returns its
 * error; in Strict mode errors surface at tt_stream_sync or tt_storage_read. Thread-safe. */
tt_status tt_stream_record(tt_stream *stream, tt_call *call, tt_storage *const *tensors,
                           const uint32_t *words, uint32_t site, tt_storage **results);

/* Waits for everything recorded before the call; returns, once, the first error since the last
 * synchronisation. Thread-safe. */
tt_status tt_stream_sync(tt_stream *stream);
/* True when nothing is pending. */
bool tt_stream_idle(tt_stream *stream);
/* A ticket for everything recorded so far (in Fused mode this ends the open chunk), and waiting for
 * one. */
uint64_t tt_stream_ticket(tt_stream *stream);
bool tt_stream_passed(tt_stream *stream, uint64_t ticket);
void tt_stream_wait(tt_stream *stream, uint64_t ticket);

int tt_stream_device_index(const tt_stream *stream);

/* -- Host access -- */
/* Replaces the storage's value by row-major host bytes of `type`. Copies at once. `site`: the
 * Python line. */
tt_status tt_storage_write(tt_storage *storage, const tt_type *type, const void *data,
                           uint32_t site);
/* Waits for the storage's value and copies it out: tt_type_bytes(storage->type) bytes. */
tt_status tt_storage_read(tt_storage *storage, void *data, int64_t size);
/* Grows or shrinks to `bytes`; the common prefix keeps its content. */
tt_status tt_storage_resize(tt_storage *storage, int64_t bytes);
int64_t tt_storage_bytes(const tt_storage *storage);

/* -- Memory, kept by the core itself -- */
typedef struct tt_memory {
  int64_t allocated, peak, total_allocated; /* bytes in live buffers; highest; ever */
  int64_t allocations, frees;
  int64_t limit; /* bytes of the device, 0 if unknown */
} tt_memory;
void tt_stream_memory(tt_stream *stream, tt_memory *out);
void tt_stream_memory_reset_peak(tt_stream *stream);
void tt_stream_memory_reset_totals(tt_stream *stream);
/* Forgets buffers that are kept only to be shared again. Thread-safe. */
void tt_stream_empty_cache(tt_stream *stream);
/* Called by values: it has a buffer from now on, or no longer. Thread-safe. */
void tt_stream_list(tt_stream *stream, tt_value *value);
void tt_stream_unlist(tt_stream *stream, tt_value *value);
/* The `count` largest values that have a buffer, the largest first; returns how many there are.
 * Smaller ones than TT_LISTED_BYTES are left out. Thread-safe. */
enum { TT_LISTED_BYTES = 4096 };
typedef struct tt_holding {
  const tt_type *type; /* interned */
  int64_t bytes;
  uint32_t site;
} tt_holding;
int tt_stream_largest(tt_stream *stream, tt_holding *out, int count);

#endif
