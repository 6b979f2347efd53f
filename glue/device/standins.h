// Rows whose kernel for the CPU is not the one by their name alone: PyTorch has none by it, it is
// slow, or it trusts what it is given.
#pragma once

#include <ATen/core/stack.h>

namespace tt {

// Where the numbers that a call draws begin.
struct Draws {
  uint64_t seed, offset;
};

struct StandIn {
  const char* row;  // "aten::convolution_overrideable"
  // Takes the row's arguments and leaves its results, of any real dtype. Draws as the row does.
  void (*compute)(torch::jit::Stack& stack, const Draws& draws);
};

// nullptr: there is none.
const StandIn* stand_in_of(const char* row);

}  // namespace tt
