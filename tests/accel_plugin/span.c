/* Devices of several processes. Each process computes for all of them: it tells the others its
 * arguments, by the board that the client was given, and keeps the results of its own device. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PJRT_Error *raise(int code, const char *message, size_t size) {
  return accel_error(code, "%.*s", (int)size, message);
}

static PJRT_CallbackError on_error = raise;

static PJRT_Error *put(const accel_span *span, const char *key, const char *data, size_t size) {
  PJRT_KeyValuePutCallback_Args args = {.key = key,
                                        .key_size = strlen(key),
                                        .value = data,
                                        .value_size = size,
                                        .callback_error = &on_error,
                                        .user_arg = span->put_user};
  return span->put(&args);
}

/* The caller deletes args->value. */
static PJRT_Error *get(const accel_span *span, const char *key,
                       PJRT_KeyValueGetCallback_Args *args) {
  *args = (PJRT_KeyValueGetCallback_Args){.key = key,
                                          .key_size = strlen(key),
                                          .timeout_in_ms = span->timeout_ms,
                                          .callback_error = &on_error,
                                          .user_arg = span->get_user};
  return span->get(args);
}

/* -- The client -- */

static bool named(const PJRT_NamedValue *option, const char *name) {
  return option->name_size == strlen(name) && !memcmp(option->name, name, option->name_size);
}

PJRT_Error *accel_span_read(const PJRT_Client_Create_Args *args, accel_span *span) {
  const char *timeout = getenv("TT_ACCEL_TIMEOUT_MS");
  *span = (accel_span){.nodes = 1, .timeout_ms = timeout ? atoi(timeout) : 60000};
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *option = &args->create_options[i];
    if (named(option, "node_id")) span->node = option->value.int64_value;
    else if (named(option, "num_nodes")) span->nodes = option->value.int64_value;
    else if (!named(option, "preallocate"))
      return accel_error(TT_INVALID_ARGUMENT,
                         "Unexpected option passed to PJRT_Client_Create: %.*s",
                         (int)option->name_size, option->name);
  }
  if (span->nodes == 1) return NULL;
  if (!args->kv_get_callback || !args->kv_put_callback || !args->kv_try_get_callback)
    return accel_error(TT_INVALID_ARGUMENT, "num_nodes: there is no key-value store");
  span->get = args->kv_get_callback;
  span->try_get = args->kv_try_get_callback;
  span->try_get_user = args->kv_try_get_user_arg;
  span->put = args->kv_put_callback;
  span->get_user = args->kv_get_user_arg;
  span->put_user = args->kv_put_user_arg;
  return NULL;
}

/* It must say at once that nobody has put this there. */
static PJRT_Error *look_for_nothing(const accel_span *span) {
  static const char key[] = "nobody puts this";
  PJRT_KeyValueTryGetCallback_Args args = {.key = key,
                                           .key_size = sizeof key - 1,
                                           .callback_error = &on_error,
                                           .user_arg = span->try_get_user};
  PJRT_Error *error = span->try_get(&args);
  if (!error) return accel_error(TT_INTERNAL, "the key-value store has what nobody put there");
  bool fine = error->code == TT_NOT_FOUND;
  if (!fine) return error;
  accel_error_free(error);
  return NULL;
}

/* Waits until all are there, as a real plugin does. */
PJRT_Error *accel_span_meet(const accel_span *span) {
  char key[32];
  snprintf(key, sizeof key, "here/%d", (int)span->node);
  PJRT_Error *error = span->nodes > 1 ? look_for_nothing(span) : NULL;
  if (!error && span->nodes > 1) error = put(span, key, "\0", 1);
  for (int node = 0; !error && span->nodes > 1 && node < span->nodes; node++) {
    PJRT_KeyValueGetCallback_Args args;
    snprintf(key, sizeof key, "here/%d", node);
    error = get(span, key, &args);
    if (!error) args.value_deleter_callback(args.value);
  }
  return error;
}

/* -- A launch -- */

static size_t bytes_of(const accel_value *value) { return (size_t)accel_dense_bytes(&value->type); }

static PJRT_Error *pack(accel_value *const *arguments, int count, char *to) {
  for (int i = 0; i < count; i++) {
    size_t size = bytes_of(arguments[i]);
    ACCEL_ARGS(Buffer_UnsafePointer, args, .buffer = arguments[i]->inner);
    PJRT_Error *error = ACCEL_INNER(Buffer_UnsafePointer, &args);
    if (error) return error;
    if (size) memcpy(to, (const void *)args.buffer_pointer, size);
    to += size;
  }
  return NULL;
}

static PJRT_Error *unpack(PJRT_Client *client, PJRT_Device *inner, accel_value *const *like,
                          int count, const char *from, PJRT_Buffer **out) {
  for (int i = 0; i < count; i++) {
    const tt_type *type = &like[i]->type;
    ACCEL_ARGS(Client_BufferFromHostBuffer, args, .client = client->inner, .data = from,
               .type = (int)type->dtype, .dims = type->dims, .num_dims = (size_t)type->rank,
               .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
               .device = inner);
    PJRT_Error *error = ACCEL_INNER(Client_BufferFromHostBuffer, &args);
    if (error) return error;
    ACCEL_INNER_DESTROY(Event_Destroy, .event = args.done_with_host_buffer);
    out[i] = args.buffer;
    from += bytes_of(like[i]);
  }
  return NULL;
}

int64_t accel_span_number(PJRT_LoadedExecutable *executable) {
  accel_span *span = &executable->client->span;
  int i = 0;
  while (i < span->set_count && span->sets[i] != executable->set) i++;
  if (i == span->set_count && i < ACCEL_SPAN_SETS) span->sets[span->set_count++] = executable->set;
  return i < span->set_count ? span->launches[i]++ : -1;
}

static void name(const PJRT_LoadedExecutable *executable, int64_t number, size_t place,
                 char out[80]) {
  snprintf(out, 80, "launch/%llx/%lld/%zu", (unsigned long long)executable->set, (long long)number,
           place);
}

static PJRT_Error *give(const PJRT_LoadedExecutable *executable, int64_t number,
                        accel_value *const *arguments, int count) {
  size_t size = 0;
  for (int i = 0; i < count; i++) size += bytes_of(arguments[i]);
  char key[80], *data = accel_alloc(1, size + 1);
  PJRT_Error *error = pack(arguments, count, data);
  name(executable, number, executable->place, key);
  if (!error) error = put(&executable->client->span, key, data, size);
  free(data);
  return error;
}

static PJRT_Error *take(const PJRT_LoadedExecutable *executable, int64_t number, size_t place,
                        accel_value *const *like, int count, PJRT_Buffer **out) {
  size_t size = 0;
  for (int i = 0; i < count; i++) size += bytes_of(like[i]);
  char key[80];
  PJRT_KeyValueGetCallback_Args args;
  name(executable, number, place, key);
  PJRT_Error *error = get(&executable->client->span, key, &args);
  if (error) return error;
  if (args.value_size != size)
    error = accel_error(TT_INTERNAL, "%s: the processes run different programs", key);
  else error = unpack(executable->client, executable->places[place], like, count, args.value, out);
  args.value_deleter_callback(args.value);
  return error;
}

PJRT_Error *accel_span_arguments(const PJRT_LoadedExecutable *executable, int64_t number,
                                 accel_value *const *own, int count, PJRT_Buffer **out) {
  if (number < 0)
    return accel_error(TT_RESOURCE_EXHAUSTED, "programs of more than %d sets of devices",
                       ACCEL_SPAN_SETS);
  PJRT_Error *error = give(executable, number, own, count);
  for (size_t place = 0; place < executable->place_count && !error; place++)
    if (place != executable->place)
      error = take(executable, number, place, own, count, out + place * (size_t)count);
  return error;
}
