/* The random numbers of rows (ops/random/philox.h), for kernels in host memory. */
#ifndef TT_KERNELS_DRAW_H
#define TT_KERNELS_DRAW_H

#include <stdint.h>

/* `count` numbers in [0, 1), of 24 bits each, from number `first` on: the first draw of a call at
 * this place. */
void tt_draw_units(uint64_t seed, uint64_t offset, int64_t first, int64_t count, float *out);

#endif
