#include "dispatch/conj_neg.h"

#include <ATen/ops/_conj_physical.h>

namespace tt {

using at::Tensor;

Tensor conj_neg_base(const Tensor& tensor) {
  auto base = tensor.alias();
  base._set_conj(false);
  base._set_neg(false);
  return base;
}

Tensor without_conj_neg(const Tensor& tensor) {
  if (!has_conj_neg(tensor)) return tensor;
  auto plain = conj_neg_base(tensor);
  if (tensor.is_conj()) plain = at::_conj_physical(plain);
  return tensor.is_neg() ? plain.neg() : plain;
}

}  // namespace tt
