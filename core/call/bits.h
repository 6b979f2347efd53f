/* Other dtypes over the same bytes. */
#ifndef TT_CALL_BITS_H
#define TT_CALL_BITS_H

#include "hlo/hlo.h"

/* Row-major, with one dim. */
tt_node *tt_bits_flat(tt_hlo *h, tt_node *x);
/* The same bits as a flat tensor of another dtype, which has no room for what it does not divide;
 * of the same dtype x itself. */
tt_node *tt_bits_retype(tt_hlo *h, tt_node *x, tt_dtype dtype);
/* `storage`, which is flat, from where x ends: a wider dtype does not see the last bytes of a
 * storage that it does not divide, and they stay. */
tt_node *tt_bits_with_rest(tt_hlo *h, tt_node *x, tt_node *storage);

/* Complex numbers of two halves, as C64: the real one is in the low bits of a U32. */
tt_node *tt_bits_decode_halves(tt_hlo *h, tt_node *x);
tt_node *tt_bits_encode_halves(tt_hlo *h, tt_node *x);

#endif
