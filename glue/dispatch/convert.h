// Between PyTorch's types and the core's.
#pragma once

#include "device/session.h"

#include <optional>
#include <vector>

namespace tt {

// TT_INVALID for dtypes that the core does not have (quantized, complex32, ..).
tt_dtype to_dtype(at::ScalarType type);
// Throws TypeError, naming the dtype, where to_dtype gives TT_INVALID.
tt_dtype require_dtype(at::ScalarType type);
at::ScalarType from_dtype(tt_dtype dtype);

// What the type of an argument is of where it is given.
inline c10::TypePtr without_optional(const c10::TypePtr& type) {
  auto optional = type->cast<c10::OptionalType>();
  return optional ? optional->getElementType() : type;
}

inline tt_storage* storage_of(const c10::StorageImpl* storage) {
  TORCH_CHECK(storage->device_type() == c10::DeviceType::PrivateUse1,
              "a tensor that says it is on tpu holds nothing there (a fake tensor)");
  return static_cast<tt_storage*>(storage->data_ptr().get_context());
}
// Not so of a fake tensor, which says that it is on a device and holds nothing.
inline bool is_held(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().device_type() ==
         c10::DeviceType::PrivateUse1;
}
inline tt_storage* storage_of(const at::Tensor& tensor) {
  return storage_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}
// Visits the tensor that a value is, or those of its list, also undefined ones; other values have
// none. TorchScript's lists are of optionals that isOptionalTensorList does not know.
template <class Visit> void each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) return visit(value.toTensor());
  if (!value.isList()) return;
  for (const c10::IValue& element : value.toListRef())
    if (element.isTensor()) visit(element.toTensor());
}
// The value with map(tensor) in the place of each tensor, also those of a list.
template <class Map> c10::IValue map_tensors(const c10::IValue& value, Map map) {
  if (value.isTensor()) return map(value.toTensor());
  bool has = false;
  each_tensor(value, [&](const at::Tensor&) { has = true; });
  if (!has) return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const c10::IValue& one : value.toListRef())
    list.push_back(one.isTensor() ? c10::IValue(map(one.toTensor())) : one);
  return list;
}
tt_view view_of(const at::Tensor& tensor);
// Is the tensor the row-major view of its whole storage, in the storage's own dtype and dims?
bool is_canonical(const at::Tensor& tensor, const tt_storage* storage);

// Takes the caller's reference.
c10::Storage own(tt_storage* storage, c10::DeviceIndex device);
at::Tensor tensor_on(c10::Storage storage, const tt_view& view);
// An uninitialised tensor whose new storage has the dense type of these sizes and strides.
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                         c10::DeviceIndex device);
c10::Allocator* allocator();

}  // namespace tt
