#include "dispatch/conj_neg.h"
#include "dispatch/lengths.h"

namespace tt {

using c10::IValue;

const at::Tensor& as_tensor(const IValue& value) {
  static const at::Tensor undefined;
  return value.isNone() ? undefined : value.toTensor();
}

namespace {

uint64_t bits_of(const c10::Scalar& value) {
  if (value.isFloatingPoint()) return bits(value.toDouble());
  return value.type() == at::kUInt64 ? value.toUInt64() : static_cast<uint64_t>(value.toLong());
}

// 0 and 1 shape programs; so does what the row declares; other numbers are run-time operands. The
// numbers of a list are all of one sort.
bool static_number(const Plan& plan, const ArgPlan& arg, const c10::Scalar& value) {
  if (arg.is_static || value.isComplex() || value.isBoolean()) return true;
  if (plan.row->cls == TT_RANDOM || arg.kind == ArgKind::NumberList) return false;
  if (value.isIntegral(false)) return bits_of(value) <= 1;
  return bits(value.toDouble()) == bits(0.0) || value.toDouble() == 1.0;
}

// A list of one number repeated: it is packed once. Optimizers pass such lists, and programs for
// operands that differ only in what they are multiplied with cost a compiler more than equal ones.
bool equal_numbers(c10::ArrayRef<IValue> list) {
  auto same = [](const c10::Scalar& a, const c10::Scalar& b) {
    return a.type() == b.type() && !a.isComplex() && bits_of(a) == bits_of(b);
  };
  for (size_t i = 1; i < list.size(); i++)
    if (!same(list[i].toScalar(), list[0].toScalar())) return false;
  return list.size() > 1;
}

int64_t int_of(const IValue& value) { return value.isBool() ? value.toBool() : value.toInt(); }

void tag(Walk& walk, tt_tag tag, uint64_t of = 0) { tt_key_tag(&walk.key, tag, of); }

void add_number(Walk& walk, const ArgPlan& arg, const c10::Scalar& value, tt_dtype dtype) {
  if (value.isComplex()) {
    auto z = value.toComplexDouble();
    tag(walk, TT_TAG_COMPLEX, static_cast<uint64_t>(dtype));
    tt_key_u64(&walk.key, bits(z.real()));
    tt_key_u64(&walk.key, bits(z.imag()));
  } else if (static_number(walk.plan, arg, value)) {
    tag(walk, TT_TAG_STATIC, static_cast<uint64_t>(dtype));
    tt_key_u64(&walk.key, bits_of(value));
  } else {
    tag(walk, TT_TAG_NUMBER, static_cast<uint64_t>(dtype));
    walk.numbers.push_back({require_dtype(value.type()), bits_of(value)});
  }
}

// A host tensor of no dims stands for its number; `dtype` and wrapping matter to promotion.
void add_host_scalar(Walk& walk, const ArgPlan& arg, const at::Tensor& tensor) {
  bool packed = arg.kind == ArgKind::Tensor && walk.plan.args[0].kind == ArgKind::TensorList;
  if (tensor.device().is_cpu() && ((packed && tensor.dim() == 1) || (arg.copied && tensor.dim()))) {
    walk.host = true;
    return;
  }
  TORCH_CHECK(tensor.device().is_cpu() && tensor.dim() == 0 && !arg.write,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              static_cast<int>(walk.device < 0 ? 0 : walk.device), " and ", tensor.device(),
              "! (when checking argument in ", walk.plan.name,
              "; move the tensor with .to('tpu'))");
  tag(walk, TT_TAG_HOST, tensor.unsafeGetTensorImpl()->is_wrapped_number() ? 1 : 0);
  if (tensor.scalar_type() == at::kDouble && !tensor.unsafeGetTensorImpl()->is_wrapped_number())
    walk.wide = true;
  add_number(walk, arg, tensor.item(), require_dtype(tensor.scalar_type()));
}

// In a call that has lengths.
void add_operand(Walk& walk, const ArgPlan& arg, const at::Tensor& tensor, tt_storage* storage,
                 int same_as) {
  tt_operand& seen = walk.operands.emplace_back();
  tt_view view = view_of(tensor);
  bool written = storage->value != nullptr;
  tt_use use = !arg.write ? TT_USE_READ : written ? TT_USE_WRITE : TT_USE_FILL;
  if (!tt_operand_of(&walk.lengths, storage->type, storage->bounded, &storage->reach, use, &view,
                     &seen))
    walk.see = See::Exact;
  tt_key_tensor(&walk.key, seen.type, written, same_as, false, seen.view.dtype, seen.view.rank,
                seen.view.offset, seen.view.sizes, seen.view.strides);
}

// By what is being captured.
void touch(const Walk& walk, tt_storage* storage) {
  tt_stream* stream = stream_of(walk.device);
  check(tt_storage_settle(stream, storage, &walk.policy, call_site()));
  check(tt_capture_touch(stream, storage, &walk.policy));
}

// Strides of dims of one element tell nothing of this tensor, but results may take them on.
bool has_strides_of_rows(const at::Tensor& tensor) {
  auto sizes = tensor.sizes(), strides = tensor.strides();
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0; expected *= std::max<int64_t>(sizes[i], 1))
    if (strides[i] != expected) return false;
  return true;
}

void add_tensor(Walk& walk, const ArgPlan& arg, const at::Tensor& tensor) {
  if (!tensor.defined()) return tag(walk, TT_TAG_NONE);
  if (!tensor.device().is_privateuseone()) return add_host_scalar(walk, arg, tensor);
  if (!is_held(tensor)) {
    walk.fake = true;
    return;
  }
  if (walk.device < 0) walk.device = tensor.device().index();
  TORCH_CHECK(tensor.device().index() == walk.device,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              static_cast<int>(walk.device), " and ", tensor.device(), "!");
  walk.conj_neg |= has_conj_neg(tensor);
  tt_storage* storage = storage_of(tensor);
  if (is_capturing()) touch(walk, storage);
  int same_as = -1;
  bool canonical = is_canonical(tensor, storage) && has_strides_of_rows(tensor);
  if (walk.storages.size() < 8 || (arg.write && !canonical))
    for (size_t i = 0; i < walk.storages.size() && same_as < 0; i++)
      if (walk.storages[i] == storage) same_as = static_cast<int>(i);
  auto dtype = tensor.scalar_type();
  walk.wide |= dtype == at::kDouble || dtype == at::kComplexDouble;
  TORCH_CHECK(tensor.dim() <= TT_MAX_RANK, walk.plan.name,
              ": device 'tpu' supports tensors of at most ", TT_MAX_RANK, " dims, not ",
              tensor.dim());
  tag(walk, TT_TAG_TENSOR, arg.write);
  if (walk.lengths.count) {
    add_operand(walk, arg, tensor, storage, same_as);
  } else {
    tt_key_tensor(&walk.key, storage->type, storage->value != nullptr, same_as, canonical,
                  require_dtype(dtype), static_cast<int>(tensor.dim()), tensor.storage_offset(),
                  tensor.sizes().data(), tensor.strides().data());
  }
  walk.storages.push_back(storage);
  walk.tensors.push_back(&tensor);
  walk.same_as.push_back(same_as);
}

void add_numbers(Walk& walk, const ArgPlan& arg, c10::ArrayRef<IValue> list) {
  bool equal = !arg.is_static && equal_numbers(list);
  tag(walk, arg.is_static ? TT_TAG_STATICS : equal ? TT_TAG_EQUAL : TT_TAG_NUMBERS, list.size());
  for (const IValue& element : equal ? list.slice(0, 1) : list)
    add_number(walk, arg, element.toScalar(), require_dtype(element.toScalar().type()));
}

void add_arg(Walk& walk, const ArgPlan& arg, const IValue& value) {
  if (arg.kind == ArgKind::Tensor) return add_tensor(walk, arg, as_tensor(value));
  if (arg.kind == ArgKind::Ignored) {
    if (value.isDevice()) walk.place = value.toDevice();
    return;
  }
  if (arg.kind == ArgKind::Generator) {
    if (value.isGenerator()) walk.generator = value.toGenerator();
    return;
  }
  if (value.isNone()) return tag(walk, TT_TAG_NONE);
  switch (arg.kind) {
  case ArgKind::TensorList:
    tag(walk, TT_TAG_TENSORS, value.toListRef().size());
    for (const IValue& element : value.toListRef()) add_tensor(walk, arg, as_tensor(element));
    break;
  case ArgKind::Number:
    add_number(walk, arg, value.toScalar(), require_dtype(value.toScalar().type()));
    break;
  case ArgKind::NumberList:
    add_numbers(walk, arg, value.toListRef());
    break;
  case ArgKind::Int:
    tag(walk, arg.tag, value.isBool() ? TT_BOOL : TT_I64);
    tt_key_u64(&walk.key, static_cast<uint64_t>(int_of(value)));
    break;
  case ArgKind::IntList:
    tag(walk, TT_TAG_INTS, value.toListRef().size());
    for (const IValue& element : value.toListRef())
      tt_key_u64(&walk.key, static_cast<uint64_t>(int_of(element)));
    break;
  case ArgKind::Dtype:
    walk.wide |= value.toScalarType() == at::kDouble;
    tag(walk, TT_TAG_DTYPE,
        static_cast<uint64_t>(value.toScalarType()) << 8 | to_dtype(value.toScalarType()));
    break;
  case ArgKind::String:
    tag(walk, TT_TAG_TEXT, value.toStringRef().size());
    tt_key_add(&walk.key, value.toStringRef().data(), value.toStringRef().size());
    break;
  default:
    break;
  }
}

// Whether a device is named that is not the operands' own.
bool made_away(const Walk& walk) {
  TORCH_CHECK(!walk.fake || walk.place, walk.plan.name,
              ": a tensor that says it is on tpu holds nothing there (a fake tensor)");
  if (walk.fake) return true;
  if (walk.tensors.empty() || !walk.place) return false;
  auto index = walk.place->has_index() ? walk.place->index() : current_device();
  return !walk.place->is_privateuseone() || index != walk.device;
}

void walk_once(Walk& walk) {
  bool checks = walk.policy.mode == TT_MODE_DEBUG;
  if (walk.plan.multiplies) walk.precision = product_precision();
  auto fractions = static_cast<uint64_t>(at::get_default_dtype_as_scalartype());
  tt_key_u64(&walk.key, reinterpret_cast<uintptr_t>(&walk.plan) | (checks ? 1 : 0) |
                            static_cast<uintptr_t>(walk.precision) << 1 | fractions << 56);
  walk.first_arg = walk.key.size;
  for (size_t i = 0; i < walk.plan.args.size(); i++) add_arg(walk, walk.plan.args[i], walk.args[i]);
  if (walk.device < 0 && walk.place && walk.place->has_index()) walk.device = walk.place->index();
  if (walk.device < 0) walk.device = current_device();
  walk.away = made_away(walk);
  walk.wide |= walk.tensors.empty() || at::get_default_dtype_as_scalartype() == at::kDouble;
  if (!walk.numbers.empty()) tag(walk, TT_TAG_NUMBER, walk.wide);
  if (!walk.wide)
    for (Number& number : walk.numbers)
      if (number.dtype == TT_F64) number.dtype = TT_F32;
}

void start_anew(Walk& walk) {
  walk.key.size = 0;
  walk.storages.clear();
  walk.tensors.clear();
  walk.same_as.clear();
  walk.numbers.clear();
  walk.operands.clear();
}

}  // namespace

bool sees_room(const tt_policy& policy) {
  return policy.mode != TT_MODE_DEBUG && !policy.deterministic && !is_capturing();
}

bool walk_args(Walk& walk) {
  if (!sees_room(walk.policy) || !walk.plan.row) walk.see = See::Exact;
  walk_once(walk);
  if (walk.see == See::Exact) return true;
  if (!find_lengths(walk)) return false;
  if (walk.lengths.count) {
    if (!walk.plan.puts_back) widen_sizes(walk);
    start_anew(walk);
    walk_once(walk);
    if (walk.plan.puts_back && widen_sizes(walk)) {
      start_anew(walk);
      walk_once(walk);
    }
    if (!add_lengths(walk)) return false;
  }
  add_bound(walk);
  for (const tt_operand& one : walk.operands)
    if (one.marks.count && !walk.plan.spreads) return false;
  return walk.see != See::Exact;
}

}  // namespace tt
