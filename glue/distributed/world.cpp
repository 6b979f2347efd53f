// Which processes the plugin spans.
#include "distributed/distributed.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

namespace tt {
namespace {

std::mutex lock;
auto& current = *new std::shared_ptr<World>;  // outlives what its store and carrier need to end

Ptr<Store> part_of(const Ptr<Store>& store, const char* prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

std::string device_key(int rank) { return "device/" + std::to_string(rank); }

}  // namespace

std::shared_ptr<World> the_world() {
  std::lock_guard<std::mutex> guard(lock);
  return current;
}

void leave_world() {
  std::lock_guard<std::mutex> guard(lock);
  current.reset();
}

void enter_world(Ptr<Store> store, int rank, int size, Milliseconds timeout, int visible) {
  auto entered = std::make_shared<World>(store, rank, size, timeout);
  std::lock_guard<std::mutex> guard(lock);
  current = entered;
  if (session()) return;
  // The plugin asks for as long as it is open, also when the group is gone.
  auto* board = new tt_board(board_of(part_of(store->clone(), "plugin")));
  offer_world({rank, size, visible, board}, [entered](tt_session* open) { entered->tell(open); });
}

World::World(Ptr<Store> store, int rank, int size, Milliseconds timeout)
    : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout) {
  tt_meeting_set_others(&tt_dist_launch);
}

World::~World() { tt_dist_destroy(captured_); }

// As soon as it is known, for others to find while this process does something else. Where it has
// several devices, the first collective's is the one.
void World::tell(tt_session* open) {
  if (!tt_client_spans(open->client) || open->device_count > 1) return;
  store_->set(device_key(rank_), std::to_string(tt_pjrt_device_id(open->devices[0]->raw)));
  told_ = true;
}

const std::vector<int64_t>& World::devices() {
  std::call_once(found_, [this] {
    tt_session* open = open_session();
    if (!tt_client_spans(open->client)) return;
    if (!told_) {
      int own = tt_pjrt_device_id(device_of(current_device())->raw);
      store_->set(device_key(rank_), std::to_string(own));
    }
    std::vector<int64_t> found;
    for (int rank = 0; rank < size_; rank++) found.push_back(ask(rank));
    devices_ = std::move(found);
  });
  return devices_;
}

int64_t World::ask(int rank) {
  try {
    store_->wait({device_key(rank)}, timeout_);
  } catch (const std::exception&) {
    TORCH_CHECK_WITH(DistBackendError, false, "rank ", rank, " has not opened its device within ",
                     timeout_.count() / 1000.0, " s, which its plugin shares with this rank's");
  }
  return std::stoll(store_->get_to_str(device_key(rank)));
}

void World::launch_captured() {
  std::call_once(enlisted_, [this] {
    std::vector<int64_t> ranks;
    for (int rank = 0; rank < size_; rank++) ranks.push_back(rank);
    carrier_ =
        std::make_shared<Carrier>(part_of(store_, "captured"), rank_, size_, timeout_,
                                  "of captured programs", ranks, std::vector<int64_t>(), nullptr);
    tt_transport transport = make_transport(carrier_, "all");
    const char* name = carrier_->members->name;
    check(tt_dist_create(name, rank_, size_, &transport, &captured_));
    check(tt_dist_enlist(captured_, number * TT_PARTY_KINDS + TT_PARTY_CAPTURED, devices_.data(),
                         size_, -1));
  });
}

}  // namespace tt
