/* The executable of a program in a file: loaded where the file was made for this very target, and
 * compiled of the file's StableHLO elsewhere. */
#ifndef TT_EXPORT_EXECUTABLE_H
#define TT_EXPORT_EXECUTABLE_H

#include "export/file.h"
#include "pjrt/target.h"

/* *loaded: it was not compiled. What the compiler says; DATA_LOSS: it has another number of results
 * than the file says. Thread-safe. */
tt_status tt_exported_executable(const tt_exported *exported, const tt_target *target,
                                 tt_executable **out, bool *loaded);
/* Compiles content->code for a target and writes the file, with the key and the executable that
 * `content` does not have yet; it has neither where the plugin serialises nothing. Thread-safe. */
tt_status tt_exported_save(const tt_exported *content, const tt_target *target, const char *path);

#endif
