#include "device/graph.h"

#include "device/policy.h"
#include "dispatch/dispatch.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)  // from PyTorch 2.13 on
#include <ATen/core/GraphImplInterface.h>
#define TT_HAS_GRAPH_IMPL
#endif

#include <array>
#include <atomic>
#include <fstream>

namespace tt {

static std::array<std::atomic<Graph*>, TT_SESSION_DEVICES> current{};

Graph::~Graph() {
  if (stream_) abandon();
  tt_captured_destroy(captured_);
}

void Graph::begin(bool alone) {
  TORCH_CHECK(!stream_ && !ended_, "this graph was captured already; call reset() first");
  device_ = current_device();
  tt_stream* stream = stream_of(device_);
  set_captured_stream(device_, stream, alone);
  tt_status status = tt_capture_begin(stream, Policy());
  if (status) set_captured_stream(device_, nullptr);
  check(status);
  stream_ = stream;
  current[static_cast<size_t>(device_)] = this;
}

tt_stream* Graph::stop() {
  TORCH_CHECK(stream_, "this graph is not being captured");
  set_captured_stream(device_, nullptr);
  current[static_cast<size_t>(device_)] = nullptr;
  return std::exchange(stream_, nullptr);
}

void Graph::end(tt_repeats repeats, bool text_only, const std::string& options) {
  Policy policy;
  policy.repeats = repeats;
  policy.text_only = text_only;
  policy.options = options.c_str();
  check(tt_capture_end(stop(), policy, &captured_));
  ended_ = true;
}

void Graph::abandon() { tt_capture_abandon(stop()); }

std::vector<tt_philox_place> Graph::take_places() const {
  std::vector<tt_philox_place> places;
  for (int i = 0; i < tt_captured_generators(captured_); i++) {
    tt_draw draw = tt_captured_draw(captured_, i);
    auto kept = generators_.find(draw.generator);
    auto generator = kept == generators_.end() ? std::nullopt : std::optional(kept->second);
    places.push_back(reserve_philox(generator, device_, draw.blocks));
  }
  return places;
}

void Graph::replay() {
  TORCH_CHECK(ended_, "a graph is replayed after it was captured");
  launch(nullptr);
}

void Graph::replay_on(const tt_captured_storages& storages) { launch(&storages); }

void Graph::launch(const tt_captured_storages* on) {
  if (!captured_) return;  // it computes nothing
  tt_stream* stream = stream_of(device_);
  check(tt_captured_settle(captured_, stream, on, Policy(), call_site()));
  auto places = take_places();
  check(tt_captured_replay(captured_, stream, on, places.data(), Policy(), call_site()));
}

void Graph::each_storage(c10::function_ref<void(tt_storage*)> input,
                         c10::function_ref<void(tt_storage*)> output) const {
  for (int i = 0; captured_ && i < captured_->input_count; i++) input(captured_->inputs[i].storage);
  for (int i = 0; captured_ && i < captured_->output_count; i++)
    output(captured_->outputs[i].storage);
}

void Graph::adopt(tt_captured* captured, c10::DeviceIndex device) {
  reset();
  captured_ = captured;
  device_ = device;
  ended_ = true;
}

void Graph::reset() {
  if (stream_) abandon();
  tt_captured_destroy(std::exchange(captured_, nullptr));
  generators_.clear();
  ended_ = false;
}

std::vector<int> Graph::sizes() const {
  int steps = 0, inputs = 0, outputs = 0;
  if (captured_) tt_captured_sizes(captured_, &steps, &inputs, &outputs);
  return {steps, inputs, outputs};
}

void keep_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  const void* identity = identity_of(generator, device);
  Graph* graph = current[static_cast<size_t>(device)];
  if (identity && graph) graph->generators_.emplace(identity, generator_as_now(generator, device));
}

// -- torch.accelerator.Graph --

#ifdef TT_HAS_GRAPH_IMPL
struct GraphImpl final : at::GraphImplInterface {
  Graph graph;
  explicit GraphImpl(const at::GraphImplArgs&) {}
  void capture_begin(at::MempoolId_t, at::GraphCaptureMode) override { graph.begin(false); }
  void capture_end() override { graph.end(); }
  void instantiate() override {}
  void replay() override { graph.replay(); }
  void reset() override { graph.reset(); }
  at::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& path) override {
    std::ofstream file(path);
    auto sizes = graph.sizes();
    file << "operators " << sizes[0] << ", inputs " << sizes[1] << ", outputs " << sizes[2] << "\n";
    TORCH_CHECK(file, "cannot write '", path, "'");
  }
};
#endif

}  // namespace tt

#ifdef TT_HAS_GRAPH_IMPL
namespace at {
REGISTER_GRAPH_IMPL(TPU, tt::GraphImpl)
}  // namespace at
#endif
