// Sparse tensors: indices and values are dense tensors of the device, and PyTorch's own kernels do
// the rest. Most of those that it registers for the CPU are made of dense operators alone and serve
// any device; the others have a kernel in torch_tpu/_sparse.py.
#include "agreement/composed.h"

#include <set>
#include <string>

namespace tt {
namespace {

// Operators whose kernels for sparse tensors on the CPU never look at memory themselves, but for
// the overloads that torch_tpu/_sparse.py serves.
const std::set<std::string> kComposed = {"_coalesced_",
                                         "_conj_physical",
                                         "_dimI",
                                         "_dimV",
                                         "_indices",
                                         "_nnz",
                                         "_sparse_broadcast_to",
                                         "_sparse_coo_tensor_with_dims",
                                         "_sparse_coo_tensor_with_dims_and_tensors",
                                         "_to_dense",
                                         "_to_sparse",
                                         "_to_sparse_bsc",
                                         "_to_sparse_bsr",
                                         "_to_sparse_csc",
                                         "_to_sparse_csr",
                                         "_values",
                                         "abs",
                                         "add",
                                         "addmm",
                                         "angle",
                                         "any",
                                         "asin",
                                         "asinh",
                                         "atan",
                                         "atanh",
                                         "cat",
                                         "ccol_indices",
                                         "ceil",
                                         "clone",
                                         "col_indices",
                                         "conj_physical",
                                         "copy",
                                         "copy_sparse_to_sparse",
                                         "crow_indices",
                                         "deg2rad",
                                         "dense_dim",
                                         "div",
                                         "empty",
                                         "empty_like",
                                         "erf",
                                         "erfinv",
                                         "expm1",
                                         "fill",
                                         "floor",
                                         "floor_divide",
                                         "frac",
                                         "indices",
                                         "is_coalesced",
                                         "isinf",
                                         "isnan",
                                         "isneginf",
                                         "isposinf",
                                         "log1p",
                                         "mm",
                                         "mul",
                                         "mv",
                                         "nan_to_num",
                                         "narrow_copy",
                                         "native_norm",
                                         "neg",
                                         "norm",
                                         "permute",
                                         "pow",
                                         "rad2deg",
                                         "relu",
                                         "resize_as_sparse",
                                         "round",
                                         "row_indices",
                                         "select",
                                         "select_copy",
                                         "sgn",
                                         "sign",
                                         "signbit",
                                         "sin",
                                         "sinh",
                                         "sparse_dim",
                                         "sparse_mask",
                                         "sparse_resize",
                                         "sparse_resize_and_clear",
                                         "sqrt",
                                         "sub",
                                         "sum",
                                         "tan",
                                         "tanh",
                                         "threshold_backward",
                                         "trunc",
                                         "unsqueeze",
                                         "values",
                                         "view_as_complex",
                                         "view_as_real",
                                         "zero",
                                         "zeros"};

const std::set<std::string> kDirectCoo = {"add.out", "addmm",   "addmm.out",
                                          "addmm_",  "mul.out", "sparse_mask"};
const std::set<std::string> kDirectCsr = {"_to_sparse_csc", "_to_sparse_csr", "add.out",
                                          "addmm.out", "sparse_mask"};

bool is_composed(std::string name, const std::string& overload,
                 const std::set<std::string>& direct) {
  if (direct.count(overload.empty() ? name : name + "." + overload)) return false;
  if (name.back() == '_' && !kComposed.count(name)) name.pop_back();
  return kComposed.count(name) > 0;
}

bool of_coo(const std::string& name, const std::string& overload) {
  return is_composed(name, overload, kDirectCoo);
}

bool of_csr(const std::string& name, const std::string& overload) {
  return is_composed(name, overload, kDirectCsr);
}

bool makes_sparse(const std::string& name, const std::string&) {
  return name.rfind("_to_sparse", 0) == 0;
}

[[maybe_unused]] const bool registered = [] {
  using c10::DispatchKey;
  register_composed<DispatchKey::SparseCPU, DispatchKey::SparsePrivateUse1>(of_coo);
  register_composed<DispatchKey::SparseCsrCPU, DispatchKey::SparseCsrPrivateUse1>(of_csr);
  register_composed<DispatchKey::CPU, DispatchKey::PrivateUse1>(makes_sparse);
  return true;
}();

}  // namespace
}  // namespace tt
