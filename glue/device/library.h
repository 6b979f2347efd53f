// PyTorch's own kernels, as functions that programs call from XLA's threads.
#pragma once

#include "device/session.h"

#include <functional>

namespace tt {

// Runs `act` as if no mode, autocast, transform or autograd of PyTorch's were on: whoever launches
// a program may do so under one, which is not about what the program computes; with small numbers
// flushed to zero, as in all that XLA compiles; and without warnings. Where something in it takes
// as long as many `products` of two numbers, it runs in the one thread that has others to divide
// work among. Its exception is the status.
tt_status run_in_library(double products, const std::function<tt_status()>& act);
// A part of it: whether it is divided depends on its own `products`.
void compute_in_library(double products, const std::function<void()>& act);

// A function that libtorch, or what it needs, has by this name; nullptr: there is none.
void* find_in_torch(const char* symbol);

// Let programs call PyTorch's LAPACK and its kernels; before the runtime is opened.
void bind_lapack();
void bind_kernels();

}  // namespace tt
