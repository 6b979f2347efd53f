// A key that was not seen before: PyTorch's Meta kernel says the results' types, and the core reads
// the arguments back from the key.
#include "agreement/agreement.h"

#include <ATen/native/TypeProperties.h>

namespace tt {
namespace {

using c10::IValue;

template <class T> auto count_of(const T& all) { return static_cast<int>(all.size()); }

// What the core is told of a new call. Owns what that points to.
class Specialiser : Fixed {
 public:
  Specialiser(Walk& walk, const c10::OperatorHandle& op) : walk_(walk), plan_(walk.plan), op_(op) {}
  ~Specialiser() { tt_arena_deinit(&arena_); }

  // Fills a core spec that is good while this lives; what else is to be done where it cannot.
  Found specialise(tt_call_spec* spec);

 private:
  Found ask_types();
  tt_call_tensor tensor_of(size_t i) const;
  size_t first_length() const {
    return walk_.numbers.size() - static_cast<size_t>(walk_.lengths.count) - (walk_.bound ? 1 : 0);
  }
  c10::IntArrayRef as_seen(const at::Tensor& target) const;
  bool is_bounded() const { return walk_.lengths.count || walk_.bound; }
  Found describe();
  void fill(tt_call_spec* spec);
  void promote(const ArgPlan& arg, const IValue& value);
  void add(const ArgPlan& arg, const IValue& value, tt_args_reader& reader);
  bool resize_targets(const std::vector<at::Tensor>& shapes);
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
  tt_arena arena_{};  // what arguments point to
  at::native::ResultTypeState promotion_;
  tt_dtype small_float_ = TT_INVALID;  // of 8 bits, which are not promoted with others
  bool unsigned_ = false;              // a tensor is of a dtype that is not, of 16 bits and more
  bool types_known_ = false;
  tt_spread spread_{};  // of what is padding
};

void Specialiser::promote(const ArgPlan& arg, const IValue& value) {
  if (small_float_ || arg.out || (arg.write && plan_.overwrites) || value.isNone()) return;
  auto with = [&](const auto& one) {
    promotion_ = at::native::update_result_type_state(one, promotion_);
  };
  auto is_index = [&](at::ScalarType of) {
    return unsigned_ && at::isIntegralType(of, true) && !c10::isBarebonesUnsignedType(of);
  };
  each_tensor(value, [&](const at::Tensor& one) {
    if (one.defined() && !is_index(one.scalar_type())) with(one);
  });
  if (arg.kind == ArgKind::Number && !arg.factor) with(value.toScalar());
  if (arg.kind == ArgKind::NumberList)
    for (const IValue& one : value.toListRef()) with(one.toScalar());
}

void Specialiser::add(const ArgPlan& arg, const IValue& value, tt_args_reader& reader) {
  tt_arg record{};
  int first = reader.next_tensor;
  promote(arg, value);
  if (arg.kind == ArgKind::Dtype && !value.isNone()) require_dtype(value.toScalarType());
  if (arg.kind < ArgKind::Generator) check(tt_args_read(&reader, &record));
  if (!arg.out) args_.push_back(record);
  for (int i = first; arg.write && i < reader.next_tensor; i++) {
    tt_call_result written{};
    written.target = i;
    written.view = tensors_[static_cast<size_t>(i)].view;
    (arg.out ? outs_ : written_).push_back(written);
  }
}

// The sizes that a target has in the call.
c10::IntArrayRef Specialiser::as_seen(const at::Tensor& target) const {
  for (size_t i = 0; i < walk_.operands.size(); i++)
    if (walk_.tensors[i]->is_same(target))
      return {walk_.operands[i].view.sizes, static_cast<size_t>(walk_.operands[i].view.rank)};
  return target.sizes();
}

// Gives the out= arguments these shapes; whether that changed any. Where they are bounded it only
// says whether it would.
bool Specialiser::resize_targets(const std::vector<at::Tensor>& shapes) {
  bool resized = false;
  std::vector<at::Tensor> targets;
  for (size_t i = 0; i < plan_.args.size(); i++)
    if (plan_.args[i].out)
      each_tensor(walk_.args[i], [&](const at::Tensor& one) { targets.push_back(one); });
  for (size_t k = 0; k < std::min(targets.size(), shapes.size()); k++)
    resized |=
        is_bounded() ? as_seen(targets[k]) != shapes[k].sizes() : fit_output(targets[k], shapes[k]);
  return resized;
}

// Fills the fresh results, and makes sure that the CPU would take the arguments.
Found Specialiser::ask_types() {
  Agreement agreed{};
  try {
    agreed = agree(walk_, op_);
  } catch (const std::exception&) {
    if (!is_bounded()) throw;  // it may be about the room alone
    return Found::Exact;
  }
  if (is_bounded() && agreed.meta != Meta::Done) return Found::Exact;
  if (agreed.meta == Meta::Refused) return Found::Fallback;
  bool has_out = plan_.row_args < count_of(plan_.args);
  if (agreed.meta == Meta::Missing && has_out && plan_.functional) return Found::Functional;
  if (resize_targets(agreed.outs)) return is_bounded() ? Found::Exact : Found::Restart;
  types_known_ = agreed.meta == Meta::Done;
  for (const at::Tensor& one : agreed.results) {
    tt_call_result result{};
    result.target = -1;
    if (one.defined()) result.view = view_of(one);  // else dtype TT_INVALID: undefined
    results_.push_back(result);
  }
  return Found::Call;
}

tt_call_tensor Specialiser::tensor_of(size_t i) const {
  const tt_storage* storage = walk_.storages[i];
  tt_call_tensor tensor{};
  bool as_seen = !walk_.operands.empty();
  tensor.storage = as_seen ? walk_.operands[i].type : storage->type;
  tensor.view = as_seen ? walk_.operands[i].view : view_of(*walk_.tensors[i]);
  tensor.undefined = storage->value == nullptr;
  tensor.same_as = walk_.same_as[i];
  if (!as_seen) return tensor;
  auto first = static_cast<int>(first_length());
  tensor.marks = walk_.operands[i].marks;
  for (int k = 0; k < tensor.marks.count; k++) tensor.marks.of[k].scalar += first;
  tensor.more_dim = walk_.operands[i].more_dim;
  tensor.more = walk_.operands[i].more;
  tensor.partly = walk_.operands[i].partly;
  for (int k = 0; k < TT_MOST_ALONG; k++) tensor.lengths[k] = walk_.operands[i].lengths[k] + first;
  return tensor;
}

Found Specialiser::describe() {
  // The Meta kernel has agreed to 8-bit floats, and to wide unsigned integers: what other integers
  // there are, are indices or masks.
  for (size_t i = 0; i < walk_.tensors.size(); i++) {
    auto dtype = walk_.tensors[i]->scalar_type();
    if (c10::isFloat8Type(dtype)) small_float_ = require_dtype(dtype);
    unsigned_ |= c10::isBarebonesUnsignedType(dtype);
    tensors_.push_back(tensor_of(i));
  }
  tt_args_reader reader{walk_.key.data + walk_.first_arg, &arena_, 0, 0, false};
  for (size_t i = 0; i < plan_.args.size(); i++) add(plan_.args[i], walk_.args[i], reader);
  if (reader.beyond) return Found::Fallback;
  for (const Number& number : walk_.numbers) scalars_.push_back(number.dtype);
  if (plan_.row->cls == TT_RANDOM) scalars_.insert(scalars_.end(), 2, TT_I64);
  return Found::Call;
}

Found Specialiser::specialise(tt_call_spec* spec) {
  if (is_bounded()) {
    if (Found found = describe(); found != Found::Call) return found;
    fill(spec);
    if (!tt_spread_operands(spec, &spread_)) return Found::Exact;
  }
  if (Found found = ask_types(); found != Found::Call) return found;
  if (!is_bounded())
    if (Found found = describe(); found != Found::Call) return found;
  // A row states what it returns first, then what it writes: so out= arguments come first.
  results_.insert(results_.end(), outs_.begin(), outs_.end());
  results_.insert(results_.end(), written_.begin(), written_.end());
  types_known_ |= !results_.empty();
  tt_call_result undefined{};
  undefined.target = -1;
  if (!types_known_) results_.resize(plan_.returns.size(), undefined);
  fill(spec);
  if (!is_bounded()) return Found::Call;
  bool spread = types_known_ && tt_spread_results(&spread_, spec, results_.data());
  return spread ? Found::Call : Found::Exact;
}

void Specialiser::fill(tt_call_spec* spec) {
  *spec = {};
  spec->row = plan_.row;
  spec->name = plan_.name.c_str();
  spec->args = args_.data();
  spec->arg_count = count_of(args_);
  spec->tensors = tensors_.data();
  spec->tensor_count = count_of(tensors_);
  spec->scalars = scalars_.data();
  spec->scalar_count = count_of(scalars_);
  spec->lengths = spread_.lengths;
  spec->length_count = spread_.length_count;
  spec->sized = walk_.sized;
  for (int k = 0; k < spec->sized.count; k++)
    spec->sized.of[k].scalar += static_cast<int>(first_length());
  spec->bound = walk_.bound;
  spec->bound_scalar = count_of(walk_.numbers) - 1;
  spec->result_type = result_type();
  spec->fractions = require_dtype(at::get_default_dtype_as_scalartype());
  spec->results = results_.data();
  spec->result_count = count_of(results_);
  spec->meta_known = types_known_;
  spec->checks = walk_.policy.mode == TT_MODE_DEBUG;
  spec->precision = walk_.precision;
  spec->site = call_site();
}

// Whether what cat makes becomes longer each time: two are joined, of which one was joined before.
bool grows(const Walk& walk) {
  int dim = joined_dim(walk);
  if (walk.see != See::Bounded || walk.bound || dim < 0 || walk.tensors.size() != 2) return false;
  tt_view view = view_of(*walk.tensors[0]);
  tt_type type = tt_view_held(&view);
  const tt_type* bounded = nullptr;
  tt_growing* growing = growing_sizes();
  int64_t length = type.dims[dim] = joined_size(walk);
  if (!tt_growing_join(growing, &type, dim, view.sizes[dim])) return false;
  type.dims[dim] = tt_bound_of(length);
  tt_along along = tt_along_one(dim);
  check(tt_type_intern_bounded(&type, &along, &bounded));
  return !tt_type_unwelcome(bounded, length);
}

// The numbers that a range of whole numbers is made of; false: it is none.
bool range_of(const Walk& walk, int64_t* start, int64_t* end) {
  if (!walk.plan.ranges || walk.see != See::Bounded) return false;
  auto numbers = walk.args.slice(0, static_cast<size_t>(walk.plan.row->param));
  const c10::IValue& asked = walk.args[numbers.size()];
  auto dtype = asked.isNone() ? at::kLong : asked.toScalarType();
  if (dtype != at::kLong && dtype != at::kInt && dtype != at::kFloat) return false;
  for (const c10::IValue& one : numbers)
    if (!one.isInt()) return false;
  if (numbers.size() == 3 && numbers[2].toInt() != 1) return false;
  *start = numbers.size() == 1 ? 0 : numbers[0].toInt();
  *end = numbers[numbers.size() == 1 ? 0 : 1].toInt();
  return true;
}

}  // namespace

bool lengthens(const Walk& walk, bool known) {
  tt_growing* growing = growing_sizes();
  int64_t start = 0, end = 0;
  if ((known && !tt_growing_any(growing)) || !range_of(walk, &start, &end)) return false;
  return tt_growing_range(growing, start, end, known);
}

Found new_call(Walk& walk, const c10::OperatorHandle& op, tt_call** call) {
  if (walk.key.failed) check(tt_out_of_memory());
  tt_call_table* calls = open_session()->calls;
  *call = tt_call_find_general(calls, walk.plan.row, &walk.key, walk.first_arg, &walk.places);
  if (*call) return Found::Call;
  bool bounded = walk.lengths.count || walk.bound;
  if (tt_call_refused(calls, &walk.key)) return bounded ? Found::Exact : Found::Fallback;
  if (grows(walk)) return Found::Grows;
  if (lengthens(walk, false)) return Found::Uploaded;
  Specialiser specialiser(walk, op);
  tt_call_spec spec;
  Found found = specialiser.specialise(&spec);
  if (found == Found::Exact) tt_call_refuse(calls, &walk.key);
  if (found != Found::Call) return found;
  tt_status status = tt_call_create_member(calls, &walk.key, walk.first_arg, &spec,
                                           &open_session()->target, &walk.places, call);
  if (!status) return Found::Call;
  if (bounded) {
    tt_status_release(status);
    return Found::Exact;
  }
  tt_code code = tt_status_code(status);
  if (code == TT_INVALID_ARGUMENT || code == TT_OUT_OF_RANGE)
    raise_as_cpu(walk.plan, op, walk.args);
  if (code != TT_UNIMPLEMENTED) check(status);
  tt_log(TT_LOG_HOST, "%s", tt_status_message(status));
  tt_status_release(status);
  return Found::Fallback;
}

}  // namespace tt
