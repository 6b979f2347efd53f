/* Keys: byte strings that stand for a specialised call, built in place. Thread-compatible. */
#ifndef TT_CALL_KEY_H
#define TT_CALL_KEY_H

#include "hlo/types.h"

typedef struct tt_key {
  size_t size, capacity;
  uint8_t *data; /* `local` or heap */
  bool failed;
  uint8_t local[1024];
} tt_key;

static inline void tt_key_init(tt_key *key) {
  key->size = 0;
  key->capacity = sizeof key->local;
  key->data = key->local;
  key->failed = false;
}
void tt_key_deinit(tt_key *key);
bool tt_key_grow(tt_key *key, size_t more);
static inline void tt_key_add(tt_key *key, const void *data, size_t size) {
  if (key->size + size > key->capacity && !tt_key_grow(key, size)) return;
  __builtin_memcpy(key->data + key->size, data, size);
  key->size += size;
}
static inline void tt_key_u64(tt_key *key, uint64_t value) {
  tt_key_add(key, &value, sizeof value);
}
/* A tensor: its storage's interned type and whether that was written; `canonical` when it is the
 * row-major view of its whole storage in its own dtype; `same_as` as in tt_call_tensor. */
static inline void tt_key_tensor(tt_key *key, const tt_type *storage, bool written, int same_as,
                                 bool canonical, tt_dtype dtype, int rank, int64_t offset,
                                 const int64_t *sizes, const int64_t *strides) {
  tt_key_u64(key, (uint64_t)(uintptr_t)storage);
  tt_key_u64(key, (uint64_t)written | (uint64_t)canonical << 1 | (uint64_t)dtype << 8 |
                      (uint64_t)rank << 16 | (uint64_t)(same_as + 1) << 32);
  if (canonical) return;
  tt_key_u64(key, (uint64_t)offset);
  tt_key_add(key, sizes, (size_t)rank * sizeof *sizes);
  tt_key_add(key, strides, (size_t)rank * sizeof *strides);
}
/* Behind the tensor that tt_key_tensor wrote at `at`. */
static inline const uint8_t *tt_key_after_tensor(const uint8_t *at) {
  uint64_t words[2]; /* the type, and what tells how much follows */
  __builtin_memcpy(words, at, sizeof words);
  bool canonical = words[1] >> 1 & 1;
  uint64_t rank = words[1] >> 16 & 0xff;
  return at + sizeof words + (canonical ? 0 : sizeof(int64_t) * (1 + 2 * rank));
}

#endif
