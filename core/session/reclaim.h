/* Forgetting. Calls, the tree of traces, types and programs that are not loaded are kept for the
 * next time; in a process that makes new shapes all the time they would fill the memory. When there
 * are too many (TORCH_TPU_CALL_LIMIT) all are dropped at once, where a chunk ends, and made again
 * as they are needed. Loaded programs stay, so what is in use is not compiled again.
 *
 * Pointers to calls, to templates' calls, and to types that no storage has are good within a hold:
 * while any thread but the one that forgets is in one, nothing is forgotten. A hold is two stores
 * to memory of the thread's own. That suffices because such pointers come from tables with locks,
 * which the forgetting thread holds while it looks who is in a hold. */
#ifndef TT_FORGET_H
#define TT_FORGET_H

#include <stdint.h>

/* Holds nest. The outermost one's beginning is where tables may be emptied, so the thread has no
 * such pointers there. It may wait for launches. */
void tt_hold_enter(void);
void tt_hold_leave(void);

/* What has been added to the tables. Thread-safe; under any lock. */
typedef enum tt_growth {
  TT_GROWN_CALLS,
  TT_GROWN_STEPS, /* of traces */
  TT_GROWN_TYPES, /* beyond the first ones; see tt_type_intern */
  TT_GROWN_BYTES, /* of programs' text */
  TT_GROWTHS
} tt_growth;
void tt_forget_note(tt_growth what, int64_t amount);
/* So many types are never forgotten, and cost their storages nothing. */
int64_t tt_forget_spared_types(void);

/* -- What is emptied; nobody else may use it meanwhile -- */
void tt_call_lock(void); /* call.c; nobody finds or adds a call */
void tt_call_unlock(void);
void tt_call_forget(void); /* under that lock; a new epoch begins */
uint64_t tt_call_epoch(void);
void tt_type_lock(void); /* type.c; nobody interns a type */
void tt_type_unlock(void);
void tt_type_forget(void);    /* under that lock: types that no storage has */
void tt_program_forget(void); /* program.c: those that are neither loaded nor on their way */

#endif
