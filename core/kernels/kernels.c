#include "kernels/kernels.h"

#include "call/ordered.h"
#include "pjrt/ffi.h"

#include <stdatomic.h>
#include <string.h>

static _Atomic(const tt_kernel_library *) bound;

void tt_kernels_bind(const tt_kernel_library *library) {
  atomic_store_explicit(&bound, library, memory_order_release);
}

const tt_kernel_library *tt_kernels_bound(void) {
  return atomic_load_explicit(&bound, memory_order_acquire);
}

/* What the storages held before goes where they will be afterwards, unless XLA has both there. */
static void carry_over(const tt_ffi_call *call, const tt_order *order) {
  for (int i = 0; i < order->tensor_count; i++) {
    const tt_order_tensor *tensor = &order->tensors[i];
    int64_t bytes = 0;
    if (tensor->result < 0) continue;
    const tt_ffi_array *after = &call->results[tensor->result];
    (void)tt_type_bytes(&after->type, &bytes);
    if (tensor->operand < 0) memset(after->data, 0, (size_t)bytes);
    else if (call->operands[tensor->operand].data != after->data)
      memcpy(after->data, call->operands[tensor->operand].data, (size_t)bytes);
  }
}

static void *memory_of(const tt_ffi_call *call, const tt_order_tensor *tensor) {
  if (tensor->result >= 0) return call->results[tensor->result].data;
  return tensor->operand >= 0 ? call->operands[tensor->operand].data : NULL;
}

static tt_status compute(const tt_ffi_call *call, const tt_order *order, tt_arena *arena) {
  void **memory = tt_arena_alloc(arena, ((size_t)order->tensor_count + 1) * sizeof *memory);
  void **made = tt_arena_alloc(arena, ((size_t)order->result_count + 1) * sizeof *made);
  if (!memory || !made) return tt_out_of_memory();
  carry_over(call, order);
  for (int i = 0; i < order->tensor_count; i++) memory[i] = memory_of(call, &order->tensors[i]);
  for (int k = 0; k < order->result_count; k++) {
    const tt_order_result *result = &order->results[k];
    if (result->target < 0 && result->result >= 0) made[k] = call->results[result->result].data;
  }
  bool words = call->operand_count > order->operand_count;
  return tt_kernels_bound()->compute(order, memory, made,
                                     words ? call->operands[order->operand_count].data : NULL);
}

static tt_status obey(const tt_ffi_call *call) {
  tt_arena arena = TT_ARENA_INIT;
  tt_order order;
  int count = 0;
  const int64_t *numbers = tt_ffi_all_ints(call, "order", &count);
  tt_status status = tt_order_read(numbers, count, &arena, &order);
  bool fits = !status && order.operand_count <= call->operand_count &&
              order.output_count == call->result_count;
  if (!status && !fits)
    status = tt_error(TT_INVALID_ARGUMENT, "%s is ordered with %d operands and %d results",
                      order.name, call->operand_count, call->result_count);
  if (!status) status = compute(call, &order, &arena);
  tt_arena_deinit(&arena);
  return status;
}

static tt_ffi_error *handle(tt_ffi_frame *frame) { return tt_ffi_run(frame, obey); }

tt_status tt_kernels_offer(tt_plugin *plugin) {
  return tt_plugin_register(plugin, TT_KERNEL_TARGET, "Host", handle);
}
