// What is chosen for how operators run: by the process, and by `with` blocks for their own thread
// and for the autograd threads that work for it.
#pragma once

#include "device/session.h"

#include <memory>
#include <string>

namespace tt {

enum class HostFallback : int8_t { Warn, Silent, Error };

// What a block changes; nothing else. Blocks nest.
struct Choice {
  std::optional<tt_mode> mode;
  std::optional<tt_precision> precision;
  std::optional<HostFallback> host_fallback;
  std::optional<bool> known_only;  // nothing new is compiled
};

// A block of this thread: what it chose counts until leave().
class Block {
 public:
  explicit Block(const Choice& choice);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void leave();

 private:
  struct Info;
  std::shared_ptr<Info> info_;
  friend struct Chosen;
};

// What counts for this thread now.
tt_policy policy();
tt_mode eager_mode();
tt_precision product_precision();  // else what PyTorch's own settings ask for
HostFallback host_fallback();

// The process's own choice, which counts where no block says otherwise; precision -1: PyTorch's.
void set_eager_mode(int mode);
void set_product_precision(int precision);
void set_host_fallback(HostFallback fallback);

// "warn", "silent", "error", and back; throws ValueError for another name.
const char* name_of(HostFallback fallback);
HostFallback host_fallback_of(const std::string& name);

}  // namespace tt
