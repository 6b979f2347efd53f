/* The kernels room: operators that are ordered of a library of the host's, where programs run in
 * host memory (ops/order.h). Code for one takes XLA's CPU compiler 10 to 60 ms, so what has no
 * program yet is made of orders (stream/tiers.h), and programs have calls of those for what XLA has
 * no good code for.
 *
 * Whoever embeds the engine gives the library (PyTorch's). */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include "ops/order.h"

/* A new result of an order that somebody wants. */
typedef struct tt_kernel_result {
  int64_t bytes; /* of its storage */
  void *memory;  /* where it has to be, or NULL: where the library likes, which then says where */
  void *owner;   /* then whose memory it is, for `release`; NULL: nobody's */
} tt_kernel_result;

/* Functions are called by queues' threads and by XLA's, several at once. */
typedef struct tt_kernel_library {
  /* The kernel for operands in host memory, good for ever, or NULL. */
  const void *(*find)(const char *name);
  /* Has `act` run, with `user`, where it may call `compute`, and returns what that returns. `cost`
   * is the most costly order's. */
  tt_status (*run)(int64_t cost, tt_status (*act)(void *user), void *user);
  /* Computes one. memory: [tensor_count] where each tensor's storage begins, which already holds
   * what it held before; results: [result_count], used where the order has a slot; words: the
   * numbers of run time. After a failure there are no owners. */
  tt_status (*compute)(const tt_order *order, void *const *memory, tt_kernel_result *results,
                       const uint32_t *words);
  void (*release)(void *owner);
} tt_kernel_library;

/* Once, before a session is opened. Borrowed for ever; NULL: there is none. */
void tt_kernels_bind(const tt_kernel_library *library);
const tt_kernel_library *tt_kernels_bound(void);

/* Carries out orders on the calling thread. operands: [input_count] storages; results: where what
 * has a home is made; words: the numbers of run time, or NULL. The error names the order. */
tt_status tt_kernels_obey(const tt_orders *orders, void *const *operands, void *const *results,
                          const uint32_t *words);

/* Makes them known to programs of the CPU platform. UNIMPLEMENTED: the plugin takes none. */
tt_status tt_kernels_offer(tt_plugin *plugin);

#endif
