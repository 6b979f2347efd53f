// Autocast for device "tpu": PyTorch's own lists, unchanged.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

namespace at::autocast {

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define TT_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TT_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TT_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TT_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TT_LOWER_PRECISION)
  AT_FORALL_FP32(TT_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TT_FP32_SET_OPT_DTYPE)
  AT_FORALL_PROMOTE(TT_PROMOTE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
}

}  // namespace at::autocast
