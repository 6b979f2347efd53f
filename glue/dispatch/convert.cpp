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

#define TT_FOR_EACH_DTYPE(X)                                                                       \
  X(Bool, BOOL)                                                                                    \
  X(Byte, U8)                                                                                      \
  X(Char, I8)                                                                                      \
  X(Short, I16)                                                                                    \
  X(Int, I32)                                                                                      \
  X(Long, I64)                                                                                     \
  X(UInt16, U16)                                                                                   \
  X(UInt32, U32)                                                                                   \
  X(UInt64, U64)                                                                                   \
  X(Half, F16)                                                                                     \
  X(BFloat16, BF16)                                                                                \
  X(Float, F32)                                                                                    \
  X(Double, F64)                                                                                   \
  X(ComplexHalf, C32)                                                                              \
  X(ComplexFloat, C64)                                                                             \
  X(ComplexDouble, C128)                                                                           \
  X(Float8_e5m2, F8E5M2)                                                                           \
  X(Float8_e4m3fn, F8E4M3FN)                                                                       \
  X(Float8_e5m2fnuz, F8E5M2FNUZ)                                                                   \
  X(Float8_e4m3fnuz, F8E4M3FNUZ)

tt_dtype to_dtype(at::ScalarType type) {
  switch (type) {
#define X(torch, core)                                                                             \
  case at::ScalarType::torch:                                                                      \
    return TT_##core;
    TT_FOR_EACH_DTYPE(X)
#undef X
  default:
    return TT_INVALID;
  }
}

tt_dtype require_dtype(at::ScalarType type) {
  tt_dtype dtype = to_dtype(type);
  TORCH_CHECK_TYPE(dtype != TT_INVALID, "device 'tpu' does not support dtype ", type,
                   "; convert the tensor to a supported dtype first");
  return dtype;
}

at::ScalarType from_dtype(tt_dtype dtype) {
  switch (dtype) {
#define X(torch, core)                                                                             \
  case TT_##core:                                                                                  \
    return at::ScalarType::torch;
    TT_FOR_EACH_DTYPE(X)
#undef X
  default:
    return at::ScalarType::Undefined;
  }
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
