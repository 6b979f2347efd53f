// Strided nested tensors: one dense buffer of the device, and sizes on the host. PyTorch's kernels
// for the CPU's are made of operators on the buffer and serve any device, but for those that
// torch_tpu/_nested.py has.
#include "agreement/composed.h"

#include <set>
#include <string>

namespace tt {
namespace {

// Those that look at memory, or choose by the device.
const std::set<std::string> kDirect = {"_fused_sdp_choice",
                                       "_native_multi_head_attention",
                                       "_nested_sum_backward",
                                       "_nested_tensor_softmax_with_shape",
                                       "_transform_bias_rescale_qkv",
                                       "_transformer_encoder_layer_fwd",
                                       "is_pinned",
                                       "matmul",
                                       "native_layer_norm",
                                       "native_layer_norm_backward",
                                       "_pin_memory",
                                       "sum"};
const std::set<std::string> kMakes = {"_nested_tensor_from_mask",
                                      "_nested_tensor_from_mask_left_aligned",
                                      "_nested_view_from_buffer"};

[[maybe_unused]] const bool registered = [] {
  using c10::DispatchKey;
  register_composed<DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorPrivateUse1>(
      [](const std::string& name, const std::string&) { return !kDirect.count(name); });
  register_composed<DispatchKey::CPU, DispatchKey::PrivateUse1>(
      [](const std::string& name, const std::string&) { return kMakes.count(name) > 0; });
  return true;
}();

}  // namespace
}  // namespace tt
