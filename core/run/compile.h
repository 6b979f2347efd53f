/* Compiling through the disk cache. All functions are thread-safe. */
#ifndef TT_COMPILE_H
#define TT_COMPILE_H

#include "cache/disk.h"

/* Finds the program in the cache or compiles it. `lookup`: code, size and outputs are set. After
 * success tt_compile_save must follow, from the same thread, once others may use the executable:
 * nobody should wait for the disk. */
tt_status tt_compile_cached(tt_lookup *lookup, tt_executable **out);
void tt_compile_save(tt_lookup *lookup, tt_executable *executable);
/* Only looks into the cache's folders, and waits for nobody; NULL: they do not have the program.
 * Nothing follows. */
tt_executable *tt_compile_find(tt_lookup *lookup);
/* Closes the cache; nothing may be compiled meanwhile. */
void tt_compile_shutdown(void);

typedef enum tt_warmth { TT_WARM_READY, TT_WARM_COPIED, TT_WARM_COMPILED } tt_warmth;
/* Sees to it that the cache has the program of an entry, in whatever environment that entry was
 * made: it is there, or is copied as it is, or compiled. FAILED_PRECONDITION when the cache is off
 * or cannot be written; NOT_FOUND, DATA_LOSS, or what the compiler says. */
tt_status tt_compile_warm(tt_dir *dir, const char *name, tt_warmth *out);

#endif
