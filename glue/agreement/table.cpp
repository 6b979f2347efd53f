#include "agreement/table.h"

#include <sstream>
#include <unordered_map>

namespace tt {
namespace {

#define KIND(name, what) constexpr const char* k##name = what;
#define ROW(kind, operators, argument, torch, reason)
#include "agreement/table.def"
#undef KIND
#undef ROW

const AgreementRow kRows[] = {
#define KIND(name, what)
#define ROW(kind, operators, argument, torch, reason)                                              \
  {#kind, k##kind, operators, argument, torch, reason},
#include "agreement/table.def"
#undef ROW
};

const Agree kKinds[] = {
#define ROW(kind, operators, argument, torch, reason) Agree::kind,
#include "agreement/table.def"
#undef KIND
#undef ROW
};

}  // namespace

Agreements agreements_of(std::string_view name) {
  static const auto* table = [] {
    auto* made = new std::unordered_map<std::string, Agreements>;
    for (size_t i = 0; i < std::size(kRows); i++) {
      std::istringstream operators(kRows[i].operators);
      Agreements known{uint32_t{1} << static_cast<int>(kKinds[i]), kRows[i].argument};
      for (std::string one; operators >> one;) (*made)[one].add(known);
    }
    return made;
  }();
  auto found = table->find(std::string(name));
  return found == table->end() ? Agreements{} : found->second;
}

c10::ArrayRef<AgreementRow> agreement_rows() { return kRows; }

}  // namespace tt
