// Rows whose kernel for the CPU is not the one by their name alone.
#pragma once

#include <ATen/core/stack.h>

namespace tt {

// Where the numbers that a call draws begin.
struct Draws {
  uint64_t seed, offset;
};

// Of a row that PyTorch has no such kernel of, in its other kernels.
struct StandIn {
  const char* row;  // "aten::convolution_overrideable"
  // Takes the row's arguments and leaves its results, of any real dtype. Draws as the row does.
  void (*compute)(torch::jit::Stack& stack, const Draws& draws);
  bool draws;
};

// nullptr: there is none.
const StandIn* stand_in_of(const char* row);

// Throws where the row's own kernel would follow an index out of its memory. nullptr: it does not.
using Check = void (*)(const torch::jit::Stack& stack);
Check check_of(const char* row);

}  // namespace tt
