#include "dispatch/template.h"

#include "dispatch/walk.h"

#include <ATen/Context.h>

#include <deque>
#include <mutex>
#include <unordered_map>

namespace tt {
namespace {

using c10::IValue;

constexpr size_t kMostTemplates = 65536;

// One tensor among the results, or something else that is the same each time.
struct Result {
  IValue constant;  // when there is no tensor
  int arg = -1;     // an argument, returned as it is: its place among the walk's tensors
  int slot = -1;    // else a view of this storage of the template
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
};

struct Template {
  tt_template* calls = nullptr;
  std::vector<Result> results;  // lists are flattened
  std::vector<int> lists;       // for each return, how many of them make a list, or -1
  Template() = default;
  Template(const Template&) = delete;
  Template& operator=(const Template&) = delete;
  ~Template() { tt_template_destroy(calls); }
};

// Made once for each operator and key; nullptr for a key whose notes are of no use.
struct Templates {
  std::mutex lock;
  std::unordered_map<std::string, std::shared_ptr<const Template>> by_key;
};

Templates& templates() {
  static auto* one = new Templates;
  return *one;
}

bool plain(const at::Tensor& tensor) {
  if (!tensor.defined()) return true;
  if (tensor.device().is_cpu()) return tensor.dim() == 0;
  return tensor.device().is_privateuseone() && tensor.layout() == at::kStrided &&
         !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor() &&
         !tensor.key_set().has(c10::DispatchKey::Python);
}

bool plain(const IValue& value) {
  if (value.isTensor()) return plain(value.toTensor());
  if (value.isGenerator() || value.isObject()) return false;
  if (!value.isList()) return true;
  auto list = value.toListRef();
  return std::all_of(list.begin(), list.end(), [](const IValue& one) { return plain(one); });
}

// The arguments' key, and the settings that a decomposition may ask for.
std::string key_of(Walk& walk) {
  walk_args(walk);
  tt_key_u64(&walk.key, static_cast<uint64_t>(product_precision()) << 1 |
                            static_cast<uint64_t>(at::globalContext().deterministicAlgorithms()));
  tt_key_u64(&walk.key, static_cast<uint64_t>(walk.device));
  TORCH_CHECK(!walk.key.failed, walk.plan.name, ": out of memory");
  return {reinterpret_cast<const char*>(walk.key.data), walk.key.size};
}

// -- Using a template --

at::Tensor make_result(const Result& result, const Walk& walk, std::vector<c10::Storage>& owners,
                       std::vector<tt_storage*>& storages) {
  if (result.arg >= 0) return *walk.tensors[static_cast<size_t>(result.arg)];
  auto slot = static_cast<size_t>(result.slot);
  at::Tensor tensor;
  if (!owners[slot]) {
    tensor = make_tensor(storages[slot], tt_storage_bytes(storages[slot]), walk.device,
                         result.dtype, result.sizes, result.strides);
    storages[slot] = nullptr;
    owners[slot] = tensor.storage();
  } else {
    tensor = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(owners[slot]), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(result.dtype));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes, result.strides);
  }
  tensor.unsafeGetTensorImpl()->set_storage_offset(result.offset);
  return tensor;
}

// Frees what no result took, also when an error ends the run.
struct Slots {
  std::vector<tt_storage*> storages;
  size_t args;
  ~Slots() {
    for (size_t i = args; i < storages.size(); i++) tt_storage_release(storages[i]);
  }
};

void use(const Template& found, const Walk& walk, torch::jit::Stack* stack) {
  Slots slots{{walk.storages.begin(), walk.storages.end()}, walk.storages.size()};
  auto count = static_cast<size_t>(tt_template_slots(found.calls));
  slots.storages.resize(count, nullptr);
  tt_philox_place place{};
  int64_t blocks = tt_template_blocks(found.calls);
  if (blocks && !captured_stream(walk.device))
    place = reserve_philox(std::nullopt, walk.device, blocks);
  check(tt_template_run(found.calls, stream_of(walk.device), slots.storages.data(), place,
                        &walk.policy, call_site()));
  std::vector<c10::Storage> owners(count);
  for (size_t i = 0; i < walk.tensors.size(); i++) owners[i] = walk.tensors[i]->storage();
  std::vector<IValue> returns;
  size_t next = 0;
  auto take = [&]() -> IValue {
    const Result& result = found.results[next++];
    bool tensor = result.arg >= 0 || result.slot >= 0;
    return tensor ? IValue(make_result(result, walk, owners, slots.storages)) : result.constant;
  };
  for (int length : found.lists) {
    if (length < 0) {
      returns.push_back(take());
      continue;
    }
    c10::List<at::Tensor> list;
    for (int i = 0; i < length; i++) list.push_back(take().toTensor());
    returns.emplace_back(std::move(list));
  }
  torch::jit::drop(stack, walk.plan.args.size());
  for (IValue& value : returns) stack->push_back(std::move(value));
}

// -- Making one --

// False for what cannot be made again from a storage.
bool add_result(const IValue& value, const Walk& walk, Template& made,
                std::vector<tt_storage*>& storages) {
  Result result;
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor& tensor = value.toTensor();
    if (!plain(tensor) || !tensor.device().is_privateuseone()) return false;
    for (size_t i = 0; i < walk.tensors.size(); i++)
      if (walk.tensors[i]->is_same(tensor)) result.arg = static_cast<int>(i);
    if (result.arg < 0) {
      result.slot = static_cast<int>(storages.size());
      storages.push_back(storage_of(tensor));
    }
    result.dtype = tensor.scalar_type();
    result.sizes = tensor.sizes().vec();
    result.strides = tensor.strides().vec();
    result.offset = tensor.storage_offset();
  } else {
    result.constant = value;
  }
  made.results.push_back(std::move(result));
  return true;
}

// Describes the results on top of the stack; result.slot numbers `storages`.
bool describe(const torch::jit::Stack& stack, const Walk& walk, Template& made,
              std::vector<tt_storage*>& storages) {
  for (const IValue& value : torch::jit::last(stack, walk.plan.returns.size())) {
    made.lists.push_back(value.isTensorList() ? static_cast<int>(value.toListRef().size()) : -1);
    if (!value.isTensorList()) {
      if (!plain(value) || value.isList() || !add_result(value, walk, made, storages)) return false;
      continue;
    }
    for (const IValue& element : value.toListRef())
      if (!add_result(element, walk, made, storages)) return false;
  }
  return true;
}

// Notes are ended whatever happens in between.
struct Notes {
  bool taking;
  explicit Notes(const Walk& walk) {
    tt_status status = tt_template_begin(open_session()->calls, walk.storages.data(),
                                         static_cast<int>(walk.storages.size()));
    taking = status == TT_SUCCESS;
    tt_status_release(status);
  }
  tt_template* end(const std::vector<tt_storage*>& results, std::vector<int>& slots) {
    tt_template* made = nullptr;
    if (!taking) return nullptr;
    taking = false;
    slots.resize(results.size());
    tt_status_release(
        tt_template_end(results.data(), static_cast<int>(results.size()), slots.data(), &made));
    return made;
  }
  ~Notes() {
    std::vector<int> slots;
    tt_template_destroy(end({}, slots));
  }
};

std::shared_ptr<const Template> make(const torch::jit::Stack& stack, const Walk& walk,
                                     Notes& notes) {
  auto made = std::make_shared<Template>();
  std::vector<tt_storage*> storages;
  std::vector<int> slots;
  bool possible = describe(stack, walk, *made, storages);
  made->calls = notes.end(storages, slots);
  if (!possible || !made->calls) return nullptr;
  for (Result& result : made->results)
    if (result.slot >= 0) result.slot = slots[static_cast<size_t>(result.slot)];
  return made;
}

std::vector<std::vector<int64_t>> sizes_of(const Walk& walk) {
  std::vector<std::vector<int64_t>> all;
  for (const at::Tensor* tensor : walk.tensors) all.push_back(tensor->sizes().vec());
  return all;
}

bool usable(const std::shared_ptr<const Template>& one) {
  return !one || tt_template_usable(one->calls, open_session()->calls);
}

// False for a key that is new. A template whose calls were forgotten is new, too.
bool find(const std::string& key, std::shared_ptr<const Template>& found) {
  std::lock_guard<std::mutex> guard(templates().lock);
  auto place = templates().by_key.find(key);
  if (place == templates().by_key.end() || !usable(place->second)) return false;
  found = place->second;
  return true;
}

// Where there are too many, what cannot be used any more goes, or else everything.
void keep(std::string key, std::shared_ptr<const Template> made) {
  std::lock_guard<std::mutex> guard(templates().lock);
  auto& all = templates().by_key;
  if (all.size() >= kMostTemplates)
    for (auto place = all.begin(); place != all.end();)
      place = usable(place->second) && place->second ? std::next(place) : all.erase(place);
  if (all.size() >= kMostTemplates) all.clear();
  all[std::move(key)] = std::move(made);
}

}  // namespace

bool run_template(const Plan& plan, torch::jit::Stack* stack,
                  const std::function<bool()>& decompose) {
  Guarded guarded;
  // The arguments outlive their place on the stack.
  std::vector<IValue> args(stack->end() - static_cast<std::ptrdiff_t>(plan.args.size()),
                           stack->end());
  if (!std::all_of(args.begin(), args.end(), [](const IValue& one) { return plain(one); }))
    return decompose();
  Walk walk(plan, args);
  std::string key = key_of(walk);
  std::shared_ptr<const Template> found;
  if (find(key, found)) {
    if (!found) return decompose();
    return use(*found, walk, stack), true;
  }
  Notes notes(walk);
  auto sizes = sizes_of(walk);
  if (!decompose()) return false;
  if (!notes.taking) return true;         /* part of a decomposition that is being noted */
  bool resized = sizes_of(walk) != sizes; /* which is nothing that a template would do again */
  keep(std::move(key), resized ? nullptr : make(*stack, walk, notes));
  return true;
}

}  // namespace tt
