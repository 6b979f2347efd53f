// How exactly products of f32 numbers are computed: what torch.tpu.precision says, else PyTorch.
#include "dispatch/plan.h"

#include <ATen/Context.h>

#include <atomic>

namespace tt {
namespace {

constexpr int kAsPyTorch = -1;
std::atomic<int> own{kAsPyTorch};

tt_precision of_pytorch() {
  const at::Context& context = at::globalContext();
  try {
    switch (context.float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGH:
      return TT_PRECISION_HIGH;
    case at::Float32MatmulPrecision::MEDIUM:
      return TT_PRECISION_DEFAULT;
    default:
      break;
    }
  } catch (const c10::Error&) {
    // Another backend was told something by the newer settings, and then there is no one answer.
  }
  switch (context.float32Precision(at::Float32Backend::GENERIC, at::Float32Op::ALL)) {
  case at::Float32Precision::TF32:
    return TT_PRECISION_HIGH;
  case at::Float32Precision::BF16:
    return TT_PRECISION_DEFAULT;
  default:
    return TT_PRECISION_HIGHEST;
  }
}

}  // namespace

tt_precision product_precision() {
  int chosen = own.load(std::memory_order_relaxed);
  return chosen == kAsPyTorch ? of_pytorch() : static_cast<tt_precision>(chosen);
}

int set_product_precision(int value) {
  TORCH_CHECK_VALUE(value >= kAsPyTorch && value <= TT_PRECISION_HIGHEST,
                    "expected a precision from 0 to 2, or -1 for PyTorch's, but got ", value);
  return own.exchange(value);
}

}  // namespace tt
