// Branches and loops in a captured graph.
#pragma once

#include "device/session.h"

#include <string>

namespace tt {

// Its bodies are captured one after the other, then it is recorded; all of it by one thread, within
// one capture of the current device.
class Region : Fixed {
 public:
  // Begins a body. What stands for its arguments is like these tensors, and holds nothing.
  std::vector<at::Tensor> begin(const std::vector<at::Tensor>& like);
  // Which of these, that were there before, it has written so far.
  std::vector<bool> wrote(const std::vector<at::Tensor>& tensors) const;
  // Ends it. Results are computed in it, each in a storage of its own.
  void end(const std::vector<at::Tensor>& results);
  void abandon();  // the body that was begun and has not ended, if there is one
  // The results: as those of the last body, for a scan's that are not carried `length` of each.
  std::vector<at::Tensor> record(int64_t kind, const std::string& name,
                                 const std::vector<at::Tensor>& operands, int64_t carried,
                                 int64_t length);

 private:
  void check_capture() const;

  c10::DeviceIndex device_ = -1;
  uint64_t capture_ = 0;
  bool open_ = false;
  std::vector<const tt_nested*> bodies_;  // which live as long as the capture
  std::vector<tt_view> views_;            // of the last body's results
};

}  // namespace tt
