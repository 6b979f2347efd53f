#include "kernels/kernels.h"

#include "pjrt/ffi.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(const tt_kernel_library *) bound;

void tt_kernels_bind(const tt_kernel_library *library) {
  atomic_store_explicit(&bound, library, memory_order_release);
}

const tt_kernel_library *tt_kernels_bound(void) {
  return atomic_load_explicit(&bound, memory_order_acquire);
}

/* -- Slots -- */

typedef struct slot {
  void *data;
  void *owner; /* NULL: it is XLA's */
  void (*release)(void *owner);
} slot;

typedef struct obeying {
  const tt_kernel_library *library;
  const tt_ffi_call *call;
  const uint32_t *words;
  tt_order_reader reader;
  tt_arena arena;
  slot *slots; /* [reader.slots.count] */
} obeying;

static void drop(slot *one) {
  if (one->owner) one->release(one->owner);
  *one = (slot){.data = NULL};
}

/* Where XLA wants it, or NULL. */
static void *home_of(const obeying *o, int64_t number) {
  int64_t home = o->reader.slots.homes[number];
  return home < 0 ? NULL : o->call->results[home].data;
}

/* As PyTorch's own memory is, so that kernels add in the same order. */
static tt_status make_room(const obeying *o, int64_t number, slot *out) {
  enum { ALIGNED = 64 };
  size_t bytes = (size_t)o->reader.slots.bytes[number];
  *out = (slot){.data = home_of(o, number), .release = free};
  if (out->data) return TT_SUCCESS;
  out->data = out->owner = aligned_alloc(ALIGNED, (bytes / ALIGNED + 1) * ALIGNED);
  return out->owner ? TT_SUCCESS : tt_out_of_memory();
}

static tt_status prepare_write(obeying *o, const tt_order_write *write) {
  assert(o->slots);
  slot *before = write->before < 0 ? NULL : &o->slots[write->before];
  slot *after = &o->slots[write->slot];
  size_t bytes = (size_t)o->reader.slots.bytes[write->slot];
  if (before && o->reader.slots.bytes[write->before] < (int64_t)bytes)
    return tt_error(TT_INVALID_ARGUMENT, "it writes more than was there before");
  if (write->takes && before) {
    *after = *before;
    *before = (slot){.data = NULL};
    return TT_SUCCESS;
  }
  TT_TRY(make_room(o, write->slot, after));
  if (before) memcpy(after->data, before->data, bytes);
  else memset(after->data, 0, bytes);
  return TT_SUCCESS;
}

/* -- Orders -- */

static tt_status compute(obeying *o, const tt_order *order, tt_kernel_result *results) {
  void **memory = tt_arena_alloc(&o->arena, ((size_t)order->tensor_count + 1) * sizeof *memory);
  if (!memory) return tt_out_of_memory();
  for (int i = 0; i < order->write_count; i++) TT_TRY(prepare_write(o, &order->writes[i]));
  for (int i = 0; i < order->tensor_count; i++)
    if (order->tensors[i].slot >= 0) memory[i] = o->slots[order->tensors[i].slot].data;
  for (int k = 0; k < order->result_count; k++) {
    int number = order->results[k].slot;
    if (number < 0) continue;
    results[k].bytes = o->reader.slots.bytes[number];
    results[k].memory = home_of(o, number);
  }
  return o->library->compute(order, memory, results, o->words);
}

static tt_status obey(obeying *o, const tt_order *order) {
  tt_kernel_result *results =
      tt_arena_alloc(&o->arena, ((size_t)order->result_count + 1) * sizeof *results);
  if (!results) return tt_out_of_memory();
  TT_TRY(compute(o, order, results));
  for (int k = 0; k < order->result_count; k++) {
    int number = order->results[k].slot;
    if (number < 0) continue;
    o->slots[number] = (slot){results[k].memory, results[k].owner, o->library->release};
    if (results[k].bytes && !results[k].memory)
      return tt_error(TT_INTERNAL, "the kernel did not make its result %d", k);
  }
  for (int i = 0; i < order->drop_count; i++) drop(&o->slots[order->drops[i]]);
  return TT_SUCCESS;
}

static tt_status obey_all(void *user) {
  obeying *o = user;
  tt_order order;
  for (int i = 0; i < o->reader.slots.order_count; i++) {
    TT_TRY(tt_order_read(&o->reader, &order));
    TT_TRY(tt_order_blame(&order, obey(o, &order)));
  }
  return TT_SUCCESS;
}

static tt_status prepare(obeying *o) {
  const tt_order_slots *slots = &o->reader.slots;
  const tt_ffi_call *call = o->call;
  int count = 0;
  const int64_t *numbers = tt_ffi_all_ints(call, "orders", &count);
  TT_TRY(tt_order_read_slots(numbers, count, &o->arena, &o->reader));
  bool fits = slots->input_count <= call->operand_count;
  for (int i = 0; i < slots->count; i++) fits &= slots->homes[i] < call->result_count;
  if (!fits)
    return tt_error(TT_INVALID_ARGUMENT, "kernels are ordered with %d operands and %d results",
                    call->operand_count, call->result_count);
  o->slots = tt_arena_alloc(&o->arena, ((size_t)slots->count + 1) * sizeof *o->slots);
  if (!o->slots) return tt_out_of_memory();
  for (int i = 0; i < slots->input_count; i++) o->slots[i].data = call->operands[i].data;
  bool words = call->operand_count > slots->input_count;
  o->words = words ? call->operands[slots->input_count].data : NULL;
  return TT_SUCCESS;
}

static tt_status run(const tt_ffi_call *call) {
  obeying o = {.library = tt_kernels_bound(), .call = call};
  tt_status status = prepare(&o);
  if (!status) status = o.library->run(o.reader.slots.cost, obey_all, &o);
  for (int i = 0; o.slots && i < o.reader.slots.count; i++) drop(&o.slots[i]);
  tt_arena_deinit(&o.arena);
  return status;
}

static tt_ffi_error *handle(tt_ffi_frame *frame) { return tt_ffi_run(frame, run); }

tt_status tt_kernels_offer(tt_plugin *plugin) {
  return tt_plugin_register(plugin, TT_KERNELS_TARGET, "Host", handle);
}
