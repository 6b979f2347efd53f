// From a dispatched operator to a recorded call.
#pragma once

#include "dispatch/convert.h"

#include <string>
#include <vector>

namespace tt {

// target.copy_(source), both on the same device.
void run_copy(const at::Tensor& target, const at::Tensor& source);
void resize_storage(const c10::Storage& storage, size_t bytes);
// Resizes an out= tensor, if it has other sizes, and lets it lie as `like` does, as PyTorch's
// kernels do; whether it was resized.
bool fit_output(const at::Tensor& target, const at::Tensor& like);

// What an operator without a row, or whose row cannot express these arguments, does: PyTorch's
// decomposition, else the host, counted and named.
void run_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Registers for the key `to` PyTorch's kernels for the key `from`, of these overloads of ATen.
void lend(const std::vector<std::string>& overloads, const std::string& from,
          const std::string& to);

// The Python line that is being executed by this thread, as a core site id.
uint32_t call_site();
// Waits for a device, counted at the Python line that asks for it; throws its errors.
void synchronize(c10::DeviceIndex index);

// Has Ctrl-C end the waits of Python's main thread (callsite.cpp).
void watch_interrupts();

// Seeds the generators of all devices, also those not made yet, without opening the plugin.
void manual_seed_all(uint64_t seed);
// The place of the next `blocks` Philox blocks of the generator (the device's default if none is
// given), which are taken.
tt_philox_place reserve_philox(const std::optional<at::Generator>& generator,
                               c10::DeviceIndex device, int64_t blocks);
// By which the core tells generators apart: nullptr for the device's default one.
const void* identity_of(const std::optional<at::Generator>& generator, c10::DeviceIndex device);
// One that goes on drawing where it draws now, whatever state it is given.
at::Generator generator_as_now(const std::optional<at::Generator>& generator,
                               c10::DeviceIndex device);

}  // namespace tt
