/* Memory accounting: what the values of a device hold. */
#include "run/stream_internal.h"

void tt_stream_account(tt_stream *stream, int64_t bytes, bool freed) {
  if (freed) {
    atomic_fetch_sub(&stream->allocated, bytes);
    atomic_fetch_add(&stream->frees, 1);
    return;
  }
  int64_t now = atomic_fetch_add(&stream->allocated, bytes) + bytes;
  atomic_fetch_add(&stream->allocations, 1);
  atomic_fetch_add(&stream->total, bytes);
  int64_t peak = atomic_load(&stream->peak);
  while (now > peak && !atomic_compare_exchange_weak(&stream->peak, &peak, now)) {
  }
}

void tt_stream_memory(tt_stream *stream, tt_memory *out) {
  *out = (tt_memory){.allocated = atomic_load(&stream->allocated),
                     .peak = atomic_load(&stream->peak),
                     .total_allocated = atomic_load(&stream->total),
                     .allocations = atomic_load(&stream->allocations),
                     .frees = atomic_load(&stream->frees)};
  int64_t in_use = 0;
  tt_status_release(tt_device_memory(stream->device, &in_use, &out->limit));
}

void tt_stream_memory_reset_peak(tt_stream *stream) {
  atomic_store(&stream->peak, atomic_load(&stream->allocated));
}

void tt_stream_memory_reset_totals(tt_stream *stream) {
  atomic_store(&stream->total, 0);
  atomic_store(&stream->allocations, 0);
  atomic_store(&stream->frees, 0);
}
