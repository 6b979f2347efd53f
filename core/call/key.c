#include "call/key.h"

#include <string.h>

void tt_key_deinit(tt_key *key) {
  if (key->data != key->local) tt_free(key->data);
}

bool tt_key_grow(tt_key *key, size_t more) {
  size_t capacity = key->capacity;
  while (capacity < key->size + more) capacity *= 2;
  uint8_t *data = tt_malloc(capacity);
  if (!data) return key->failed = true, false;
  memcpy(data, key->data, key->size);
  tt_key_deinit(key);
  key->data = data;
  key->capacity = capacity;
  return true;
}
