#include "device/function.h"

#include "device/policy.h"
#include "dispatch/dispatch.h"

#include <unordered_map>

extern "C" {
#include "export/export.h"
}

namespace tt {

namespace {

template <class Number> void push(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Of each argument, the first one with its storage.
std::vector<size_t> sharing(const std::vector<at::Tensor>& args) {
  std::unordered_map<const tt_storage*, size_t> first;
  std::vector<size_t> all;
  for (size_t i = 0; i < args.size(); i++)
    all.push_back(first.emplace(storage_of(args[i]), i).first->second);
  return all;
}

c10::Storage empty_storage(const tt_type* type, c10::DeviceIndex device) {
  tt_storage* storage = nullptr;
  check(tt_storage_create(device_of(device), type, &storage));
  return own(storage, device);
}

}  // namespace

std::string signature(const std::vector<at::Tensor>& args) {
  std::string bytes;
  for (const at::Tensor& arg : args)
    TORCH_CHECK(arg.device().is_privateuseone() && !arg.is_conj() && !arg.is_neg(),
                "a compiled function takes plain tensors on tpu");
  std::vector<size_t> first = sharing(args);
  for (size_t i = 0; i < args.size(); i++) {
    const at::Tensor& arg = args[i];
    const tt_type* type = storage_of(arg)->type;
    push(bytes, static_cast<int>(arg.scalar_type()) | arg.device().index() << 16);
    push(bytes, static_cast<uint32_t>(first[i]));
    push(bytes, type->dtype | type->rank << 8 | static_cast<int>(arg.dim()) << 16);
    push(bytes, arg.storage_offset());
    bytes.append(reinterpret_cast<const char*>(type->dims), sizeof(int64_t) * type->rank);
    for (int64_t size : arg.sizes()) push(bytes, size);
    for (int64_t stride : arg.strides()) push(bytes, stride);
  }
  return bytes;
}

std::vector<at::Tensor> Function::begin(const std::vector<at::Tensor>& args) {
  Guarded guarded;
  std::vector<size_t> first = sharing(args);
  std::vector<c10::Storage> storages;
  for (size_t i = 0; i < args.size(); i++) {
    storages.push_back(first[i] < i
                           ? storages[first[i]]
                           : empty_storage(storage_of(args[i])->type, args[i].get_device()));
    stand_ins_.push_back(tensor_on(storages[i], view_of(args[i])));
  }
  device_ = current_device();
  graph_.begin(true);
  return stand_ins_;
}

Function::Origin Function::origin_of(tt_storage* storage) const {
  Origin origin;
  for (size_t i = 0; i < stand_ins_.size() && origin.argument < 0; i++)
    if (storage_of(stand_ins_[i]) == storage) origin.argument = static_cast<int>(i);
  for (size_t i = 0; i < made_.size() && origin.argument < 0 && origin.result < 0; i++)
    if (storage_of(made_[i].unsafeGetStorageImpl()) == storage) origin.result = static_cast<int>(i);
  if (origin.argument < 0 && origin.result < 0)
    origin.kept = own(tt_storage_retain(storage), device_);
  return origin;
}

void Function::end(const std::vector<at::Tensor>& results, tt_repeats repeats, bool text_only,
                   const std::string& options) {
  Guarded guarded;
  uint64_t capture = tt_stream_captured(stream_of(device_));
  for (const at::Tensor& one : results) {
    tt_storage* storage = storage_of(one);
    if (storage->born != capture || origin_of(storage).result >= 0) continue;
    made_.push_back(one.storage());
  }
  graph_.end(repeats, text_only, options);
  for (const at::Tensor& one : results) {
    Result result{};
    result.origin = origin_of(storage_of(one));
    result.view = view_of(one);
    if (result.origin.kept) result.like = one;
    if (result.origin.argument >= 0)
      for (size_t i = 0; i < stand_ins_.size() && !result.same; i++)
        if (stand_ins_[i].is_same(one)) {
          result.same = true;
          result.origin.argument = static_cast<int>(i);
        }
    results_.push_back(std::move(result));
  }
  graph_.each_storage([&](tt_storage* storage) { inputs_.push_back(origin_of(storage)); },
                      [&](tt_storage* storage) { outputs_.push_back(origin_of(storage)); });
  stand_ins_.clear();
}

bool Function::adopt(const tt_exported& file) {
  Guarded guarded;
  bool loaded = false;
  tt_captured* captured = nullptr;
  device_ = current_device();
  check(tt_exported_bind(&file, device_of(device_), &captured, &loaded));
  graph_.adopt(captured, device_);
  for (int i = 0; i < captured->input_count; i++) inputs_.push_back({i, -1, {}});
  for (int i = 0; i < file.output_count; i++) {
    const tt_port& port = file.ports[file.parameter_count + i];
    Origin origin{port.writes, port.writes < 0 ? static_cast<int>(made_.size()) : -1, {}};
    outputs_.push_back(origin);
    if (port.writes >= 0) continue;
    const tt_type* type = nullptr;
    check(tt_type_intern(&port.type, &type));
    made_.push_back(empty_storage(type, device_));
    results_.push_back({origin, false, {}, tt_view_whole(type)});
  }
  return loaded;
}

// Of each of what is made, the length that it has, or nullptr.
std::vector<const Function::Length*>
Function::lengths_of_made(const std::vector<Length>& lengths) const {
  std::vector<const Length*> of(made_.size(), nullptr);
  for (const Length& one : lengths) {
    TORCH_INTERNAL_ASSERT(one.result < results_.size());
    const Result& result = results_[one.result];
    TORCH_CHECK(result.origin.result >= 0 && result.view.rank > one.dim, "result ", one.result,
                " of a compiled function cannot have padding");
    of[static_cast<size_t>(result.origin.result)] = &one;
  }
  return of;
}

std::vector<at::Tensor> Function::call(const std::vector<at::Tensor>& args,
                                       const std::vector<Length>& lengths) {
  Guarded guarded;
  std::vector<c10::Storage> made;
  std::vector<const Length*> length_of = lengths_of_made(lengths);
  for (size_t i = 0; i < made_.size(); i++) {
    tt_type exact = *storage_of(made_[i].unsafeGetStorageImpl())->type;
    if (length_of[i]) exact.dims[length_of[i]->dim] = length_of[i]->length;
    const tt_type* type = nullptr;
    check(tt_type_intern(&exact, &type));
    made.push_back(empty_storage(type, device_));
  }
  auto find = [&](const Origin& origin) {
    if (origin.argument >= 0) return storage_of(args[static_cast<size_t>(origin.argument)]);
    const c10::Storage& storage =
        origin.result >= 0 ? made[static_cast<size_t>(origin.result)] : origin.kept;
    return storage_of(storage.unsafeGetStorageImpl());
  };
  c10::SmallVector<tt_storage*, 64> inputs, outputs;
  for (const Origin& one : inputs_) inputs.push_back(find(one));
  c10::SmallVector<tt_captured_length, 4> counts;
  for (const Origin& one : outputs_) {
    const Length* length = one.result < 0 ? nullptr : length_of[static_cast<size_t>(one.result)];
    if (length) counts.push_back({static_cast<int>(outputs.size()), length->dim, length->length});
    outputs.push_back(find(one));
  }
  graph_.replay_on({inputs.data(), outputs.data(), counts.data(), static_cast<int>(counts.size())});
  std::vector<at::Tensor> results;
  for (const Result& one : results_) {
    auto place = static_cast<size_t>(one.origin.argument);
    if (one.same) results.push_back(args[place]);
    else if (one.origin.argument >= 0)
      results.push_back(tensor_on(args[place].storage(), one.view));
    else if (one.origin.result >= 0) {
      auto k = static_cast<size_t>(one.origin.result);
      const tt_type* type = storage_of(made[k].unsafeGetStorageImpl())->type;
      results.push_back(tensor_on(made[k], length_of[k] ? tt_view_whole(type) : one.view));
    } else results.push_back(one.like);
  }
  return results;
}

}  // namespace tt
