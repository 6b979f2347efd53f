#include "stream/settle.h"

#include "base/counters.h"
#include "call/bounded.h"
#include "stream/observer.h"

static tt_status make_call(tt_call_table *calls, const tt_key *key, const tt_target *target,
                           const tt_type *type, const tt_reach *reach, tt_call **out) {
  tt_type exact = tt_bounded_exact(type, reach);
  tt_view view = tt_view_whole(type);
  for (int i = 0; i < type->rank; i++) view.sizes[i] = exact.dims[i];
  tt_arg args[2] = {{.kind = TT_ARG_NONE}, {.kind = TT_ARG_TENSOR}};
  tt_call_tensor tensor = {.storage = type, .view = view, .same_as = -1};
  tt_call_result result = {.target = -1, .view = tt_view_whole(&exact)};
  tt_call_spec spec = {.row = tt_op_find("copy"),
                       .name = "settle",
                       .args = args,
                       .arg_count = 2,
                       .tensors = &tensor,
                       .tensor_count = 1,
                       .result_type = type->dtype,
                       .results = &result,
                       .result_count = 1,
                       .meta_known = true};
  return tt_call_create(calls, key, &spec, target, out);
}

static tt_status find_call(const tt_device *device, const tt_type *type, const tt_reach *reach,
                           tt_call **out) {
  static const char settled[] = "settle";
  tt_key key;
  if (!device->calls) return tt_error(TT_INTERNAL, "a bounded value on a device without calls");
  tt_key_init(&key);
  tt_key_u64(&key, (uint64_t)(uintptr_t)settled);
  tt_key_u64(&key, (uint64_t)(uintptr_t)type);
  for (int k = 0; k < TT_MOST_ALONG; k++) tt_key_u64(&key, (uint64_t)reach->of[k]);
  *out = tt_call_find(device->calls, &key, NULL);
  tt_status status = *out ? TT_SUCCESS
                          : make_call(device->calls, &key,
                                      tt_program_table_target(device->programs), type, reach, out);
  tt_key_deinit(&key);
  return status;
}

/* By another thread, in the meantime. */
static bool was_settled(tt_storage *storage, const tt_type *type) {
  tt_device_lock(storage->device);
  bool settled = storage->bounded != type;
  tt_device_unlock(storage->device);
  return settled;
}

static tt_status settle(tt_stream *stream, tt_storage *storage, const tt_policy *policy,
                        uint32_t site) {
  tt_call *call = NULL;
  tt_storage *settled = NULL;
  tt_device_lock(storage->device);
  const tt_type *type = storage->bounded;
  tt_reach reach = storage->reach;
  tt_device_unlock(storage->device);
  if (!type) return TT_SUCCESS;
  TT_TRY(find_call(stream->device, type, &reach, &call));
  tt_operation operation = {
      .call = call, .tensors = &storage, .policy = policy, .site = site, .apart = true};
  tt_observer_disturb();
  tt_status status = tt_stream_record(stream, &operation, &settled);
  if (!status) tt_type_note_settled(type);
  if (!status) tt_count_add(TT_COUNT_SETTLED, 1);
  if (!status) tt_storage_take(storage, settled);
  else if (was_settled(storage, type)) return tt_status_release(status), TT_SUCCESS;
  return status;
}

tt_status tt_storage_settle(tt_stream *stream, tt_storage *storage, const tt_policy *policy,
                            uint32_t site) {
  if (!storage->bounded) return TT_SUCCESS;
  tt_guard_enter();
  tt_status status = settle(stream, storage, policy, site);
  tt_guard_leave();
  return status;
}

tt_status tt_operands_settle(tt_stream *stream, const tt_operation *operation) {
  const tt_call *call = operation->call;
  for (int i = 0; i < call->input_count; i++) {
    tt_storage *storage = operation->tensors[call->inputs[i]];
    if (storage->bounded && storage->bounded != call->input_types[i])
      TT_TRY(tt_storage_settle(stream, storage, operation->policy, operation->site));
  }
  return TT_SUCCESS;
}

tt_status tt_captured_settle(const tt_captured *captured, tt_stream *stream,
                             const tt_captured_storages *on, const tt_policy *policy,
                             uint32_t site) {
  for (int i = 0; i < captured->input_count; i++) {
    tt_storage *storage = on ? on->inputs[i] : captured->inputs[i].storage;
    if (on && tt_captured_takes_padding(captured, i, storage)) continue;
    TT_TRY(tt_storage_settle(stream, storage, policy, site));
  }
  return TT_SUCCESS;
}
