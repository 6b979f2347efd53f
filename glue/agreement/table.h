// What the glue knows of single operators (table.def). Looked up by name when plans are made and
// kernels registered, never while an operator runs.
#pragma once

#include "dispatch/convert.h"

#include <string_view>

namespace tt {

enum class Agree : uint8_t {
#define KIND(name, what) name,
#define ROW(kind, operators, argument, torch, reason)
#include "agreement/table.def"
#undef KIND
#undef ROW
};

// All that is known of one operator.
struct Agreements {
  uint32_t kinds = 0;
  const char* argument = "";  // the one that they are about

  bool has(Agree kind) const { return kinds >> static_cast<int>(kind) & 1; }
  void add(const Agreements& more) {
    kinds |= more.kinds;
    if (*more.argument) argument = more.argument;
  }
};

// Of an operator's name as a row has it, without "aten::"; nothing for others.
Agreements agreements_of(std::string_view name);

struct AgreementRow {
  const char *kind, *what, *operators, *argument, *torch, *reason;  // as in table.def
};
c10::ArrayRef<AgreementRow> agreement_rows();

}  // namespace tt
