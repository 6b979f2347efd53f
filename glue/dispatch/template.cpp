#include "dispatch/template.h"

#include "dispatch/walk.h"

#include <memory>

namespace tt {
namespace {

using c10::IValue;

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

// Whether some have room for more (core/call/bounded.h): what an operator is decomposed to may know
// of that, and a template would not.
bool have_room(const std::vector<IValue>& args) {
  bool any = false;
  for (const IValue& arg : args)
    each_tensor(arg, [&](const at::Tensor& one) {
      any |= one.defined() && one.device().is_privateuseone() && is_held(one) &&
             storage_of(one)->bounded;
    });
  return any;
}

// -- Using a template --

// Frees what no result took, also when an error ends the run.
struct Slots {
  std::vector<tt_storage*> storages;
  size_t args;
  ~Slots() {
    for (size_t i = args; i < storages.size(); i++) tt_storage_release(storages[i]);
  }
};

void use(const tt_template* found, const Walk& walk, torch::jit::Stack* stack) {
  Slots slots{{walk.storages.begin(), walk.storages.end()}, walk.storages.size()};
  slots.storages.resize(static_cast<size_t>(tt_template_slots(found)), nullptr);
  tt_philox_place place{};
  int64_t blocks = tt_template_blocks(found);
  if (blocks && !captured_stream(walk.device))
    place = reserve_philox(std::nullopt, walk.device, blocks);
  check(tt_template_run(found, stream_of(walk.device), slots.storages.data(), place, &walk.policy,
                        call_site()));
  std::vector<c10::Storage> owners(slots.storages.size());
  for (size_t i = 0; i < walk.tensors.size(); i++) owners[i] = walk.tensors[i]->storage();
  auto make = [&](size_t k) -> at::Tensor {
    const tt_returned& one = found->returned[k];
    if (one.arg >= 0) return *walk.tensors[static_cast<size_t>(one.arg)];
    if (one.slot < 0) return {};
    auto slot = static_cast<size_t>(one.slot);
    if (!owners[slot])
      owners[slot] = own(std::exchange(slots.storages[slot], nullptr), walk.device);
    return tensor_on(owners[slot], one.view);
  };
  push_results(walk, static_cast<size_t>(found->returned_count), make, stack);
}

// -- Making one --

// What a decomposition returns, but for its arguments: lists are flattened. Slots number the
// storages.
struct Results {
  std::vector<tt_returned> returned;
  std::vector<tt_storage*> storages;

  // False for what cannot be made again from a storage.
  bool add(const at::Tensor& tensor, const Walk& walk) {
    tt_returned& one = returned.emplace_back(tt_returned{-1, -1, {}});
    if (!tensor.defined()) return true;
    if (!plain(tensor) || !tensor.device().is_privateuseone()) return false;
    for (size_t i = 0; i < walk.tensors.size(); i++)
      if (walk.tensors[i]->is_same(tensor)) one.arg = static_cast<int>(i);
    if (one.arg >= 0) return true;
    one.view = view_of(tensor);
    one.slot = static_cast<int>(storages.size());
    storages.push_back(storage_of(tensor));
    return true;
  }

  // Adds what is on top of the stack; lists must be of one length.
  bool add_all(const torch::jit::Stack& stack, const Walk& walk) {
    std::optional<size_t> length;  // of the first list
    auto values = torch::jit::last(stack, walk.plan.returns.size());
    for (size_t i = 0; i < values.size(); i++) {
      if (walk.plan.returns[i].alias >= 0) continue;
      if (!values[i].isTensor() && !values[i].isTensorList()) return false;
      bool good = true;
      size_t count = 0;
      each_tensor(values[i], [&](const at::Tensor& one) { good &= add(one, walk), count++; });
      if (values[i].isTensorList() && !length) length = count;
      if (!good || (values[i].isTensorList() && count != *length)) return false;
    }
    return true;
  }
};

// Notes are ended whatever happens in between.
struct Notes {
  bool taking;
  explicit Notes(const Walk& walk) {
    tt_status status = tt_template_begin(open_session()->calls, walk.storages.data(),
                                         static_cast<int>(walk.storages.size()));
    taking = status == TT_SUCCESS;
    tt_status_release(status);
  }
  ~Notes() { tt_template_release(end({})); }

  // nullptr where they are of no use.
  tt_template* end(Results results) {
    tt_template* made = nullptr;
    if (!std::exchange(taking, false)) return nullptr;
    std::vector<int> slots(results.storages.size());
    tt_status status = tt_template_end(results.storages.data(), static_cast<int>(slots.size()),
                                       slots.data(), &made);
    for (tt_returned& one : results.returned)
      if (made && one.slot >= 0) one.slot = slots[static_cast<size_t>(one.slot)];
    if (made)
      status = tt_template_return(made, results.returned.data(),
                                  static_cast<int>(results.returned.size()));
    if (status) tt_template_release(std::exchange(made, nullptr));
    tt_status_release(status);
    return made;
  }
};

std::vector<std::vector<int64_t>> sizes_of(const Walk& walk) {
  std::vector<std::vector<int64_t>> all;
  for (const at::Tensor* tensor : walk.tensors) all.push_back(tensor->sizes().vec());
  return all;
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
  if (have_room(args)) return decompose();
  Walk walk(plan, args);
  walk_args(walk);
  // The settings that a decomposition may ask for.
  tt_key_u64(&walk.key,
             static_cast<uint64_t>(product_precision()) << 1 | walk.policy.deterministic);
  tt_key_u64(&walk.key, static_cast<uint64_t>(walk.device));
  tt_templates* all = open_session()->templates;
  tt_template* found = nullptr;
  if (tt_templates_find(all, &walk.key, &found)) {
    std::unique_ptr<tt_template, void (*)(tt_template*)> held(found, tt_template_release);
    return found ? (use(found, walk, stack), true) : decompose();
  }
  Notes notes(walk);
  auto sizes = sizes_of(walk);
  if (!decompose()) return false;
  if (!notes.taking) return true; /* part of a decomposition that is being noted */
  Results results;
  bool resized = sizes_of(walk) != sizes; /* which is nothing that a template would do again */
  bool useful = !resized && results.add_all(*stack, walk);
  tt_templates_keep(all, &walk.key, useful ? notes.end(std::move(results)) : nullptr);
  return true;
}

}  // namespace tt
