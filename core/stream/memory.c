/* Memory accounting: what the values of a device hold. */
#include "run/stream_internal.h"

/* Only values that matter when memory runs out are linked, so that small ones take no lock. */
void tt_stream_unlist(tt_stream *stream, tt_value *value) {
  atomic_fetch_sub(&stream->allocated, value->bytes);
  atomic_fetch_add(&stream->frees, 1);
  if (!value->link) return;
  pthread_mutex_lock(&stream->value_lock);
  *value->link = value->next;
  if (value->next) value->next->link = value->link;
  pthread_mutex_unlock(&stream->value_lock);
}

static void link_value(tt_stream *stream, tt_value *value) {
  pthread_mutex_lock(&stream->value_lock);
  value->next = stream->values;
  value->link = &stream->values;
  if (value->next) value->next->link = &value->next;
  stream->values = value;
  pthread_mutex_unlock(&stream->value_lock);
}

int tt_stream_largest(tt_stream *stream, tt_holding *out, int count) {
  int found = 0;
  pthread_mutex_lock(&stream->value_lock);
  for (const tt_value *value = stream->values; value; value = value->next) {
    int at = found < count ? found++ : count;
    for (; at > 0 && out[at - 1].bytes < value->bytes; at--)
      if (at < count) out[at] = out[at - 1];
    if (at < count) out[at] = (tt_holding){value->type, value->bytes, value->site};
  }
  pthread_mutex_unlock(&stream->value_lock);
  return found;
}

void tt_stream_list(tt_stream *stream, tt_value *value) {
  int64_t bytes = value->bytes;
  if (bytes >= TT_LISTED_BYTES) link_value(stream, value);
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
