// Captured graphs, as PyTorch sees them.
#pragma once

#include "device/session.h"

#include <map>
#include <optional>

namespace tt {

// A graph: what was recorded between begin and end, launched as one by replay. One thread at a time
// uses it; begin and end are called by the same thread.
class Graph : Fixed {
 public:
  ~Graph();

  // On this thread's current device and stream. alone: what other threads do is no part of it.
  void begin(bool alone);
  // Its program is compiled from now on, or those of what it is divided into; not if `text_only`.
  // With `options`, a text's first lines (pjrt/pjrt.h).
  void end(tt_repeats repeats = TT_REPEATS_WHOLE, bool text_only = false,
           const std::string& options = "");
  void abandon();  // forgets what was recorded
  void replay();   // on this thread's current stream
  // The same with other storages than those that it was captured with.
  void replay_on(const tt_captured_storages& storages);
  // Those that it was captured with: what it reads, and what it leaves.
  void each_storage(c10::function_ref<void(tt_storage*)> input,
                    c10::function_ref<void(tt_storage*)> output) const;
  // Takes what was captured elsewhere, or is nullptr.
  void adopt(tt_captured* captured, c10::DeviceIndex device);
  const tt_captured* held() const { return captured_; }
  void reset();
  bool capturing() const { return stream_ != nullptr; }
  bool captured() const { return captured_ != nullptr; }
  // Its operators, inputs, and outputs.
  std::vector<int> sizes() const;

 private:
  friend void keep_generator(const std::optional<at::Generator>&, c10::DeviceIndex);
  tt_stream* stop();
  void launch(const tt_captured_storages* on);
  std::vector<tt_philox_place> take_places() const;

  c10::DeviceIndex device_ = -1;
  tt_stream* stream_ = nullptr;  // while it is captured
  tt_captured* captured_ = nullptr;
  bool ended_ = false;
  std::map<const void*, at::Generator> generators_;  // by identity; others than the default one
};

// A random operator is captured: its generator must live as long as the graph.
void keep_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

}  // namespace tt
