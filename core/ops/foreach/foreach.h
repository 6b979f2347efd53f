/* What operators over lists of tensors share. */
#ifndef TT_FOREACH_H
#define TT_FOREACH_H

#include "ops/ops.h"

/* PyTorch's promote_types; TT_INVALID gives way to anything. */
tt_dtype tt_promote(tt_dtype a, tt_dtype b);
/* Length of the call's first tensor list. */
int tt_list_size(const tt_lower *cx);

#endif
