/* Operators on lists of tensors, one element at a time: may one program do all elements at once?
 * It reads each tensor as it was before; one element at a time sees what those before it wrote. */
#ifndef TT_CALL_OVERLAP_H
#define TT_CALL_OVERLAP_H

#include "call/view.h"

enum { TT_EVERY_ELEMENT = -1 };

/* The bytes of a storage that an argument may touch, and the element of the lists it belongs to. */
typedef struct tt_extent {
  const void *storage; /* told apart by its address alone */
  int64_t first, end;
  int element; /* or TT_EVERY_ELEMENT */
  bool write;
} tt_extent;

/* Of a view that sees at least one element; strides are not negative. */
tt_extent tt_extent_of(const void *storage, const tt_view *view, int element, bool write);
/* Does an element write to bytes that another reads or writes? Sorts the extents. */
bool tt_extents_meet(tt_extent *extents, size_t count);
/* Is a pointer in the list twice? True, too, if memory to tell is out. */
bool tt_any_twice(const void *const *pointers, size_t count);

#endif
