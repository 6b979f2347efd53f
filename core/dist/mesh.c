#include "dist/dist.h"

bool tt_dist_partition(const int64_t *ranks, int size, int world, int64_t *out) {
  int64_t step = size > 1 ? ranks[1] - ranks[0] : 1;
  if (size < 1 || world < 1 || step < 1 || world % size) return false;
  for (int i = 0; i < size; i++)
    if (ranks[i] != ranks[0] + i * step || ranks[i] < 0 || ranks[i] >= world) return false;
  int64_t block = step * size;
  if (world % block || ranks[0] % block >= step) return false;
  for (int64_t first = 0, at = 0; first < world; first += block)
    for (int64_t k = 0; k < step; k++)
      for (int i = 0; i < size; i++) out[at++] = first + k + i * step;
  return true;
}
