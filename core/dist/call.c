/* What programs call: reads a custom call's arrays, and has the group do it. */
#include "dist/dist.h"
#include "pjrt/ffi.h"

#include <string.h>

enum { ROOT, TAG, SITE, SPLITS };

static tt_status malformed(const char *what) {
  return tt_error(TT_INVALID_ARGUMENT, "a collective's call in a program has %s", what);
}

static bool is_i64s(const tt_ffi_array *array, int64_t least) {
  return array->type.dtype == TT_I64 && array->type.rank == 1 && array->type.dims[0] >= least;
}

/* What is only moved is bytes. `splits`: room for all of them. */
static tt_status to_bytes(tt_collective *c, const tt_ffi_array *numbers, int64_t *splits) {
  int64_t bytes = tt_dtype_bytes(c->dtype), count = numbers->type.dims[0] - SPLITS;
  const int64_t *given = (const int64_t *)numbers->data + SPLITS;
  int64_t unit = tt_collective_reduces(c->kind) ? 1 : bytes;
  if (!tt_mul_i64(c->x_count, unit, &c->x_count) || !tt_mul_i64(c->y_count, unit, &c->y_count))
    return malformed("too many elements");
  if (!tt_collective_reduces(c->kind)) c->dtype = TT_U8;
  for (int64_t i = 0; i < count; i++) splits[i] = given[i] * unit;
  if (count) {
    c->x_splits = splits;
    c->y_splits = splits + count / 2;
  }
  return TT_SUCCESS;
}

static void read_data(const tt_ffi_call *call, tt_collective *c) {
  const tt_ffi_array *x = call->operand_count > 2 ? &call->operands[2] : NULL;
  const tt_ffi_array *y = call->result_count > 1 ? &call->results[1] : NULL;
  c->dtype = x ? x->type.dtype : y ? y->type.dtype : TT_U8;
  if (x) c->x = x->data;
  if (y) c->y = y->data;
  c->x_count = x ? tt_type_numel(&x->type) : 0;
  c->y_count = y ? tt_type_numel(&y->type) : 0;
}

static tt_status start_in_place(tt_collective *c) {
  if (c->x_count != c->y_count) return malformed("operands and results of different sizes");
  size_t bytes = (size_t)c->y_count * (size_t)tt_dtype_bytes(c->dtype);
  if (bytes && c->x != c->y) memcpy(c->y, c->x, bytes);
  c->x = NULL;
  c->x_count = 0;
  return TT_SUCCESS;
}

static tt_status run(const tt_ffi_call *call) {
  if (call->operand_count < 2 || call->result_count < 1 ||
      !is_i64s(&call->operands[0], TT_TURN_WORDS) || !is_i64s(&call->operands[1], SPLITS) ||
      !is_i64s(&call->results[0], TT_TURN_WORDS))
    return malformed("no turn or no numbers");
  const tt_ffi_array *numbers = &call->operands[1];
  int64_t kind = tt_ffi_int(call, "kind");
  if (kind < 0 || kind >= TT_COLLECTIVE_KINDS) return malformed("an unknown kind");
  const int64_t *given = numbers->data;
  tt_collective c = {.kind = (tt_collective_kind)kind,
                     .op = (tt_reduction)tt_ffi_int(call, "op"),
                     .root = given[ROOT],
                     .tag = given[TAG],
                     .site = (uint32_t)given[SITE]};
  read_data(call, &c);
  int64_t *splits = tt_malloc(sizeof *splits * (size_t)numbers->type.dims[0]);
  if (!splits) return tt_out_of_memory();
  tt_status status = to_bytes(&c, numbers, splits);
  if (!status && tt_collective_in_place(c.kind)) status = start_in_place(&c);
  if (!status) status = tt_dist_run(call->operands[0].data, &c, call->results[0].data);
  tt_free(splits);
  return status;
}

static tt_ffi_error *handle(tt_ffi_frame *frame) { return tt_ffi_run(frame, run); }

tt_status tt_dist_offer(tt_plugin *plugin) {
  return tt_plugin_register(plugin, TT_COLLECTIVE_TARGET, "Host", handle);
}
