// How a call's operands stand in bounded values (core/call/bounded.h): which lengths it has.
#pragma once

#include "dispatch/walk.h"

namespace tt {

// Those of its operands, and sizes of them, or sizes that an argument lists, that are lengths of
// live values. False: there are too many.
bool find_lengths(Walk& walk);

// Lengths among the sizes that an argument lists become bounds. An index, or a start, that counts
// from the end counts from the start then. False: there are none.
bool widen_sizes(Walk& walk);

// The lengths are numbers, and the key says whose is which. False: nobody has one.
bool add_lengths(Walk& walk);

// Of cat's result, where it is to have room along the dim in which its operands are joined; and of
// what is padded.
void add_bound(Walk& walk);

}  // namespace tt
