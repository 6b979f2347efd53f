/* The compile pool: threads that run jobs in the order they were submitted.
 *
 * Jobs that nobody waits for yet have a thread of their own, with a lower priority, which begins
 * one only while no other job waits or runs, and a tenth of a second after the last. So they delay
 * nobody. */
#ifndef TT_POOL_H
#define TT_POOL_H

#include "base/status.h"

#define TT_POOL_LIMIT 65536 /* jobs of each urgency that may wait at a time */

typedef struct tt_pool tt_pool;

/* A job. Called exactly once for each accepted submission; with `cancelled` set when the pool is
 * destroyed before its turn came. */
typedef void (*tt_task)(void *user, bool cancelled);

typedef enum tt_urgency { TT_NOW, TT_BACKGROUND } tt_urgency;

/* Starts `threads` threads (0: one per core this process may use; at most 256), and the one for
 * background jobs. INVALID_ARGUMENT, RESOURCE_EXHAUSTED. */
tt_status tt_pool_create(int threads, tt_pool **out);
/* Waits for the jobs that run, cancels those that wait (on the calling thread), and ends the
 * threads. Nothing may be submitted by others any more; a job that still runs may submit, and what
 * it submits is cancelled. Not to be called from a job. NULL is allowed. */
void tt_pool_destroy(tt_pool *pool);
/* The same before the process exits: a background job that runs is not waited for. False: it runs,
 * and the pool is left to it; it must not submit. NULL is allowed. */
bool tt_pool_end(tt_pool *pool);
/* Thread-safe. RESOURCE_EXHAUSTED when too many jobs wait; then `fn` is not called. */
tt_status tt_pool_submit(tt_pool *pool, tt_urgency urgency, tt_task fn, void *user);
/* The job was submitted for later and is wanted now: it goes behind those that wait already. False
 * if it does not wait any more, or there is no room. Thread-safe. */
bool tt_pool_promote(tt_pool *pool, tt_task fn, void *user);
int tt_pool_threads(const tt_pool *pool);

#endif
