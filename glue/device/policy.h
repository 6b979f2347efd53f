// What is chosen for how operators run: by the process, and by `with` blocks for their own thread
// and for the autograd threads that work for it. The names of what is chosen are Python's
// (torch_tpu/tpu/modes.py).
#pragma once

#include "device/session.h"

#include <array>
#include <memory>
#include <torch/version.h>

namespace tt {

enum Setting { kMode, kPrecision, kHostFallback, kKnownOnly, kSpmdSafe, kWaits, kSettings };

// What a block changes; nothing else. Blocks nest.
using Choice = std::array<std::optional<int>, kSettings>;

// A block of this thread: what it chose counts until leave().
class Block : Fixed {
 public:
  explicit Block(const Choice& choice);
  void leave();

 private:
  struct Info;
  std::shared_ptr<Info> info_;
  friend std::optional<int> chosen(Setting setting);
};

// What counts for this thread now: what the innermost block that says anything says, else the
// process's own choice.
int setting_now(Setting setting);
void set_for_process(Setting setting, int value);

// What counts for this thread now, as the core wants it.
struct Policy : tt_policy {
  Policy();
  operator const tt_policy*() const { return this; }
};
tt_precision product_precision();  // where no block says it, what PyTorch's own settings ask for

}  // namespace tt
