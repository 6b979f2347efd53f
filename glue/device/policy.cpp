#include "device/policy.h"

#include <ATen/Context.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/version.h>

#include <atomic>

namespace tt {
namespace {

// PyTorch hands what is kept under such a name on to the threads that work for this one.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
constexpr std::string_view kName = "TORCH_TPU_POLICY";
constexpr c10::DebugInfoKind kKind(&kName);
#else
constexpr auto kKind = c10::DebugInfoKind::INFERENCE_CONTEXT;
#endif
constexpr int kAsPyTorch = -1;

std::atomic<int> default_mode{TT_MODE_STRICT}, default_precision{kAsPyTorch};
std::atomic<HostFallback> default_fallback{HostFallback::Warn};
std::atomic<int> blocks{0};  // that live: without any, no thread looks for one

tt_precision of_pytorch() {
  const at::Context& context = at::globalContext();
  try {
    switch (context.float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGH:
      return TT_PRECISION_HIGH;
    case at::Float32MatmulPrecision::MEDIUM:
      return TT_PRECISION_DEFAULT;
    default:
      break;
    }
  } catch (const c10::Error&) {
    // Another backend was told something by the newer settings, and then there is no one answer.
  }
  switch (context.float32Precision(at::Float32Backend::GENERIC, at::Float32Op::ALL)) {
  case at::Float32Precision::TF32:
    return TT_PRECISION_HIGH;
  case at::Float32Precision::BF16:
    return TT_PRECISION_DEFAULT;
  default:
    return TT_PRECISION_HIGHEST;
  }
}

}  // namespace

// Shared with threads that outlive the block, for which it has ended then, too.
struct Block::Info final : c10::DebugInfoBase, std::enable_shared_from_this<Block::Info> {
  explicit Info(const Choice& what) : choice(what) { blocks++; }
  ~Info() override { blocks--; }
  Choice choice;
  std::shared_ptr<Info> outer;
  std::atomic<bool> ended{false};
};

// What the innermost block that says anything says.
struct Chosen {
  template <class T> static std::optional<T> find(std::optional<T> Choice::* member) {
    if (blocks.load(std::memory_order_relaxed) == 0) return std::nullopt;
    auto* info = static_cast<Block::Info*>(c10::ThreadLocalDebugInfo::get(kKind));
    for (; info; info = info->outer.get())
      if (!info->ended.load(std::memory_order_acquire) && info->choice.*member)
        return info->choice.*member;
    return std::nullopt;
  }
};

Block::Block(const Choice& choice) : info_(std::make_shared<Info>(choice)) {
  if (auto* outer = static_cast<Info*>(c10::ThreadLocalDebugInfo::get(kKind)))
    info_->outer = outer->shared_from_this();
  c10::ThreadLocalDebugInfo::_push(kKind, info_);
}

void Block::leave() {
  if (!info_) return;
  info_->ended.store(true, std::memory_order_release);
  try {
    if (c10::ThreadLocalDebugInfo::_peek(kKind) == info_) c10::ThreadLocalDebugInfo::_pop(kKind);
  } catch (const c10::Error&) {
    // It does not end in its turn, or on another thread, and stays in the list as one that has.
  }
  info_.reset();
}

tt_mode eager_mode() {
  auto chosen = Chosen::find(&Choice::mode);
  return chosen ? *chosen : static_cast<tt_mode>(default_mode.load(std::memory_order_relaxed));
}

tt_policy policy() {
  tt_policy now{};
  now.mode = eager_mode();
  now.known_only = Chosen::find(&Choice::known_only).value_or(false);
  now.deterministic = at::globalContext().deterministicAlgorithms();
  return now;
}

tt_precision product_precision() {
  if (auto chosen = Chosen::find(&Choice::precision)) return *chosen;
  int own = default_precision.load(std::memory_order_relaxed);
  return own == kAsPyTorch ? of_pytorch() : static_cast<tt_precision>(own);
}

HostFallback host_fallback() {
  return Chosen::find(&Choice::host_fallback).value_or(default_fallback.load());
}

void set_eager_mode(int mode) {
  TORCH_CHECK_VALUE(mode >= TT_MODE_DEBUG && mode <= TT_MODE_FUSED, "eager mode ", mode,
                    " does not exist");
  default_mode = mode;
}

void set_product_precision(int value) {
  TORCH_CHECK_VALUE(value >= kAsPyTorch && value <= TT_PRECISION_HIGHEST,
                    "expected a precision from 0 to 2, or -1 for PyTorch's, but got ", value);
  default_precision = value;
}

void set_host_fallback(HostFallback fallback) { default_fallback = fallback; }

const char* name_of(HostFallback fallback) {
  static const char* const names[] = {"warn", "silent", "error"};
  return names[static_cast<int>(fallback)];
}

HostFallback host_fallback_of(const std::string& name) {
  for (auto one : {HostFallback::Warn, HostFallback::Silent, HostFallback::Error})
    if (name == name_of(one)) return one;
  TORCH_CHECK_VALUE(false, "host fallback is 'warn', 'silent', or 'error', not '", name, "'");
}

}  // namespace tt
