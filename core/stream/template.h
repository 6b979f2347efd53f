/* Templates: the graph of what a decomposition did for one key of arguments, recorded again without
 * the decomposition.
 *
 * While a thread takes notes, what it does to storages is written down: operators that it records,
 * and storages that it makes and frees. What a decomposition does may depend on nothing but the
 * key; so notes of a thread that read a value or wrote one from the host are of no use, and are
 * dropped. Random operators draw anew each time, from the device's default generator. */
#ifndef TT_TEMPLATE_H
#define TT_TEMPLATE_H

#include "stream/stream.h"

typedef struct tt_template tt_template;

/* Begins notes of the calling thread, which is in a guard until they end. `args`: the storages that
 * it is given, borrowed; the same one may occur twice. A thread that takes notes already gets
 * FAILED_PRECONDITION. */
tt_status tt_template_begin(tt_call_table *calls, tt_storage *const *args, int count);
/* Ends them. slots[i] receives the number of results[i], for tt_template_run. *out is NULL when the
 * notes are of no use; else the caller's. */
tt_status tt_template_end(tt_storage *const *results, int count, int *slots, tt_template **out);
void tt_template_destroy(tt_template *t); /* NULL is allowed */

/* Whether its calls still exist: what follows is only for those that are usable, within the same
 * guard. */
bool tt_template_usable(const tt_template *t, tt_call_table *calls);
/* Storages that the template knows: its arguments first, then its results. */
int tt_template_slots(const tt_template *t);
/* The blocks of random numbers that it draws. */
int64_t tt_template_blocks(const tt_template *t);
/* Records the operators again, for other storages of the same types and states. `storages`:
 * [tt_template_slots] the arguments first, the rest NULL, which receive the results, the caller's,
 * also after a failure. `place`: where the generator stands. Thread-safe. */
tt_status tt_template_run(const tt_template *t, tt_stream *stream, tt_storage **storages,
                          tt_philox_place place, const tt_policy *policy, uint32_t site);

#endif
