/* A storage: bytes that tensors share. */
#ifndef TT_STORAGE_H
#define TT_STORAGE_H

#include "call/type.h"

struct tt_device;
struct tt_value;

/* It owns one reference to its current value; NULL means that nothing was written yet and it
 * reads as zeros. Guarded by its device's lock, but for the count of references. */
typedef struct tt_storage {
  int refs; /* accessed atomically */
  struct tt_device *device;
  const tt_type *type; /* interned; how the bytes are laid out at the moment */
  struct tt_value *value;
  const tt_type *bounded; /* the value's type, if it is a bounded one (call/bounded.h); else NULL */
  tt_reach reach;         /* then, of the value */
  uint64_t born;          /* the capture (capture.h) that it was made in, or 0 */
} tt_storage;

/* Of an interned type, unwritten, with one reference. */
tt_status tt_storage_create(struct tt_device *device, const tt_type *type, tt_storage **out);
tt_storage *tt_storage_retain(tt_storage *storage);
void tt_storage_release(tt_storage *storage); /* thread-safe; NULL is allowed */
/* Nobody else holds it. */
bool tt_storage_unique(const tt_storage *storage);
/* Takes the caller's reference to a value, and gives the old one, which may be NULL. With a value
 * it gets its type, and the lengths of a bounded one are live (call/growing.h) as long. The lock is
 * held. */
struct tt_value *tt_storage_hold(tt_storage *storage, struct tt_value *value);
/* It gets what the other one holds, which ends; the other's reference is the caller's. */
void tt_storage_take(tt_storage *storage, tt_storage *from);
/* The only way to change it: storages of a type are counted, and their bytes. */
void tt_storage_set_type(tt_storage *storage, const tt_type *type);
int64_t tt_storage_bytes(const tt_storage *storage);

#endif
