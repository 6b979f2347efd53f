/* A device: its memory, and what is kept in it for all streams. */
#ifndef TT_DEVICE_H
#define TT_DEVICE_H

#include "call/table.h"
#include "graph/trace.h"
#include "program/program.h"
#include "stream/scalars.h"
#include "stream/value.h"

enum { TT_DEVICE_STREAMS = 256 }; /* that a device may have */

typedef struct tt_device {
  tt_client *client;
  tt_pjrt_device *raw;
  tt_program_table *programs;
  tt_call_table *calls; /* of the session, which sets it; NULL: nothing is bounded */
  int index;            /* among the process's */
  tt_account account;
  tt_scalar_cache *scalars;
  pthread_mutex_t lock; /* guards storages, streams' open sections, and what follows */
  tt_trace trace;       /* what all sections of its streams walked down */
  tt_intern zeros;      /* interned types to values full of zeros */
  struct tt_stream *streams[TT_DEVICE_STREAMS];
} tt_device;

/* The programs are borrowed: those of the client's target. */
tt_status tt_device_create(tt_client *client, int index, tt_program_table *programs,
                           tt_device **out);
/* Its streams and storages must be gone. NULL is allowed. */
void tt_device_destroy(tt_device *device);

static inline void tt_device_lock(tt_device *device) { pthread_mutex_lock(&device->lock); }
static inline void tt_device_unlock(tt_device *device) { pthread_mutex_unlock(&device->lock); }

/* A ready value full of zeros, of an interned type; a new one each time, that two storages hold
 * zeros must not shape a chunk. The lock is held. */
tt_status tt_device_zeros(tt_device *device, const tt_type *type, uint32_t site, tt_value **out);
/* The same, with memory of its own. Thread-safe, and no lock is needed. */
tt_status tt_device_make_zeros(tt_device *device, const tt_type *type, uint32_t site,
                               tt_value **out);
/* Forgets zeros that are kept only to be shared again. The lock is held. */
void tt_device_release_zeros(tt_device *device);
/* Puts the device's largest values and who made them behind an error that tells of its memory
 * having run out; success stays success. Thread-safe. */
tt_status tt_device_report_memory(tt_device *device, tt_status status);
/* Whether an error says that the device's memory has run out; what the host lacks, it does not
 * hold. */
bool tt_device_is_full(tt_status status);

#endif
