#include "call/overlap.h"

#include <stdlib.h>

tt_extent tt_extent_of(const void *storage, const tt_view *view, int element, bool write) {
  int64_t width = tt_dtype_bytes(view->dtype), last = view->offset;
  for (int i = 0; i < view->rank; i++) last += (view->sizes[i] - 1) * view->strides[i];
  return (tt_extent){storage, view->offset * width, (last + 1) * width, element, write};
}

static int by_place(const void *left, const void *right) {
  const tt_extent *a = left, *b = right;
  if (a->storage != b->storage) return (uintptr_t)a->storage < (uintptr_t)b->storage ? -1 : 1;
  return (a->first > b->first) - (a->first < b->first);
}

bool tt_extents_meet(tt_extent *extents, size_t count) {
  tt_extent all = {.element = TT_EVERY_ELEMENT}; /* those that hang together with the last one */
  if (count > 1) qsort(extents, count, sizeof *extents, by_place);
  for (size_t i = 0; i < count; i++) {
    const tt_extent *one = &extents[i];
    if (one->storage != all.storage || all.end <= one->first) {
      all = *one;
      continue;
    }
    all.write |= one->write;
    bool several = one->element != all.element || one->element == TT_EVERY_ELEMENT;
    if (several && all.write) return true;
    if (several) all.element = TT_EVERY_ELEMENT;
    if (one->end > all.end) all.end = one->end;
  }
  return false;
}

/* A table of pointers with open addresses, twice as large as it has to be. */
bool tt_any_twice(const void *const *pointers, size_t count) {
  size_t size = 16;
  while (size < 2 * count) size *= 2;
  const void **seen = tt_calloc(size, sizeof *seen);
  bool found = !seen;
  for (size_t i = 0; i < count && !found; i++) {
    size_t at = ((uintptr_t)pointers[i] >> 4) * 0x9E3779B1u;
    while (seen[at & (size - 1)] && seen[at & (size - 1)] != pointers[i]) at++;
    found = seen[at & (size - 1)] == pointers[i];
    seen[at & (size - 1)] = pointers[i];
  }
  tt_free(seen);
  return found;
}
