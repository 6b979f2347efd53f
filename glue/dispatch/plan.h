// A plan: how one overload's arguments become a call of a table row. Made once, from the schema.
#pragma once

#include "dispatch/convert.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace tt {

enum class ArgKind : uint8_t {
  Tensor,      // also optional
  TensorList,  // also of optionals
  Number,      // Scalar or float, also optional
  NumberList,  // Scalar[] or float[]
  Int,         // int, bool, or memory format
  IntList,     // int[] or bool[]
  Dtype,
  String,
  Generator,  // is in no key, as what follows
  Ignored     // layout, device, pin_memory
};

struct ArgPlan {
  ArgKind kind;
  bool is_static;  // the row wants the number's value
  bool write;      // mutated
  bool out;        // an out= argument: a target, no argument of the row
  bool factor;     // a number that takes no part in promotion
  bool copied;     // into the result, from any device
  tt_tag tag;      // of an Int
};

struct ReturnPlan {
  int alias;  // index of the argument that is returned, or -1
  bool list;
  bool number;  // an int: 0, since such returns only carry host state of other backends
};

// What is asked of numbers in each call, since they are in no key.
struct Domain {
  int argument;  // the number, or the first of two; or -1
  bool held;     // the dtype of what is made must hold it, and that is all
  bool ordered;  // two numbers are a range
  bool open;     // neither end is in the interval
  double least, most;
};

struct Plan {
  std::string name;  // "aten::add_.Tensor"
  const tt_op_row* row;
  std::vector<ArgPlan> args;
  std::vector<ReturnPlan> returns;
  int row_args = 0;                               // arguments that the row sees: all but out=
  std::optional<c10::OperatorHandle> functional;  // the row's own overload, if it is another
  bool multiplies;                                // the chosen precision of products is about it
  bool returns_one = false;                       // a new tensor, and nothing else
  bool writes_lists = false;  // is on lists, element by element, and writes to one of them
  bool overwrites = false;    // the target's dtype does not take part in promotion
  int indices = -1;         // the argument that lists index tensors, which may be masks or live on
                            // the host; or -1
  bool spreads = false;     // its operands may be in bounded values (core/call/spread.h)
  bool broadcasts = false;  // and are broadcast to each other
  bool joins = false;       // it is cat
  bool pads = false;        // it is constant_pad_nd
  int sizes = -1;           // the argument that lists the sizes of what is made; or -1
  bool puts_back = false;   // along all of them but one it is as the first argument
  bool ranges = false;      // it is arange, without out=
  mutable std::atomic<const Domain*> domain{nullptr};  // once it is known (agreement.cpp)
};

// Plans for every overload that a row serves: the row's own, its in-place and its out= forms.
struct PlannedOverload {
  c10::OperatorName name;
  std::shared_ptr<Plan> plan;
};
std::vector<PlannedOverload> make_plans();

// A plan for a row. Without one it only serves to make keys: every number counts.
std::unique_ptr<Plan> make_plan(const c10::FunctionSchema& schema, const tt_op_row* row);

// Runs an overload that writes as the row's own, which does not, and copies (_decompose.py).
void run_functional(const Plan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs the plan with plain tensors in the place of those whose conjugation or negation is still due
// (_conj_neg.py).
void run_resolved(const Plan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Replaces the arguments of an operator that only returns some of them by these.
void return_aliases(const Plan& plan, torch::jit::Stack* stack);

// Runs the plan on the arguments on top of the stack and replaces them by the results. Falls to
// run_fallback where the row cannot express the arguments.
void run_plan(const Plan& plan, const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace tt
