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

  void begin();    // on this thread's current device and stream
  void end();      // its program is compiled from now on
  void abandon();  // forgets what was recorded
  void replay();   // on this thread's current stream
  void reset();
  bool capturing() const { return stream_ != nullptr; }
  bool captured() const { return captured_ != nullptr; }
  // Its operators, inputs, and outputs.
  std::vector<int> sizes() const;

 private:
  friend void keep_generator(const std::optional<at::Generator>&, c10::DeviceIndex);
  tt_stream* stop();
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
