// The hot path: arguments become a key, the key a call, the call a record on the stream.
#include "agreement/agreement.h"
#include "device/graph.h"
#include "dispatch/conj_neg.h"
#include "dispatch/lists.h"

namespace tt {
namespace {

using c10::IValue;

using Words = c10::SmallVector<uint32_t, 16>;

// What is F32 comes as a double.
void push_words(Words& words, tt_dtype dtype, uint64_t raw) {
  if (dtype == TT_F32) {
    auto narrow = static_cast<float>(c10::bit_cast<double>(raw));
    return words.push_back(c10::bit_cast<uint32_t>(narrow));
  }
  words.push_back(static_cast<uint32_t>(raw));
  words.push_back(static_cast<uint32_t>(raw >> 32));
}

// What a random call draws. Of a graph that is being captured the place counts for nothing: each
// replay takes one.
tt_draw take_draw(const Walk& walk, const tt_call* call, Words& words) {
  tt_draw draw{identity_of(walk.generator, walk.device), tt_call_draw_blocks(call, words.data())};
  tt_philox_place place{};
  if (captured_stream(walk.device)) keep_generator(walk.generator, walk.device);
  else place = reserve_philox(walk.generator, walk.device, draw.blocks);
  push_words(words, TT_I64, place.seed);
  push_words(words, TT_I64, place.offset);
  return draw;
}

// False: another thread changed what an operand is held in.
bool record(const Walk& walk, tt_call* call, tt_storage** results, Words& words) {
  tt_draw draw{};
  bool random = call->row->cls == TT_RANDOM;
  for (const Number& number : walk.numbers) push_words(words, number.dtype, number.bits);
  for (int i = 0; i < walk.places.count; i++)
    push_words(words, TT_I64, static_cast<uint64_t>(walk.places.values[i]));
  if (random) draw = take_draw(walk, call, words);
  tt_operation operation{call,         walk.storages.data(), words.data(), random ? &draw : nullptr,
                         &walk.policy, call_site(),          false,        nullptr};
  tt_stream* stream = stream_of(walk.device);
  check(tt_operands_settle(stream, &operation));
  tt_status status = tt_stream_record(stream, &operation, results);
  if (tt_status_code(status) != TT_ABORTED) return check(status), true;
  tt_status_release(status);
  return false;
}

void note_bounded(const Walk& walk) {
  tt_count_add(TT_COUNT_OPS_BOUNDED, 1);
  for (const tt_operand& one : walk.operands)
    if (one.marks.count && tt_type_is_bounded(one.type)) tt_type_note_seen(one.type);
}

// Whether what has room for more along a size that is listed was made exact time and again.
bool is_unwelcome(const Walk& walk, const tt_call& call) {
  const tt_type* type = call.results[0].storage;
  int64_t length = walk.lengths.of[walk.sized.of[0].scalar].length;
  return call.result_count == 1 && tt_type_is_bounded(type) && tt_type_unwelcome(type, length);
}

// Index lists may hold host tensors, which are moved; and masks, of which the rows know nothing:
// then it returns true.
bool masks_among_indices(const Plan& plan, torch::jit::Stack* stack) {
  size_t first = stack->size() - plan.args.size();
  const at::Tensor& self = (*stack)[first].toTensor();
  IValue& list = (*stack)[first + static_cast<size_t>(plan.indices)];
  bool masks = false, away = false;
  each_tensor(list, [&](const at::Tensor& index) {
    if (!index.defined()) return;
    masks |= index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
    away |= !index.device().is_privateuseone();
  });
  auto move = [&](const at::Tensor& index) {
    return index.defined() ? index.to(self.device()) : index;
  };
  if (away) list = map_tensors(list, move);
  return masks;
}

// Autograd leaves it to the kernels of operators on lists to count what they write.
void bump_versions(const Plan& plan, c10::ArrayRef<IValue> args) {
  for (size_t i = 0; i < args.size(); i++) {
    if (!plan.args[i].write || !args[i].isTensorList()) continue;
    for (const IValue& element : args[i].toListRef())
      element.toTensor().unsafeGetTensorImpl()->bump_version();
  }
}

// A range's numbers have room for more where whole numbers that are uploaded have it: in a row, as
// how many there are tells nothing of lists of labels.
void run_uploaded(const Walk& walk, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  size_t first = stack->size() - walk.plan.args.size();
  IValue& dtype = (*stack)[first + static_cast<size_t>(walk.plan.row->param)];
  auto wanted = dtype.isNone() ? at::kLong : dtype.toScalarType();
  dtype = at::kLong;
  for (size_t i = first; i < stack->size(); i++)
    if ((*stack)[i].isDevice()) (*stack)[i] = c10::Device(at::kCPU);
  op.callBoxed(*stack);
  at::Tensor row = stack->back().toTensor().unsqueeze(0);
  row = row.to(c10::Device(at::kPrivateUse1, walk.device));
  stack->back() = row.squeeze(0).to(wanted);
}

}  // namespace

void push_results(const Walk& walk, size_t count, c10::function_ref<at::Tensor(size_t)> make,
                  torch::jit::Stack* stack) {
  const Plan& plan = walk.plan;
  if (plan.returns_one && count == 1) {
    at::Tensor made = make(0);
    torch::jit::drop(stack, plan.args.size());
    stack->emplace_back(std::move(made));
    return;
  }
  size_t single = 0, lists = 0, at = 0;
  for (const ReturnPlan& ret : plan.returns)
    if (ret.alias < 0) (ret.list ? lists : single)++;
  size_t per_list = lists ? (count - single) / lists : 0;
  c10::SmallVector<IValue, 4> returns;
  for (const ReturnPlan& ret : plan.returns) {
    if (ret.alias >= 0) {
      returns.push_back(walk.args[static_cast<size_t>(ret.alias)]);
    } else if (ret.list) {
      c10::List<at::Tensor> list;
      for (size_t i = 0; i < per_list; i++) list.push_back(make(at++));
      returns.push_back(std::move(list));
    } else if (ret.number) {
      returns.push_back(int64_t{0});
      at++;
    } else {
      returns.push_back(at < count ? make(at) : at::Tensor());
      at++;
    }
  }
  torch::jit::drop(stack, plan.args.size());
  for (IValue& value : returns) stack->push_back(std::move(value));
}

void run_plan(const Plan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  tt_session* session = open_session();
  Guarded guarded;
  if (plan.indices >= 0 && masks_among_indices(plan, stack)) return run_fallback(op, stack);
  See see = See::Bounded;
  for (int attempt = 0; attempt < 4; attempt++) {
    Walk walk(plan, torch::jit::last(*stack, plan.args.size()), see);
    if (!walk_args(walk)) {
      see = See::Exact;
      continue;
    }
    if (walk.conj_neg) return run_resolved(plan, op, stack);
    if (walk.away)  // PyTorch's own way makes an empty tensor there, and fills it
      return op.callBoxedForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd, *stack);
    if (walk.host) return run_fallback(op, stack);
    if (plan.writes_lists && lists_meet(walk) && run_elements(walk, op, stack)) return;
    if (plan.row->cls == TT_RANDOM || !walk.numbers.empty()) check_parameters(walk, op);
    tt_call* call = tt_call_find(session->calls, &walk.key, &walk.places);
    Found found = call ? Found::Call : new_call(walk, op, &call);
    if (call && plan.ranges && lengthens(walk, true)) found = Found::Uploaded;
    if (found == Found::Exact || found == Found::Grows)
      see = found == Found::Exact ? See::Exact : See::Growing;
    if (found == Found::Restart || found == Found::Exact || found == Found::Grows) continue;
    if (found == Found::Uploaded) return run_uploaded(walk, op, stack);
    if (found == Found::Functional) return run_functional(plan, op, stack);
    if (found == Found::Fallback) return run_fallback(op, stack);
    if (walk.sized.count && is_unwelcome(walk, *call)) {
      see = See::Exact;
      continue;
    }
    c10::SmallVector<tt_storage*, 8> results(static_cast<size_t>(call->result_count), nullptr);
    Words words;
    if (!record(walk, call, results.data(), words)) continue;
    tt_count_add(TT_COUNT_OPS_ROW, 1);
    if (walk.lengths.count || walk.bound) note_bounded(walk);
    if (plan.writes_lists) bump_versions(plan, walk.args);
    auto fresh = std::count_if(call->results, call->results + call->result_count,
                               [](const tt_call_result& one) { return one.target < 0; });
    auto wrap = [&](size_t k) -> at::Tensor {
      if (!results[k]) return {};
      return tensor_on(own(results[k], walk.device), tt_call_result_view(call, k, words.data()));
    };
    return push_results(walk, static_cast<size_t>(fresh), wrap, stack);
  }
  TORCH_CHECK(false, plan.name, ": other threads resize or free its tensors while they are used");
}

}  // namespace tt
