// What a decomposition did for one key of arguments, done again without Python.
#pragma once

#include "dispatch/plan.h"

#include <functional>

namespace tt {

// Replaces the arguments on the stack by the results: recorded from a template if these arguments
// were seen before, else by `decompose`, while notes are taken for the next time. Returns what
// `decompose` returns: false leaves the stack as it was.
bool run_template(const Plan& plan, torch::jit::Stack* stack,
                  const std::function<bool()>& decompose);

}  // namespace tt
