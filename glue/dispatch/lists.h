// Operators that write to lists of tensors, where what they write is read by another element.
#pragma once

#include "dispatch/walk.h"

namespace tt {

// Tells if an element of the lists writes what another element reads or writes.
bool lists_meet(const Walk& walk);

// Runs the plan on one element of its lists after the other; false where that is no other thing.
bool run_elements(const Walk& walk, const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace tt
