#include "stream/device.h"

enum { MAX_ZEROS = 256, LARGEST = 5 };

tt_status tt_device_create(tt_client *client, int index, tt_program_table *programs,
                           tt_device **out) {
  tt_device *device = tt_calloc(1, sizeof *device);
  if (!device) return tt_out_of_memory();
  device->client = client;
  device->raw = tt_client_device(client, index);
  device->programs = programs;
  device->index = index;
  tt_account_init(&device->account, client, tt_program_table_target(programs)->memory);
  tt_trace_init(&device->trace);
  pthread_mutex_init(&device->lock, NULL);
  tt_status status = tt_scalar_cache_create(client, device->raw, &device->scalars);
  if (status) tt_device_destroy(device);
  else *out = device;
  return status;
}

void tt_device_destroy(tt_device *device) {
  if (!device) return;
  tt_device_release_zeros(device);
  tt_scalar_cache_destroy(device->scalars);
  tt_trace_deinit(&device->trace);
  tt_account_deinit(&device->account);
  pthread_mutex_destroy(&device->lock);
  tt_free(device);
}

/* -- Zeros: values that are kept, without programs -- */

void tt_device_release_zeros(tt_device *device) {
  for (size_t i = 0; i < device->zeros.capacity; i++)
    if (device->zeros.entries[i].key) tt_value_release(device->zeros.entries[i].value);
  tt_intern_deinit(&device->zeros);
}

tt_status tt_device_make_zeros(tt_device *device, const tt_type *type, uint32_t site,
                               tt_value **out) {
  int64_t bytes = 0;
  tt_buffer *buffer = NULL;
  void *data = tt_type_bytes(type, &bytes) ? tt_calloc((size_t)bytes + 1, 1) : NULL;
  if (!data) return tt_out_of_memory();
  tt_status status = tt_value_create(&device->account, NULL, type, site, out);
  if (!status) status = tt_buffer_from_host(device->raw, type, data, NULL, NULL, &buffer);
  tt_free(data);
  status = tt_device_report_memory(device, status);
  if (!status) tt_value_fulfil(*out, buffer);
  return status;
}

/* A ready value of the device's own; MAX_ZEROS bound what such values hold. */
static tt_status keep_zeros(tt_device *device, const tt_type *type, uint32_t site, tt_value **out) {
  *out = tt_intern_find(&device->zeros, &type, sizeof type);
  if (*out) return TT_SUCCESS;
  if (device->zeros.count >= MAX_ZEROS) tt_device_release_zeros(device);
  tt_status status = tt_device_make_zeros(device, type, site, out);
  if (!status) status = tt_intern_add(&device->zeros, &type, sizeof type, *out);
  if (status) tt_value_release(*out);
  return status;
}

tt_status tt_device_zeros(tt_device *device, const tt_type *type, uint32_t site, tt_value **out) {
  tt_value *kept = NULL;
  TT_TRY(keep_zeros(device, type, site, &kept));
  return tt_value_borrow(kept, site, out);
}

/* -- What is said when memory has run out -- */

static void print_holding(tt_text *text, const tt_holding *holding) {
  const char *place = tt_site_text(holding->site);
  tt_text_printf(text, "\n  ");
  tt_text_bytes(text, holding->bytes);
  tt_text_printf(text, ", %s[", tt_dtype_name(holding->type->dtype));
  for (int i = 0; i < holding->type->rank; i++)
    tt_text_printf(text, "%s%lld", i ? "," : "", (long long)holding->type->dims[i]);
  tt_text_printf(text, "]");
  if (*place) tt_text_printf(text, ", made at %s", place);
}

static void print_holdings(tt_text *text, tt_device *device) {
  tt_memory memory;
  tt_holding largest[LARGEST];
  tt_account_read(&device->account, &memory);
  int count = tt_account_largest(&device->account, largest, LARGEST);
  tt_text_printf(text, "Device tpu:%d is out of memory. It holds ", device->index);
  tt_text_bytes(text, memory.allocated);
  tt_text_printf(text, " in tensors");
  if (memory.limit > 0) {
    tt_text_printf(text, ", of ");
    tt_text_bytes(text, memory.limit);
  }
  if (count) tt_text_printf(text, "; the largest:");
  for (int i = 0; i < count; i++) print_holding(text, &largest[i]);
}

bool tt_device_is_full(tt_status status) {
  return tt_status_code(status) == TT_RESOURCE_EXHAUSTED &&
         tt_status_source(status) == TT_FROM_PLUGIN;
}

tt_status tt_device_report_memory(tt_device *device, tt_status status) {
  tt_text text = TT_TEXT_INIT;
  if (!tt_device_is_full(status)) return status;
  print_holdings(&text, device);
  if (text.size) status = tt_status_extend(status, "\n%s", text.data);
  tt_text_deinit(&text);
  return status;
}
