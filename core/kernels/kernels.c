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
  void *owner; /* NULL: it is the caller's */
  void (*release)(void *owner);
} slot;

typedef struct obeying {
  const tt_kernel_library *library;
  const tt_orders *orders;
  void *const *results;
  const uint32_t *words;
  tt_arena arena;
  slot *slots; /* [orders->slot_count] */
} obeying;

static void drop(slot *one) {
  if (one->owner) one->release(one->owner);
  *one = (slot){.data = NULL};
}

/* Where the caller wants it, or NULL. */
static void *home_of(const obeying *o, int64_t number) {
  int64_t home = o->orders->homes[number];
  return home < 0 ? NULL : o->results[home];
}

/* As PyTorch's own memory is, so that kernels add in the same order. */
static tt_status make_room(const obeying *o, int64_t number, slot *out) {
  enum { ALIGNED = 64 };
  size_t bytes = (size_t)o->orders->bytes[number];
  *out = (slot){.data = home_of(o, number), .release = free};
  if (out->data) return TT_SUCCESS;
  out->data = out->owner = aligned_alloc(ALIGNED, (bytes / ALIGNED + 1) * ALIGNED);
  return out->owner ? TT_SUCCESS : tt_out_of_memory();
}

static tt_status prepare_write(obeying *o, const tt_order_write *write) {
  assert(o->slots);
  slot *before = write->before < 0 ? NULL : &o->slots[write->before];
  slot *after = &o->slots[write->slot];
  size_t bytes = (size_t)o->orders->bytes[write->slot];
  if (before && o->orders->bytes[write->before] < (int64_t)bytes)
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
    results[k].bytes = o->orders->bytes[number];
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
  for (int i = 0; i < o->orders->count; i++) {
    const tt_order *order = &o->orders->all[i];
    TT_TRY(tt_order_blame(order, obey(o, order)));
  }
  return TT_SUCCESS;
}

tt_status tt_kernels_obey(const tt_orders *orders, void *const *operands, void *const *results,
                          const uint32_t *words) {
  obeying o = {tt_kernels_bound(), orders, results, words, TT_ARENA_INIT, NULL};
  o.slots = tt_arena_alloc(&o.arena, ((size_t)orders->slot_count + 1) * sizeof *o.slots);
  for (int i = 0; o.slots && i < orders->input_count; i++) o.slots[i].data = operands[i];
  tt_status status = o.slots ? o.library->run(orders->cost, obey_all, &o) : tt_out_of_memory();
  for (int i = 0; o.slots && i < orders->slot_count; i++) drop(&o.slots[i]);
  tt_arena_deinit(&o.arena);
  return status;
}

/* -- As a call of a program's -- */

static void **pointers_of(tt_arena *arena, const tt_ffi_array *arrays, int count) {
  void **all = tt_arena_alloc(arena, ((size_t)count + 1) * sizeof *all);
  for (int i = 0; all && i < count; i++) all[i] = arrays[i].data;
  return all;
}

static tt_status read_orders(const tt_ffi_call *call, tt_arena *arena, tt_orders *out) {
  int count = 0;
  const int64_t *numbers = tt_ffi_all_ints(call, "orders", &count);
  TT_TRY(tt_orders_read(numbers, count, arena, out));
  bool fits = out->input_count <= call->operand_count;
  for (int i = 0; i < out->slot_count; i++) fits &= out->homes[i] < call->result_count;
  if (fits) return TT_SUCCESS;
  return tt_error(TT_INVALID_ARGUMENT, "kernels are ordered with %d operands and %d results",
                  call->operand_count, call->result_count);
}

static tt_status run_with(const tt_ffi_call *call, tt_arena *arena) {
  tt_orders orders;
  TT_TRY(read_orders(call, arena, &orders));
  void **operands = pointers_of(arena, call->operands, call->operand_count);
  void **results = pointers_of(arena, call->results, call->result_count);
  if (!operands || !results) return tt_out_of_memory();
  bool words = call->operand_count > orders.input_count;
  return tt_kernels_obey(&orders, operands, results, words ? operands[orders.input_count] : NULL);
}

static tt_status run(const tt_ffi_call *call) {
  tt_arena arena = TT_ARENA_INIT;
  tt_status status = run_with(call, &arena);
  tt_arena_deinit(&arena);
  return status;
}

static tt_ffi_error *handle(tt_ffi_frame *frame) { return tt_ffi_run(frame, run); }

tt_status tt_kernels_offer(tt_plugin *plugin) {
  return tt_plugin_register(plugin, TT_KERNELS_TARGET, "Host", handle);
}
