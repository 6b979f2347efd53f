// A key that was not seen before: PyTorch's Meta kernel says the results' types, and the walk is
// written down in the core's terms.
#include "agreement/agreement.h"

#include <ATen/native/TypeProperties.h>

#include <deque>

namespace tt {
namespace {

using c10::IValue;

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
  tt_dtype small_float = TT_INVALID;  // of 8 bits, which are not promoted with others
  size_t next_tensor = 0, next_number = 0;
  bool beyond = false;  // the core's records cannot express these arguments
};

void spec_scalar(Spec& spec, const Walk& walk, const ArgPlan& arg, const c10::Scalar& value,
                 tt_dtype dtype, tt_arg* out) {
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

void spec_tensor(Spec& spec, const Walk& walk, const ArgPlan& arg, const at::Tensor& tensor,
                 tt_arg* out) {
  out->kind = TT_ARG_NONE;
  if (!tensor.defined()) return;
  bool target = arg.out || (arg.write && walk.plan.agreed.has(Agree::Overwrites));
  if (!target && !spec.small_float)
    spec.promotion = at::native::update_result_type_state(tensor, spec.promotion);
  if (!tensor.device().is_privateuseone())
    return spec_scalar(spec, walk, arg, tensor.item(), require_dtype(tensor.scalar_type()), out);
  out->kind = TT_ARG_TENSOR;
  out->first = static_cast<int>(spec.next_tensor++);
}

void spec_list(Spec& spec, const Walk& walk, const ArgPlan& arg, c10::ArrayRef<IValue> list,
               tt_arg* out) {
  spec.present.push_back(std::make_unique<bool[]>(list.size() + 1));
  out->kind = TT_ARG_TENSORS;
  out->first = static_cast<int>(spec.next_tensor);
  out->count = static_cast<int>(list.size());
  out->present = spec.present.back().get();
  for (size_t i = 0; i < list.size(); i++) {
    tt_arg element{};
    spec_tensor(spec, walk, arg, as_tensor(list[i]), &element);
    spec.beyond |= element.kind != TT_ARG_TENSOR && element.kind != TT_ARG_NONE;
    spec.present.back()[i] = element.kind == TT_ARG_TENSOR;
  }
}

void spec_numbers(Spec& spec, const ArgPlan& arg, c10::ArrayRef<IValue> list, tt_arg* out) {
  bool all_static = arg.is_static;
  for (const IValue& value : list) {
    spec.beyond |= value.isComplexDouble() || value.isBool();
    spec.promotion = at::native::update_result_type_state(value.toScalar(), spec.promotion);
  }
  out->count = static_cast<int>(list.size());
  out->dtype = TT_F64;
  if (spec.beyond) return;
  if (!all_static) {
    out->kind = TT_ARG_NUMBERS;
    out->first = static_cast<int>(spec.next_number);
    out->equal = equal_numbers(list);
    spec.next_number += out->equal ? 1 : list.size();
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
  case ArgKind::TensorList:
    return spec_list(spec, walk, arg, value.toListRef(), out);
  case ArgKind::Number:
    if (!spec.small_float)
      spec.promotion = at::native::update_result_type_state(value.toScalar(), spec.promotion);
    return spec_scalar(spec, walk, arg, value.toScalar(), scalar_dtype(value.toScalar()), out);
  case ArgKind::NumberList:
    return spec_numbers(spec, arg, value.toListRef(), out);
  case ArgKind::Int:
    out->kind = TT_ARG_INT;
    out->i = value.isBool() ? value.toBool() : value.toInt();
    out->dtype = value.isBool() ? TT_BOOL : TT_I64;
    return;
  case ArgKind::IntList: {
    std::vector<int64_t> values;
    for (const IValue& element : value.toListRef())
      values.push_back(element.isBool() ? element.toBool() : element.toInt());
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
  default:
    return;
  }
}

tt_call_result fresh_result(const at::Tensor& meta) {
  tt_call_result result{};
  result.target = -1;
  if (!meta.defined()) return result; /* dtype TT_INVALID: undefined */
  result.view = view_of(meta);
  return result;
}

// A row states what it would return first, then what it would write: so out= arguments come first.
void spec_targets(Spec& spec, const Walk& walk) {
  std::vector<tt_call_result> written;
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
        (arg.out ? spec.results : written).push_back(result);
      }
      tensor++;
    };
    if (arg.kind == ArgKind::Tensor) visit(as_tensor(walk.args[i]));
    else if (!walk.args[i].isNone())
      for (const IValue& element : walk.args[i].toListRef()) visit(as_tensor(element));
  }
  spec.results.insert(spec.results.end(), written.begin(), written.end());
}

// The dtype of all operands together.
tt_dtype common_dtype(const Spec& spec) {
  if (spec.small_float) return spec.small_float;
  auto common = at::native::result_type(spec.promotion);
  return common == at::ScalarType::Undefined ? TT_F32 : require_dtype(common);
}

// Gives the out= arguments the shapes of `outs`; whether that changed any.
bool resize_targets(const Walk& walk, const std::vector<at::Tensor>& outs) {
  bool resized = false;
  size_t k = 0;
  auto visit = [&](const at::Tensor& target) {
    if (k < outs.size()) resized |= fit_output(target, outs[k]);
    k++;
  };
  for (size_t i = 0; i < walk.plan.args.size(); i++)
    if (walk.plan.args[i].out) each_tensor(walk.args[i], visit);
  return resized;
}

Found make_spec(Walk& walk, const c10::OperatorHandle& op, Spec& spec, tt_call_spec* out) {
  std::vector<at::Tensor> fresh, outs;
  if (walk.plan.mutates) check_overlap(walk, op);
  Meta meta = run_meta(walk.plan, op, walk.args, &fresh, &outs);
  if (meta == Meta::Refused) return Found::Fallback;
  bool has_out = walk.plan.row_args < static_cast<int>(walk.plan.args.size());
  if (meta == Meta::Missing && has_out && walk.plan.functional) return Found::Functional;
  check_values(walk, op, fresh);
  if (resize_targets(walk, outs)) return Found::Restart;
  // The Meta kernel has agreed to them: what else there is are indices or masks.
  for (const at::Tensor* tensor : walk.tensors)
    if (c10::isFloat8Type(tensor->scalar_type()))
      spec.small_float = require_dtype(tensor->scalar_type());
  for (size_t i = 0; i < walk.tensors.size(); i++)
    spec.tensors.push_back({walk.storages[i]->type, view_of(*walk.tensors[i]),
                            walk.storages[i]->value == nullptr, walk.same_as[i]});
  for (size_t i = 0; i < walk.plan.args.size(); i++) {
    tt_arg arg{};
    spec_arg(spec, walk, walk.plan.args[i], walk.args[i], &arg);
    if (!walk.plan.args[i].out) spec.args.push_back(arg);
  }
  if (spec.beyond) return Found::Fallback;
  for (const Number& number : walk.numbers) spec.numbers.push_back(number.dtype);
  if (walk.plan.row->cls == TT_RANDOM) spec.numbers.insert(spec.numbers.end(), 2, TT_I64);
  for (const at::Tensor& meta : fresh) spec.results.push_back(fresh_result(meta));
  spec_targets(spec, walk);
  bool types_known = meta == Meta::Done || !spec.results.empty();
  if (!types_known) spec.results.resize(walk.plan.returns.size(), fresh_result(at::Tensor()));
  *out = {};
  out->row = walk.plan.row;
  out->name = walk.plan.name.c_str();
  out->args = spec.args.data();
  out->arg_count = static_cast<int>(spec.args.size());
  out->tensors = spec.tensors.data();
  out->tensor_count = static_cast<int>(spec.tensors.size());
  out->numbers = spec.numbers.data();
  out->number_count = static_cast<int>(spec.numbers.size());
  out->common = common_dtype(spec);
  out->fractions = require_dtype(at::get_default_dtype_as_scalartype());
  out->results = spec.results.data();
  out->result_count = static_cast<int>(spec.results.size());
  out->promised = types_known;
  out->checks = walk.policy.mode == TT_MODE_DEBUG;
  out->precision = walk.precision;
  out->site = call_site();
  return Found::Call;
}

// Keys that no lowering could express.
StringSet& unsupported() {
  static auto* one = new StringSet;
  return *one;
}

std::string key_text(const Walk& walk) {
  return {reinterpret_cast<const char*>(walk.key.data), walk.key.size};
}

}  // namespace

Found new_call(Walk& walk, const c10::OperatorHandle& op, tt_call** call) {
  if (unsupported().has(key_text(walk))) return Found::Fallback;
  Spec spec;
  tt_call_spec core;
  if (Found found = make_spec(walk, op, spec, &core); found != Found::Call) return found;
  tt_status status = tt_call_create(open_session()->calls, &walk.key, &core, &open_session()->target, call);
  if (!status) return Found::Call;
  if (tt_status_code(status) == TT_INVALID_ARGUMENT) raise_as_cpu(walk, op);
  if (tt_status_code(status) != TT_UNIMPLEMENTED) check(status);
  tt_log(TT_LOG_HOST, "%s", tt_status_message(status));
  tt_status_release(status);
  unsupported().add(key_text(walk));
  return Found::Fallback;
}

}  // namespace tt
