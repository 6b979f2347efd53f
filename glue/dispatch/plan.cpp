#include "dispatch/plan.h"

#include <map>
#include <set>
#include <sstream>

namespace tt {
namespace {

ArgKind kind_of(const c10::Argument& arg) {
  c10::TypePtr type = without_optional(arg.real_type());
  auto list = type->cast<c10::ListType>();
  if (list) type = without_optional(list->getElementType());
  switch (type->kind()) {
  case c10::TypeKind::TensorType:
    return list ? ArgKind::TensorList : ArgKind::Tensor;
  case c10::TypeKind::NumberType:
  case c10::TypeKind::FloatType:
    return list ? ArgKind::NumberList : ArgKind::Number;
  case c10::TypeKind::ScalarTypeType:
    return ArgKind::Dtype;
  case c10::TypeKind::StringType:
    return ArgKind::String;
  case c10::TypeKind::GeneratorType:
    return ArgKind::Generator;
  case c10::TypeKind::LayoutType:
  case c10::TypeKind::DeviceObjType:
    return ArgKind::Ignored;
  default:
    if (list) return ArgKind::IntList;
    return arg.name() == "pin_memory" ? ArgKind::Ignored : ArgKind::Int;
  }
}

bool is_static(const tt_op_row* row, const std::string& name) {
  if (!row) return true;
  std::string list = std::string(",") + row->statics + ",";
  return list == ",*," || list.find("," + name + ",") != std::string::npos;
}

// A functional overload returns fresh tensors only.
bool functional(const c10::FunctionSchema& schema) {
  for (const auto& arg : schema.arguments())
    if (arg.alias_info()) return false;
  return true;
}

bool writes(const c10::Argument& arg) { return arg.alias_info() && arg.alias_info()->isWrite(); }

}  // namespace

std::unique_ptr<Plan> make_plan(const c10::FunctionSchema& schema, const tt_op_row* row) {
  auto plan = std::make_unique<Plan>();
  plan->name = c10::toString(schema.operator_name());
  plan->row = row;
  plan->multiplies = row && tt_op_multiplies(row);
  plan->spreads = row && tt_op_spreads(row);
  plan->broadcasts = row && tt_op_broadcasts(row);
  plan->sizes = row ? tt_op_sizes(row) : -1;
  plan->puts_back = plan->sizes >= 0 && tt_op_along_of(row->name)->rule[0] == '@';
  plan->joins = row && plan->name == "aten::cat";
  plan->pads = row && plan->name == "aten::constant_pad_nd";
  plan->ranges =
      row && plan->name.rfind("aten::arange", 0) == 0 && !schema.arguments().back().is_out();
  plan->overwrites = plan->name == "aten::copy_";
  for (const auto& arg : schema.arguments()) {
    bool factor = arg.name() == "alpha" || arg.name() == "beta";
    bool copied = row && row->cls == TT_VIEW && arg.name() == "src" && functional(schema);
    ArgPlan one{kind_of(arg),
                is_static(row, arg.name()),
                writes(arg),
                arg.is_out(),
                factor,
                copied,
                tt_tag_of_int(row, arg.name().c_str())};
    if (!one.out) plan->row_args++;
    plan->writes_lists |= one.write && one.kind == ArgKind::TensorList;
    if (one.kind == ArgKind::TensorList && arg.name() == "indices")
      plan->indices = static_cast<int>(plan->args.size());
    plan->args.push_back(one);
  }
  plan->writes_lists &= !plan->args.empty() && plan->args[0].kind == ArgKind::TensorList;
  for (const auto& ret : schema.returns()) {
    int alias = -1;
    for (size_t i = 0; ret.alias_info() && i < schema.arguments().size(); i++) {
      const auto* info = schema.arguments()[i].alias_info();
      if (info && info->isWrite() && info->beforeSets() == ret.alias_info()->beforeSets())
        alias = static_cast<int>(i);
    }
    auto kind = ret.real_type()->kind();
    bool number = kind != c10::TypeKind::ListType && kind != c10::TypeKind::TensorType;
    plan->returns.push_back({alias, kind == c10::TypeKind::ListType, number});
    plan->returns_one = plan->returns.size() == 1 && alias < 0 && kind == c10::TypeKind::TensorType;
  }
  return plan;
}

namespace {

// What an out= form shares with the form that makes its result, which alone is told where and how.
std::string signature(const c10::FunctionSchema& schema) {
  static const std::set<std::string> options{"dtype", "layout", "device", "pin_memory"};
  bool makes = schema.argumentIndexWithName("pin_memory").has_value();
  std::ostringstream text;
  for (const auto& arg : schema.arguments())
    if (!arg.is_out() && !(makes && options.count(arg.name())))
      text << arg.real_type()->str() << ' ' << arg.name() << ',';
  return text.str();
}

bool composite_implicit(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

std::optional<c10::OperatorHandle> find_row(const tt_op_row* row) {
  std::string name = row->name, overload;
  if (auto dot = name.find('.'); dot != std::string::npos)
    overload = name.substr(dot + 1), name.resize(dot);
  return c10::Dispatcher::singleton().findSchema({"aten::" + name, overload});
}

}  // namespace

void return_aliases(const Plan& plan, torch::jit::Stack* stack) {
  auto args = torch::jit::last(*stack, plan.args.size()).vec();
  torch::jit::drop(*stack, args.size());
  for (const ReturnPlan& ret : plan.returns) stack->push_back(args[static_cast<size_t>(ret.alias)]);
}

std::vector<PlannedOverload> make_plans() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<PlannedOverload> plans;
  std::map<std::pair<std::string, std::string>, const tt_op_row*> by_signature;
  int count = 0;
  const tt_op_row* rows = tt_op_rows(&count);
  for (int i = 0; i < count; i++) {
    auto op = find_row(&rows[i]);
    if (!op || composite_implicit(*op)) continue;
    std::string name = op->schema().name().substr(6);
    by_signature[{name, signature(op->schema())}] = &rows[i];
    if (functional(op->schema()))
      plans.push_back({op->operator_name(), make_plan(op->schema(), &rows[i])});
  }
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    auto op = dispatcher.findSchema(name);
    if (!op || functional(op->schema()) || composite_implicit(*op)) continue;
    bool any_write = false;
    for (const auto& arg : op->schema().arguments()) any_write |= writes(arg);
    if (!any_write) continue;
    std::string base = name.name.substr(6);
    if (base.size() > 1 && base.back() == '_' && base[base.size() - 2] != '_') base.pop_back();
    for (const std::string& twin : {base, "_" + base, base + "_functional"}) {
      auto row = by_signature.find({twin, signature(op->schema())});
      if (row == by_signature.end()) continue;
      plans.push_back({name, make_plan(op->schema(), row->second)});
      plans.back().plan->functional = find_row(row->second);
      break;
    }
  }
  return plans;
}

}  // namespace tt
