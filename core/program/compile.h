/* Compiling for one target, through its disk cache. All functions are thread-safe. */
#ifndef TT_COMPILE_H
#define TT_COMPILE_H

#include "program/disk.h"

typedef struct tt_compiler tt_compiler;

/* The target is borrowed. */
tt_status tt_compiler_create(const tt_target *target, tt_compiler **out);
void tt_compiler_destroy(tt_compiler *compiler); /* nothing may be compiled meanwhile; NULL is ok */

/* Finds the program in the cache or compiles it. `lookup`: code, size and outputs are set. Whether
 * it succeeds or not, nothing else need follow but, after success, tt_compiler_save from the same
 * thread, once others may use the executable: nobody should wait for the disk. */
tt_status tt_compiler_get(tt_compiler *compiler, tt_lookup *lookup, tt_executable **out);
void tt_compiler_save(tt_compiler *compiler, tt_lookup *lookup, tt_executable *executable);
/* Only looks into the cache's folders, and waits for nobody; NULL: they do not have the program.
 * Nothing follows. */
tt_executable *tt_compiler_find(tt_compiler *compiler, tt_lookup *lookup);
/* Whether they seem to have it. Nothing follows. */
bool tt_compiler_has(tt_compiler *compiler, tt_lookup *lookup);
/* Writes the cache's totals out. */
void tt_compiler_flush(tt_compiler *compiler);

typedef enum tt_warmth { TT_WARM_READY, TT_WARM_COPIED, TT_WARM_COMPILED } tt_warmth;
/* Sees to it that the cache has the program of an entry, in whatever environment that entry was
 * made: it is there, or is copied as it is, or compiled. FAILED_PRECONDITION when the cache is off
 * or cannot be written; NOT_FOUND, DATA_LOSS, or what the compiler says. */
tt_status tt_compiler_warm(tt_compiler *compiler, tt_dir *dir, const char *name, tt_warmth *out);

#endif
