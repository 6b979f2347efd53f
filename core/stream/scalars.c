#include "stream/scalars.h"

#include <pthread.h>
#include <string.h>

enum { SLOTS = 1024, WORDS = 8, NOT_KEPT = -1 };

typedef struct slot {
  int count, users;
  uint32_t words[WORDS];
  tt_buffer *buffer;
} slot;

struct tt_scalar_cache {
  tt_client *client;
  tt_pjrt_device *device;
  pthread_mutex_t lock;
  slot slots[SLOTS];
};

tt_status tt_scalar_cache_create(tt_client *client, tt_pjrt_device *device, tt_scalar_cache **out) {
  tt_scalar_cache *cache = tt_calloc(1, sizeof *cache);
  if (!cache) return tt_out_of_memory();
  cache->client = client;
  cache->device = device;
  pthread_mutex_init(&cache->lock, NULL);
  *out = cache;
  return TT_SUCCESS;
}

void tt_scalar_cache_destroy(tt_scalar_cache *cache) {
  if (!cache) return;
  for (int i = 0; i < SLOTS; i++) tt_buffer_destroy(cache->client, cache->slots[i].buffer);
  pthread_mutex_destroy(&cache->lock);
  tt_free(cache);
}

static tt_status upload(tt_scalar_cache *cache, const uint32_t *words, int count, tt_buffer **out) {
  int64_t n = count;
  tt_type type = tt_type_make(TT_U32, 1, &n);
  return tt_buffer_from_host(cache->device, &type, words, NULL, NULL, out);
}

/* The lock is held. */
static tt_status refill(tt_scalar_cache *cache, slot *into, const uint32_t *words, int count) {
  tt_buffer_destroy(cache->client, into->buffer);
  into->buffer = NULL;
  into->count = 0;
  TT_TRY(upload(cache, words, count, &into->buffer));
  into->count = count;
  memcpy(into->words, words, sizeof *words * (size_t)count);
  return TT_SUCCESS;
}

/* The lock is held. *key stays NOT_KEPT where others use the slot for other words. */
static tt_status find(tt_scalar_cache *cache, const uint32_t *words, int count, tt_buffer **out,
                      int *key) {
  size_t size = sizeof *words * (size_t)count;
  int at = (int)(tt_hash_bytes(words, size, 0) % SLOTS);
  slot *found = &cache->slots[at];
  bool same = found->count == count && memcmp(found->words, words, size) == 0;
  if (!same && found->users) return TT_SUCCESS;
  if (!same) TT_TRY(refill(cache, found, words, count));
  found->users++;
  *out = found->buffer;
  *key = at;
  return TT_SUCCESS;
}

tt_status tt_scalar_cache_get(tt_scalar_cache *cache, const uint32_t *words, int count,
                              tt_buffer **out, int *key) {
  *key = NOT_KEPT;
  if (count <= WORDS) {
    pthread_mutex_lock(&cache->lock);
    tt_status status = find(cache, words, count, out, key);
    pthread_mutex_unlock(&cache->lock);
    if (status || *key != NOT_KEPT) return status;
  }
  return upload(cache, words, count, out);
}

void tt_scalar_cache_put(tt_scalar_cache *cache, tt_buffer *buffer, int key) {
  if (key == NOT_KEPT) {
    tt_buffer_destroy(cache->client, buffer);
    return;
  }
  pthread_mutex_lock(&cache->lock);
  cache->slots[key].users--;
  pthread_mutex_unlock(&cache->lock);
}
