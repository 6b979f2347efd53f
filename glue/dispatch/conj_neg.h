// Tensors whose conjugation or negation is still due. PyTorch carries it out before most kernels,
// but leaves it to those that a library does it for on other devices: matrix products above all.
#pragma once

#include "pch.h"

namespace tt {

inline bool has_conj_neg(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet due({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  return tensor.key_set().has_any(due);
}

// The numbers that are still to be conjugated or negated, in the same memory.
at::Tensor conj_neg_base(const at::Tensor& tensor);

// The same numbers with nothing due; the tensor itself if nothing is.
at::Tensor without_conj_neg(const at::Tensor& tensor);

}  // namespace tt
