// One walk over an operator's arguments: the key of the call, and what a record of it needs.
#pragma once

#include "device/policy.h"
#include "dispatch/dispatch.h"
#include "dispatch/plan.h"

#include <c10/util/bit_cast.h>
#include <c10/util/FunctionRef.h>

#include <optional>

namespace tt {

struct Number {
  tt_dtype dtype;
  uint64_t bits;  // of a double or of an integer; see push_words
};

// How operands in bounded values (core/call/bounded.h) are seen.
enum class See {
  Exact,  // as if they were exact ones, which they then become
  Bounded,
  Growing  // as before, and cat gives its result room
};

// What one walk over the arguments gathers.
struct Walk : Fixed {
  const Plan& plan;
  c10::ArrayRef<c10::IValue> args;
  tt_key key;
  size_t first_arg = 0;  // where in the key the arguments begin
  c10::SmallVector<tt_storage*, 16> storages;
  c10::SmallVector<const at::Tensor*, 16> tensors;
  c10::SmallVector<int, 16> same_as;
  c10::SmallVector<Number, 8> numbers;
  tt_places places;  // that its call takes behind the numbers
  See see;
  tt_lengths lengths{};  // of operands in bounded values; numbers behind the call's own
  c10::SmallVector<tt_operand, 4> operands;  // how each then stands in the call
  tt_marks sized{};                          // sizes that an argument lists which are lengths
  c10::SmallVector<c10::IValue, 4> widened;  // the arguments then, with bounds among these sizes
  int64_t bound = 0;                         // that cat gives its result room for; a last number
  std::optional<at::Generator> generator;
  c10::DeviceIndex device = -1;
  Policy policy;
  tt_precision precision = TT_PRECISION_HIGHEST;
  bool wide = false;                 // numbers are needed in double precision
  bool conj_neg = false;             // a tensor's conjugation or negation is still due
  std::optional<c10::Device> place;  // where a result is to be made, if that is said
  bool away = false;                 // a tensor is to be made on another device than its model's
  bool fake = false;                 // one is no more than a model: it holds nothing
  bool host = false;                 // a host tensor holds numbers for lists' elements, or a source

  Walk(const Plan& p, c10::ArrayRef<c10::IValue> a, See s = See::Exact) : plan(p), args(a), see(s) {
    tt_key_init(&key);
  }
  ~Walk() { tt_key_deinit(&key); }
};

// Whether calls may have operands with room for more (core/call/bounded.h).
bool sees_room(const tt_policy& policy);
// Fills everything but the plan, the arguments, and how they are seen. False: not so.
bool walk_args(Walk& walk);

// Of cat: the dim in which its operands are joined, -1 where they are of different ranks; of
// padding by a constant the dim that it makes longer, -1 if it is not one; and how long that makes
// the result.
int joined_dim(const Walk& walk);
int64_t joined_size(const Walk& walk);

// The tensor, or an undefined one for None.
const at::Tensor& as_tensor(const c10::IValue& value);

inline uint64_t bits(double value) { return c10::bit_cast<uint64_t>(value); }

// Replaces the arguments on the stack by the results. Of those that are no arguments make(k) is the
// k-th, lists flattened, of so many.
void push_results(const Walk& walk, size_t count, c10::function_ref<at::Tensor(size_t)> make,
                  torch::jit::Stack* stack);

enum class Found {
  Call,
  Exact,       // its operands may not be in bounded values
  Grows,       // its result is to be a bounded value
  Uploaded,    // so is that of a range, which is made on the host
  Restart,     // an out= tensor was resized: the key is stale
  Functional,  // nobody knows beforehand what size the out= tensors should have
  Fallback     // no lowering for these arguments
};

// Whether a range of whole numbers is as long as a living value's length or, unless it is known by
// itself, becomes longer each time, as it is of the words of a text.
bool lengthens(const Walk& walk, bool known);
// Specialises a call for a key that is new (specialise.cpp).
Found new_call(Walk& walk, const c10::OperatorHandle& op, tt_call** call);

}  // namespace tt
