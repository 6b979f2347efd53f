// PyTorch's kernels for the CPU, for programs that order them (core/kernels).
#include "device/library.h"
#include "device/standins.h"

#include "dispatch/convert.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/Functions.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

extern "C" {
#include "kernels/kernels.h"
}

namespace tt {
namespace {

using c10::IValue;

// How an order is carried out.
struct Way {
  c10::OperatorHandle op;
  const StandIn* stand_in;  // nullptr: by the operator's own kernel
  Check check;              // before that; or nullptr
};

std::unique_ptr<const Way> look_for(const std::string& name) {
  auto dot = name.find('.');
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  auto op = c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload});
  const StandIn* stand_in = stand_in_of(name.c_str());
  if (!op) return nullptr;
  bool own = op->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU) &&
             op->schema().name().find("overrideable") == std::string::npos;
  if (!own && !stand_in) return nullptr;
  return std::make_unique<const Way>(Way{*op, stand_in, check_of(name.c_str())});
}

// Lives as long as the process, in which programs may run until it exits.
const Way* way_of(const char* name) {
  static auto& lock = *new std::mutex;
  static auto& ways = *new std::unordered_map<std::string, std::unique_ptr<const Way>>;
  std::lock_guard guard(lock);
  auto [at, fresh] = ways.try_emplace(name);
  if (fresh) at->second = look_for(at->first);
  return at->second.get();
}

const void* find(const char* name) { return way_of(name); }

// One order under way: its records as PyTorch's values, and its results where they belong.
class Kernel {
 public:
  Kernel(const tt_order& order, void* const* memory, tt_kernel_result* results,
         const uint32_t* words)
      : order_(order), results_(results), words_(words),
        way_(order.kernel ? static_cast<const Way*>(order.kernel) : way_of(order.name)) {
    for (int i = 0; i < order.tensor_count; i++) {
      const tt_order_tensor& one = order.tensors[i];
      at::Tensor x = seen(memory[i], one.view);
      tensors_.push_back(one.view.length_count && !is_target(i) ? dense(x) : x);
    }
  }

  void run() {
    TORCH_CHECK(way_, order_.name, " is no operator that this PyTorch has a kernel of");
    const c10::FunctionSchema& schema = way_->op.schema();
    const StandIn* stand_in = way_->stand_in;
    torch::jit::Stack stack;
    for (size_t i = 0; i < schema.arguments().size(); i++)
      stack.push_back(argument(schema.arguments()[i], i));
    if (way_->check) way_->check(stack);
    if (stand_in) stand_in->compute(stack, stand_in->draws ? draws() : Draws{});
    else way_->op.callBoxed(stack);
    keep(schema, stack);
  }

 private:
  // What has room for more elements lies apart. Where PyTorch has it, it does not, as kernels for
  // gradients take for granted of what the forward pass saved.
  static at::Tensor dense(const at::Tensor& x) {
    return x.is_non_overlapping_and_dense() ? x : x.clone();
  }

  bool is_target(int tensor) const {
    for (int i = 0; i < order_.result_count; i++)
      if (order_.results[i].target == tensor) return true;
    return false;
  }

  using Sizes = c10::SmallVector<int64_t, 8>;

  Sizes sizes_of(const tt_order_view& view) const {
    Sizes sizes(view.sizes, view.sizes + view.rank);
    for (int i = 0; i < view.length_count; i++) {
      const tt_order_length& one = view.lengths[i];
      sizes[static_cast<size_t>(one.dim)] =
          word_at<int64_t>(static_cast<int>(one.word)) * one.inner;
    }
    return sizes;
  }

  at::Tensor seen(void* storage, const tt_order_view& view) const {
    if (!storage) return at::zeros(sizes_of(view), from_dtype(view.dtype));
    int64_t offset = view.offset_word >= 0 ? word_at<int64_t>(view.offset_word) : view.offset;
    auto* first = static_cast<char*>(storage) + offset * tt_dtype_bytes(view.dtype);
    return at::from_blob(first, sizes_of(view), {view.strides, static_cast<size_t>(view.rank)},
                         at::TensorOptions().dtype(from_dtype(view.dtype)));
  }

  template <class T> T word_at(int at) const {
    T value;
    std::memcpy(&value, words_ + at, sizeof value);
    return value;
  }

  c10::Scalar number(int at) const {
    const tt_order_number& one = order_.numbers[at];
    auto word = static_cast<int>(one.word);
    switch (one.dtype) {
    case TT_F64:
      return word_at<double>(word);
    case TT_F32:
      return static_cast<double>(word_at<float>(word));
    case TT_BOOL:
      return word_at<uint32_t>(word) != 0;
    default:
      return word_at<int64_t>(word);
    }
  }

  c10::Scalar number(const tt_arg& arg) const {
    if (arg.kind == TT_ARG_SCALAR) return number(arg.first);
    if (arg.kind == TT_ARG_COMPLEX) return c10::complex<double>(arg.floats[0], arg.floats[1]);
    if (arg.kind == TT_ARG_FLOAT) return arg.f;
    TORCH_CHECK(arg.kind == TT_ARG_INT, order_.name, ": an argument is no number");
    if (arg.dtype == TT_BOOL) return arg.i != 0;
    return arg.i;
  }

  // A number in a tensor of the host, as those are that Python's operators are given.
  at::Tensor tensor(const tt_arg& arg) const {
    if (arg.kind == TT_ARG_TENSOR) return tensors_.at(static_cast<size_t>(arg.first));
    at::Tensor one = at::scalar_tensor(number(arg), from_dtype(arg.dtype));
    one.unsafeGetTensorImpl()->set_wrapped_number(true);
    return one;
  }

  template <class T> IValue tensor_list(const tt_arg& arg) const {
    c10::List<T> list;
    for (int i = 0, next = arg.first; i < arg.count; i++)
      list.push_back(arg.present[i] ? T(tensors_.at(static_cast<size_t>(next++))) : T());
    return list;
  }

  template <class T> IValue number_list(const tt_arg& arg) const {
    c10::List<T> list;
    for (int i = 0; i < arg.count; i++) {
      c10::Scalar one = arg.kind == TT_ARG_INTS     ? c10::Scalar(arg.ints[i])
                        : arg.kind == TT_ARG_FLOATS ? c10::Scalar(arg.floats[i])
                                                    : number(arg.first + (arg.equal ? 0 : i));
      if constexpr (std::is_same_v<T, c10::Scalar>) list.push_back(one);
      else list.push_back(one.to<T>());
    }
    return list;
  }

  IValue list(const tt_arg& arg, const c10::TypePtr& element) const {
    bool optional = element->kind() == c10::TypeKind::OptionalType;
    switch (without_optional(element)->kind()) {
    case c10::TypeKind::TensorType:
      return optional ? tensor_list<std::optional<at::Tensor>>(arg) : tensor_list<at::Tensor>(arg);
    case c10::TypeKind::NumberType:
      return number_list<c10::Scalar>(arg);
    case c10::TypeKind::FloatType:
      return number_list<double>(arg);
    case c10::TypeKind::BoolType:
      return number_list<bool>(arg);
    default:
      return number_list<int64_t>(arg);
    }
  }

  IValue argument(const c10::Argument& argument, size_t at) {
    c10::TypePtr type = without_optional(argument.real_type());
    if (argument.is_out()) return out(type);
    TORCH_CHECK(at < static_cast<size_t>(order_.arg_count), order_.name,
                ": an argument is missing");
    const tt_arg& arg = order_.args[at];
    auto kind = type->kind();
    if (arg.kind == TT_ARG_NONE) return {};
    if (kind == c10::TypeKind::ListType)
      return list(arg, type->castRaw<c10::ListType>()->getElementType());
    if (kind == c10::TypeKind::TensorType) return tensor(arg);
    if (kind == c10::TypeKind::StringType) return std::string(arg.text);
    if (kind == c10::TypeKind::ScalarTypeType) return static_cast<int64_t>(from_dtype(arg.dtype));
    c10::Scalar one = number(arg);
    if (kind == c10::TypeKind::NumberType) return one;
    if (kind == c10::TypeKind::FloatType) return one.toDouble();
    return kind == c10::TypeKind::BoolType ? IValue(one.to<bool>()) : IValue(one.to<int64_t>());
  }

  // The last two numbers of a row that draws.
  Draws draws() const {
    auto place = [&](int back) {
      return static_cast<uint64_t>(
          word_at<int64_t>(static_cast<int>(order_.numbers[order_.number_count - back].word)));
    };
    TORCH_CHECK(order_.number_count >= 2, order_.name, ": its draws have no place");
    return {place(2), place(1)};
  }

  // The next target of those that stand behind the new results.
  IValue out(const c10::TypePtr& type) {
    TORCH_CHECK(type->kind() == c10::TypeKind::TensorType, order_.name, ": a list of results");
    while (next_ < order_.result_count && order_.results[next_].target < 0) next_++;
    TORCH_CHECK(next_ < order_.result_count, order_.name, ": a result has no place");
    return tensors_.at(static_cast<size_t>(order_.results[next_++].target));
  }

  // What the operator returned, and is no argument of its own.
  void keep(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) const {
    int result = 0;
    for (size_t i = 0; i < stack.size(); i++) {
      if (schema.returns()[i].alias_info()) continue;
      if (stack[i].isTensor() || stack[i].isList())
        each_tensor(stack[i], [&](const at::Tensor& one) { keep_one(result++, one); });
      else result++;
    }
  }

  void keep_one(int at, at::Tensor value) const {
    TORCH_CHECK(at < order_.result_count, order_.name, " returned more than was expected");
    const tt_order_result& result = order_.results[at];
    if (result.slot < 0) return;
    at::ScalarType type = from_dtype(result.view.dtype);
    if (value.defined() && way_->stand_in) value = value.to(type);
    TORCH_CHECK(value.defined() && value.scalar_type() == type &&
                    value.sizes() == sizes_of(result.view),
                order_.name, " returned another type than was expected");
    tt_kernel_result& to = results_[at];
    if (!to.memory && is_storage(value, result.view, to.bytes)) return own(value, to);
    if (!to.memory) own(at::empty({to.bytes}, at::kByte), to);
    seen(to.memory, result.view).copy_(value);
  }

  // Whether the tensor's memory has what a storage of so many bytes has to.
  bool is_storage(const at::Tensor& value, const tt_order_view& view, int64_t bytes) const {
    if (!value.has_storage() || view.offset || value.is_conj() || value.is_neg()) return false;
    for (const at::Tensor& one : tensors_)
      if (value.is_alias_of(one)) return false;
    auto room = static_cast<int64_t>(value.storage().nbytes()) -
                value.storage_offset() * static_cast<int64_t>(value.itemsize());
    return room >= bytes && value.storage().use_count() == 1 &&
           value.strides() == at::IntArrayRef(view.strides, static_cast<size_t>(view.rank));
  }

  static void own(const at::Tensor& value, tt_kernel_result& to) {
    to.memory = value.mutable_data_ptr();
    to.owner = new at::Tensor(value);
  }

  const tt_order& order_;
  tt_kernel_result* results_;
  const uint32_t* words_;
  const Way* way_;
  std::vector<at::Tensor> tensors_;
  int next_ = 0;  // of the results, whose targets have not been given
};

// The script's own thread runs beside them: where all cores take part, they wait for one another.
constexpr double kAlone = 8;

tt_status run(int64_t cost, tt_status (*act)(void*), void* user) {
  return run_in_library(static_cast<double>(cost) / kAlone, [&] { return act(user); });
}

void release(void* owner) { delete static_cast<at::Tensor*>(owner); }

tt_status compute(const tt_order* order, void* const* memory, tt_kernel_result* results,
                  const uint32_t* words) {
  tt_status status = attempt(TT_INTERNAL, [&] {
    compute_in_library(static_cast<double>(order->cost) / kAlone,
                       [&] { Kernel(*order, memory, results, words).run(); });
  });
  for (int i = 0; status && i < order->result_count; i++)
    if (results[i].owner) release(std::exchange(results[i].owner, nullptr));
  return status;
}

}  // namespace

void bind_kernels() {
  static const tt_kernel_library pytorch = {find, run, compute, release};
  tt_kernels_bind(&pytorch);
}

}  // namespace tt
