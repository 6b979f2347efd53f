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

/* One pointer per distinct type; it is good as long as a storage has the type, or within the
 * hold in which it was asked for (forget.h). Thread-safe. */
tt_status tt_type_intern(const tt_type *type, const tt_type **out);
int64_t tt_type_table_size(void);
/* The only way to change it: storages of a type are counted. */
void tt_storage_set_type(tt_storage *storage, const tt_type *type);

#endif
