/* What reductions do to two arrays of the host. */
#ifndef TT_COMBINE_H
#define TT_COMBINE_H

#include "hlo/types.h"
#include "ops/collective/kinds.h"

/* out[i] = a[i] op b[i], rounded to the dtype; `out` may be `a`. False where it knows no such
 * dtype, or no such reduction of it: U8, I8, I32, I64, F16, BF16, F32, F64 are known; BAND, BOR and
 * BXOR are for integers; AVG is not known. NaN wins in MIN and MAX; integers wrap. */
bool tt_combine(tt_dtype dtype, tt_reduction op, void *out, const void *a, const void *b,
                int64_t count);

#endif
