/* A PJRT plugin for tests that behaves like an accelerator: it computes with another plugin, XLA's
 * for the CPU, and is as unfriendly as a real device may be.
 *
 *  - Its memory has no host address, and no host memory is ever aliased: whatever is lent for
 *    longer than a call is read later, on a thread of the plugin.
 *  - Executions and copies end later, in their own time. Executions on one device keep their order;
 *    copies keep none, neither among themselves nor with executions that they do not depend on. The
 *    destination of a copy to the host holds garbage until the copy has ended.
 *  - Memory is limited, allocated in blocks of 512 bytes, and counted until its last use has ended.
 *  - A donated argument is gone when Execute returns.
 *  - It knows no option of the CPU plugin, and calls nothing in a program.
 *  - It has no extensions, unless it spans processes: then it has the one, and takes the options,
 * by which plugins of GPUs are known and are told of the others. Each process has one device.
 *
 * Environment, read when a client is created:
 *  TT_ACCEL_INNER     the plugin that computes (default: the one that the build found)
 *  TT_ACCEL_DEVICES   number of devices (1)
 *  TT_ACCEL_MEMORY    bytes of each device (4 GiB)
 *  TT_ACCEL_SEED      of the delays and of random failures (0)
 *  TT_ACCEL_DELAY_US  scale of the delays in microseconds (25): most are 0.2 to 2 times as long,
 *                     one in 32 up to 100 times; 0 turns them off, and everything stays on threads
 *  TT_ACCEL_SPANS     anything: it spans processes, where a client is told of them
 *  TT_ACCEL_TIMEOUT_MS  how long it waits for another process then (60,000)
 *  TT_ACCEL_FAIL      failures, see tt_accel_fail
 *
 * The functions below are exported; get them with dlsym. Thread-safe. */
#ifndef TT_ACCEL_H
#define TT_ACCEL_H

#include <stdbool.h>
#include <stdint.h>

/* Replaces the failures by those of a list such as "execute:17,d2h:p0.01:8": the 17th execution
 * from now fails, and every copy to the host with a probability of 1 %, with code 8. What can fail
 * is `execute`, `compile`, `h2d`, `d2h`, `d2d`, and `alloc`. With `-async` after it, for any but
 * `compile` and `alloc`, the call succeeds, and its events and results carry the error. The default
 * code is INTERNAL, or RESOURCE_EXHAUSTED for `alloc`. NULL or "": none. False, and nothing
 * changes, if the list cannot be read. */
bool tt_accel_fail(const char *list);
/* While on, no execution and no copy begins; what is awaited never comes. */
void tt_accel_hold(bool on);
/* How often any of these was done since the plugin was loaded; -1 for another word. */
int64_t tt_accel_count(const char *what);
/* Buffers, executables, events, and errors that were not destroyed yet. */
int64_t tt_accel_live_objects(void);

#endif
