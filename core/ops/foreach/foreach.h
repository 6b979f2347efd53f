/* What operators over lists of tensors share. */
#ifndef TT_FOREACH_H
#define TT_FOREACH_H

#include "ops/lower.h"

/* Length of the call's first tensor list. */
int tt_first_list_size(const tt_lower *cx);
/* Lowers the row to each element of the lists; NULL fails. */
void tt_lower_each(tt_lower *cx, const tt_op_row *row);

#endif
