#include "device/policy.h"

#include <ATen/Context.h>
#include <c10/util/thread_name.h>
#include <c10/util/ThreadLocalDebugInfo.h>

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
std::array<std::atomic<int>, kSettings> of_process{TT_MODE_FUSED};
thread_local const bool of_autograd = c10::getThreadName().rfind("pt_autograd", 0) == 0;
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

std::optional<int> chosen(Setting setting) {
  if (blocks.load(std::memory_order_relaxed) == 0) return std::nullopt;
  auto* info = static_cast<Block::Info*>(c10::ThreadLocalDebugInfo::get(kKind));
  for (; info; info = info->outer.get())
    if (!info->ended.load(std::memory_order_acquire) && info->choice[setting])
      return info->choice[setting];
  return std::nullopt;
}

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

int setting_now(Setting setting) {
  auto found = chosen(setting);
  return found ? *found : of_process[setting].load(std::memory_order_relaxed);
}

void set_for_process(Setting setting, int value) { of_process[setting] = value; }

Policy::Policy()
    : tt_policy{static_cast<tt_mode>(setting_now(kMode)),
                setting_now(kKnownOnly) != 0,
                of_autograd,
                at::globalContext().deterministicAlgorithms(),
                false,
                false,
                TT_REPEATS_WHOLE,
                nullptr} {}

tt_precision product_precision() {
  auto found = chosen(kPrecision);
  return found ? static_cast<tt_precision>(*found) : of_pytorch();
}

}  // namespace tt
