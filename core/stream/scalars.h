/* Packed scalars in a device's memory: the same few come again and again. */
#ifndef TT_SCALARS_H
#define TT_SCALARS_H

#include "pjrt/pjrt.h"

typedef struct tt_scalar_cache tt_scalar_cache;
tt_status tt_scalar_cache_create(tt_client *client, tt_pjrt_device *device, tt_scalar_cache **out);
void tt_scalar_cache_destroy(tt_scalar_cache *cache); /* NULL is allowed */

/* A buffer of these words. *key is what tt_scalar_cache_put takes back, once the buffer was handed
 * to the plugin. Thread-safe. */
tt_status tt_scalar_cache_get(tt_scalar_cache *cache, const uint32_t *words, int count,
                              tt_buffer **out, int *key);
void tt_scalar_cache_put(tt_scalar_cache *cache, tt_buffer *buffer, int key);

#endif
