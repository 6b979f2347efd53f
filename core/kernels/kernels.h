/* The kernels room: operators that programs order of a library of the host's, where they run in
 * host memory (call/order.h). Code for one takes XLA's CPU compiler 10 to 60 ms, an order a third
 * of one, so programs that somebody waits for are made of orders (stream/tiers.h).
 *
 * Whoever embeds the engine gives the library (PyTorch's). */
#ifndef TT_KERNELS_H
#define TT_KERNELS_H

#include "call/order.h"

typedef struct tt_kernel_library {
  /* Is there a kernel for operands in host memory? Thread-safe. */
  bool (*has)(const char *name);
  /* Computes one. memory: [tensor_count] where each tensor's storage begins, which already holds
   * what it held before; made: [result_count] where a new result's does, NULL for others; words:
   * the program's numbers of run time. Called by threads of XLA's, several at once. */
  tt_status (*compute)(const tt_order *order, void *const *memory, void *const *made,
                       const uint32_t *words);
} tt_kernel_library;

/* Once, before a session is opened. Borrowed for ever; NULL: there is none. */
void tt_kernels_bind(const tt_kernel_library *library);
const tt_kernel_library *tt_kernels_bound(void);

/* Makes them known to programs of the CPU platform. UNIMPLEMENTED: the plugin takes none. */
tt_status tt_kernels_offer(tt_plugin *plugin);

#endif
