/* Notes: while a thread takes them, what it does to storages is written down: operators that it
 * records, and storages that it makes and frees. What a decomposition does may depend on nothing
 * but the key; so notes of a thread that read a value or wrote one from the host are of no use, and
 * are dropped. */
#ifndef TT_NOTES_H
#define TT_NOTES_H

#include "stream/noted.h"

/* Begins notes of the calling thread, which is in a guard until they end. `args`: the storages that
 * it is given, borrowed; the same one may occur twice. A thread that takes notes already gets
 * FAILED_PRECONDITION. */
tt_status tt_template_begin(tt_call_table *calls, tt_storage *const *args, int count);
/* Ends them. slots[i] receives the number of results[i], for tt_template_run. *out is NULL when the
 * notes are of no use; else the caller's. */
tt_status tt_template_end(tt_storage *const *results, int count, int *slots, tt_template **out);
/* A template was run on these storages by a thread that may take notes: its steps are theirs, too.
 */
void tt_notes_adopt(const tt_template *t, tt_storage *const *storages);

#endif
