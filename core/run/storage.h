/* A storage: bytes that tensors share. */
#ifndef TT_STORAGE_H
#define TT_STORAGE_H

#include "hlo/types.h"

struct tt_stream;
typedef struct tt_value tt_value; /* value.h */

/* It owns one reference to its current value; NULL means that nothing was written yet and it
 * reads as zeros. Guarded by its stream's lock. */
typedef struct tt_storage {
  struct tt_stream *stream;
  const tt_type *type; /* interned; how the bytes are laid out at the moment */
  tt_value *value;
} tt_storage;

tt_status tt_storage_create(struct tt_stream *stream, const tt_type *type, tt_storage **out);
void tt_storage_destroy(tt_storage *storage); /* thread-safe */

/* One pointer per distinct type, for ever. Thread-safe. */
tt_status tt_type_intern(const tt_type *type, const tt_type **out);

#endif
