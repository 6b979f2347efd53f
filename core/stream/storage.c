#include "stream/storage.h"

#include "call/growing.h"
#include "call/table.h"
#include "stream/device.h"
#include "stream/observer.h"

tt_status tt_storage_create(struct tt_device *device, const tt_type *type, tt_storage **out) {
  tt_storage *storage = tt_malloc(sizeof *storage);
  if (!storage) return tt_out_of_memory();
  *storage = (tt_storage){.refs = 1, .device = device};
  tt_storage_set_type(storage, type);
  *out = storage;
  return TT_SUCCESS;
}

tt_storage *tt_storage_retain(tt_storage *storage) {
  if (storage) __atomic_fetch_add(&storage->refs, 1, __ATOMIC_RELAXED);
  return storage;
}

void tt_storage_release(tt_storage *storage) {
  if (!storage || __atomic_fetch_sub(&storage->refs, 1, __ATOMIC_ACQ_REL) != 1) return;
  if (tt_observer_current) tt_observer_current->freed(tt_observer_current, storage);
  tt_value_release(tt_storage_hold(storage, NULL));
  tt_storage_set_type(storage, NULL);
  tt_free(storage);
}

bool tt_storage_unique(const tt_storage *storage) {
  return __atomic_load_n(&storage->refs, __ATOMIC_ACQUIRE) == 1;
}

typedef void (*step)(tt_growing *growing, int64_t length);

static void each_length(const tt_storage *storage, const tt_reach *reach, step what) {
  tt_growing *growing = tt_call_table_growing(storage->device->calls);
  for (int k = 0; k < TT_MOST_ALONG && reach->of[k]; k++) what(growing, reach->of[k]);
}

tt_value *tt_storage_hold(tt_storage *storage, tt_value *value) {
  tt_value *old = storage->value;
  const tt_type *bounded = value && tt_value_is_bounded(value) ? value->holding.type : NULL;
  if (bounded) tt_type_count_storage(bounded, 1);
  if (bounded) each_length(storage, &value->reach, tt_growing_enter);
  if (storage->bounded) each_length(storage, &storage->reach, tt_growing_leave);
  if (storage->bounded) tt_type_count_storage(storage->bounded, -1);
  storage->bounded = bounded;
  storage->reach = bounded ? value->reach : (tt_reach){{0}};
  storage->value = value;
  if (value) tt_storage_set_type(storage, bounded ? value->exact : value->holding.type);
  return old;
}

void tt_storage_take(tt_storage *storage, tt_storage *from) {
  tt_device_lock(storage->device);
  tt_value *old = tt_storage_hold(storage, tt_value_retain(from->value));
  tt_device_unlock(storage->device);
  tt_value_release(old);
  tt_storage_release(from);
}

void tt_storage_set_type(tt_storage *storage, const tt_type *type) {
  const tt_type *old = storage->type;
  if (old == type) return;
  int64_t bytes = type ? tt_type_held_bytes(type) : 0;
  tt_account_note(&storage->device->account, bytes - tt_storage_bytes(storage));
  if (type) tt_type_count_storage(type, 1);
  storage->type = type;
  if (old) tt_type_count_storage(old, -1);
}

int64_t tt_storage_bytes(const tt_storage *storage) {
  return storage->type ? tt_type_held_bytes(storage->type) : 0;
}
