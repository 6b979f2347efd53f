/* Arrays in NumPy's .npy files, as far as programs take and give them: row-major, little-endian.
 * NumPy has no bfloat16 and no float8: these are written, and read, as raw elements ("|V2", "|V1"),
 * as NumPy does with the types of ml_dtypes. */
#ifndef TT_EXPORT_NPY_H
#define TT_EXPORT_NPY_H

#include "hlo/types.h"

/* Reads an array of this very type; the caller frees *data with tt_free. NOT_FOUND, UNAVAILABLE: it
 * cannot be read; DATA_LOSS: it is no .npy file, or is cut short; INVALID_ARGUMENT: it holds
 * another dtype or shape than `type`, or is column-major. */
tt_status tt_npy_read(const char *path, const tt_type *type, void **data);
/* Writes one. UNAVAILABLE: it cannot be written; a part of it may be left. */
tt_status tt_npy_write(const char *path, const tt_type *type, const void *data);

#endif
