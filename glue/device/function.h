// A captured graph as a function of tensors: what torch.compile makes of a graph.
#pragma once

#include "device/graph.h"

struct tt_exported;

namespace tt {

// By what a function is chosen: equal for tensors that lie alike in storages that are held alike
// and are shared alike. Throws where one of them is not the device's, or is conjugate or negated.
std::string signature(const std::vector<at::Tensor>& args);

// One launch, or one for each of its layers, that serves all arguments of one signature. One thread
// at a time captures it; any thread may call it then.
class Function : Fixed {
 public:
  // Begins to capture, on this thread's current device and stream. The tensors that stand for the
  // arguments are only told of, and hold nothing.
  std::vector<at::Tensor> begin(const std::vector<at::Tensor>& args);
  // Ends it with what was computed of them. `text_only`: it is only to be described.
  void end(const std::vector<at::Tensor>& results, tt_repeats repeats, bool text_only,
           const std::string& options);
  void abandon() { graph_.abandon(); }
  // Arguments that were written are written; results are new tensors, but for those that are
  // arguments. Of a result that has a length only so many elements along a dim are shown; the rest,
  // which is padding, nobody sees.
  struct Length {
    size_t result;
    int dim;
    int64_t length;
  };
  std::vector<at::Tensor> call(const std::vector<at::Tensor>& args,
                               const std::vector<Length>& lengths);
  std::vector<int> sizes() const { return graph_.sizes(); }
  // Becomes the program of a file, on this thread's current device; its arguments are the program's
  // parameters. Whether it was loaded, not compiled.
  bool adopt(const tt_exported& file);

  // Where a storage comes from at each call: an argument, else a result, else it never changes.
  struct Origin {
    int argument = -1, result = -1;
    c10::Storage kept;
  };
  const tt_captured* captured() const { return graph_.held(); }  // nullptr: it computes nothing
  const std::vector<Origin>& inputs() const { return inputs_; }  // of what was captured
  const std::vector<Origin>& outputs() const { return outputs_; }

 private:
  struct Result {
    Origin origin;
    bool same = false;  // it is the argument itself
    at::Tensor like;    // where it has a storage that is always the same: itself
    tt_view view;
  };
  Origin origin_of(tt_storage* storage) const;
  std::vector<const Length*> lengths_of_made(const std::vector<Length>& lengths) const;

  Graph graph_;
  c10::DeviceIndex device_ = -1;
  std::vector<at::Tensor> stand_ins_;  // while it is captured
  std::vector<c10::Storage> made_;     // distinct storages of results
  std::vector<Origin> inputs_, outputs_;
  std::vector<Result> results_;
};

}  // namespace tt
