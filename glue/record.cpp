// The hot path: arguments become a key, the key a call, the call a record on the stream.
#include "dispatch.h"
#include "plan.h"

#include <ATen/native/IndexingUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>

#include <deque>
#include <mutex>
#include <unordered_set>

namespace tt {
namespace {

using c10::IValue;

struct Number {
  tt_dtype dtype;
  double f;
  int64_t i;
};

// What one walk over the arguments gathers.
struct Walk {
  const Plan& plan;
  c10::ArrayRef<IValue> args;
  tt_key key;
  c10::SmallVector<tt_storage*, 16> storages;
  c10::SmallVector<const at::Tensor*, 16> tensors;
  c10::SmallVector<int, 16> same_as;
  c10::SmallVector<Number, 8> numbers;
  std::optional<at::Generator> generator;
  c10::DeviceIndex device = -1;
  bool wide = false;  // numbers are needed in double precision

  Walk(const Plan& p, c10::ArrayRef<IValue> a) : plan(p), args(a) { tt_key_init(&key); }
  ~Walk() { tt_key_deinit(&key); }
  Walk(const Walk&) = delete;
  Walk& operator=(const Walk&) = delete;
};

enum Tag : uint64_t { kNone = 1, kTensor, kList, kNumber, kStatic, kComplex, kInt, kDtype, kText };

void tag(Walk& walk, Tag value, uint64_t payload = 0) { tt_key_u64(&walk.key, value | payload << 8); }

uint64_t bits(double value) {
  uint64_t raw;
  memcpy(&raw, &value, sizeof raw);
  return raw;
}

// 0 and 1 shape programs; so does what the row declares; other numbers are run-time operands. The
// numbers of a list are all of one sort.
bool static_number(const Plan& plan, const ArgPlan& arg, const c10::Scalar& value) {
  if (arg.is_static || value.isComplex() || value.isBoolean()) return true;
  if (plan.row->cls == TT_RANDOM || arg.kind == ArgKind::NumberList) return false;
  if (value.isIntegral(false)) return value.toLong() == 0 || value.toLong() == 1;
  return bits(value.toDouble()) == bits(0.0) || value.toDouble() == 1.0;
}

void add_number(Walk& walk, const ArgPlan& arg, const c10::Scalar& value, tt_dtype dtype) {
  if (value.isComplex()) {
    auto z = value.toComplexDouble();
    tag(walk, kComplex, static_cast<uint64_t>(dtype));
    tt_key_u64(&walk.key, bits(z.real()));
    tt_key_u64(&walk.key, bits(z.imag()));
  } else if (static_number(walk.plan, arg, value)) {
    tag(walk, kStatic, static_cast<uint64_t>(dtype));
    tt_key_u64(&walk.key, value.isFloatingPoint() ? bits(value.toDouble()) : static_cast<uint64_t>(value.toLong()));
  } else {
    tag(walk, kNumber, static_cast<uint64_t>(dtype));
    bool floating = value.isFloatingPoint();
    walk.numbers.push_back({floating ? TT_F64 : TT_I64, floating ? value.toDouble() : 0, floating ? 0 : value.toLong()});
  }
}

tt_dtype scalar_dtype(const c10::Scalar& value) {
  return value.isComplex() ? TT_C128 : value.isFloatingPoint() ? TT_F64 : value.isBoolean() ? TT_BOOL : TT_I64;
}

// A host tensor of no dims stands for its number; `dtype` and wrapping matter to promotion.
void add_host_scalar(Walk& walk, const ArgPlan& arg, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.device().is_cpu() && tensor.dim() == 0 && !arg.write,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              static_cast<int>(walk.device < 0 ? 0 : walk.device), " and ", tensor.device(), "! (when checking argument in ",
              walk.plan.name, "; move the tensor with .to('tpu'))");
  tag(walk, kNumber, tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 1 : 0);
  if (tensor.scalar_type() == at::kDouble && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) walk.wide = true;
  add_number(walk, arg, tensor.item(), require_dtype(tensor.scalar_type()));
}

void add_tensor(Walk& walk, const ArgPlan& arg, const at::Tensor& tensor) {
  if (!tensor.defined()) return tag(walk, kNone);
  if (!tensor.device().is_privateuseone()) return add_host_scalar(walk, arg, tensor);
  if (walk.device < 0) walk.device = tensor.device().index();
  TORCH_CHECK(tensor.device().index() == walk.device, "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              static_cast<int>(walk.device), " and ", tensor.device(), "!");
  tt_storage* storage = storage_of(tensor);
  int same_as = -1;
  bool canonical = is_canonical(tensor, storage);
  if (walk.storages.size() < 8 || (arg.write && !canonical))
    for (size_t i = 0; i < walk.storages.size() && same_as < 0; i++)
      if (walk.storages[i] == storage) same_as = static_cast<int>(i);
  auto dtype = tensor.scalar_type();
  walk.wide |= dtype == at::kDouble || dtype == at::kComplexDouble;
  TORCH_CHECK(tensor.dim() <= TT_MAX_RANK, walk.plan.name, ": device 'tpu' supports tensors of at most ", TT_MAX_RANK,
              " dims, not ", tensor.dim());
  tag(walk, kTensor);
  tt_key_tensor(&walk.key, storage, same_as, canonical, require_dtype(dtype), static_cast<int>(tensor.dim()),
                tensor.storage_offset(), tensor.sizes().data(), tensor.strides().data());
  walk.storages.push_back(storage);
  walk.tensors.push_back(&tensor);
  walk.same_as.push_back(same_as);
}

const at::Tensor& as_tensor(const IValue& value) {
  static const at::Tensor undefined;
  return value.isNone() ? undefined : value.toTensor();
}

void add_arg(Walk& walk, const ArgPlan& arg, const IValue& value) {
  if (arg.kind == ArgKind::Tensor) return add_tensor(walk, arg, as_tensor(value));
  if (arg.kind == ArgKind::Ignored) return;
  if (value.isNone()) return tag(walk, kNone);
  switch (arg.kind) {
    case ArgKind::TensorList:
      tag(walk, kList, value.toListRef().size());
      for (const IValue& element : value.toListRef()) add_tensor(walk, arg, as_tensor(element));
      break;
    case ArgKind::Number:
      add_number(walk, arg, value.toScalar(), scalar_dtype(value.toScalar()));
      break;
    case ArgKind::NumberList:
      tag(walk, kList, value.toListRef().size());
      for (const IValue& element : value.toListRef()) add_number(walk, arg, element.toScalar(), scalar_dtype(element.toScalar()));
      break;
    case ArgKind::Int:
      tag(walk, kInt);
      tt_key_u64(&walk.key, value.isBool() ? value.toBool() : static_cast<uint64_t>(value.toInt()));
      break;
    case ArgKind::IntList:
      tag(walk, kList, value.toListRef().size());
      for (const IValue& element : value.toListRef())
        tt_key_u64(&walk.key, element.isBool() ? element.toBool() : static_cast<uint64_t>(element.toInt()));
      break;
    case ArgKind::Dtype:
      walk.wide |= value.toScalarType() == at::kDouble;
      tag(walk, kDtype, static_cast<uint64_t>(value.toScalarType()));
      break;
    case ArgKind::String:
      tag(walk, kText, value.toStringRef().size());
      tt_key_add(&walk.key, value.toStringRef().data(), value.toStringRef().size());
      break;
    case ArgKind::Generator:
      walk.generator = value.toGenerator();
      break;
    default: break;
  }
}

void walk_args(Walk& walk) {
  bool checks = tt_runtime_mode() == TT_MODE_DEBUG;
  tt_key_u64(&walk.key, reinterpret_cast<uintptr_t>(&walk.plan) | (checks ? 1 : 0));
  for (size_t i = 0; i < walk.plan.args.size(); i++) add_arg(walk, walk.plan.args[i], walk.args[i]);
  if (walk.device < 0) {
    for (const IValue& value : walk.args)
      if (value.isDevice() && value.toDevice().has_index()) walk.device = value.toDevice().index();
    if (walk.device < 0) walk.device = current_device();
  }
  walk.wide |= walk.tensors.empty() || at::get_default_dtype_as_scalartype() == at::kDouble;
  if (!walk.numbers.empty()) tag(walk, kNumber, walk.wide);
  if (!walk.wide)
    for (Number& number : walk.numbers)
      if (number.dtype == TT_F64) number.dtype = TT_F32;
}

// -- A new key --

// The walk again, into the core's argument records. Owns what they point to.
struct Spec {
  std::vector<tt_arg> args;
  std::vector<tt_call_tensor> tensors;
  std::vector<tt_dtype> numbers;
  std::vector<tt_call_result> results;
  std::deque<std::vector<int64_t>> ints;
  std::deque<std::vector<double>> floats;
  std::deque<std::unique_ptr<bool[]>> present;
  at::native::ResultTypeState promotion;
  size_t next_tensor = 0, next_number = 0;
};

void spec_scalar(Spec& spec, const Walk& walk, const ArgPlan& arg, const c10::Scalar& value, tt_dtype dtype, tt_arg* out) {
  out->dtype = dtype;
  if (value.isComplex()) {
    auto z = value.toComplexDouble();
    spec.floats.push_back({z.real(), z.imag()});
    out->kind = TT_ARG_COMPLEX;
    out->floats = spec.floats.back().data();
  } else if (static_number(walk.plan, arg, value)) {
    out->kind = value.isFloatingPoint() ? TT_ARG_FLOAT : TT_ARG_INT;
    out->f = value.toDouble();
    out->i = value.isFloatingPoint() ? 0 : value.toLong();
  } else {
    out->kind = TT_ARG_NUMBER;
    out->first = static_cast<int>(spec.next_number++);
  }
}

void spec_tensor(Spec& spec, const Walk& walk, const ArgPlan& arg, const at::Tensor& tensor, tt_arg* out) {
  out->kind = TT_ARG_NONE;
  if (!tensor.defined()) return;
  if (!arg.out) spec.promotion = at::native::update_result_type_state(tensor, spec.promotion);
  if (!tensor.device().is_privateuseone())
    return spec_scalar(spec, walk, arg, tensor.item(), require_dtype(tensor.scalar_type()), out);
  out->kind = TT_ARG_TENSOR;
  out->first = static_cast<int>(spec.next_tensor++);
}

void spec_list(Spec& spec, const Walk& walk, const ArgPlan& arg, c10::ArrayRef<IValue> list, tt_arg* out) {
  spec.present.push_back(std::make_unique<bool[]>(list.size() + 1));
  out->kind = TT_ARG_TENSORS;
  out->first = static_cast<int>(spec.next_tensor);
  out->count = static_cast<int>(list.size());
  out->present = spec.present.back().get();
  for (size_t i = 0; i < list.size(); i++) {
    tt_arg element{};
    spec_tensor(spec, walk, arg, as_tensor(list[i]), &element);
    TORCH_CHECK(element.kind == TT_ARG_TENSOR || element.kind == TT_ARG_NONE, walk.plan.name,
                ": host tensors in a list of tpu tensors are not supported; move them with .to('tpu')");
    spec.present.back()[i] = element.kind == TT_ARG_TENSOR;
  }
}

void spec_numbers(Spec& spec, const Walk& walk, const ArgPlan& arg, c10::ArrayRef<IValue> list, tt_arg* out) {
  bool all_static = arg.is_static;
  for (const IValue& value : list) {
    TORCH_CHECK_NOT_IMPLEMENTED(!value.isComplexDouble(), walk.plan.name, ": complex numbers in lists are not supported on device 'tpu'");
    spec.promotion = at::native::update_result_type_state(value.toScalar(), spec.promotion);
  }
  out->count = static_cast<int>(list.size());
  out->dtype = TT_F64;
  if (!all_static) {
    out->kind = TT_ARG_NUMBERS;
    out->first = static_cast<int>(spec.next_number);
    spec.next_number += list.size();
    return;
  }
  out->kind = TT_ARG_FLOATS;
  std::vector<double> values;
  for (const IValue& value : list) values.push_back(value.toScalar().toDouble());
  spec.floats.push_back(std::move(values));
  out->floats = spec.floats.back().data();
}

void spec_arg(Spec& spec, const Walk& walk, const ArgPlan& arg, const IValue& value, tt_arg* out) {
  if (arg.kind == ArgKind::Tensor) return spec_tensor(spec, walk, arg, as_tensor(value), out);
  if (value.isNone() || arg.kind == ArgKind::Ignored || arg.kind == ArgKind::Generator) return;
  switch (arg.kind) {
    case ArgKind::TensorList: return spec_list(spec, walk, arg, value.toListRef(), out);
    case ArgKind::Number:
      spec.promotion = at::native::update_result_type_state(value.toScalar(), spec.promotion);
      return spec_scalar(spec, walk, arg, value.toScalar(), scalar_dtype(value.toScalar()), out);
    case ArgKind::NumberList: return spec_numbers(spec, walk, arg, value.toListRef(), out);
    case ArgKind::Int:
      out->kind = TT_ARG_INT;
      out->i = value.isBool() ? value.toBool() : value.toInt();
      out->dtype = value.isBool() ? TT_BOOL : TT_I64;
      return;
    case ArgKind::IntList: {
      std::vector<int64_t> values;
      for (const IValue& element : value.toListRef()) values.push_back(element.isBool() ? element.toBool() : element.toInt());
      spec.ints.push_back(std::move(values));
      out->kind = TT_ARG_INTS;
      out->ints = spec.ints.back().data();
      out->count = static_cast<int>(spec.ints.back().size());
      return;
    }
    case ArgKind::Dtype:
      out->kind = TT_ARG_INT;
      out->dtype = require_dtype(value.toScalarType());
      return;
    case ArgKind::String:
      out->kind = TT_ARG_STRING;
      out->text = value.toStringRef().c_str();
      return;
    default: return;
  }
}

tt_call_result fresh_result(const at::Tensor& meta) {
  tt_call_result result{};
  result.target = -1;
  if (!meta.defined()) return result; /* dtype TT_INVALID: undefined */
  result.view = view_of(meta);
  return result;
}

void spec_targets(Spec& spec, const Walk& walk) {
  int tensor = 0;
  for (size_t i = 0; i < walk.plan.args.size(); i++) {
    const ArgPlan& arg = walk.plan.args[i];
    if (arg.kind != ArgKind::Tensor && arg.kind != ArgKind::TensorList) continue;
    auto visit = [&](const at::Tensor& one) {
      if (!one.defined() || !one.device().is_privateuseone()) return;
      if (arg.write) {
        tt_call_result result{};
        result.target = tensor;
        result.view = spec.tensors[static_cast<size_t>(tensor)].view;
        spec.results.push_back(result);
      }
      tensor++;
    };
    if (arg.kind == ArgKind::Tensor) visit(as_tensor(walk.args[i]));
    else if (!walk.args[i].isNone())
      for (const IValue& element : walk.args[i].toListRef()) visit(as_tensor(element));
  }
}

enum class Found {
  Call,
  Restart,   // an out= tensor was resized: the key is stale
  Elsewhere  // no lowering for these arguments
};

Found make_spec(Walk& walk, const c10::OperatorHandle& op, Spec& spec, tt_call_spec* out) {
  std::vector<at::Tensor> fresh, outs;
  Meta meta = run_meta(walk.plan, op, walk.args, &fresh, &outs);
  if (meta == Meta::Refused) return Found::Elsewhere;
  bool resized = false;
  for (size_t i = 0, k = 0; i < walk.plan.args.size(); i++) {
    if (!walk.plan.args[i].out || walk.plan.args[i].kind != ArgKind::Tensor) continue;
    const at::Tensor& target = walk.args[i].toTensor();
    if (k < outs.size() && target.sizes() != outs[k].sizes()) resized |= at::native::resize_output(target, outs[k].sizes());
    k++;
  }
  if (resized) return Found::Restart;
  for (size_t i = 0; i < walk.tensors.size(); i++)
    spec.tensors.push_back({walk.storages[i]->type, view_of(*walk.tensors[i]), walk.storages[i]->value == nullptr, walk.same_as[i]});
  for (size_t i = 0; i < walk.plan.args.size(); i++) {
    tt_arg arg{};
    spec_arg(spec, walk, walk.plan.args[i], walk.args[i], &arg);
    if (!walk.plan.args[i].out) spec.args.push_back(arg);
  }
  for (const Number& number : walk.numbers) spec.numbers.push_back(number.dtype);
  if (walk.plan.row->cls == TT_RANDOM) spec.numbers.insert(spec.numbers.end(), 2, TT_I64);
  for (const at::Tensor& meta : fresh) spec.results.push_back(fresh_result(meta));
  spec_targets(spec, walk);
  bool types_known = meta == Meta::Done || !spec.results.empty();
  if (!types_known) spec.results.resize(walk.plan.returns.size(), fresh_result(at::Tensor()));
  auto common = at::native::result_type(spec.promotion);
  *out = {};
  out->row = walk.plan.row;
  out->name = walk.plan.name.c_str();
  out->args = spec.args.data();
  out->arg_count = static_cast<int>(spec.args.size());
  out->tensors = spec.tensors.data();
  out->tensor_count = static_cast<int>(spec.tensors.size());
  out->numbers = spec.numbers.data();
  out->number_count = static_cast<int>(spec.numbers.size());
  out->common = common == at::ScalarType::Undefined ? TT_F32 : require_dtype(common);
  out->results = spec.results.data();
  out->result_count = static_cast<int>(spec.results.size());
  out->promised = types_known;
  out->checks = tt_runtime_mode() == TT_MODE_DEBUG;
  return Found::Call;
}

// Keys that no lowering could express; bounded, since each needs a distinct program shape.
struct Unsupported {
  std::mutex lock;
  std::unordered_set<std::string> keys;
};
Unsupported& unsupported() {
  static auto* set = new Unsupported;
  return *set;
}

std::string key_text(const Walk& walk) { return {reinterpret_cast<const char*>(walk.key.data), walk.key.size}; }

Found new_call(Walk& walk, const c10::OperatorHandle& op, tt_call** call) {
  {
    std::lock_guard<std::mutex> guard(unsupported().lock);
    if (unsupported().keys.count(key_text(walk))) return Found::Elsewhere;
  }
  Spec spec;
  tt_call_spec core;
  if (Found found = make_spec(walk, op, spec, &core); found != Found::Call) return found;
  tt_status status = tt_call_create(&walk.key, &core, call);
  if (tt_status_code(status) != TT_UNIMPLEMENTED) {
    check(status);
    return Found::Call;
  }
  tt_log(TT_LOG_HOST, "%s", tt_status_message(status));
  tt_status_release(status);
  std::lock_guard<std::mutex> guard(unsupported().lock);
  if (unsupported().keys.size() < 65536) unsupported().keys.insert(key_text(walk));
  return Found::Elsewhere;
}

// -- Recording --

using Words = c10::SmallVector<uint32_t, 16>;

void push_words(Words& words, tt_dtype dtype, double f, int64_t i) {
  uint64_t raw = dtype == TT_I64 ? static_cast<uint64_t>(i) : bits(f);
  if (dtype == TT_F32) {
    float narrow = static_cast<float>(f);
    uint32_t word;
    memcpy(&word, &narrow, sizeof word);
    words.push_back(word);
    return;
  }
  words.push_back(static_cast<uint32_t>(raw));
  words.push_back(static_cast<uint32_t>(raw >> 32));
}

int64_t random_elements(const Walk& walk, const tt_call* call) {
  const tt_call_result& result = call->results[0];
  if (result.target >= 0) return walk.tensors[static_cast<size_t>(result.target)]->numel();
  int64_t count = 1;
  for (int i = 0; i < result.view.rank; i++) count *= result.view.sizes[i];
  return count;
}

Words pack_words(const Walk& walk, const tt_call* call) {
  Words words;
  for (const Number& number : walk.numbers) push_words(words, number.dtype, number.f, number.i);
  if (call->row->cls == TT_RANDOM) {
    int64_t blocks = tt_philox_blocks(call->row, random_elements(walk, call));
    PhiloxSlice slice = reserve_philox(walk.generator, walk.device, blocks);
    push_words(words, TT_I64, 0, static_cast<int64_t>(slice.seed));
    push_words(words, TT_I64, 0, static_cast<int64_t>(slice.offset));
  }
  return words;
}

at::Tensor wrap_result(const tt_call_result& result, tt_storage* storage, c10::DeviceIndex device) {
  if (!storage) return {};
  auto size = static_cast<size_t>(result.view.rank);
  return make_tensor(storage, tt_storage_bytes(storage), device, from_dtype(result.view.dtype),
                     {result.view.sizes, size}, {result.view.strides, size});
}

void push_results(const Walk& walk, const tt_call* call, tt_storage** storages, torch::jit::Stack* stack) {
  const Plan& plan = walk.plan;
  size_t fresh_total = 0, single = 0, lists = 0, at = 0;
  for (int k = 0; k < call->result_count; k++) fresh_total += call->results[k].target < 0;
  for (const ReturnPlan& ret : plan.returns)
    if (ret.alias < 0) (ret.list ? lists : single)++;
  size_t per_list = lists ? (fresh_total - single) / lists : 0;
  c10::SmallVector<IValue, 4> returns;
  for (const ReturnPlan& ret : plan.returns) {
    if (ret.alias >= 0) {
      returns.push_back(walk.args[static_cast<size_t>(ret.alias)]);
    } else if (ret.list) {
      c10::List<at::Tensor> list;
      for (size_t i = 0; i < per_list; i++, at++) list.push_back(wrap_result(call->results[at], storages[at], walk.device));
      returns.push_back(std::move(list));
    } else if (ret.number) {
      returns.push_back(int64_t{0});
      at++;
    } else if (at < static_cast<size_t>(call->result_count)) {
      returns.push_back(wrap_result(call->results[at], storages[at], walk.device));
      at++;
    } else {
      returns.push_back(at::Tensor());
    }
  }
  torch::jit::drop(stack, plan.args.size());
  for (IValue& value : returns) stack->push_back(std::move(value));
}

// Index lists may hold masks and host tensors; the rows take integer tensors of the device.
void expand_indices(const Plan& plan, torch::jit::Stack* stack) {
  size_t first = stack->size() - plan.args.size();
  const at::Tensor& self = (*stack)[first].toTensor();
  IValue& list = (*stack)[first + static_cast<size_t>(plan.indices)];
  bool plain = true;
  for (const IValue& element : list.toListRef()) {
    const at::Tensor& index = as_tensor(element);
    if (!index.defined()) continue;
    auto type = index.scalar_type();
    plain &= index.device().is_privateuseone() && type != at::kBool && type != at::kByte;
  }
  if (plain) return;
  c10::List<std::optional<at::Tensor>> moved;
  for (const IValue& element : list.toListRef()) {
    const at::Tensor& index = as_tensor(element);
    moved.push_back(index.defined() ? std::optional<at::Tensor>(index.to(self.device())) : std::nullopt);
  }
  c10::List<std::optional<at::Tensor>> expanded;
  for (at::Tensor& index : at::native::expandTensors(self, moved))
    expanded.push_back(index.defined() ? std::optional<at::Tensor>(index) : std::nullopt);
  list = IValue(expanded);
}

}  // namespace

void run_plan(const Plan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (plan.indices >= 0) expand_indices(plan, stack);
  for (int attempt = 0; attempt < 3; attempt++) {
    Walk walk(plan, torch::jit::last(*stack, plan.args.size()));
    walk_args(walk);
    tt_call* call = tt_call_find(&walk.key);
    Found found = call ? Found::Call : new_call(walk, op, &call);
    if (found == Found::Restart) continue;
    if (found == Found::Elsewhere) return run_elsewhere(op, stack);
    Words words = pack_words(walk, call);
    c10::SmallVector<tt_storage*, 8> results(static_cast<size_t>(call->result_count), nullptr);
    check(tt_stream_record(stream_of(walk.device), call, walk.storages.data(), words.data(), call_site(), results.data()));
    tt_count_add(TT_COUNT_OPS_ROW, 1);
    return push_results(walk, call, results.data(), stack);
  }
  TORCH_CHECK(false, plan.name, ": an out= tensor changes its size while it is resized");
}

}  // namespace tt
