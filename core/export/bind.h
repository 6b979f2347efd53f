/* A program in a file as one launch of a stream: what is not known to it yet is given at each
 * launch, as the storages of tt_captured_replay. */
#ifndef TT_EXPORT_BIND_H
#define TT_EXPORT_BIND_H

#include "export/file.h"
#include "stream/captured.h"

/* *out, the caller's, has an input for each parameter, but the one of random numbers, and an output
 * for each result; it draws from the default generator. *loaded: it was not compiled, but loaded
 * from the file. Thread-safe. */
tt_status tt_exported_bind(const tt_exported *exported, tt_device *device, tt_captured **out,
                           bool *loaded);

#endif
