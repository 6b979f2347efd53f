// A key that was not seen before: PyTorch's Meta kernel says the results' types, and the walk is
// written down in the core's terms.
#include "agreement/agreement.h"

#include <ATen/native/TypeProperties.h>

#include <deque>
#include <mutex>
#include <unordered_set>

namespace tt {
namespace {

using c10::IValue;

template <class T> auto count_of(const T& all) { return static_cast<int>(all.size()); }

// The walk again, into the core's argument records. Owns what they point to.
class Specialiser {
 public:
  Specialiser(Walk& walk, const c10::OperatorHandle& op) : walk_(walk), plan_(walk.plan), op_(op) {}

  // Fills a core spec that is good while this lives; what else is to be done where it cannot.
  Found specialise(tt_call_spec* spec);

 private:
  Found ask_types();
  void add(const ArgPlan& arg, const IValue& value, tt_arg& out);
  void add_tensor(const ArgPlan& arg, const at::Tensor& tensor, tt_arg& out);
  void add_tensors(const ArgPlan& arg, c10::ArrayRef<IValue> list, tt_arg& out);
  void add_scalar(const ArgPlan& arg, const c10::Scalar& value, tt_dtype dtype, tt_arg& out);
  void add_numbers(const ArgPlan& arg, c10::ArrayRef<IValue> list, tt_arg& out);
  bool resize_targets(const std::vector<at::Tensor>& shapes);
  template <class Number> void promote(const Number& one) {
    if (!small_float_) promotion_ = at::native::update_result_type_state(one, promotion_);
  }
  tt_dtype result_type() const {
    auto type = at::native::result_type(promotion_);
    return small_float_                        ? small_float_
           : type == at::ScalarType::Undefined ? TT_F32
                                               : require_dtype(type);
  }

  Walk& walk_;
  const Plan& plan_;
  const c10::OperatorHandle& op_;
  std::vector<tt_arg> args_;
  std::vector<tt_call_tensor> tensors_;
  std::vector<tt_dtype> scalars_;
  std::vector<tt_call_result> results_, outs_, written_;
  std::deque<std::vector<int64_t>> ints_;
  std::deque<std::vector<double>> floats_;
  std::deque<std::unique_ptr<bool[]>> present_;
  at::native::ResultTypeState promotion_;
  tt_dtype small_float_ = TT_INVALID;  // of 8 bits, which are not promoted with others
  int next_tensor_ = 0, next_number_ = 0;
  bool types_known_ = false;
  bool beyond_ = false;  // the core's records cannot express these arguments
};

void Specialiser::add_scalar(const ArgPlan& arg, const c10::Scalar& value, tt_dtype dtype,
                             tt_arg& out) {
  out.dtype = dtype;
  if (value.isComplex()) {
    auto z = value.toComplexDouble();
    out.kind = TT_ARG_COMPLEX;
    out.floats = floats_.emplace_back(std::vector{z.real(), z.imag()}).data();
  } else if (static_number(plan_, arg, value)) {
    out.kind = value.isFloatingPoint() ? TT_ARG_FLOAT : TT_ARG_INT;
    out.f = value.toDouble();
    out.i = value.isFloatingPoint() ? 0 : value.toLong();
  } else {
    out.kind = TT_ARG_SCALAR;
    out.first = next_number_++;
  }
}

void Specialiser::add_tensor(const ArgPlan& arg, const at::Tensor& tensor, tt_arg& out) {
  out.kind = TT_ARG_NONE;
  if (!tensor.defined()) return;
  if (!arg.out && !(arg.write && plan_.overwrites)) promote(tensor);
  if (!tensor.device().is_privateuseone())
    return add_scalar(arg, tensor.item(), require_dtype(tensor.scalar_type()), out);
  out.kind = TT_ARG_TENSOR;
  out.first = next_tensor_++;
  tt_call_result written{};
  written.target = out.first;
  written.view = tensors_[static_cast<size_t>(out.first)].view;
  if (arg.write) (arg.out ? outs_ : written_).push_back(written);
}

void Specialiser::add_tensors(const ArgPlan& arg, c10::ArrayRef<IValue> list, tt_arg& out) {
  bool* present = present_.emplace_back(std::make_unique<bool[]>(list.size() + 1)).get();
  out.kind = TT_ARG_TENSORS;
  out.first = next_tensor_;
  out.count = count_of(list);
  out.present = present;
  for (const IValue& one : list) {
    tt_arg element{};
    add_tensor(arg, as_tensor(one), element);
    beyond_ |= element.kind != TT_ARG_TENSOR && element.kind != TT_ARG_NONE;
    *present++ = element.kind == TT_ARG_TENSOR;
  }
}

void Specialiser::add_numbers(const ArgPlan& arg, c10::ArrayRef<IValue> list, tt_arg& out) {
  std::vector<double> values;
  for (const IValue& value : list) {
    beyond_ |= value.isComplexDouble() || value.isBool();
    promotion_ = at::native::update_result_type_state(value.toScalar(), promotion_);
    if (!beyond_) values.push_back(value.toScalar().toDouble());
  }
  out.kind = arg.is_static ? TT_ARG_FLOATS : TT_ARG_SCALARS;
  out.count = count_of(list);
  out.dtype = TT_F64;
  if (arg.is_static) {
    out.floats = floats_.emplace_back(std::move(values)).data();
  } else {
    out.first = next_number_;
    out.equal = equal_numbers(list);
    next_number_ += out.equal ? 1 : out.count;
  }
}

void Specialiser::add(const ArgPlan& arg, const IValue& value, tt_arg& out) {
  if (arg.kind == ArgKind::Tensor) return add_tensor(arg, as_tensor(value), out);
  if (value.isNone()) return;
  switch (arg.kind) {
  case ArgKind::TensorList:
    return add_tensors(arg, value.toListRef(), out);
  case ArgKind::Number:
    promote(value.toScalar());
    return add_scalar(arg, value.toScalar(), scalar_dtype(value.toScalar()), out);
  case ArgKind::NumberList:
    return add_numbers(arg, value.toListRef(), out);
  case ArgKind::Int:
    out.kind = TT_ARG_INT;
    out.i = int_of(value);
    out.dtype = value.isBool() ? TT_BOOL : TT_I64;
    return;
  case ArgKind::IntList: {
    auto& values = ints_.emplace_back();
    for (const IValue& element : value.toListRef()) values.push_back(int_of(element));
    out.kind = TT_ARG_INTS;
    out.ints = values.data();
    out.count = count_of(values);
    return;
  }
  case ArgKind::Dtype:
    out.kind = TT_ARG_INT;
    out.dtype = require_dtype(value.toScalarType());
    return;
  case ArgKind::String:
    out.kind = TT_ARG_STRING;
    out.text = value.toStringRef().c_str();
    return;
  default:
    return;
  }
}

// Gives the out= arguments these shapes; whether that changed any.
bool Specialiser::resize_targets(const std::vector<at::Tensor>& shapes) {
  bool resized = false;
  std::vector<at::Tensor> targets;
  for (size_t i = 0; i < plan_.args.size(); i++)
    if (plan_.args[i].out) append_tensors(walk_.args[i], &targets);
  for (size_t k = 0; k < std::min(targets.size(), shapes.size()); k++)
    resized |= fit_output(targets[k], shapes[k]);
  return resized;
}

// Fills the fresh results, and makes sure that the CPU would take the arguments.
Found Specialiser::ask_types() {
  Agreement agreed = agree(walk_, op_);
  if (agreed.meta == Meta::Refused) return Found::Fallback;
  bool has_out = plan_.row_args < count_of(plan_.args);
  if (agreed.meta == Meta::Missing && has_out && plan_.functional) return Found::Functional;
  if (resize_targets(agreed.outs)) return Found::Restart;
  types_known_ = agreed.meta == Meta::Done;
  for (const at::Tensor& one : agreed.results) {
    tt_call_result result{};
    result.target = -1;
    if (one.defined()) result.view = view_of(one);  // else dtype TT_INVALID: undefined
    results_.push_back(result);
  }
  return Found::Call;
}

Found Specialiser::specialise(tt_call_spec* spec) {
  if (Found found = ask_types(); found != Found::Call) return found;
  // The Meta kernel has agreed to 8-bit floats: what else there is are indices or masks.
  for (size_t i = 0; i < walk_.tensors.size(); i++) {
    auto dtype = walk_.tensors[i]->scalar_type();
    if (c10::isFloat8Type(dtype)) small_float_ = require_dtype(dtype);
    tensors_.push_back({walk_.storages[i]->type, view_of(*walk_.tensors[i]),
                        walk_.storages[i]->value == nullptr, walk_.same_as[i]});
  }
  for (size_t i = 0; i < plan_.args.size(); i++) {
    tt_arg arg{};
    add(plan_.args[i], walk_.args[i], arg);
    if (!plan_.args[i].out) args_.push_back(arg);
  }
  if (beyond_) return Found::Fallback;
  for (const Number& number : walk_.numbers) scalars_.push_back(number.dtype);
  if (plan_.row->cls == TT_RANDOM) scalars_.insert(scalars_.end(), 2, TT_I64);
  // A row states what it returns first, then what it writes: so out= arguments come first.
  results_.insert(results_.end(), outs_.begin(), outs_.end());
  results_.insert(results_.end(), written_.begin(), written_.end());
  types_known_ |= !results_.empty();
  tt_call_result undefined{};
  undefined.target = -1;
  if (!types_known_) results_.resize(plan_.returns.size(), undefined);
  *spec = {};
  spec->row = plan_.row;
  spec->name = plan_.name.c_str();
  spec->args = args_.data();
  spec->arg_count = count_of(args_);
  spec->tensors = tensors_.data();
  spec->tensor_count = count_of(tensors_);
  spec->scalars = scalars_.data();
  spec->scalar_count = count_of(scalars_);
  spec->result_type = result_type();
  spec->fractions = require_dtype(at::get_default_dtype_as_scalartype());
  spec->results = results_.data();
  spec->result_count = count_of(results_);
  spec->meta_known = types_known_;
  spec->checks = walk_.policy.mode == TT_MODE_DEBUG;
  spec->precision = walk_.precision;
  spec->site = call_site();
  return Found::Call;
}

// Keys that no lowering could express; no more are added once there are very many.
struct Unsupported {
  std::mutex lock;
  std::unordered_set<std::string> keys;
};

Unsupported& unsupported() {
  static auto* one = new Unsupported;
  return *one;
}

bool is_unsupported(const std::string& key) {
  std::lock_guard<std::mutex> guard(unsupported().lock);
  return unsupported().keys.count(key) > 0;
}

void add_unsupported(const std::string& key) {
  std::lock_guard<std::mutex> guard(unsupported().lock);
  if (unsupported().keys.size() < 65536) unsupported().keys.insert(key);
}

}  // namespace

Found new_call(Walk& walk, const c10::OperatorHandle& op, tt_call** call) {
  std::string key(reinterpret_cast<const char*>(walk.key.data), walk.key.size);
  if (is_unsupported(key)) return Found::Fallback;
  Specialiser specialiser(walk, op);
  tt_call_spec spec;
  if (Found found = specialiser.specialise(&spec); found != Found::Call) return found;
  tt_status status =
      tt_call_create(open_session()->calls, &walk.key, &spec, &open_session()->target, call);
  if (!status) return Found::Call;
  if (tt_status_code(status) == TT_INVALID_ARGUMENT) raise_as_cpu(walk.plan, op, walk.args);
  if (tt_status_code(status) != TT_UNIMPLEMENTED) check(status);
  tt_log(TT_LOG_HOST, "%s", tt_status_message(status));
  tt_status_release(status);
  add_unsupported(key);
  return Found::Fallback;
}

}  // namespace tt
