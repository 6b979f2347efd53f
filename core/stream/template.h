/* Templates: the calls that a decomposition made for one key of arguments, kept so that they are
 * recorded again without the decomposition.
 *
 * While a thread takes notes, what it does to storages is written down: calls that it records, and
 * storages that it makes and frees. What a decomposition does may depend on nothing but the key;
 * so notes of a thread that read a value, wrote one from the host, or drew random numbers are of
 * no use, and are dropped. */
#ifndef TT_TEMPLATE_H
#define TT_TEMPLATE_H

#include "run/stream.h"

typedef struct tt_template tt_template;

/* Begins notes of the calling thread. `args`: the storages that it is given, borrowed; the same
 * one may occur twice. A thread that takes notes already gets FAILED_PRECONDITION. */
tt_status tt_template_begin(tt_storage *const *args, int count);
/* Ends them. slots[i] receives the number of results[i], for tt_template_run. *out is NULL when the
 * notes are of no use; else the caller's. */
tt_status tt_template_end(tt_storage *const *results, int count, int *slots, tt_template **out);
void tt_template_destroy(tt_template *t); /* NULL is allowed */

/* Whether its calls still exist: what follows is only for those that are usable, within the same
 * hold (forget.h). */
bool tt_template_usable(const tt_template *t);
/* Storages that the template knows: its arguments first. */
int tt_template_slots(const tt_template *t);
/* Records the calls again, for other storages of the same types and states. `storages`:
 * [tt_template_slots] the arguments first, the rest NULL; receives the storages made and not freed,
 * which are the caller's, also after a failure. Thread-safe. */
tt_status tt_template_run(const tt_template *t, tt_stream *stream, tt_storage **storages,
                          uint32_t site);

/* -- What happens, told by those who do it; cheap for threads that take no notes -- */
void tt_template_note_call(tt_call *call, tt_storage *const *tensors, const uint32_t *words,
                           tt_storage *const *results);
void tt_template_note_new(const tt_storage *storage);
/* An unwritten storage has got another type. */
void tt_template_note_type(const tt_storage *storage);
void tt_template_note_free(const tt_storage *storage);
void tt_template_spoil(void);

#endif
