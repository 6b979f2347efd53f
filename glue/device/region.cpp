#include "device/region.h"

#include "device/policy.h"
#include "dispatch/dispatch.h"

namespace tt {

namespace {

tt_view stacked(const tt_view& slice, int64_t length) {
  TORCH_CHECK(slice.rank < TT_MAX_RANK, "a result has too many dimensions");
  tt_view stack = slice;
  stack.rank = slice.rank + 1;
  std::copy_n(slice.sizes, slice.rank, stack.sizes + 1);
  std::copy_n(slice.strides, slice.rank, stack.strides + 1);
  stack.sizes[0] = length;
  stack.strides[0] = std::max<int64_t>(tt_view_numel(&slice), 1);
  return stack;
}

void check_device(const std::vector<at::Tensor>& tensors, c10::DeviceIndex device) {
  for (const at::Tensor& one : tensors)
    TORCH_CHECK(one.device() == c10::Device(c10::DeviceType::PrivateUse1, device),
                "a branch or loop takes and gives tensors on tpu:", static_cast<int>(device),
                ", not on ", one.device());
}

}  // namespace

void Region::check_capture() const {
  TORCH_CHECK(capture_ && tt_stream_captured(stream_of(device_)) == capture_,
              "a region is recorded in the capture in which its bodies were captured");
}

std::vector<at::Tensor> Region::begin(const std::vector<at::Tensor>& like) {
  Guarded guarded;
  std::vector<at::Tensor> stand_ins;
  if (!capture_) {
    device_ = current_device();
    capture_ = tt_stream_captured(stream_of(device_));
  }
  check_capture();
  check_device(like, device_);
  tt_stream* stream = stream_of(device_);
  check(tt_nested_begin(stream));
  open_ = true;
  for (const at::Tensor& one : like) {
    tt_storage* storage = nullptr;
    tt_status status = tt_storage_create(device_of(device_), storage_of(one)->type, &storage);
    if (!status) {
      stand_ins.push_back(tensor_on(own(storage, device_), view_of(one)));
      status = tt_nested_argument(stream, storage);
    }
    if (status) abandon();
    check(status);
  }
  return stand_ins;
}

std::vector<bool> Region::wrote(const std::vector<at::Tensor>& tensors) const {
  check_device(tensors, device_);
  std::vector<bool> found;
  for (const at::Tensor& one : tensors)
    found.push_back(tt_nested_wrote(stream_of(device_), storage_of(one)));
  return found;
}

void Region::end(const std::vector<at::Tensor>& results) {
  Guarded guarded;
  std::vector<tt_storage*> storages;
  tt_nested* body = nullptr;
  views_.clear();
  check_device(results, device_);
  for (const at::Tensor& one : results) {
    storages.push_back(storage_of(one));
    views_.push_back(view_of(one));
  }
  check(
      tt_nested_end(stream_of(device_), storages.data(), static_cast<int>(storages.size()), &body));
  bodies_.push_back(body);
}

void Region::abandon() {
  if (std::exchange(open_, false)) tt_nested_abandon(stream_of(device_));
}

std::vector<at::Tensor> Region::record(int64_t kind, const std::string& name,
                                       const std::vector<at::Tensor>& operands, int64_t carried,
                                       int64_t length) {
  Guarded guarded;
  check_capture();
  TORCH_CHECK(kind >= TT_REGION_IF && kind <= TT_REGION_SCAN && carried >= 0 &&
                  bodies_.size() == (kind == TT_REGION_SCAN ? 1 : 2),
              name, ": a region of another kind has other bodies");
  check_device(operands, device_);
  std::vector<tt_storage*> storages;
  for (const at::Tensor& one : operands) storages.push_back(storage_of(one));
  tt_nested_region region{};
  region.kind = static_cast<tt_region_kind>(kind);
  region.name = name.c_str();
  std::copy(bodies_.begin(), bodies_.end(), region.bodies);
  region.operands = storages.data();
  region.operand_count = static_cast<int>(storages.size());
  region.carried = static_cast<int>(carried);
  region.length = length;
  std::vector<tt_storage*> made(views_.size());
  check(tt_nested_record(stream_of(device_), &region, Policy(), call_site(), made.data()));
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < made.size(); i++) {
    bool stack = kind == TT_REGION_SCAN && i >= static_cast<size_t>(carried);
    results.push_back(
        tensor_on(own(made[i], device_), stack ? stacked(views_[i], length) : views_[i]));
  }
  return results;
}

}  // namespace tt
