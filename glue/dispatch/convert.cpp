#include "dispatch/convert.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

namespace tt {

namespace {

// A wait that Ctrl-C ended: what Python's signal handler raised is on its way (callsite.cpp).
void throw_interrupt() {
  pybind11::gil_scoped_acquire gil;
  if (PyErr_Occurred()) throw pybind11::error_already_set();
}

}  // namespace

void check(tt_status status) {
  if (!status) return;
  tt_code code = tt_status_code(status);
  if (code == TT_CANCELLED) throw_interrupt();
  std::string text = tt_status_message(status);
  tt_status_release(status);
  c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (code) {
  case TT_OUT_OF_RANGE:
    throw c10::IndexError(here, text);
  case TT_VALUE:
    throw c10::ValueError(here, text);
  case TT_TYPE:
    throw c10::TypeError(here, text);
  case TT_LINALG_ERROR:
    throw c10::LinAlgError(here, text);
  case TT_UNIMPLEMENTED:
    throw c10::NotImplementedError(here, text);
  case TT_RESOURCE_EXHAUSTED:
    throw c10::OutOfMemoryError(here, text);
  default:
    throw c10::Error(here, text);
  }
}

constexpr std::pair<at::ScalarType, tt_dtype> kDtypes[] = {
    {at::kBool, TT_BOOL},
    {at::kByte, TT_U8},
    {at::kChar, TT_I8},
    {at::kShort, TT_I16},
    {at::kInt, TT_I32},
    {at::kLong, TT_I64},
    {at::kUInt16, TT_U16},
    {at::kUInt32, TT_U32},
    {at::kUInt64, TT_U64},
    {at::kHalf, TT_F16},
    {at::kBFloat16, TT_BF16},
    {at::kFloat, TT_F32},
    {at::kDouble, TT_F64},
    {at::kComplexHalf, TT_C32},
    {at::kComplexFloat, TT_C64},
    {at::kComplexDouble, TT_C128},
    {at::kFloat8_e5m2, TT_F8E5M2},
    {at::kFloat8_e4m3fn, TT_F8E4M3FN},
    {at::kFloat8_e5m2fnuz, TT_F8E5M2FNUZ},
    {at::kFloat8_e4m3fnuz, TT_F8E4M3FNUZ},
};

tt_dtype to_dtype(at::ScalarType type) {
  static constexpr auto all = [] {
    std::array<tt_dtype, static_cast<size_t>(at::ScalarType::NumOptions) + 1> made{};
    for (auto [torch, core] : kDtypes) made[static_cast<size_t>(torch)] = core;
    return made;
  }();
  return all[static_cast<size_t>(type)];
}

tt_dtype require_dtype(at::ScalarType type) {
  tt_dtype dtype = to_dtype(type);
  TORCH_CHECK_TYPE(dtype != TT_INVALID, "device 'tpu' does not support dtype ", type,
                   "; convert the tensor to a supported dtype first");
  return dtype;
}

at::ScalarType from_dtype(tt_dtype dtype) {
  static constexpr auto all = [] {
    std::array<at::ScalarType, TT_DTYPE_LIMIT> made{};
    for (auto& one : made) one = at::ScalarType::Undefined;
    for (auto [torch, core] : kDtypes) made[core] = torch;
    return made;
  }();
  return all[dtype];
}

tt_view view_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() <= TT_MAX_RANK, "device 'tpu' supports tensors of at most ", TT_MAX_RANK,
              " dims, not ", tensor.dim());
  tt_view view{};
  view.dtype = require_dtype(tensor.scalar_type());
  view.rank = static_cast<int>(tensor.dim());
  view.offset = tensor.storage_offset();
  for (int i = 0; i < view.rank; i++) {
    view.sizes[i] = tensor.size(i);
    view.strides[i] = tensor.stride(i);
  }
  return view;
}

bool is_canonical(const at::Tensor& tensor, const tt_storage* storage) {
  const at::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const tt_type* type = storage->type;
  auto sizes = impl->sizes();
  if (!impl->is_contiguous() || impl->storage_offset() != 0 ||
      static_cast<int>(sizes.size()) != type->rank)
    return false;
  for (int i = 0; i < type->rank; i++)
    if (sizes[i] != type->dims[i]) return false;
  return to_dtype(tensor.scalar_type()) == type->dtype;
}

}  // namespace tt
