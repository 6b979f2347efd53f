/* The table of calls: they are interned by a key. The first one with a new key is lowered, to learn
 * what its results are; all later ones cost a lookup. Thread-safe. */
#ifndef TT_CALL_TABLE_H
#define TT_CALL_TABLE_H

#include "call/family.h"
#include "call/growing.h"

typedef struct tt_call_table tt_call_table;
tt_status tt_call_table_create(tt_call_table **out);
void tt_call_table_destroy(tt_call_table *table); /* frees all calls; NULL is allowed */
int64_t tt_call_table_size(tt_call_table *table);

/* NULL when the key is new. *places: what the call is to be handed; NULL: only a call that is
 * handed nothing is wanted. The call is borrowed from the table, within a guard (base/guard.h). */
tt_call *tt_call_find(tt_call_table *table, const tt_key *key, tt_places *places);
/* The general call for a row's key that is not found, whose arguments begin at `first`; NULL: there
 * is none yet. Remembers some such keys for tt_call_find. */
tt_call *tt_call_find_general(tt_call_table *table, const tt_op_row *row, const tt_key *key,
                              size_t first, tt_places *places);
/* Whether it is known that the lowering cannot express what the key says. */
bool tt_call_refused(tt_call_table *table, const tt_key *key);
/* It is known from now on, if memory allows. */
void tt_call_refuse(tt_call_table *table, const tt_key *key);
/* The sizes that were seen to change. */
tt_growing *tt_call_table_growing(tt_call_table *table);
/* Lowers a new call for the target, learns what its results are, and interns it. UNIMPLEMENTED:
 * the lowering cannot express these arguments, which is remembered. A call that another thread
 * interned in the meantime is returned instead. */
tt_status tt_call_create(tt_call_table *table, const tt_key *key, const tt_call_spec *spec,
                         const tt_target *target, tt_call **out);

/* The same for a key whose arguments begin at `first`: the general call of its family, if the key
 * is not its first member, and if there can be one. */
tt_status tt_call_create_member(tt_call_table *table, const tt_key *key, size_t first,
                                const tt_call_spec *spec, const tt_target *target,
                                tt_places *places, tt_call **out);

/* Reclaiming: between lock and unlock nobody finds or adds a call; tt_call_table_reclaim, in
 * between, frees all. The epoch says how often that was done. */
void tt_call_table_lock(tt_call_table *table);
void tt_call_table_unlock(tt_call_table *table);
void tt_call_table_reclaim(tt_call_table *table);
uint64_t tt_call_table_epoch(tt_call_table *table);

#endif
